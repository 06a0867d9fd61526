"""Tokens/s of a device against tokens/s of a user: the trade-offs, and their chart."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from bench.findings.economics import Prices, economics
from bench.findings.sizing import HOUR_S
from bench.findings.tables import Tables
from bench.parse.level_values import level_values
from bench.report.altair import alt
from bench.report.chart_words import NO_GPUS, outside_note
from bench.report.figure import figure
from bench.report.theme import (
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

_METRIC = "throughput_tokens_per_s"
# By what throughput is counted, and by what an instance's tokens/s are divided for it; the first that is known of all levels counts.
THROUGHPUTS = {"a_dollar": "dollars", "a_gpu": "gpus", "an_instance": None}


def trade_offs(
    runs: pl.DataFrame, latency: str, *, capacity: pl.DataFrame | None = None, prices: Prices | None = None
) -> pl.DataFrame:
    """What a user waits and what the hardware gives at each level (`level_values`), and which levels are on the frontier of both.

    Levels are left out at which either is not known or 0, or the latency is infinite because too many requests failed.

    Args:
        runs: summary rows (`deployment`, `workload`, `axis`, `level`, `valid`, the latency, `throughput_tokens_per_s`, `gpus`, and
            what `economics` reads). latency: column of what is to be short (s), such as `tpot_p50_s`.
        capacity: rows of `operating_points` under the SLOs; None without any. A curve that has no row has no limit.
        prices: what an hour costs; None: not known.

    Returns:
        One row a level: `deployment`, `workload`, `axis`, `level`, the latency (s), `an_instance` and `a_gpu` (output tokens/s),
        `a_dollar` (output tokens a USD), each null where not known; `within`, whether the level is sustained within the SLOs (null
        where not known), and `unbeaten` among those of its workload that are, by `throughput_of`.
    """
    cost = None if prices is None else economics(runs, prices)["cost_per_h"] / HOUR_S
    values = pl.col(latency, _METRIC)
    levels = level_values(
        runs.with_columns(dollars=pl.lit(cost, dtype=pl.Float64)), [latency, _METRIC, "gpus", "dollars"]
    ).filter(pl.all_horizontal(values.is_finite() & (values > 0)))
    levels = levels.with_columns(
        pl.when(pl.col(by) > 0).then(pl.col(_METRIC) / pl.col(by)).alias(name) if by else pl.col(_METRIC).alias(name)
        for name, by in THROUGHPUTS.items()
    )
    limits = {(row["deployment"], row["workload"]): row for row in (capacity.to_dicts() if capacity is not None else ())}
    within = [_within(row["level"], limits.get((row["deployment"], row["workload"]))) for row in levels.iter_rows(named=True)]
    levels = levels.with_columns(within=pl.Series(within, dtype=pl.Boolean))
    each = throughput_of(levels)
    key = ["workload", "deployment", "level"]
    candidates = levels.filter("within").select(*key, latency, each)
    better = (pl.col(f"{latency}_right") <= pl.col(latency)) & (pl.col(f"{each}_right") >= pl.col(each))
    other = (pl.col(f"{latency}_right") < pl.col(latency)) | (pl.col(f"{each}_right") > pl.col(each))
    beaten = candidates.join(candidates, on="workload").filter(better & other).select(key).unique()
    unbeaten = candidates.join(beaten, on=key, how="anti").select(*key, unbeaten=pl.lit(True))
    return levels.join(unbeaten, on=key, how="left", maintain_order="left").select(
        "deployment", "workload", "axis", "level", latency, *THROUGHPUTS, "within", pl.col("unbeaten").fill_null(False)
    )


def throughput_of(levels: pl.DataFrame) -> str:
    """The first of `THROUGHPUTS` that all levels have. Args: levels: of `trade_offs`."""
    return next(name for name in THROUGHPUTS if not levels[name].null_count())


def _within(load: float, limit: Mapping[str, Any] | None) -> bool | None:
    """Whether a load is sustained within the SLOs; None where not known. Args: limit: the curve's row; None where nothing limits it."""
    if limit is None or (limit["c_max"] is not None and load <= limit["c_max"]):
        return True
    if limit["missed_at"] is None or load < limit["missed_at"] or limit["kind"] not in ("found", "below"):
        return None
    return None if load == limit["missed_at"] and any(miss["close"] for miss in limit["missed"]) else False


_FAINT = 0.3  # opacity of levels that are no candidates
_USER = "tpot_p50_s"
_TITLES = {
    "a_dollar": "output tokens per USD",
    "a_gpu": "output tokens/s of each GPU",
    "an_instance": "output tokens/s of each instance",
}


def _note(results: Tables) -> str:
    found = _levels(results, _USER)
    known = found.height and throughput_of(found)
    return " ".join(filter(None, [NO_GPUS if known == "an_instance" else "", outside_note(found["within"].to_list())]))


@figure(
    "user-speed",
    title="Speed of each user against throughput",
    question="Which deployment gives users a speed on the least hardware?",
    reading="Points are levels of load. To the right: faster answers (1 ÷ TPOT P50), or longer TTFT; upwards: more output "
    "tokens per USD, else per GPU. Grey, wide: loads within the SLOs that none beats in both.",
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
    # TTFT is at the percentile that an SLO limits, else at P50.
    limited = (slo for slo in results.decision.slos if slo.metric == "ttft" and slo.request_class is None)
    ttft = next(limited, Slo.of_column("ttft_p50_s", math.inf))
    drawn = (
        _panel(results, _USER, "a_user", "tokens/s that a user sees (1 ÷ TPOT P50)"),
        _panel(results, ttft.column, ttft.column, f"{ttft.name} (s)"),
    )
    panels = [panel for panel in drawn if panel is not None]
    if not panels:
        return nothing_to_show("no valid run has both a throughput and a TPOT")
    return panels[0] if len(panels) == 1 else alt.hconcat(*panels)


def _levels(results: Tables, latency: str) -> pl.DataFrame:
    limits = results.analysis.capacity.filter(pl.col("slos").list.len() > 0) if results.decision.slo else None
    return trade_offs(_runs(results), latency, capacity=limits, prices=Prices.of(results.decision, results.device))


def _runs(results: Tables) -> pl.DataFrame:
    return results.runs if results.plain.is_empty() else results.plain


def _panel(results: Tables, latency: str, across: str, title: str) -> alt.LayerChart | None:
    """One trade-off. Args: latency: column of what is to be short (s). across: the column that is drawn. title: of its axis."""
    found = _levels(results, latency)
    if found.is_empty():
        return None
    of_loads = replace(results, runs=_runs(results), whole=results.study)
    each = throughput_of(found)
    rows = with_labels(with_curve(of_loads, found.with_columns(a_user=1 / pl.col(latency))))
    x = alt.X(f"{across}:Q", title=title, scale=_scale(rows, across))
    y = alt.Y(
        f"{each}:Q", title=_TITLES[each], scale=_scale(rows, each), axis=alt.Axis(format="~s" if each == "a_dollar" else "~g")
    )
    colour, shape = curve_colour(of_loads), curve_shape(of_loads)
    shown = dict.fromkeys(("curve", "workload", "level", "label", "candidate", "unbeaten", across, each, "an_instance"))
    base = alt.Chart(rows.with_columns(candidate=pl.col("within").fill_null(False)).select(*shown))
    strength = alt.condition("datum.candidate", alt.value(1), alt.value(_FAINT))
    tooltip = ["curve:N", alt.Tooltip("level:Q", title="load"),
               *(alt.Tooltip(f"{column}:Q", format=".3g") for column in (across, each))]  # fmt: skip
    layers = [
        base.transform_filter("datum.unbeaten")
        .mark_line(strokeWidth=9, opacity=0.35, color=NEUTRAL, strokeCap="round")
        .encode(x=x, y=y, detail="workload:N", order=f"{across}:Q"),
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
