"""Each metric over each factor."""

import altair as alt
import polars as pl

from bench.analysis.factors import FACTORS, METRICS, marginal_means, varying, with_metrics
from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import PALETTE, nothing_to_show

_UNITS = {"batch size": "batch size (requests)", "input length": "input (tokens)", "output length": "output (tokens)"}


@figure(
    "factor-panels",
    title="Each metric over each factor",
    question="In which direction does each factor move each metric, and by how much?",
    reading="Geometric means over the other factors, of the configurations that have every value of the factor shown. Shaded: the "
    "least and the most of the repeats' own means. Both axes are logarithmic: a straight line of slope 1 is proportion.",
    invalid="Left out",
    by_axis=False,
)
def factor_panels(results: Results) -> alt.VConcatChart | alt.LayerChart:
    """Marginal means with the repeats' spread: a row a metric, a column a factor, a colour a model.

    Args:
        results: `runs` as `bench.analysis.factors.with_metrics` takes them.
    """
    runs = with_metrics(results.runs)
    factors = [name for name in varying(runs) if name != "parameters"]
    tables = {name: marginal_means(runs, name) for name in factors}
    shown = {name: table for name, table in tables.items() if table["value"].n_unique() > 1}
    if not shown:
        return nothing_to_show("no factor has two values in configurations that are alike in the others")
    models = runs["model"].unique(maintain_order=True).to_list()
    colour = alt.Color(
        "model:N",
        title="model",
        sort=models,
        scale=alt.Scale(domain=models, range=[PALETTE[i % len(PALETTE)] for i in range(len(models))]),
    )
    rows = []
    for metric in METRICS.values():
        parts = {name: table.filter(pl.col("metric") == metric) for name, table in shown.items()}
        ends = [value for part in parts.values() for value in (*part["low"], *part["high"])]
        if not ends:
            continue
        scale = alt.Scale(type="log", domain=[0.9 * min(ends), 1.1 * max(ends)], nice=False)
        axis = alt.Axis(tickCount=4, format="~g")
        channels = [
            tuple(alt.Y(f"{end}:Q", title=title, scale=scale, axis=axis) for end in ("mean", "low"))
            for title in (metric, *[None] * (len(parts) - 1))  # named once a row
        ]
        rows.append(
            alt.hconcat(
                *(
                    _panel(part, FACTORS[name], y, low, colour)
                    for (name, part), (y, low) in zip(parts.items(), channels, strict=True)
                )
            )
        )
    return alt.VConcatChart(vconcat=rows)


def _panel(rows: pl.DataFrame, factor: str, y: alt.Y, low: alt.Y, colour: alt.Color) -> alt.LayerChart:
    values = rows["value"].unique().sort().to_list()
    x = alt.X(
        "value:Q",
        title=_UNITS.get(factor, factor),
        scale=alt.Scale(type="log", base=2),
        axis=alt.Axis(values=values, format="d"),
    )
    base = alt.Chart(rows)
    return alt.LayerChart(
        layer=[
            base.mark_area(opacity=0.25).encode(x=x, y=low, y2="high:Q", color=colour),
            base.mark_line(point=True).encode(
                x=x, y=y, color=colour, tooltip=["model:N", "value:Q", alt.Tooltip("mean:Q", format=".4g")]
            ),
        ]
    ).properties(width=190, height=140)
