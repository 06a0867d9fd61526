"""Throughput over the values of a numeric setting, with the forms that its runs do not reject: a panel a load."""

from __future__ import annotations

import math
from collections.abc import Sequence

import altair as alt
import numpy as np
import polars as pl

from bench.analysis.setting_curve import LoadCurve, SettingCurve
from bench.axes import AXES
from bench.figures.theme import HEIGHT, NEUTRAL
from bench.study.settings import setting_name
from bench.words.loads import load_text
from bench.words.setting_curve import FORMS

_PANELS = 3  # most loads that are drawn; convention: as many as panels of a setting stand in a row
_POINTS = 40  # of a line


def form_panels(curve: SettingCurve, unit: str) -> alt.HConcatChart | None:
    """The lowest load, the highest and one between; None where fewer than three values were compared at each.

    Args:
        unit: of the throughput, such as `output tokens/s`.
    """
    loads = [load for load in curve.loads if load.power and load.inverse]
    if not loads:
        return None
    places = sorted({round(i * (len(loads) - 1) / (_PANELS - 1)) for i in range(_PANELS)})
    return alt.hconcat(*(_panel(curve, loads[place], unit) for place in places))


def _panel(curve: SettingCurve, load: LoadCurve, unit: str) -> alt.LayerChart:
    points = pl.DataFrame(
        {"value": value, "throughput": each.value, "low": each.low, "high": each.high}
        for value, each in zip(load.values, load.throughput, strict=True)
    )
    fits = [name for name in FORMS if load.verdict in (name, "undecided")]
    lines = pl.DataFrame(
        [{"value": value, "throughput": at, "form": FORMS[name]} for name in fits for value, at in _line(load, name)],
        schema={"value": pl.Float64, "throughput": pl.Float64, "form": pl.String},
    )
    highest = max(each.high for each in load.throughput if each.high is not None)
    x = alt.X(
        "value:Q",
        title=setting_name(curve.setting),
        scale=alt.Scale(type="log", base=2, nice=False, domain=[0.9 * load.values[0], 1.1 * load.values[-1]]),
        axis=alt.Axis(values=list(load.values), format="~g"),
    )
    y = alt.Y("throughput:Q", title=unit, scale=alt.Scale(domain=[0, 1.05 * highest]))
    dash = alt.StrokeDash(
        "form:N",
        title=None,
        scale=alt.Scale(domain=list(FORMS.values()), range=[[1, 0], [5, 4]]),
        legend=alt.Legend(orient="bottom"),
    )
    tooltip = [alt.Tooltip("value:Q", title=setting_name(curve.setting)), alt.Tooltip("throughput:Q", format=".4g")]
    base = alt.Chart(points)
    return alt.LayerChart(
        layer=[
            alt.Chart(lines).mark_line(color=NEUTRAL).encode(x=x, y=y, strokeDash=dash),
            base.mark_rule(color="black").encode(x=x, y=alt.Y("low:Q", title=unit), y2="high:Q"),
            base.mark_point(filled=True, color="black", size=45, opacity=1).encode(x=x, y=y, tooltip=tooltip),
        ],
        title=f"at {load_text(load.level, AXES[curve.axis].unit)}{_rejected(load)}",
        width=300,
        height=HEIGHT * 0.7,
    )


def _rejected(load: LoadCurve) -> str:
    """What a panel's title says where its lines are not one."""
    return {"undecided": ": not decided", "neither": ": neither form"}.get(load.verdict, "")


def _line(load: LoadCurve, form: str) -> Sequence[tuple[float, float]]:
    """Points of a fitted form: value, throughput."""
    fitted = load.power if form == "power" else load.inverse
    assert fitted is not None
    at, shape, least = fitted.at, fitted.shape.value, load.values[0]
    values = np.geomspace(least, load.values[-1], _POINTS).tolist()
    if form == "power":
        return [(value, at * math.pow(value / least, shape)) for value in values]
    return [(value, at / (shape + (1 - shape) * least / value)) for value in values]
