"""Across runs: the summary table, what may be trusted, and where each deployment saturates."""

from bench.analysis.advice import Advice, advice
from bench.analysis.aggregate import aggregate, summary_frame, timeseries_frame
from bench.analysis.bands import BANDS, judge
from bench.analysis.bottleneck import Bottleneck, bottleneck
from bench.analysis.compare import METRICS, Comparison, beyond, compare, compare_with_baseline, regressions
from bench.analysis.economics import Prices, best_points, economics
from bench.analysis.knee import knees
from bench.analysis.predictions import Prediction, predictions
from bench.analysis.regions import regions
from bench.analysis.repeats import repeats
from bench.analysis.saturation import saturation
from bench.analysis.sizing import OperatingPoint, instances_for, sized
from bench.analysis.slo import goodput, operating_points
from bench.analysis.validity import verdict

__all__ = [
    "BANDS",
    "METRICS",
    "Advice",
    "Bottleneck",
    "Comparison",
    "OperatingPoint",
    "Prediction",
    "Prices",
    "advice",
    "aggregate",
    "best_points",
    "beyond",
    "bottleneck",
    "compare",
    "compare_with_baseline",
    "economics",
    "goodput",
    "instances_for",
    "judge",
    "knees",
    "operating_points",
    "predictions",
    "regions",
    "regressions",
    "repeats",
    "saturation",
    "sized",
    "summary_frame",
    "timeseries_frame",
    "verdict",
]
