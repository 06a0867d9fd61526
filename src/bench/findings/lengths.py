"""What a token of a prompt or an answer costs, and what streaming gains: found, said, drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from bench.axes import AXES
from bench.findings.tables import Tables
from bench.report.blocks import Answer
from bench.report.figure import alt, figure
from bench.report.theme import nothing_to_show, panel, points, series_colour, series_shape
from bench.runs.sentences import load_text
from bench.statistics.textbook import FEWEST_POINTS, student_t
from bench.workloads.workload import ALIKE

Kind = Literal["prompt", "output"]
# Of each length that may vary: its column, that of the other, and that of the latency that it sets (s).
SWEPT: dict[Kind, tuple[str, str, str]] = {
    "prompt": ("prompt_fixed", "output_fixed", "ttft_p50_s"),
    "output": ("output_fixed", "prompt_fixed", "e2e_p50_s"),
}
_SWEEP = ("deployment", "family", "axis", "level")


@dataclass(frozen=True)
class LengthCost:
    """What a token costs: the latency over one length, all else alike.

    Attributes:
        kind: which length varies. `prompt` sets TTFT, `output` E2E latency. workload: the family whose lengths vary.
        lengths: the shortest and the longest of the valid runs that have the latency (tokens), which are `measured` of all `runs`.
        slope, slope_half, r_squared: of the least-squares line (ms a token), with half of its 95 % interval (Student's t, n − 2);
            None below three lengths that were measured.
    """

    deployment: str
    workload: str
    axis: str
    level: float
    kind: Kind
    lengths: tuple[int, int] | None
    measured: int
    runs: int
    slope: float | None = None
    slope_half: float | None = None
    r_squared: float | None = None


@dataclass(frozen=True)
class StreamingGain:
    """The same requests with and without streaming: medians of the valid runs (s); None where no run has one.

    Attributes:
        first_s: until there is something to read, with streaming. streamed_s, whole_s: until the answer is complete, with and without.
        valid: how many of the `runs` are.
    """

    deployment: str
    axis: str
    level: float
    prompt: int
    output: int
    first_s: float | None
    streamed_s: float | None
    whole_s: float | None
    valid: int
    runs: int


def swept(runs: pl.DataFrame, kind: Kind) -> pl.DataFrame:
    """The runs of families in which this length alone is swept, over three values or more at one load."""
    x, other, _ = SWEPT[kind]
    several = pl.col(x).drop_nulls().n_unique().over(_SWEEP) >= FEWEST_POINTS
    return runs.filter(several & (pl.col(other).drop_nulls().n_unique().over("family") == 1))


def length_costs(runs: pl.DataFrame) -> list[LengthCost]:
    """What a token costs in each sweep of a length. Args: runs: summary rows."""
    found = []
    for kind, (x, _, y) in SWEPT.items():
        for (deployment, family, axis, level), group in swept(runs, kind).group_by(_SWEEP, maintain_order=True):
            known = group.filter("valid").drop_nulls([x, y])
            ends = (int(known[x].min()), int(known[x].max())) if known.height else None  # type: ignore[arg-type]
            line = _line(known[x], 1000 * known[y]) if known[x].n_unique() >= FEWEST_POINTS else ()
            found.append(
                LengthCost(str(deployment), str(family), str(axis), float(level), kind, ends, known.height, group.height, *line)
            )
    return found


def _line(x: pl.Series, y: pl.Series) -> tuple[float, float, float]:
    """The slope of the line through the points, half of its interval, and the share of the variance that it explains."""
    import numpy as np  # noqa: PLC0415 - a tenth of a second that few need

    (slope, intercept), covariance = np.polyfit(x.cast(pl.Float64), y, 1, cov=True)
    left, whole = float(((y - intercept - slope * x) ** 2).sum()), float(((y - y.mean()) ** 2).sum())
    return float(slope), student_t(len(x) - 2) * float(covariance[0, 0]) ** 0.5, 1 - left / whole if whole else 0.0


def streaming_gains(runs: pl.DataFrame) -> list[StreamingGain]:
    """What streaming changes for the reader, of workloads that are alike but for it, and of fixed lengths: those of a distribution need
    not be the same. Args: runs: summary rows.
    """
    fixed = runs.drop_nulls(["prompt_fixed", "output_fixed", "stream"])
    medians = fixed.filter(pl.col("stream").n_unique().over(ALIKE) == 2).group_by(ALIKE, maintain_order=True).agg(
        first_s=pl.col("ttft_p50_s").filter("valid", "stream").median(),
        streamed_s=pl.col("e2e_p50_s").filter("valid", "stream").median(),
        whole_s=pl.col("e2e_p50_s").filter(pl.col("valid") & ~pl.col("stream")).median(),
        valid=pl.col("valid").sum(),
        runs=pl.len(),
    )  # fmt: skip
    renamed = medians.rename({"prompt_fixed": "prompt", "output_fixed": "output"})
    return [StreamingGain(**row) for row in renamed.select(list(StreamingGain.__dataclass_fields__)).to_dicts()]


_LATENCY = {"prompt": "TTFT", "output": "E2E latency"}  # that the length of each kind sets


def answer(costs: Sequence[LengthCost], gains: Sequence[StreamingGain]) -> Answer:
    """How lengths set latency, and what streaming buys."""
    asked = ["How do prompt and output length set latency"] * bool(costs) + ["what does streaming buy"] * bool(gains)
    question = ", and ".join(asked) + "?"
    kinds = {each.kind for each in costs}
    named = len(kinds) < len(costs) or len(gains) > 1
    sure = {
        "± is half of a 95 % interval of a line through the runs.": any(each.slope for each in costs),
        "Streaming: medians of the valid runs of each kind.": any(each.first_s and each.whole_s for each in gains),
    }
    return Answer(
        name="lengths",
        question=question[0].upper() + question[1:],
        lines=(
            *(_named(f"{each.deployment} · {each.workload}", each, cost(each), named=named) for each in costs),
            *(_named(each.deployment, each, _gain(each), named=named) for each in gains),
        ),
        sure=tuple(text for text, applies in sure.items() if applies),
    )


def _named(name: str, each: LengthCost | StreamingGain, text: str, *, named: bool) -> str:
    at = f"{name}, {load_text(each.level, AXES[each.axis].unit)}"
    return f"{at}: {text[0].lower()}{text[1:]}" if named else text


def cost(found: LengthCost) -> str:
    """What a token adds to a latency, or why that is not known."""
    latency = _LATENCY[found.kind]
    if found.slope is None or found.slope_half is None or found.lengths is None:
        have = f"{found.measured} of {found.runs} runs are valid and have {latency}"
        return f"Cost per {found.kind} token: not known: {have}, and a line takes {FEWEST_POINTS} lengths."
    slope = with_half(found.slope, found.slope_half)
    if abs(found.slope) <= found.slope_half:
        return f"Cost per {found.kind} token: not significant ({slope} ms, an interval that includes 0)."
    low, high = found.lengths
    article, what = ("An", "answer") if found.kind == "output" else ("A", "prompt")
    mean = f"in the mean of {what}s of {low:,} to {high:,} tokens (R² {found.r_squared:.2f})"
    return f"{article} {found.kind} token adds {slope} ms to {latency}, {mean}."


def with_half(value: float, half: float) -> str:
    """A number with half of its interval, of which two digits count: `12.4 ± 8.8`."""
    exact = half <= 1e-9 * abs(value)  # but for the last digits of floating-point numbers
    digits = 3 if exact else max(0, 1 - math.floor(math.log10(half)))
    return f"{value:,.{digits}f} ± {half:,.{digits}f}".replace("-", "−")


def _gain(found: StreamingGain) -> str:
    case = f"({found.prompt:,} + {found.output:,} tokens)"
    if found.first_s is None or found.streamed_s is None or found.whole_s is None:
        return f"What streaming buys is not known: {found.valid} of {found.runs} runs are valid {case}."
    first = f"With streaming there is something to read after {found.first_s:.3g} s, without it after {found.whole_s:.3g} s"
    return f"{first} {case}; the whole answer takes {found.streamed_s:.3g} s with it."


_PANELS: tuple[tuple[Kind, str, str], ...] = (
    ("prompt", "milliseconds", "TTFT, median (ms)"),
    ("prompt", "highest", "TTFT, highest (ms)"),
    ("prompt", "rate", "prompt tokens/s (length ÷ median TTFT)"),
    ("output", "milliseconds", "E2E latency, median (ms)"),
    ("output", "speed", "decode speed of a request (tokens/s)"),
)


def _finding(results: Tables) -> str | None:
    costs = length_costs(results.runs)
    return cost(costs[0]).removesuffix(".") if len(costs) == 1 and costs[0].slope is not None else None


@figure(
    "latency-by-length",
    title="Latency against prompt and output length",
    question="What does a token of a prompt or an answer cost, and does an answer come more slowly as it grows?",
    reading="Points are runs, with their least-squares line: its slope is the mean cost of a token. Points off the line show that "
    "latency bends, as attention grows with the square of the length. Decode speed is 1 / TPOT: where it falls with length, each "
    "step reads a growing KV cache.",
    by_axis=False,
    finding=_finding,
    shown=lambda results: pl.concat([swept(results.runs, kind) for kind in SWEPT]),
)
def latency_by_length(results: Tables) -> alt.ConcatChart | alt.LayerChart:
    """TTFT and prompt tokens/s over prompt length, E2E latency and decode speed over output length: a point a run, a line a series."""
    panels = []
    for kind, column, title in _PANELS:
        x, _, latency = SWEPT[kind]
        runs = swept(results.runs, kind).with_columns(
            series=pl.format("{} · {}, at {}", "deployment", "family", "level"),
            milliseconds=1000 * pl.col(latency),
            speed=1 / pl.col("tpot_p50_s"),
            highest=1000 * pl.col("judged").list.eval(pl.element().struct.field("ttft")).list.max(),
            rate=pl.col(x) / pl.col(latency),
        )
        if (rows := runs.drop_nulls(column)).height:
            panels.append(_panel(results, rows, x, column, title))
    if not panels:
        return nothing_to_show("no run with such lengths")
    chart: alt.ConcatChart = alt.concat(*panels).resolve_scale(color="independent", shape="independent")
    return chart


def _panel(results: Tables, rows: pl.DataFrame, x: str, column: str, title: str) -> alt.LayerChart:
    below = alt.Legend(orient="bottom", columns=1, labelLimit=800) if rows["series"].n_unique() > 1 else None
    colour, shape = series_colour(results, rows, legend=below), series_shape(rows, legend=below)
    across = alt.X(f"{x}:Q", title=f"{x.partition('_')[0]} length (tokens)")
    up = alt.Y(f"{column}:Q", title=title, scale=alt.Scale(zero=True))
    base = alt.Chart(rows.select("deployment", "series", "valid", "run", x, column))
    fit = base.transform_filter("datum.valid").transform_regression(x, column, groupby=["series"])
    lines = fit.mark_line(strokeDash=[5, 4]).encode(x=across, y=up, color=colour)
    dots = points(base, up, across, colour, shape=shape, tooltip=["run:N", alt.Tooltip(column, format=".4g")])
    return panel([lines, dots], width=360)
