"""What streaming changes for the reader."""

import altair as alt
import polars as pl

from bench.figures.conditions import ALIKE, with_and_without_streaming
from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import PALETTE, nothing_to_show

_KINDS = {True: "streaming", False: "whole answer"}
_MEASURES = {"first": "until there is something to read", "e2e_p50_s": "until the answer is complete (E2E)"}


@figure(
    "streaming",
    applies=with_and_without_streaming,
    order=160,
    title="What streaming buys",
    question="How much sooner is there something to read, and what does it cost in the whole?",
    reading="Medians of each run, the same requests with and without streaming. With it there is something to read at the first "
    "token (TTFT); without, when the answer is complete.",
    invalid="Left out, with its counterpart",
    by_axis=False,
)
def streaming(results: Results) -> alt.FacetChart | alt.LayerChart:
    """Time to the first token and E2E latency of workloads that are alike but for streaming.

    Args:
        results: `runs` with `stream`, `ttft_p50_s`, `e2e_p50_s` (s), `prompt_fixed`, `output_fixed` (tokens), `level` and `valid`.
    """
    paired = pl.col("stream").n_unique().over(ALIKE) == 2
    alone = results.runs.filter(pl.col("prompt_fixed").is_not_null())
    # Half of a pair is no comparison.
    runs = alone.filter("valid").filter(paired).with_columns(first=pl.when("stream").then("ttft_p50_s").otherwise("e2e_p50_s"))
    if runs.is_empty():
        known = "whose runs are valid" if alone.filter(paired).height else "that are alike but for streaming"
        return nothing_to_show(f"no two workloads {known}")
    rows = (
        runs.unpivot(on=list(_MEASURES), index=["run", "stream", *ALIKE], variable_name="measure", value_name="seconds")
        .drop_nulls("seconds")
        .with_columns(
            pl.col("measure").replace(_MEASURES),
            answer=pl.col("stream").replace_strict(_KINDS, return_dtype=pl.String),
            case=pl.format("{}: {} + {} tokens", "deployment", "prompt_fixed", "output_fixed"),
        )
    )
    y = alt.Y("answer:N", title=None, sort=list(_KINDS.values()))
    room = 1.15 * max(rows["seconds"], default=1.0)  # for the number beside its bar
    scale = alt.Scale(domain=[0, room], nice=False)
    x = alt.X("seconds:Q", title="time since the request was sent (s)", scale=scale, axis=alt.Axis(tickCount=6))
    base = alt.Chart()
    bars = base.mark_bar(height=18).encode(
        x=x,
        y=y,
        color=alt.Color(
            "answer:N",
            legend=None,
            sort=list(_KINDS.values()),
            scale=alt.Scale(domain=list(_KINDS.values()), range=PALETTE[:2]),
        ),
        tooltip=["run:N", alt.Tooltip("seconds:Q", format=".3f")],
    )
    text = base.mark_text(align="left", dx=4).encode(x=x, y=y, text=alt.Text("seconds:Q", format=".3f"))
    chart: alt.FacetChart = (
        alt.layer(bars, text, data=rows)
        .properties(width=360, height=alt.Step(30))
        .facet(
            row=alt.Row("case:N", title=None, header=alt.Header(labelAngle=0, labelAlign="left")),
            column=alt.Column("measure:N", title=None, sort=list(_MEASURES.values())),
        )
    )
    return chart
