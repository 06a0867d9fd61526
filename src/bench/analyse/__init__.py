"""What the runs of a study show, as tables: worked out once, for figures, the report and commands."""

from bench.analyse.analysis import FINDINGS, TABLES, Analysis, read_analysis, read_table, write_analysis
from bench.analyse.findings import CurveFindings, Findings

__all__ = [
    "FINDINGS",
    "TABLES",
    "Analysis",
    "CurveFindings",
    "Findings",
    "read_analysis",
    "read_table",
    "write_analysis",
]
