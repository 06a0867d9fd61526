"""Across runs: what may be trusted, where each deployment saturates, and what it sustains. Numbers and typed evidence, as codes."""

from bench.analysis.accuracy import Graded, graded, left_out
from bench.analysis.advice import Advice, advice
from bench.analysis.bottleneck import bottleneck
from bench.analysis.capacity import operating_points
from bench.analysis.compare import Comparison, compare, compare_with_baseline
from bench.analysis.economics import Prices, best_points, economics
from bench.analysis.evidence import Bottleneck
from bench.analysis.factors import decided
from bench.analysis.gate import blind, needed, regressions, sight, unseen
from bench.analysis.knee import knees
from bench.analysis.lengths import length_costs, streamed_both_ways, streaming_gains
from bench.analysis.power import Noise, sessions_for, visible
from bench.analysis.regions import regions
from bench.analysis.repeats import repeats
from bench.analysis.saturation import saturation
from bench.analysis.sizing import Limits, OperatingPoint, is_machine, limits, sized
from bench.analysis.validity import verdict

__all__ = [
    "Advice",
    "Bottleneck",
    "Comparison",
    "Graded",
    "Limits",
    "Noise",
    "OperatingPoint",
    "Prices",
    "advice",
    "best_points",
    "blind",
    "bottleneck",
    "compare",
    "compare_with_baseline",
    "decided",
    "economics",
    "graded",
    "is_machine",
    "knees",
    "left_out",
    "length_costs",
    "limits",
    "needed",
    "operating_points",
    "regions",
    "regressions",
    "repeats",
    "saturation",
    "sessions_for",
    "sight",
    "sized",
    "streamed_both_ways",
    "streaming_gains",
    "unseen",
    "verdict",
    "visible",
]
