"""The figures and tables on one page that works offline."""

from bench.report.commit import commit_of
from bench.report.page import write_manifest, write_report

__all__ = ["commit_of", "write_manifest", "write_report"]
