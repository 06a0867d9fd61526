"""Time to first token against prompt length."""

import altair as alt

from bench.figures.lengths import fitted, length_chart, length_title, swept
from bench.figures.registry import figure
from bench.figures.results import Results
from bench.study.questions import lengths


@figure(
    "ttft-by-prompt-length",
    applies=lengths("prompt_fixed"),
    order=140,
    title="Time to first token against prompt length",
    question="What does a prompt token cost before the answer begins, and what does every request pay?",
    reading="Median TTFT of each run, and the least-squares fit named below it, each number ± half of its 95 % interval. Of a line, "
    "the slope is what a prompt token costs in prefill, the intercept what every request pays whatever its length. A parabola is drawn "
    "where its quadratic term is significant, as attention grows with the square of the length; a line through such points "
    "would have too low an intercept, even a negative one.",
    by_axis=False,
    finding=lambda results: length_title(swept(results, "prompt"), "prompt"),
    shown=lambda results: swept(results, "prompt"),
)
def ttft_by_prompt_length(results: Results) -> alt.LayerChart:
    """Median TTFT over prompt length, a fit a deployment.

    Args:
        results: `runs` with `prompt_fixed` (tokens), `ttft_p50_s` (s), `family` and `valid`.
    """
    return length_chart(
        results,
        fitted(swept(results, "prompt"), "prompt"),
        x=("prompt_fixed", "prompt length (tokens)"),
        y=("milliseconds", "TTFT, median (ms)"),
        legend="TTFT =",
    )
