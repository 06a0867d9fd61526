"""What the runs of a study show, as tables: worked out once, for figures, the report and commands."""

from bench.analyse.analysis import Analysis, analyse, read_analysis, write_analysis

__all__ = ["Analysis", "analyse", "read_analysis", "write_analysis"]
