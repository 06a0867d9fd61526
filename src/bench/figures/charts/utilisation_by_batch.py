"""How busy the devices are, by batch size and their number."""

import altair as alt
import polars as pl

from bench.analysis.factors import with_metrics
from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import PALETTE, nothing_to_show


@figure(
    "utilisation-by-batch",
    title="Utilisation by batch size and number of devices",
    question="Does another device leave all of them less busy, and does a larger batch make up for it?",
    reading="Means over the lengths. A GPU's utilisation is the share of time in which a kernel ran on it, as NVML says; without "
    "GPUs, the share of all cores' time that was not idle, the client's included.",
    invalid="Left out",
    by_axis=False,
)
def utilisation_by_batch(results: Results) -> alt.FacetChart | alt.LayerChart:
    """Mean utilisation over batch size, a bar a number of devices, a panel a model.

    Args:
        results: `runs` with `gpu_utilisation_mean` or `host_busy_share` (0–1), `level`, `tensor_parallel` and `model`.
    """
    runs = with_metrics(results.runs)
    gpu = "gpu_utilisation_mean" in runs.columns and runs["gpu_utilisation_mean"].is_not_null().any()
    column = "gpu_utilisation_mean" if gpu else "host_busy_share"
    if column not in runs.columns or runs[column].is_null().all() or runs["tensor_parallel"].is_null().all():
        return nothing_to_show("no run with swept lengths says how busy its devices were")
    rows = runs.group_by("model", "level", "tensor_parallel", maintain_order=True).agg(pl.col(column).mean().alias("share"))
    counts = rows["tensor_parallel"].unique().sort().to_list()
    chart: alt.FacetChart = (
        alt.Chart(rows)
        .mark_bar()
        .encode(
            x=alt.X("level:O", title="batch size (requests)", axis=alt.Axis(labelAngle=0, format="d")),
            xOffset=alt.XOffset("tensor_parallel:O", sort=counts),
            y=alt.Y(
                "share:Q",
                title="mean utilisation of the GPUs" if gpu else "mean share of cores' time that was busy",
                axis=alt.Axis(format="%"),
                scale=alt.Scale(domain=[0, 1]),
            ),
            color=alt.Color(
                "tensor_parallel:O",
                title="devices",
                sort=counts,
                scale=alt.Scale(domain=counts, range=[PALETTE[i % len(PALETTE)] for i in range(len(counts))]),
            ),
            tooltip=["model:N", "level:Q", "tensor_parallel:O", alt.Tooltip("share:Q", format=".1%")],
        )
        .properties(width=300, height=240)
        .facet(column=alt.Column("model:N", title=None))
    )
    return chart
