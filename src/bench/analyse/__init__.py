"""What the runs of a study show, as tables: worked out once, for figures, the report and commands."""

from bench.analyse.analysis import FINDINGS, TABLES, Analysis, read_analysis, write_analysis
from bench.analyse.findings import CurveFindings, Findings, Server, servers_of

__all__ = [
    "FINDINGS",
    "TABLES",
    "Analysis",
    "CurveFindings",
    "Findings",
    "Server",
    "read_analysis",
    "servers_of",
    "write_analysis",
]
