"""Across runs: the summary table, what may be trusted, and where each deployment saturates."""

from bench.analysis.aggregate import aggregate, summary_frame, timeseries_frame
from bench.analysis.compare import METRICS, Comparison, beyond, compare, compare_with_baseline, regressions
from bench.analysis.regions import regions
from bench.analysis.repeats import repeats
from bench.analysis.saturation import saturation
from bench.analysis.validity import verdict

__all__ = [
    "METRICS",
    "Comparison",
    "aggregate",
    "beyond",
    "compare",
    "compare_with_baseline",
    "regions",
    "regressions",
    "repeats",
    "saturation",
    "summary_frame",
    "timeseries_frame",
    "verdict",
]
