"""Latency against throughput."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from bench.findings.tables import Tables
from bench.parse.level_values import level_values
from bench.parse.windows import in_windows
from bench.report.altair import alt
from bench.report.chart_words import WINDOWS, numbers_note, sustained_title
from bench.report.figure import figure
from bench.report.theme import (
    curve_colour,
    curve_dash,
    curve_shape,
    level_labels,
    log_scale,
    nothing_to_show,
    whole_note,
    with_curve,
    with_labels,
    with_whole,
)
from bench.runs.latencies import LATENCIES, PERCENTILES
from bench.study.slo import Slo

_X = "throughput_tokens_per_s"
_SHOWN = ("p50", "p95", "p99")  # of TTFT, or E2E where answers come whole
_COLUMNS = [f"{name}_{each}_s" for name in LATENCIES for each in PERCENTILES]
_FARTHEST = 10.0  # times the highest latency: a limit beyond would leave the frame half empty, and is not drawn


def _note(results: Tables) -> str:
    ring = "Black ring: the highest level within the SLOs." if results.points["c_max"].is_not_null().any() else ""
    axes = results.runs["axis"].unique()
    numbers = numbers_note(axes[0]) if len(axes) == 1 else ""
    windows = WINDOWS if in_windows(results.runs) else ""
    return " ".join(filter(None, (windows, numbers, ring, whole_note(results))))


@figure(
    "latency-throughput",
    title="Latency against throughput",
    question="How much throughput does each deployment give, and how long do users wait for it?",
    reading="Points are levels of load, joined in their order. Where a curve turns upwards more load buys waiting; where it "
    "turns back it costs throughput. Dashed: an SLO's limit.",
    by_axis=False,
    finding=lambda results: sustained_title(results.points),
    note=_note,
)
def latency_throughput(results: Tables) -> alt.ConcatChart | alt.LayerChart:
    """TTFT's percentiles and TPOT over output tokens/s, E2E's where answers come whole: a point a level, a line a curve.

    Args:
        results: `runs` with `level`, `throughput_tokens_per_s`, the latencies' percentiles (s) and `valid`; `points`.
    """
    of_loads = replace(results, runs=results.runs if results.plain.is_empty() else results.plain, whole=results.study)
    runs = with_whole(of_loads, with_curve(of_loads, of_loads.runs)).drop_nulls(_X)
    limits = {slo.column: slo for slo in results.decision.slos if slo.request_class is None}
    tpot = next((name for name in limits if name.startswith("tpot")), "tpot_p95_s")
    ttft = sorted({*(f"ttft_{each}_s" for each in _SHOWN), *(name for name in limits if name.startswith(("ttft", "ttfo")))})
    shown = [column for column in (*ttft, tpot) if runs[column].is_not_null().any()]
    streams = runs.group_by("curve").agg(pl.any_horizontal(pl.col(shown).is_not_null().any())) if shown else None
    if streams is None or not streams[:, 1].all():  # answers of some curve come whole
        few = ("p95",) if shown else _SHOWN
        whole = {*(f"e2e_{each}_s" for each in few), *(name for name in limits if name.startswith("e2e"))}
        shown += [column for column in sorted(whole) if runs[column].is_not_null().any()]
    if not shown:
        return nothing_to_show("no run has both a throughput and a latency")
    invalid = runs.filter(~pl.col("valid")).select("curve", "workload", "axis", "level", "run", "whole", _X, *_COLUMNS)
    rows = pl.concat([_levels(of_loads, runs.filter("valid")), invalid], how="diagonal_relaxed")
    panels = []
    for column in shown:
        alike = [each for each in shown if each.startswith(column.split("_")[0])]
        values = [value for each in alike for value in runs[each].drop_nulls()]
        values += [limits[each].limit_s for each in alike if each in limits and limits[each].limit_s < _FARTHEST * max(values)]
        panels.append(_panel(of_loads, rows, column, (0.8 * min(values), 1.3 * max(values)), limits.get(column)))
    return alt.concat(*panels, columns=3 if len(panels) % 2 else 2)  # no panel alone in a row


def _levels(results: Tables, runs: pl.DataFrame) -> pl.DataFrame:
    """A row a level of each curve: `curve`, `workload`, `level`, `mark`, `label`, and the values of its valid `runs`."""
    curve = ["deployment", "workload"]
    whole = runs.group_by("curve", *curve, "axis", "level", maintain_order=True).agg(pl.col("whole").any())
    levels = (
        whole.join(level_values(runs, [_X, *_COLUMNS]), on=[*curve, "axis", "level"], how="left", maintain_order="left")
        .with_columns(pl.when(pl.col(name).is_finite()).then(pl.col(name)) for name in _COLUMNS)
        .join(results.points.select(*curve, "c_max"), on=curve, how="left", maintain_order="left")
    )
    best = pl.col("level") == pl.col("c_max")
    return with_labels(levels.with_columns(mark=pl.when(best).then(pl.lit("C_max"))), best.fill_null(False))


def _panel(results: Tables, rows: pl.DataFrame, column: str, ends: tuple[float, float], slo: Slo | None) -> alt.LayerChart:
    """Args: rows: of levels and of invalid runs. ends: of the percentile's axis (s)."""
    metric, percentile = column.split("_")[:2]
    title = f"{LATENCIES[metric].title} {percentile.upper()}"
    along, scale = alt.Scale(domain=[0, 1.06 * max(rows[_X])], nice=False), log_scale(*ends)
    up = f"{title} (s, log)"
    x = alt.X(f"{_X}:Q", title=results.tokens_per_s, scale=along)
    y = alt.Y(f"{column}:Q", title=up, scale=scale, axis=alt.Axis(format="~g"))
    colour = curve_colour(results)
    tooltip = ["curve:N", alt.Tooltip("level:Q", title="load"), alt.Tooltip(f"{_X}:Q", format=".0f"),
               alt.Tooltip(f"{column}:Q", title=title, format=".3g")]  # fmt: skip
    both = alt.Chart(rows.drop_nulls(column).select("curve", "workload", "level", "run", "mark", "label", "whole", _X, column))
    base, invalid = both.transform_filter("!isValid(datum.run)"), both.transform_filter("isValid(datum.run)")
    layers = [
        base.mark_line().encode(x=x, y=y, color=colour, strokeDash=curve_dash(results), order="level:Q"),
        base.transform_filter("isValid(datum.mark)")
        .mark_point(shape="circle", size=240, strokeWidth=2.5, opacity=1, color="black")
        .encode(x=x, y=y),
        base.mark_point(filled=True, size=60, opacity=1).encode(
            x=x, y=y, color=colour, shape=curve_shape(results), tooltip=tooltip
        ),
        base.transform_filter("datum.whole").mark_point(filled=True, size=14, color="white", opacity=1).encode(x=x, y=y),
        level_labels(base, x, y),
        invalid.mark_point(shape="cross", angle=45, size=70, strokeWidth=1.5, opacity=1).encode(
            x=x, y=y, color=colour, tooltip=["run:N", *tooltip[1:]]
        ),
    ]
    heading = f"{slo}, far above" if slo else title
    if slo is not None and slo.limit_s < ends[1]:
        heading = f"{slo}, dashed"
        limit = alt.Chart(pl.DataFrame({"limit": [slo.limit_s]}))
        layers.insert(0, limit.mark_rule(strokeDash=[5, 4], color="black").encode(y=alt.Y("limit:Q", title=up, scale=scale)))
    titled = alt.TitleParams(heading, fontSize=16, anchor="start")
    return alt.LayerChart(layer=layers, width=430, height=260, title=titled)
