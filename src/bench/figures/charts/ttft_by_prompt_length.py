"""Time to first token against prompt length."""

import altair as alt
import polars as pl

from bench.figures.conditions import lengths
from bench.figures.lengths import fitted, length_chart, swept
from bench.figures.registry import figure
from bench.figures.results import Results


@figure(
    "ttft-by-prompt-length",
    applies=lengths("prompt_fixed"),
    order=140,
    title="Time to first token against prompt length",
    question="What does a prompt token cost before the answer begins, and what costs the request that has none?",
    reading="Median TTFT of each run. The line is least squares: its slope is what a prompt token costs in prefill, its intercept "
    "what every request pays whatever its length, each ± half of its 95 % interval. Where a parabola fits better than "
    "chance would, it says by how much the points bend: attention grows with the square of the length, and a line through "
    "points that bend upwards tells too low an intercept.",
    by_axis=False,
)
def ttft_by_prompt_length(results: Results) -> alt.LayerChart:
    """Median TTFT over prompt length, a line a deployment.

    Args:
        results: `runs` with `prompt_fixed` (tokens), `ttft_p50_s` (s), `family` and `valid`.
    """
    runs = swept(results, "prompt_fixed").with_columns(milliseconds=pl.col("ttft_p50_s") * 1000)
    return length_chart(
        fitted(runs, "prompt_fixed", "milliseconds", "{intercept} ms + {slope} ms a token"),
        x=("prompt_fixed", "prompt length (tokens)"),
        y=("milliseconds", "TTFT, median (ms)"),
        legend="TTFT =",
    )
