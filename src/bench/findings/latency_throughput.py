"""Latency against throughput."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from bench.axes import AXES
from bench.errors import listed
from bench.findings.tables import Tables
from bench.parse.windows import level_values
from bench.report.figure import alt, figure
from bench.report.theme import (
    CROSS,
    Span,
    apart,
    beside_crosses,
    curve_colour,
    curve_dash,
    curve_shape,
    limit_line,
    line_ends,
    nothing_to_show,
    panel,
    unit_column,
    with_curve,
)
from bench.statistics.textbook import isotonic
from bench.study.slo import Slo, time_text

_X = "throughput_tokens_per_s"
_USUAL = ("p95", "p99", "p50")  # where no SLO limits another percentile, the first that is known
_NAMED, _MOST = 3, 5  # most curves that a title names by their waits, and by what they sustain


def _note(results: Tables) -> str:
    ring = "Ring: the highest load sustained within the SLOs." if results.points["c_max"].is_not_null().any() else ""
    axes = results.runs["axis"].unique()
    numbers = f"Numbers: {AXES[axes[0]].unit}." if len(axes) == 1 else ""
    return f"{numbers} {ring}".strip()


def _of_loads(results: Tables) -> Tables:
    return replace(results, runs=results.runs if results.plain.is_empty() else results.plain, whole=results.study)


def _shown(results: Tables) -> list[Slo]:
    """The percentile of TTFT and of TPOT that an SLO limits, else P95; E2E in their place where answers of some curve come whole."""
    limits = {slo.metric: slo for slo in results.decision.slos if slo.request_class is None}
    known = results.runs.drop_nulls(_X)
    whole = known.group_by("deployment", "workload").agg(pl.col("ttft_p50_s").is_null().all())["ttft_p50_s"].any()
    names = ("ttft", "e2e") if whole else ("ttft", "tpot")
    has = {name for name in known.columns if known[name].is_not_null().any()}
    usual = [next((slo for at in _USUAL if (slo := Slo(name, at, 0.0)).column in has), None) for name in names]
    shown = [limits.get(name) or other for name, other in zip(names, usual, strict=True)]
    return [slo for slo in shown if slo and slo.column in has]


def sustained_title(points: pl.DataFrame) -> str | None:
    """What deployments give within the SLOs, the most first; None where it is not known of every curve, or of too many.

    Bursts, which show nothing that lasts, are left out where another load is there.

    Args:
        points: rows of `bench.findings.capacity.points.operating_points`.
    """
    lasting = points.filter(pl.col("usable_rps").is_not_null())
    known = lasting.drop_nulls("tokens_per_s").sort("tokens_per_s", descending=True)
    if known.is_empty() or known.height > _MOST or lasting["workload"].n_unique() > 1:
        return None
    first, *others = (f"{name} {rate:,.0f}" for name, rate in known.select("deployment", "tokens_per_s").iter_rows())
    return ", ".join([f"Sustained within the SLOs: {first} tokens/s", *others])


def _finding(results: Tables) -> str | None:
    if said := sustained_title(results.points):
        return said
    of_loads = _of_loads(results)
    if not (shown := _shown(of_loads)):
        return None
    slo = shown[0]
    levels = with_curve(of_loads, level_values(of_loads.runs, [_X, slo.column])).drop_nulls([_X, slo.column])
    best = levels.sort(_X, descending=True).unique("curve", keep="first", maintain_order=True)
    waits = [
        f"{time_text(row[slo.column], 's' if row[slo.column] >= 1 else 'ms')} on {row['curve']}"
        for row in best.iter_rows(named=True)
        if np.isfinite(row[slo.column])
    ]
    return f"At the most throughput {slo.name} is {listed(waits)}" if 0 < len(waits) <= _NAMED else None


@figure(
    "latency-throughput",
    title="Latency against throughput",
    question="How much throughput does each deployment give, and how long do users wait for it?",
    reading="Points are levels of load, with the spread of their runs' throughput; faint: P50. A line runs to the right while more "
    "load raises throughput beyond what runs vary by, and up where it only adds waiting.",
    by_axis=False,
    finding=_finding,
    note=_note,
)
def latency_throughput(results: Tables) -> alt.ConcatChart | alt.LayerChart:
    """TTFT's and TPOT's percentiles over output tokens/s, E2E's where answers come whole: a point a level, a line a curve."""
    of_loads = _of_loads(results)
    runs = with_curve(of_loads, of_loads.runs).drop_nulls(_X)
    shown = _shown(of_loads) if runs.height else []
    if not shown:
        return nothing_to_show("no run has both a throughput and a latency")
    columns = list(dict.fromkeys(name for slo in shown for name in (f"{slo.metric}_p50_s", slo.column)))
    levels, invalid = _levels(of_loads, runs.filter("valid"), columns), runs.filter(~pl.col("valid"))
    across = Span(0.0, 1.08 * float(pl.concat([levels["high"], runs[_X]]).max() or 1.0))  # type: ignore[arg-type]
    panels = [_panel(of_loads, levels, invalid, slo, across) for slo in shown]
    return alt.concat(*panels, columns=2)


def _levels(results: Tables, runs: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """A row a level of each curve: its values, `low` and `high` of its runs' throughput, its line's place `along`, `ring`, `label`."""
    curve = ["deployment", "workload"]
    ends = runs.group_by("curve", *curve, "axis", "level", maintain_order=True).agg(
        low=pl.col(_X).min(), high=pl.col(_X).max(), n=pl.len()
    )
    falls = results.analysis.saturation.filter(saturation_kind="peak").select(*curve, falls_from="saturation_at")
    rows = (
        ends.join(level_values(runs, [_X, *columns]), on=[*curve, "axis", "level"], how="left", maintain_order="left")
        .with_columns(pl.when(pl.col(name).is_finite()).then(pl.col(name)) for name in columns)
        .join(results.points.select(*curve, "c_max"), on=curve, how="left", maintain_order="left")
        .join(falls, on=curve, how="left", maintain_order="left")
        .sort("curve", "level")
        .with_columns(ring=pl.col("level") == pl.col("c_max"))
    )
    level = pl.col("level")
    named = ((level == level.min().over("curve")) | pl.col("ring").fill_null(False)).alias("named")
    parts = [_without_noise(part) for part in rows.with_columns(named).partition_by("curve", maintain_order=True)]
    found = pl.concat(parts) if parts else rows.with_columns(named, along=pl.col(_X))
    labels = [
        f"{level:g}{AXES[axis].beside}" if named else None
        for level, axis, named in found.select("level", "axis", "named").iter_rows()
    ]
    return found.with_columns(label=pl.Series(labels, dtype=pl.String)).drop("c_max", "falls_from", "named")


def _without_noise(part: pl.DataFrame) -> pl.DataFrame:
    """Add `along`: a curve's throughput as it rises, and as it falls beyond its peak where it has one; what else goes back is noise."""
    log, runs = part[_X].log().to_numpy(), part["n"].to_numpy()
    peak = part["falls_from"][0]
    top = len(log) if peak is None else int((part["level"] <= peak).sum())
    along = [*isotonic(log[:top], runs[:top]), *(isotonic(log[top:], runs[top:], rising=False) if top < len(log) else ())]
    return part.with_columns(along=pl.Series(along, dtype=pl.Float64).exp())


def _panel(results: Tables, levels: pl.DataFrame, invalid: pl.DataFrame, slo: Slo, across: Span) -> alt.LayerChart:
    median, tail = f"{slo.metric}_p50_s", slo.column
    unit = slo.unit if slo.limit_s else "ms" if (levels[tail].max() or 0) < 1 else "s"  # type: ignore[operator]
    times = 1.0 if unit == "s" else 1000.0
    levels, invalid = (
        rows.with_columns((pl.col(name) * times).alias(unit_column(name, unit)) for name in {median, tail})
        for rows in (levels, invalid)
    )
    median, tail = unit_column(median, unit), unit_column(tail, unit)
    values = [value for rows in (levels, invalid) for name in {median, tail} for value in rows[name]]
    up = Span.of(values, within=[slo.limit_s * times] if slo.limit_s else [])
    x = alt.X(f"{_X}:Q", title=results.tokens_per_s, scale=across.scale)
    y = alt.Y(f"{tail}:Q", title=f"{slo.name} ({unit}{', log' if up.log else ''})", scale=up.scale, axis=up.ticks)
    middle = alt.Y(f"{median}:Q", title=y["title"], scale=up.scale)
    colour, dash = curve_colour(results), curve_dash(results)
    tooltip = ["curve:N", alt.Tooltip("level:Q", title="load"), alt.Tooltip(f"{_X}:Q", format=".0f"),
               alt.Tooltip(f"{tail}:Q", title=slo.name, format=".3g")]  # fmt: skip
    shown = dict.fromkeys(("curve", "workload", "level", "ring", "along", "low", "high", _X, median, tail))
    rows = levels.drop_nulls(tail)
    base, along = alt.Chart(rows.select(*shown)), x.copy()
    along["shorthand"] = "along:Q"
    left_out = [alt.Chart(invalid.drop_nulls(tail).select("curve", "level", "run", _X, tail))] if invalid.height else []
    named = rows.drop_nulls("label").sort(tail, descending=True)
    at = pl.Series(apart(named.select(_X, tail, "label").rows(), across, up, before=True), dtype=pl.Float64)
    labels = alt.Chart(named.select("curve", _X, "label", at=at))
    text = labels.mark_text(align="right", baseline="bottom", dx=-11, dy=-4, fontSize=13)
    layers = [
        *limit_line(slo.limit_s * times or None, up, y, f"SLO: {slo.limit_s * times:g} {unit}"),
        base.mark_line(strokeWidth=1.2, opacity=0.45).encode(x=along, y=middle, color=colour, strokeDash=dash, order="level:Q"),
        base.mark_line().encode(x=along, y=y, color=colour, strokeDash=dash, order="level:Q"),
        base.mark_rule(opacity=0.4, strokeWidth=1).encode(x=along, x2=f"{_X}:Q", y=y, color=colour),
        base.mark_rule(opacity=0.6).encode(
            x=alt.X("low:Q", title=x["title"], scale=across.scale), x2="high:Q", y=y, color=colour
        ),
        base.transform_filter("datum.ring")
        .mark_point(shape="circle", size=260, strokeWidth=2, opacity=1, color="black")
        .encode(x=x, y=y),
        base.mark_point(filled=True, size=60, opacity=1).encode(
            x=x, y=y, color=colour, shape=curve_shape(results), tooltip=tooltip
        ),
        text.encode(x=x, y=alt.Y("at:Q", title=y["title"], scale=up.scale), text="label:N"),
        *(crosses.mark_point(**CROSS).encode(x=x, y=y, color=colour, tooltip=["run:N", *tooltip[1:]]) for crosses in left_out),
        *beside_crosses(invalid, x, y, _X, tail),
        *line_ends(results, rows.select("curve", x="along", y=tail), across, up, (x, y), rows.select(x=_X, y=tail)),
    ]
    return panel(layers, f"{slo.name}; faint: P50")
