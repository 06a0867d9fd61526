"""What the runs of a study show, as tables: worked out once, for figures, the report and commands."""

from bench.analyse.analysis import (
    Analysis,
    analyse,
    causes_of,
    findings_of,
    read_analysis,
    write_analysis,
    write_causes,
    write_findings,
    write_tables,
)
from bench.analyse.findings import CurveFindings, Findings, Server, servers_of

__all__ = [
    "Analysis",
    "CurveFindings",
    "Findings",
    "Server",
    "analyse",
    "causes_of",
    "findings_of",
    "read_analysis",
    "servers_of",
    "write_analysis",
    "write_causes",
    "write_findings",
    "write_tables",
]
