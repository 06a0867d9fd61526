"""Across runs: the summary table, what may be trusted, and where each deployment saturates."""

from bench.analysis.advice import Advice, advice
from bench.analysis.aggregate import aggregate, summary_frame, timeseries_frame
from bench.analysis.bands import BANDS, judge
from bench.analysis.bottleneck import Bottleneck, bottleneck
from bench.analysis.capacity import operating_points
from bench.analysis.compare import Comparison, compare, compare_with_baseline, with_replicas
from bench.analysis.economics import Prices, best_points, economics
from bench.analysis.gate import blind, needed, regressions, sight, unseen
from bench.analysis.knee import knees
from bench.analysis.power import Noise, sessions_for, visible
from bench.analysis.predictions import Prediction, predictions
from bench.analysis.regions import regions
from bench.analysis.repeats import repeats
from bench.analysis.saturation import saturation
from bench.analysis.sizing import OperatingPoint, instances_for, is_machine, sized
from bench.analysis.slo import goodput
from bench.analysis.validity import PARTS, invalid, verdict

__all__ = [
    "BANDS",
    "PARTS",
    "Advice",
    "Bottleneck",
    "Comparison",
    "Noise",
    "OperatingPoint",
    "Prediction",
    "Prices",
    "advice",
    "aggregate",
    "best_points",
    "blind",
    "bottleneck",
    "compare",
    "compare_with_baseline",
    "economics",
    "goodput",
    "instances_for",
    "invalid",
    "is_machine",
    "judge",
    "knees",
    "needed",
    "operating_points",
    "predictions",
    "regions",
    "regressions",
    "repeats",
    "saturation",
    "sessions_for",
    "sight",
    "sized",
    "summary_frame",
    "timeseries_frame",
    "unseen",
    "verdict",
    "visible",
    "with_replicas",
]
