"""The figures of a factor study: which factors and metrics go together, what decides each metric, and how it moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from bench.findings.factors.decided import (
    FACTORS,
    METRICS,
    cells,
    correlations,
    crossed,
    importances,
    marginal_means,
    metrics_of,
    varying,
    with_metrics,
)
from bench.findings.tables import Tables
from bench.report.figure import alt, figure
from bench.report.theme import NEUTRAL, PALETTE, marked, nothing_to_show, shapes, why_empty
from bench.study.questions import FEWEST_CONFIGURATIONS

_OF = {"invalid": "Left out", "by_axis": False}
_SHADES = ["#a6cee3", "#5fa2ce", "#1f6fb2", "#0b3c6f"]  # from pale to dark, so that print keeps their order


def _by_family(results: Tables, draw: Callable[[pl.DataFrame], Any]) -> alt.TopLevelMixin:
    """`draw` of the runs (`with_metrics`) of each family of crossed factors: two families are two studies, below one another."""
    valid = results.runs.filter("valid")
    families = with_metrics(valid.filter(crossed(valid))).partition_by("family", maintain_order=True)
    if not families:
        return nothing_to_show("no family of workloads in whose valid runs two of load, lengths and settings vary")
    if len(families) == 1:
        return draw(families[0])  # type: ignore[no-any-return]
    titles = [alt.TitleParams(family["family"][0], fontSize=14, anchor="start") for family in families]
    charts = [draw(family).properties(title=title) for family, title in zip(families, titles, strict=True)]
    whole: alt.VConcatChart = alt.vconcat(*charts).resolve_scale(color="independent")
    return whole


def _below(*charts: Any) -> alt.TopLevelMixin:
    """Charts below one another, without those that have nothing to show unless none has."""
    shown = [chart for chart in charts if not why_empty(chart)] or list(charts[:1])
    if len(shown) == 1:
        return shown[0]  # type: ignore[no-any-return]
    return alt.VConcatChart(
        vconcat=shown, resolve=alt.Resolve(scale=alt.ScaleResolveMap(color="independent", shape="independent"))
    )


@figure(
    "factors",
    title="Which factors decide each metric",
    question="How strongly does each metric go with each factor, and how much worse is it predicted without it?",
    reading="Pearson's r: over the configurations of a model, repeats averaged first, with its strength: none below 0.1, low, "
    "medium from 0.3, high from 0.5, very high from 0.7; it sees straight lines only. Importance, by permutation: the R² that "
    "boosted trees lose on configurations that they have not seen when the factor is shuffled, with 2.5 % to 97.5 % of the shuffles; "
    "a line that reaches 0 shows no effect. Below an R² of 0.5, in a panel's title, no importance is given.",
    **_OF,
)
def factors(results: Tables) -> alt.TopLevelMixin:
    """Pearson's r of factors and metrics, a panel a model, over the importance of each factor, a panel a metric.

    Args:
        results: `runs` as `with_metrics` takes them.
    """
    return _below(_correlations(results), _importance(results))


def _correlations(results: Tables) -> alt.TopLevelMixin:

    def drawn(runs: pl.DataFrame) -> alt.TopLevelMixin:
        rows = correlations(runs)
        if rows.is_empty():
            return nothing_to_show("no factor varies in three configurations")
        titles = [title for title in metrics_of(runs).values() if title in rows["metric"]]
        base = alt.Chart().encode(
            x=alt.X("metric:N", title=None, sort=titles, axis=alt.Axis(labelAngle=0, labelExpr="split(datum.label, ' (')[0]")),
            y=alt.Y("factor:N", title=None, sort=list(dict.fromkeys((*FACTORS.values(), *rows["factor"])))),
        )
        ink = alt.condition("abs(datum.r) > 0.72", alt.value("white"), alt.value("black"))
        between = [alt.Tooltip(f"{end}:Q", title=f"{end} end (95 %)", format=".2f") for end in ("low", "high")]
        cell = base.mark_rect().encode(
            color=alt.Color("r:Q", legend=None, scale=alt.Scale(domain=[-1, 1], scheme="blueorange")),
            tooltip=[
                "factor:N",
                "metric:N",
                alt.Tooltip("r:Q", format=".3f"),
                *between,
                alt.Tooltip("n:Q", title="configurations"),
            ],
        )
        number = base.mark_text(dy=-8, fontWeight="bold").encode(text=alt.Text("r:Q", format=".2f"), color=ink)
        band = base.mark_text(dy=8, fontSize=11).encode(text="strength:N", color=ink)
        chart: alt.FacetChart = (
            alt.layer(cell, number, band, data=rows)
            .properties(width=alt.Step(118), height=alt.Step(48))
            .facet(facet=alt.Facet("model:N", title=None, sort=None), columns=2 if len(titles) <= len(METRICS) else 1)
        )
        return chart

    return _by_family(results, drawn)


def _importance(results: Tables) -> alt.TopLevelMixin:
    def drawn(runs: pl.DataFrame) -> alt.TopLevelMixin:
        rows = importances(runs)
        if rows.is_empty():
            few = f"{cells(runs).height} configurations have valid runs"
            return nothing_to_show(
                f"{few}; {FEWEST_CONFIGURATIONS} in which a metric is known are the fewest of which folds can be held out"
            )
        rows = rows.with_columns(
            panel=pl.concat_str(
                pl.col("metric").str.split(" (").list.first(), pl.format(" (R² {}, n = {})", pl.col("score").round(2), "n")
            )
        )
        base = alt.Chart().encode(y=alt.Y("factor:N", title=None, sort=None))
        title = "importance (loss of R²)"
        tooltip = ["factor:N", *(alt.Tooltip(f"{key}:Q", format=".3f") for key in ("importance", "low", "high"))]
        bars = base.mark_bar(color=NEUTRAL, opacity=0.75, height=14).encode(
            x=alt.X("importance:Q", title=title), tooltip=tooltip
        )
        spread = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title=title), x2="high:Q")
        chart: alt.FacetChart = (
            alt.layer(bars, spread, data=rows)
            .properties(width=330, height=alt.Step(28))
            .facet(facet=alt.Facet("panel:N", title=None, sort=None), columns=2)
        )
        return chart

    return _by_family(results, drawn)


@figure(
    "factor-panels",
    title="Each metric over each factor",
    question="In which direction does each factor move each metric, and by how much?",
    reading="Geometric means over the other factors, of the configurations that have every value of the factor shown. Shaded: the "
    "same means of each configuration's least and of its most repeat. Metrics are logarithmic. Bars: utilisation by batch size and "
    "number of devices, from the least length to the most: the share of time in which a kernel ran on a GPU; without GPUs, the "
    "share of all cores' time that was not idle, the client's included.",
    **_OF,
)
def factor_panels(results: Tables) -> alt.TopLevelMixin:
    """Marginal means with the repeats' spread: a row a metric, a column a factor, a colour a model; below, how busy devices are.

    Args:
        results: as of `factors`, with `gpu_utilisation_mean` or `host_busy_share` (0–1), `level`, `tensor_parallel` and `model`.
    """

    def drawn(runs: pl.DataFrame) -> alt.TopLevelMixin:
        tables = {name: marginal_means(runs, name) for name in varying(runs) if name != "model_order"}
        shown = {name: table for name, table in tables.items() if table["value"].n_unique() > 1}
        if not shown:
            return nothing_to_show("no factor has two values in configurations that are alike in the others")
        models = runs["model"].unique(maintain_order=True).to_list()
        colours = {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(models)}
        colour, shape = marked(alt.Color, "model:N", colours), marked(alt.Shape, "model:N", shapes(models))
        panels = []
        for metric in METRICS.values():
            parts = {name: table.filter(pl.col("metric") == metric) for name, table in shown.items()}
            ends = [value for part in parts.values() for value in (*part["low"], *part["high"])]
            scale = alt.Scale(type="log", domain=[0.9 * min(ends), 1.1 * max(ends)], nice=False) if ends else alt.Scale()
            for column, (name, part) in enumerate(parts.items() if ends else ()):
                title = None if column else metric  # named once a row
                y, low = (
                    alt.Y(f"{end}:Q", title=title, scale=scale, axis=alt.Axis(tickCount=4, format="~g"))
                    for end in ("mean", "low")
                )
                x = alt.X("value:O", title=FACTORS[name], axis=alt.Axis(labelAngle=0, format="~g"))
                tooltip = [
                    "model:N",
                    "value:Q",
                    *(alt.Tooltip(f"{key}:Q", format=".4g") for key in ("mean", "low", "high")),
                    "n:Q",
                ]
                base = alt.Chart(part).encode(x=x, y=y, color=colour)
                area = base.mark_area(opacity=0.25).encode(y=low, y2="high:Q")
                dots = base.mark_point(filled=True, size=35, opacity=1).encode(shape=shape, tooltip=tooltip)
                panels.append(alt.LayerChart(layer=[area, base.mark_line(), dots], width=190, height=140))
        return alt.ConcatChart(concat=panels, columns=len(shown))

    return _below(_by_family(results, drawn), _utilisation(results))


def _utilisation(results: Tables) -> alt.TopLevelMixin:
    """Mean utilisation over batch size, a bar a number of devices, a panel a model."""

    def drawn(runs: pl.DataFrame) -> alt.TopLevelMixin:
        gpu = "gpu_utilisation_mean" in metrics_of(runs)
        column = "gpu_utilisation_mean" if gpu else "host_busy_share"
        if column not in metrics_of(runs) or runs["tensor_parallel"].is_null().all():
            return nothing_to_show("no run with swept lengths says how busy its devices were")
        share = pl.col(column)
        known = (
            cells(runs)
            .drop_nulls([column, "tensor_parallel"])
            .group_by("model", "level", "tensor_parallel", maintain_order=True)
        )
        rows = known.agg(share=share.mean(), low=share.min(), high=share.max(), n=pl.len())
        counts = rows["tensor_parallel"].unique().sort().to_list()
        shades = {count: _SHADES[round(i * 3 / max(1, len(counts) - 1))] for i, count in enumerate(counts)}
        title = "mean utilisation of the GPUs" if gpu else "mean share of cores' time that was busy"
        scale = alt.Scale(domain=[0, 1])
        base = alt.Chart().encode(
            x=alt.X("level:O", title="batch size (requests)", axis=alt.Axis(labelAngle=0, format="d")),
            xOffset=alt.XOffset("tensor_parallel:O", sort=counts),
        )
        shown = [alt.Tooltip(f"{key}:Q", format=".1%") for key in ("share", "low", "high")]
        bars = base.mark_bar().encode(
            y=alt.Y("share:Q", title=title, axis=alt.Axis(format="%"), scale=scale),
            color=marked(alt.Color, "tensor_parallel:O", shades, title="devices"),
            tooltip=["model:N", "level:Q", "tensor_parallel:O", *shown, alt.Tooltip("n:Q", title="configurations")],
        )
        spread = base.mark_rule(strokeWidth=1.2).encode(y=alt.Y("low:Q", title=title, scale=scale), y2="high:Q")
        layers = alt.layer(bars, spread, data=rows).properties(width=300, height=240)
        chart: alt.FacetChart = layers.facet(column=alt.Column("model:N", title=None))
        return chart

    return _by_family(results, drawn)
