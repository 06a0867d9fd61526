"""What the GPUs hold and draw."""

import altair as alt
import polars as pl

from bench.figures.registry import figure
from bench.figures.results import Results
from bench.figures.theme import HEIGHT, curves, nothing_to_show, with_curve

_PANELS = {
    "gpu_memory_gib": ("memory of the fullest GPU", "peak memory (GiB)", ".1f"),
    "gpu_power_mean_w": ("power of all GPUs together", "mean power (W)", ".0f"),
    "tokens_per_joule": ("what the energy buys", "output tokens a joule", ".2f"),
}


@figure(
    "gpu-memory-power",
    title="GPU memory, power and tokens a joule against load",
    question="What do the GPUs hold and draw as load rises, and at what load does a joule buy the most tokens?",
    reading="Each run, and lines through the means of the levels. An engine takes its memory when it starts, so that line is level. "
    "Power is the mean over the load; tokens a joule are a run's output tokens over the energy that the GPUs drew from its first "
    "request to its last token, by their own counters. What the rest of the machine draws is in neither.",
)
def gpu_memory_power(results: Results) -> alt.HConcatChart | alt.LayerChart:
    """Peak memory of the fullest GPU, mean power of all, and output tokens a joule of each run, one line a curve.

    Args:
        results: `runs` with `level`, `gpu_memory_peak_bytes`, `gpu_power_mean_w`, `tokens_per_joule` and `valid`.
    """
    runs = with_curve(results, results.runs).with_columns(gpu_memory_gib=pl.col("gpu_memory_peak_bytes") / 2**30)
    known = [column for column in _PANELS if runs[column].is_not_null().any()]
    if not known:
        return nothing_to_show("no run has the memory, the power or the energy of its GPUs")
    return alt.hconcat(*(_panel(results, runs, column) for column in known))


def _panel(results: Results, runs: pl.DataFrame, column: str) -> alt.LayerChart:
    title, what, digits = _PANELS[column]
    shown = runs.filter(pl.col(column).is_not_null())
    y = alt.Y(f"{column}:Q", title=what, scale=alt.Scale(domain=[0, 1.05 * float(shown[column].max() or 1)]))  # type: ignore[arg-type]
    heading = alt.TitleParams(title, fontSize=15, fontWeight="normal", anchor="start")
    return alt.LayerChart(layer=[*curves(results, shown, column, y, format=digits)], width=290, height=HEIGHT, title=heading)
