"""What streaming changes for the reader."""

import altair as alt
import polars as pl

from bench.figures.conditions import ALIKE, with_and_without_streaming
from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import PALETTE, nothing_to_show
from bench.words.charts import pairs_note, streaming_title

_KINDS = {True: "streaming", False: "whole answer"}
_PAIR = (*ALIKE, "session", "repeat")
_MEASURES = {"first": "until there is something to read", "e2e_p50_s": "until the answer is complete (E2E)"}


def _finding(results: Results) -> str | None:
    rows = _pairs(results.runs)
    if rows.height != 2 or rows["first"].is_null().any():
        return None
    first = dict(rows.select("answer", "first").rows())
    return streaming_title(first[_KINDS[True]], first[_KINDS[False]])


def _note(results: Results) -> str:
    alike = _alike(results.runs)
    pairs = alike.group_by(_PAIR).agg(pl.col("valid").all())
    return pairs_note(pairs.filter(~pl.col("valid")).height)


@figure(
    "streaming",
    applies=with_and_without_streaming,
    order=160,
    title="What streaming buys",
    question="How much sooner is there something to read, and what does it cost in the whole?",
    reading="Medians of runs of the same requests with and without streaming; of several repeats, their median. With it there "
    "is something to read at the first token (TTFT); without, when the answer is complete.",
    invalid="Left out, with their counterparts",
    by_axis=False,
    finding=_finding,
    shown=lambda results: _alike(results.runs),
    note=_note,
)
def streaming(results: Results) -> alt.FacetChart | alt.LayerChart:
    """Time to the first token and E2E latency of workloads that are alike but for streaming.

    Args:
        results: `runs` with `stream`, `ttft_p50_s`, `e2e_p50_s` (s), `prompt_fixed`, `output_fixed` (tokens), `level` and `valid`.
    """
    rows = _pairs(results.runs)
    if rows.is_empty():
        known = "whose runs are valid" if _alike(results.runs).height else "that are alike but for streaming"
        return nothing_to_show(f"no two workloads {known}")
    rows = rows.unpivot(
        on=list(_MEASURES), index=["deployment", "case", "answer"], variable_name="measure", value_name="seconds"
    ).with_columns(pl.col("measure").replace(_MEASURES))
    y = alt.Y("answer:N", title=None, sort=list(_KINDS.values()))
    room = 1.15 * max(rows["seconds"].drop_nulls(), default=1.0)  # for the number beside its bar
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
        tooltip=["case:N", "answer:N", alt.Tooltip("seconds:Q", format=".3f")],
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


def _alike(runs: pl.DataFrame) -> pl.DataFrame:
    """The runs that have a counterpart with or without streaming."""
    return runs.filter(pl.col("prompt_fixed").is_not_null()).filter(pl.col("stream").n_unique().over(_PAIR) == 2)


def _pairs(runs: pl.DataFrame) -> pl.DataFrame:
    """Medians of the pairs of which both runs are valid: `deployment`, `case`, `answer`, `first` and `e2e_p50_s` (s).

    `first` is the time until there is something to read.
    """
    both = _alike(runs).filter(pl.col("valid").all().over(_PAIR))
    at = (
        [pl.format(" at {}", pl.col("level").round(3).cast(pl.String).str.strip_suffix(".0"))]
        if both["level"].n_unique() > 1
        else []
    )
    return (
        both.with_columns(
            first=pl.when("stream").then("ttft_p50_s").otherwise("e2e_p50_s"),
            answer=pl.col("stream").replace_strict(_KINDS, return_dtype=pl.String),
            case=pl.concat_str(pl.format("{}: {} + {} tokens", "deployment", "prompt_fixed", "output_fixed"), *at),
        )
        .group_by("deployment", "case", "answer", maintain_order=True)
        .agg(pl.col("first", "e2e_p50_s").median())
    )
