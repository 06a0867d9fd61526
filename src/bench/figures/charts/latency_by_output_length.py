"""End-to-end latency and decode speed against output length."""

import altair as alt
import polars as pl

from bench.figures.lengths import fitted, length_chart, length_title, swept
from bench.figures.registry import figure
from bench.figures.results import Results
from bench.study.questions import lengths


@figure(
    "latency-by-output-length",
    applies=lengths("output_fixed"),
    order=150,
    title="Latency and speed against output length",
    question="How long does an answer take, and does it come more slowly as it grows?",
    reading="Left, E2E latency with the least-squares fit named below it, each number ± half of its 95 % interval: the slope of a line "
    "is what an output token costs; a parabola is drawn where its quadratic term is significant. Right, 1 / TPOT, the speed at "
    "which the tokens after the first one come: where it falls with length, each step reads a KV cache that grows.",
    by_axis=False,
    finding=lambda results: length_title(swept(results, "output"), "output"),
    shown=lambda results: swept(results, "output"),
)
def latency_by_output_length(results: Results) -> alt.HConcatChart:
    """Median E2E latency, and output tokens a second after the first, over output length.

    Args:
        results: `runs` with `output_fixed` (tokens), `e2e_p50_s`, `tpot_p50_s` (s), `family` and `valid`.
    """
    runs = swept(results, "output").with_columns(speed=1 / pl.col("tpot_p50_s"))
    x = ("output_fixed", "output length (tokens)")
    latency = length_chart(
        results,
        fitted(runs, "output"),
        x=x,
        y=("milliseconds", "E2E latency, median (ms)"),
        legend="E2E =",
    )
    speed = length_chart(
        results,
        runs.drop_nulls("speed").with_columns(fit=pl.lit(None, dtype=pl.Float64)),
        x=x,
        y=("speed", "decode speed of a request (tokens/s)"),
        legend=None,
    )
    chart: alt.HConcatChart = alt.HConcatChart(hconcat=[latency, speed]).resolve_scale(color="independent", shape="independent")
    return chart
