"""The study's six figures by matplotlib, static, each as SVG and PNG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

mpl.use("Agg")
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]


def draw(results: Path, names: Sequence[str]) -> None:
    """Draw those that are named into `figures/`."""
    runs = pd.read_parquet(results / "summary.parquet")
    courses = pd.read_parquet(results / "timeseries.parquet")
    (results / "figures").mkdir(exist_ok=True)
    for name in names:
        figure = globals()[name.replace("-", "_")](runs, courses)
        figure.savefig(results / "figures" / f"{name}.svg")
        figure.savefig(results / "figures" / f"{name}.png", dpi=144)
        plt.close(figure)


def _curves(runs: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    for (name, rows), colour in zip(runs.groupby("deployment", sort=False), COLOURS * len(runs)):  # noqa: B905 - as many as needed
        yield name, colour, rows


def _against_level(axes: Axes, runs: pd.DataFrame, column: str, title: str) -> None:
    """Points, a line through the medians, and the prediction dashed."""
    for name, colour, rows in _curves(runs):
        axes.scatter(rows["level"], rows[column], color=colour, s=20, label=name)
        axes.plot(rows.groupby("level")[column].median(), color=colour)
        axes.axvline(rows["predicted_saturation"].max(), color=colour, linestyle="--")
    axes.set(xlabel="concurrency (requests in flight)", ylabel=title, xlim=(0, 1.1 * runs["level"].max()))
    axes.grid(alpha=0.4)


def kv_saturation(runs: pd.DataFrame, _courses: pd.DataFrame) -> plt.Figure:
    """Peak usage of each run."""
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    _against_level(axes, runs, "kv_usage_peak", "peak KV-cache usage")
    axes.legend()
    return figure


def peak_throughput(runs: pd.DataFrame, _courses: pd.DataFrame) -> plt.Figure:
    """Peak and mean, with a bar of repeats' spread."""
    figure, panels = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    for axes, column in zip(panels, ("throughput_peak_tokens_per_s", "throughput_tokens_per_s"), strict=True):
        _against_level(axes, runs, column, "output tokens/s")
        for _, colour, rows in _curves(runs):
            of_level = rows.groupby("level")[column]
            half = 12.7 * of_level.std() / of_level.count() ** 0.5
            axes.errorbar(half.index, of_level.mean(), yerr=half, color=colour, fmt="none", capsize=3)
        axes.set_ylim(0, 1.05 * runs[column].max())
    panels[0].legend()
    return figure


def ttft(runs: pd.DataFrame, _courses: pd.DataFrame) -> plt.Figure:
    """Mean, P50 and P99, a panel a deployment."""
    curves = list(_curves(runs))
    figure, panels = plt.subplots(
        1, len(curves), figsize=(4 * len(curves), 4), sharey=True, squeeze=False, layout="constrained"
    )
    for axes, (name, colour, rows) in zip(panels[0], curves, strict=True):
        for column, style, marker in (("ttft_mean_s", "-", "o"), ("ttft_p50_s", "--", "s"), ("ttft_p99_s", ":", "^")):
            axes.plot(rows.groupby("level")[column].median(), color=colour, linestyle=style)
            axes.scatter(rows["level"], rows[column], color=colour, marker=marker, s=20, label=column)
        axes.set(title=name, xlabel="concurrency (requests in flight)", ylabel="TTFT (s)")
        axes.grid(alpha=0.4)
    panels[0][0].legend()
    return figure


def saturation_by_kv_bytes(runs: pd.DataFrame, _courses: pd.DataFrame) -> plt.Figure:
    """The lowest level of those that all filled the cache."""
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
    for name, colour, rows in _curves(runs):
        full = rows.groupby("level")["saturated"].all().sort_index(ascending=False).cummin()
        measured = full[full].index.min()
        for axes, column in zip(panels, ("kv_bytes_per_token", "parameters"), strict=True):
            axes.scatter(rows[column].iloc[0], measured, color=colour, label=name)
            axes.scatter(rows[column].iloc[0], rows["predicted_saturation"].max(), color=colour, marker="D", facecolors="none")
            axes.set(xlabel=column, ylabel="saturation (requests in flight)")
            axes.grid(alpha=0.4)
    panels[0].legend()
    return figure


def memory_pressure(runs: pd.DataFrame, courses: pd.DataFrame) -> plt.Figure:
    """Requests over KV usage at each deployment's highest level."""
    curves = list(_curves(runs))
    figure, panels = plt.subplots(
        2, len(curves), figsize=(4 * len(curves), 5), sharex="col", squeeze=False, layout="constrained"
    )
    for (above, below), (name, _, rows) in zip(panels.T, curves, strict=True):
        run = rows.sort_values(["level", "repeat"], ascending=[True, False]).iloc[-1]
        course = courses[(courses["deployment"] == name) & (courses["run"] == run["run"])].sort_values("elapsed_s")
        for series, colour in zip(("running", "waiting", "completed"), COLOURS, strict=False):
            line = course[course["series"] == series]
            above.step(line["elapsed_s"], line["value"], where="post", color=colour, label=series)
        usage = course[course["series"] == "kv_usage"]
        below.fill_between(usage["elapsed_s"], usage["value"], step="post", color="#bbbbbb", edgecolor="black")
        above.set(title=f"{name} at {run['level']:g}", ylabel="requests")
        below.set(xlabel="time since the run's start (s)", ylabel="KV-cache usage", ylim=(0, 1.02))
        above.legend()
    return figure


def throughput_over_time(runs: pd.DataFrame, courses: pd.DataFrame) -> plt.Figure:
    """The first repeat of each level, a panel a deployment."""
    curves = list(_curves(runs))
    figure, panels = plt.subplots(
        1, len(curves), figsize=(4 * len(curves), 4), sharey=True, squeeze=False, layout="constrained"
    )
    series = courses[(courses["series"] == "throughput") & (courses["repeat"] == 1)]
    colours = mpl.colormaps["viridis"].resampled(runs["level"].nunique())
    levels = sorted(runs["level"].unique())
    for axes, (name, _, _) in zip(panels[0], curves, strict=True):
        for level, line in series[series["deployment"] == name].groupby("level"):
            axes.plot(
                line["elapsed_s"],
                line["value"],
                color=colours(levels.index(level)),
                marker=".",
                markersize=3,
                label=f"{level:g}",
            )
        axes.set(title=name, xlabel="time since the run's start (s)", ylabel="output tokens/s")
        axes.grid(alpha=0.4)
    panels[0][-1].legend(fontsize=6)
    return figure
