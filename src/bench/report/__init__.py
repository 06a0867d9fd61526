"""The figures and tables on one page that works offline."""

from bench.report.page import write_manifest, write_report

__all__ = ["write_manifest", "write_report"]
