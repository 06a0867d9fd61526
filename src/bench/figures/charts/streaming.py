"""What streaming changes for the reader."""

import altair as alt
import polars as pl

from bench.analysis import streamed_both_ways, streaming_gains
from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import NEUTRAL, marked, nothing_to_show
from bench.study.questions import with_and_without_streaming
from bench.words.charts import pairs_note
from bench.words.token_costs import gain_title

_KINDS = {True: "streaming", False: "whole answer"}
_MEASURES = {"first": "until there is something to read", "e2e_p50_s": "until the answer is complete (E2E)"}


def _finding(results: Results) -> str | None:
    gains = streaming_gains(results.runs)
    return gain_title(gains[0]) if len(gains) == 1 else None


def _note(results: Results) -> str:
    return pairs_note(sum(gain.left_out for gain in streaming_gains(results.runs)))


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
    shown=lambda results: streamed_both_ways(results.runs),
    note=_note,
)
def streaming(results: Results) -> alt.FacetChart | alt.LayerChart:
    """Time to the first token and E2E latency of workloads that are alike but for streaming.

    Args:
        results: `runs` with `stream`, `ttft_p50_s`, `e2e_p50_s` (s), `prompt_fixed`, `output_fixed` (tokens), `level` and `valid`.
    """
    rows = _pairs(results.runs)
    if rows.is_empty():
        known = "whose runs are valid" if streamed_both_ways(results.runs).height else "that are alike but for streaming"
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
        color=marked(alt.Color, "answer:N", dict(zip(_KINDS.values(), ("#444444", NEUTRAL), strict=True)), legend=None),
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


def _pairs(runs: pl.DataFrame) -> pl.DataFrame:
    """The medians of `streaming_gains`, a row a kind of answer: `deployment`, `case`, `answer`, `first` and `e2e_p50_s` (s).

    `first` is the time until there is something to read.
    """
    gains = [gain for gain in streaming_gains(runs) if gain.pairs]
    several = len({gain.level for gain in gains}) > 1
    named = [(gain.deployment, gain.level, gain.prompt, gain.output) for gain in gains]
    rows = []
    for gain, name in zip(gains, named, strict=True):
        case = f"{gain.deployment}: {gain.prompt} + {gain.output} tokens" + (f" at {gain.level:.6g}" if several else "")
        case += f" ({gain.workload})" if named.count(name) > 1 else ""
        for streams, first, complete in ((True, gain.first_s, gain.streamed_s), (False, gain.whole_s, gain.whole_s)):
            rows.append((gain.deployment, case, _KINDS[streams], first, complete))
    schema = {**dict.fromkeys(("deployment", "case", "answer"), pl.String), **dict.fromkeys(("first", "e2e_p50_s"), pl.Float64)}
    return pl.DataFrame(rows, schema=schema, orient="row")
