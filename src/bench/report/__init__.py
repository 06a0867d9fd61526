"""The figures and tables on one page that works offline, and what a workflow says at its end."""

from bench.report.closing import closing_words
from bench.report.page import write_manifest, write_report

__all__ = ["closing_words", "write_manifest", "write_report"]
