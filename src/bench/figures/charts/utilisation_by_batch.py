"""How busy the devices are, by batch size and their number."""

import altair as alt
import polars as pl

from bench.analysis.factors import cells, metrics_of
from bench.figures.families import by_family
from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import marked, nothing_to_show

_SHADES = ["#a6cee3", "#5fa2ce", "#1f6fb2", "#0b3c6f"]


@figure(
    "utilisation-by-batch",
    title="Utilisation by batch size and number of devices",
    question="Does another device leave all of them less busy, and does a larger batch make up for it?",
    reading="Means over the lengths; lines: from the least length to the most. A GPU's utilisation is the share of time in which a "
    "kernel ran on it, as NVML says; without GPUs, the share of all cores' time that was not idle, the client's included.",
    invalid="Left out",
    by_axis=False,
)
def utilisation_by_batch(results: Results) -> alt.TopLevelMixin:
    """Mean utilisation over batch size, a bar a number of devices, a panel a model.

    Args:
        results: `runs` with `gpu_utilisation_mean` or `host_busy_share` (0–1), `level`, `tensor_parallel` and `model`.
    """
    return by_family(results, _drawn)


def _shades(count: int) -> list[str]:
    """From pale to dark, so that print keeps their order."""
    return [_SHADES[round(i * (len(_SHADES) - 1) / max(1, count - 1))] for i in range(count)]


def _drawn(runs: pl.DataFrame) -> alt.TopLevelMixin:
    gpu = "gpu_utilisation_mean" in metrics_of(runs)
    column = "gpu_utilisation_mean" if gpu else "host_busy_share"
    if column not in metrics_of(runs) or runs["tensor_parallel"].is_null().all():
        return nothing_to_show("no run with swept lengths says how busy its devices were")
    share = pl.col(column)
    rows = (
        cells(runs)
        .drop_nulls([column, "tensor_parallel"])
        .group_by("model", "level", "tensor_parallel", maintain_order=True)
        .agg(share=share.mean(), low=share.min(), high=share.max(), n=pl.len())
    )
    counts = rows["tensor_parallel"].unique().sort().to_list()
    # Ordinal: a bar a level, side by side by number of devices.
    base = alt.Chart().encode(
        x=alt.X("level:O", title="batch size (requests)", axis=alt.Axis(labelAngle=0, format="d")),
        xOffset=alt.XOffset("tensor_parallel:O", sort=counts),
    )
    title = "mean utilisation of the GPUs" if gpu else "mean share of cores' time that was busy"
    scale = alt.Scale(domain=[0, 1])
    bars = base.mark_bar().encode(
        y=alt.Y("share:Q", title=title, axis=alt.Axis(format="%"), scale=scale),
        color=marked(alt.Color, "tensor_parallel:O", dict(zip(counts, _shades(len(counts)), strict=True)), title="devices"),
        tooltip=[
            "model:N",
            "level:Q",
            "tensor_parallel:O",
            *(alt.Tooltip(f"{key}:Q", format=".1%") for key in ("share", "low", "high")),
            alt.Tooltip("n:Q", title="configurations"),
        ],
    )
    spread = base.mark_rule(strokeWidth=1.2).encode(y=alt.Y("low:Q", title=title, scale=scale), y2=alt.Y2("high:Q"))
    chart: alt.FacetChart = (
        alt.layer(bars, spread, data=rows).properties(width=300, height=240).facet(column=alt.Column("model:N", title=None))
    )
    return chart
