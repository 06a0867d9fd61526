"""The figure of a search: what each run reached of its limits, over the load, and where the limit lies."""

from __future__ import annotations

import math
from pathlib import Path

import altair as alt
import polars as pl

from bench.figures.save import save_chart
from bench.figures.theme import AXIS_TITLES, HEIGHT, NEUTRAL, PALETTE, WIDTH, finish
from bench.search.observation import FAILED, GROWTH
from bench.search.placing import Aim
from bench.search.search import Found
from bench.search.words import answer_text

__all__ = ["draw"]

_Z = 1.96


def draw(found: Found, aim: Aim, stem: Path) -> Path:
    """Save the figure as `stem` with .svg, .png and .json; the path of the PNG."""
    rows = [
        {
            "load": each.load,
            "slo": key.removesuffix("_s").replace("_p", " P").upper(),
            "reached": math.exp(excess.value),
            "low": math.exp(max(-4.0, excess.value - _Z * excess.error)),
            "high": math.exp(min(4.0, excess.value + _Z * excess.error)),
        }
        for each in found.observations
        for key, excess in each.excesses.items()
        if key not in (FAILED, GROWTH)
    ]
    frame = pl.DataFrame(
        rows, schema={"load": pl.Float64, "slo": pl.String, "reached": pl.Float64, "low": pl.Float64, "high": pl.Float64}
    )
    axis = AXIS_TITLES["concurrency" if aim.held else "request_rate"]
    if aim.turns > 1:
        axis = axis.replace("request", "conversation")
    x = alt.X("load:Q", title=axis, scale=alt.Scale(type="log", nice=False, padding=12))
    scale = alt.Scale(type="log", domain=[0.1, 10], clamp=True)
    y = alt.Y(
        "reached:Q",
        title="percentile ÷ its limit (log)",
        scale=scale,
        axis=alt.Axis(format="%", values=[0.1, 0.2, 0.5, 1, 2, 5, 10]),
    )
    colour = alt.Color("slo:N", title="SLO", scale=alt.Scale(range=PALETTE))
    answer = found.answer
    loads = [each.load for each in found.observations] or [1.0]
    band = pl.DataFrame({"low": [answer.low or min(loads)], "high": [min(answer.high, max(loads))]})
    layers = [
        alt.Chart(band).mark_rect(color=NEUTRAL, opacity=0.2).encode(x=alt.X("low:Q", title=axis), x2="high:Q"),
        alt.Chart(pl.DataFrame({"reached": [1.0]})).mark_rule(color="#000000", strokeDash=[4, 3]).encode(y=y),
        alt.Chart(frame)
        .mark_rule(opacity=0.5)
        .encode(x=x, y=alt.Y("low:Q", scale=scale, title="percentile ÷ its limit (log)"), y2="high:Q", color=colour),
        alt.Chart(frame).mark_point(filled=True, size=45).encode(x=x, y=y, color=colour, shape=alt.Shape("slo:N", title="SLO")),
    ]
    spent = f"{len(found.looks)} runs, {found.seconds:.0f} s under load."
    reading = "Grey: where the limit lies. Lines: 95 % of each run."
    chart = alt.layer(*layers).properties(width=WIDTH, height=HEIGHT)
    whole = finish(chart, answer_text(answer, aim, whole=True), [spent, reading]).to_dict()
    return next(path for path in save_chart(whole, stem) if path.suffix == ".png")
