"""The figure of a search: what each run reached of its limits, over the load, and where the limit lies."""

from __future__ import annotations

import math
from pathlib import Path

import polars as pl

from bench.axes import AXES, CONCURRENCY, RATE
from bench.report.figure import alt
from bench.report.save import save_chart
from bench.report.theme import NEUTRAL, PALETTE, finish, layered, marked, nothing_to_show, shapes
from bench.search.placing import Aim
from bench.search.search import Found
from bench.search.words import answer_text, criterion_text, nothing_text, took_text
from bench.statistics.observation import FAILED, GROWTH
from bench.statistics.textbook import Z

_CLOSEST = 0.05  # lowest value that is drawn, as a share of the limit; convention
_FARTHEST = 20.0  # highest value that is drawn, as a multiple of the limit; convention
_TITLE = "percentile ÷ its limit (log)"


def draw(found: Found, aim: Aim, stem: Path) -> Path:
    """Save the figure as `stem` with .svg, .png and .json; the path of the PNG."""
    rows = _rows(found)
    spent = f"{took_text(found)}."
    reading = "Grey: where the limit lies. Lines: 95 % of each run."
    if rows.is_empty():
        chart: alt.LayerChart = nothing_to_show(nothing_text(found))
        notes = [spent]
    else:
        chart, notes = _chart(rows, found, aim), [spent, reading]
    whole = finish(chart, answer_text(found.answer, aim, whole=True), notes).to_dict()
    return next(path for path in save_chart(whole, stem) if path.suffix == ".png")


def _rows(found: Found) -> pl.DataFrame:
    """What each run reached of each limit, with its 95 % interval."""
    rows = [
        (
            each.load,
            criterion_text(key),
            *(_readable(math.exp(excess.value + side * Z * excess.error)) for side in (0, -1, 1)),
        )
        for each in found.observations
        for key, excess in each.excesses.items()
        if key not in (FAILED, GROWTH)
    ]
    schema = {"load": pl.Float64, "slo": pl.String, **dict.fromkeys(("reached", "low", "high"), pl.Float64)}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _readable(reached: float) -> float:
    return min(_FARTHEST, max(_CLOSEST, reached))


def _chart(rows: pl.DataFrame, found: Found, aim: Aim) -> alt.LayerChart:
    axis = AXES[CONCURRENCY if aim.held else RATE].title
    if aim.turns > 1:
        axis = axis.replace("request", "conversation")
    least, most = float(rows["load"].min()), float(rows["load"].max())  # type: ignore[arg-type]
    ends = [0.95 * least, 1.05 * most]
    # From the lowest to the highest, and the limit: a frame that is wider is half empty.
    low, high = 0.9 * min(0.9, *rows["low"]), 1.1 * max(1.1, *rows["high"])
    across = alt.Scale(type="log", domain=ends, nice=False)
    x = alt.X("load:Q", title=axis, scale=across, axis=alt.Axis(format="~g"))
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    y = alt.Y("reached:Q", title=_TITLE, scale=scale, axis=alt.Axis(format="~%"))
    names = rows["slo"].unique(maintain_order=True).to_list()
    legend = alt.Legend(symbolFillColor=PALETTE[0], symbolStrokeColor=PALETTE[0]) if len(names) > 1 else None
    shape = marked(alt.Shape, "slo:N", shapes(names), title="SLO", legend=legend)
    colour = alt.ColorValue(PALETTE[0])  # of the one server
    answer = found.answer
    band = pl.DataFrame({"low": [max(answer.low, ends[0])], "high": [min(answer.high, ends[1])]})
    return layered(
        alt.Chart(band).mark_rect(color=NEUTRAL, opacity=0.2).encode(x=alt.X("low:Q", title=axis, scale=across), x2="high:Q"),
        alt.Chart(pl.DataFrame({"reached": [1.0]})).mark_rule(color="#000000", strokeDash=[5, 4]).encode(y=y),
        alt.Chart(rows)
        .mark_rule(opacity=0.5)
        .encode(x=x, y=alt.Y("low:Q", scale=scale, title=_TITLE), y2="high:Q", color=colour),
        alt.Chart(rows).mark_point(filled=True, size=60, opacity=1).encode(x=x, y=y, color=colour, shape=shape),
    )
