"""What users wait against the throughput of the hardware."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import altair as alt
import polars as pl

from bench.analysis import Prices
from bench.analysis.pareto import throughput_of, trade_offs
from bench.figures.registry import figure
from bench.figures.tables import Tables
from bench.figures.theme import (
    NEUTRAL,
    curve_colour,
    curve_dash,
    curve_shape,
    level_labels,
    nothing_to_show,
    with_curve,
    with_labels,
)
from bench.study.slo import Slo
from bench.words.charts import NO_GPUS, outside_note

_FAINT = 0.3  # opacity of levels that are no candidates
_USER = "tpot_p50_s"
_TITLES = {
    "a_dollar": "output tokens per USD",
    "a_gpu": "output tokens/s of each GPU",
    "an_instance": "output tokens/s of each instance",
}


@dataclass(frozen=True)
class _Panel:
    """One trade-off. Attributes: latency: column of what is to be short (s). x: the column that is drawn. title: of its axis."""

    latency: str
    x: str
    title: str


def _note(results: Tables) -> str:
    found = _levels(results, _USER)
    known = found.height and throughput_of(found)
    return " ".join(filter(None, [NO_GPUS if known == "an_instance" else "", outside_note(found["within"].to_list())]))


@figure(
    "user-speed",
    title="Speed of each user against throughput",
    question="Which deployment gives users a speed on the least hardware?",
    reading="Each point is a level of load; a curve's ends have theirs beside them. Left, to the right: tokens/s that a user "
    "sees once the answer has begun (1 ÷ TPOT P50). Right: TTFT, which is better to the left. Upwards: output tokens per USD "
    "where an hour has a price, else output tokens/s of each GPU. Grey, wide: the loads within the SLOs that no other one of "
    "their workload beats in both (the Pareto frontier). What lies below it gives less for the same speed. Faint: levels that "
    "miss an SLO, or may miss it: they are no candidates.",
    invalid="Left out",
    by_axis=False,
    note=_note,
)
def user_speed(results: Tables) -> alt.TopLevelMixin:
    """Throughput per USD or GPU over tokens/s of a user, and over TTFT: a point a level, a line a curve.

    Args:
        results: `runs` with `level`, `tpot_p50_s` and TTFT (s), `throughput_tokens_per_s`, `gpus` and `valid`; `decision` with SLOs and
            prices.
    """
    panels = [panel for each in _panels(results) if (panel := _panel(results, each)) is not None]
    if not panels:
        return nothing_to_show("no valid run has both a throughput and a TPOT")
    return panels[0] if len(panels) == 1 else alt.hconcat(*panels)


def _panels(results: Tables) -> tuple[_Panel, _Panel]:
    """TTFT is at the percentile that an SLO limits, else at P50."""
    limited = (slo for slo in results.decision.slos if slo.metric == "ttft" and slo.request_class is None)
    ttft = next(limited, Slo.of_column("ttft_p50_s", math.inf))
    user = _Panel(_USER, "a_user", "tokens/s that a user sees (1 ÷ TPOT P50)")
    return user, _Panel(ttft.column, ttft.column, f"{ttft.name} (s)")


def _levels(results: Tables, latency: str) -> pl.DataFrame:
    limits = results.analysis.capacity.filter(pl.col("slos").list.len() > 0) if results.decision.slo else None
    return trade_offs(_runs(results), latency, capacity=limits, prices=Prices.of(results.decision, results.device))


def _runs(results: Tables) -> pl.DataFrame:
    return results.runs if results.plain.is_empty() else results.plain


def _panel(results: Tables, panel: _Panel) -> alt.LayerChart | None:
    found = _levels(results, panel.latency)
    if found.is_empty():
        return None
    of_loads = replace(results, runs=_runs(results), whole=results.study)
    each = throughput_of(found)
    rows = with_labels(with_curve(of_loads, found.with_columns(a_user=1 / pl.col(panel.latency))))
    x = alt.X(f"{panel.x}:Q", title=panel.title, scale=_scale(rows, panel.x))
    y = alt.Y(
        f"{each}:Q", title=_TITLES[each], scale=_scale(rows, each), axis=alt.Axis(format="~s" if each == "a_dollar" else "~g")
    )
    colour, shape = curve_colour(of_loads), curve_shape(of_loads)
    shown = dict.fromkeys(("curve", "workload", "level", "label", "candidate", "unbeaten", panel.x, each, "an_instance"))
    base = alt.Chart(rows.with_columns(candidate=pl.col("within").fill_null(False)).select(*shown))
    strength = alt.condition("datum.candidate", alt.value(1), alt.value(_FAINT))
    tooltip = ["curve:N", alt.Tooltip("level:Q", title="load"),
               *(alt.Tooltip(f"{column}:Q", format=".3g") for column in (panel.x, each))]  # fmt: skip
    layers = [
        base.transform_filter("datum.unbeaten")
        .mark_line(strokeWidth=9, opacity=0.35, color=NEUTRAL, strokeCap="round")
        .encode(x=x, y=y, detail="workload:N", order=f"{panel.x}:Q"),
        base.mark_line(opacity=_FAINT).encode(x=x, y=y, color=colour, strokeDash=curve_dash(of_loads), order="level:Q"),
        base.transform_filter("datum.candidate")
        .mark_line()
        .encode(x=x, y=y, color=colour, strokeDash=curve_dash(of_loads), order="level:Q"),
        base.mark_point(filled=True, size=60).encode(x=x, y=y, color=colour, shape=shape, opacity=strength, tooltip=tooltip),
        level_labels(base, x, y),
    ]
    return alt.LayerChart(layer=layers, width=430, height=380)


def _scale(rows: pl.DataFrame, column: str) -> alt.Scale:
    return alt.Scale(domain=[0, 1.06 * float(rows[column].max())], nice=False)  # type: ignore[arg-type]
