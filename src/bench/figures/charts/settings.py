"""What another value of a setting brings in throughput, load by load."""

from __future__ import annotations

import altair as alt
import polars as pl

from bench.analysis.setting_gain import SettingGain, setting_gains
from bench.figures.registry import figure
from bench.figures.tables import Tables
from bench.figures.theme import NEUTRAL, level_axis, nothing_to_show, panels_a_row, series_colour, series_shape
from bench.servers.settings import setting_name
from bench.words.setting_gain import name


@figure(
    "settings",
    title="What a setting changes",
    question="What does another value of a setting bring in throughput, and does the gain hold as load rises?",
    reading="A panel a setting: output tokens/s over those with the first value at the same load, by pairs of valid runs, with 95 % "
    "intervals. Of n times as many devices the efficiency, the ratio over n: at 100 % (dashed) another device would buy all of itself.",
    invalid="Left out, with their counterparts",
)
def settings(results: Tables) -> alt.TopLevelMixin:
    """A panel a setting: a point with its range a value and load.

    Args:
        results: `runs` as `setting_gains` takes them.
    """
    panels: dict[str, list[SettingGain]] = {}
    for gain in setting_gains(results.runs):
        if gain.loads:
            panels.setdefault("devices" if gain.times else setting_name(gain.setting), []).append(gain)
    if not panels:
        return nothing_to_show("no model has valid runs of one closed load with different values of a setting")
    drawn = [_panel(results, title, gains) for title, gains in panels.items()]
    whole: alt.ConcatChart = alt.concat(*drawn, columns=panels_a_row(len(drawn))).resolve_scale(
        color="independent", shape="independent"
    )
    return whole


def _panel(results: Tables, title: str, gains: list[SettingGain]) -> alt.LayerChart:
    rows = pl.DataFrame(
        {
            "deployment": gain.deployments[1],
            "series": name(gain),
            "level": load.level,
            **{key: value and value / (gain.times or 1.0) for key, value in zip(("ratio", "low", "high"), ends, strict=True)},
        }
        for gain in gains
        for load in gain.loads
        for ends in [(load.ratio.value, load.ratio.low, load.ratio.high)]
    )
    x = level_axis(results)
    what = "efficiency" if title == "devices" else "throughput ÷ that with the first value"
    top = 2 * float(max(*rows["ratio"], 1.0))  # beyond which a range says nothing
    y = alt.Y(
        "ratio:Q", title=what, axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, min(top, _highest(rows))], nice=False)
    )
    colour, shape = series_colour(results, rows, title=None), series_shape(rows, title=None)
    base = alt.Chart(rows)
    tooltip = ["series:N", "level:Q", *(alt.Tooltip(f"{key}:Q", format=".0%") for key in ("ratio", "low", "high"))]
    layers = [
        alt.Chart(pl.DataFrame({"ratio": [1.0]})).mark_rule(strokeDash=[5, 4], color=NEUTRAL).encode(y=y),
        base.mark_rule(clip=True).encode(x=x, y=alt.Y("low:Q", title=what), y2="high:Q", color=colour),
        base.mark_point(filled=True, size=60, opacity=1).encode(x=x, y=y, color=colour, shape=shape, tooltip=tooltip),
    ]
    return alt.LayerChart(layer=layers, title=title, width=300)


def _highest(rows: pl.DataFrame) -> float:
    return 1.05 * float(max(1.0, *rows["ratio"], *rows["high"].drop_nulls()))
