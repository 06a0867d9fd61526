"""KV-cache usage against load, beside what each curve sustains: the chart of `saturation`."""

from __future__ import annotations

import polars as pl

from bench.axes import CONCURRENCY
from bench.errors import listed
from bench.findings.saturation import lesson, title
from bench.findings.tables import Tables
from bench.report.figure import alt, figure
from bench.report.theme import (
    Span,
    curve_colour,
    curve_shape,
    in_order,
    is_log,
    level_axis,
    load_panel,
    nothing_to_show,
    panel,
    points,
    with_curve,
)

_CURVE = ["deployment", "workload"]
_LISTED = 6  # most curves that are listed in a panel; convention


@figure(
    "kv-saturation",
    title="KV-cache usage against load",
    question="At what load does the KV cache run out, and was that to be expected?",
    reading="Points are runs. Dashed: what geometry "
    "predicts, KV tokens ÷ tokens a request, with no fitted number. A second panel, where limits are known: the highest "
    "load sustained (filled), the first that misses (end of the bar), and what the cache holds (ring).",
    judged="counts_valid",
    finding=lambda results: lesson(results).partition(":")[0] or title(in_order(results, results.saturation).to_dicts()),
)
def kv_saturation(results: Tables) -> alt.ConcatChart | alt.LayerChart:
    """Peak KV-cache usage of each run over its load, as a part of the load that is predicted to fill the cache, where it is predicted;
    beside it what each curve's cache holds, and what the curve sustains."""
    runs = with_curve(results, results.runs.filter(pl.col("kv_usage_peak").is_not_null()))
    if runs.is_empty():
        return nothing_to_show("the server's metrics do not show its KV cache")
    runs = runs.with_columns(valid=pl.col("counts_valid"), full=pl.col("level") / pl.col("predicted_saturation"))
    known = runs.drop_nulls("full") if results.axis == CONCURRENCY else runs.clear()
    if known.is_empty():
        usage, whole = "peak KV-cache usage", Span(0.0, 1.02)
        return load_panel(results, runs, "kv_usage_peak", usage, format=".0%", span=whole)
    panels = [_filling(results, known), *([_sustained(results)] if results.points["c_max"].is_not_null().any() else [])]
    return alt.concat(*panels, columns=2)


def _filling(results: Tables, runs: pl.DataFrame) -> alt.LayerChart:
    end = min(1.6, max(1.1, float(runs["full"].max()) * 1.05))  # type: ignore[arg-type]
    shown = runs.filter(pl.col("full") <= end)
    ticks = sorted({round(each, 2) for each in shown["full"]})
    across = alt.Axis(values=ticks, format="~g", labelExpr="datum.label + '×'", labelOverlap="greedy")
    x = alt.X("full:Q", title="load ÷ predicted capacity", scale=alt.Scale(domain=[0, end], nice=False), axis=across)
    up = alt.Scale(domain=[0, 1.05], nice=False)
    y = alt.Y("kv_usage_peak:Q", title="peak KV-cache usage", axis=alt.Axis(format="%", tickCount=4), scale=up)
    line = alt.Chart(pl.DataFrame({"full": [0.0, 1.0, end], "kv_usage_peak": [0.0, 1.0, 1.0]}))
    dashed = line.mark_line(strokeDash=[7, 4], color="black", strokeWidth=1.2).encode(x=x, y=y)
    said = alt.Chart(pl.DataFrame({"full": [0.66], "kv_usage_peak": [0.6], "said": ["predicted"]}))
    label = said.mark_text(align="left", fontSize=13, color="#333333").encode(x=x, y=y, text="said:N")
    tooltip = ["curve:N", "run:N", "level:Q", alt.Tooltip("kv_usage_peak:Q", title="peak KV-cache usage", format=".1%")]
    base = alt.Chart(shown.select("curve", "level", "full", "kv_usage_peak", "valid", "run"))
    marks = points(base, y, x, curve_colour(results), shape=curve_shape(results), tooltip=tooltip)
    layers = [dashed, label, marks, *_names(results, shown, (x, y), end)]
    return panel(layers, "how full the cache is")


def _names(results: Tables, shown: pl.DataFrame, axes: tuple[alt.X, alt.Y], end: float) -> list[alt.Chart]:
    """The curves, which all lie on one line, in the free corner below it, with how many requests fit."""
    fits = shown.unique("curve", maintain_order=True).select("curve", "predicted_saturation").rows()
    if len(fits) > _LISTED:
        return []
    rows = [
        {"curve": curve, "place": 0.97 * end, "row": 0.08 * (len(fits) - i), "said": f"{curve}: {fit:.3g} fit"}
        for i, (curve, fit) in enumerate(fits)
    ]
    x = alt.X("place:Q", title=axes[0]["title"], scale=axes[0]["scale"])
    y = alt.Y("row:Q", title=axes[1]["title"], scale=axes[1]["scale"])
    base = alt.Chart(pl.DataFrame(rows)).encode(x=x, y=y)
    mark = base.mark_point(filled=True, size=55, opacity=1).encode(color=curve_colour(results), shape=curve_shape(results))
    return [mark, base.mark_text(align="right", dx=-10, fontSize=13).encode(text="said:N")]


def _sustained(results: Tables) -> alt.LayerChart:
    """What each curve sustains beside what its cache holds."""
    rows = with_curve(
        results,
        results.points.filter(pl.col("c_max").is_not_null() | pl.col("missed_at").is_not_null()).join(
            results.saturation.select(*_CURVE, "predicted"), on=_CURVE, how="left", maintain_order="left"
        ),
    )
    ended = [
        f"{row['missed_at']:g} misses {listed([each.name for each in results.decision.slos if each.column in by])}"
        if row["missed_at"] and (by := [miss["by"] for miss in row["missed"] if not miss["close"]])
        else ""
        for row in rows.to_dicts()
    ]
    said = pl.Series(ended, dtype=pl.String)
    rows = rows.select("curve", "c_max", "missed_at", "predicted", said=said)
    loads = sorted({*results.runs["level"], *(float(round(each)) for each in rows["predicted"].drop_nulls())})
    scale = Span(0.8 * loads[0], 1.25 * loads[-1], log=is_log(results)).scale
    axis = alt.Axis(values=loads, format="d", labelOverlap="greedy", labelBound=12)
    x = alt.X("c_max:Q", title=level_axis(results)["title"], scale=scale, axis=axis)
    y = alt.Y("curve:N", title=None, sort=rows["curve"].to_list(), axis=alt.Axis(labelFontSize=14, labelLimit=220))
    base, colour, shape = alt.Chart(rows), curve_colour(results).legend(None), curve_shape(results).legend(None)
    tooltip = ["curve:N", alt.Tooltip("c_max:Q", title="sustained"), alt.Tooltip("missed_at:Q", title="misses at"),
               alt.Tooltip("predicted:Q", title="fit in the cache", format=".3g")]  # fmt: skip
    layers = [
        base.mark_rule(strokeWidth=5, opacity=0.4).encode(x=x, x2="missed_at:Q", y=y, color=colour),
        base.mark_point(filled=True, size=90, opacity=1).encode(x=x, y=y, color=colour, shape=shape, tooltip=tooltip),
        base.mark_point(size=330, strokeWidth=2, opacity=1, shape="circle").encode(
            x=alt.X("predicted:Q", title=x["title"], scale=scale), y=y, color=colour, tooltip=tooltip
        ),
        base.mark_tick(thickness=2, size=14, orient="vertical").encode(
            x=alt.X("missed_at:Q", title=x["title"], scale=scale), y=y, color=colour
        ),
        base.mark_text(align="left", dx=4, dy=24, fontSize=12, color="#333333").encode(x=alt.value(0), y=y, text="said:N"),
    ]
    return panel(layers, "what is sustained (filled), and what fits (ring)")
