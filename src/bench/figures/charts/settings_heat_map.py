"""Throughput with each combination of two settings."""

import math

import altair as alt
import polars as pl

from bench.analysis.setting_grid import SettingGrid, setting_grids
from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import PALETTE, nothing_to_show, panels_a_row
from bench.study.questions import two_settings
from bench.study.settings import setting_name, with_others
from bench.words.charts import cell_interval, cell_text, undrawn_note

_MOST_PANELS = 6  # panels at most; convention: what a page holds
_CELL = 96  # pixels of a cell: wide enough for an interval
_MORE, _LESS = PALETTE[0], PALETTE[2]  # which any eye tells apart
_DARK = 0.6  # share of the scale from which a cell's colour is dark enough for white letters; convention
_SHOWN = 1.25  # ratio beyond which, either way, a difference is drawn in full colour at the least; convention


@figure(
    "settings-heat-map",
    applies=two_settings,
    order=115,
    title="Two settings together",
    question="Which combination gives more throughput, and does the gain of one setting depend on the other?",
    reading="Output tokens/s against those of the outlined combination: the geometric mean over the loads that both have, with its "
    "interval below. All intervals of a panel hold together at 95 %. Grey: no difference is established, whatever the number says. "
    "Blue: more, orange: less. White: not measured, or no valid pair of runs.",
    invalid="Left out, with their counterparts",
)
def settings_heat_map(results: Results) -> alt.TopLevelMixin:
    """A panel a pair of settings: a cell a combination, with its throughput ÷ that of the first.

    Args:
        results: `runs` as `bench.analysis.setting_grid.setting_grids` takes them.
    """
    grids = setting_grids(results.runs)
    if not grids:
        return nothing_to_show("no two settings have valid runs of one load with several values of each")
    drawn = sorted(grids, key=lambda grid: -grid.cells.height)[:_MOST_PANELS]
    left_out, grids = len(grids) - len(drawn), drawn
    ratios = [ratio for grid in grids for ratio in grid.cells["ratio"].drop_nulls()]
    widest = max([_SHOWN, *ratios, *(1 / ratio for ratio in ratios)])
    panels = [_panel(grid, grids, widest) for grid in grids]
    if len(panels) == 1:
        return panels[0]
    page = alt.concat(*panels, columns=panels_a_row(len(panels)))
    if left_out:
        page.title = alt.TitleParams("", subtitle=undrawn_note(left_out), anchor="start")
    return page


def _panel(grid: SettingGrid, grids: list[SettingGrid], widest: float) -> alt.LayerChart:
    columns, rows = grid.values
    across, down = (with_others(setting_name(name), others) for name, others in zip(grid.settings, grid.others, strict=True))
    x = alt.X("one:N", title=across, sort=list(columns), axis=alt.Axis(labelAngle=0), scale=alt.Scale(domain=list(columns)))
    y = alt.Y("other:N", title=down, sort=list(rows), scale=alt.Scale(domain=list(rows)))
    cells = grid.cells.drop_nulls("ratio")
    texts = [cell_text(ratio, verdict) for ratio, verdict in cells.select("ratio", "verdict").iter_rows()]
    intervals = [cell_interval(*ends) for ends in cells.select("low", "high", "verdict").iter_rows()]
    shown = cells.with_columns(
        log=pl.col("ratio").log(),
        established=pl.col("verdict").is_in(["better", "worse"]),
        first=pl.col("verdict") == "first",
        text=pl.Series(texts, dtype=pl.String),
        interval=pl.Series(intervals, dtype=pl.String),
    )
    base = alt.Chart(shown).encode(x=x, y=y)
    end = math.log(widest)
    scale = alt.Scale(domain=[-end, 0, end], range=[_LESS, "#ffffff", _MORE])
    colour = alt.condition("datum.established", alt.Color("log:Q", scale=scale, legend=None), alt.value("#dddddd"))
    strong = alt.expr("datum.established || datum.first ? 'bold' : 'normal'")
    ink = alt.expr(f"datum.established && abs(datum.log) > {_DARK * end:.4f} ? 'white' : 'black'")
    tooltip = ["deployment:N", "text:N", "interval:N", alt.Tooltip("levels:Q", title="loads")]
    layers: list[alt.Chart] = [
        base.mark_rect().encode(color=colour, tooltip=tooltip),
        base.transform_filter("datum.first").mark_rect(filled=False, stroke="black", strokeWidth=2),
        base.mark_text(dy=-8, fontSize=15, fontWeight=strong, color=ink).encode(text="text:N"),
        base.mark_text(dy=11, fontSize=11, color=ink).encode(text="interval:N"),
    ]
    several = len({(each.model, each.engine, each.workload) for each in grids}) > 1
    parts = [grid.model, grid.engine, grid.workload] if several else []
    parts += [f"{setting_name(name)} {value}" for name, value in grid.fixed]
    title = alt.TitleParams(" · ".join(filter(None, parts)), fontSize=14, anchor="start")
    panel = alt.LayerChart(layer=layers, width=_CELL * len(columns), height=0.6 * _CELL * len(rows))
    if parts:
        panel.title = title
    return panel
