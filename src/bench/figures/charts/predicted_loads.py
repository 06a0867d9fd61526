"""What the calibrated model of each server predicts, beside what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import altair as alt
import polars as pl

from bench.figures.registry import figure
from bench.figures.tables import Tables
from bench.figures.theme import curve_colour, curve_column, curve_shape, is_log, level_axis, nothing_to_show, with_curve
from bench.predict.calibration import MeasuredLoad, ModelRecord, PredictedLoad
from bench.words.predicted import predictions_title, unpredicted_note, unpredicted_reason

_METRICS = {
    "throughput_tokens_per_s": "output tokens/s",
    "ttft_p50_s": "TTFT P50 (s, log)",
    "ttft_p99_s": "TTFT P99 (s, log)",
    "tpot_p50_s": "TPOT P50 (s)",
}
_WHOLE = "of whole runs"  # a second line below each axis' title: other figures have the same numbers of steady windows
_FEW_PANELS, _WIDTH, _NARROW, _HEIGHT = 3, 300, 220, 150
_Load = TypeVar("_Load", PredictedLoad, MeasuredLoad)
_SCHEMA = {"deployment": pl.String, "workload": pl.String, "level": pl.Float64, "metric": pl.String}


def _title(results: Tables) -> str | None:
    return predictions_title(results.calibration)


def _unpredicted(results: Tables) -> str:
    return unpredicted_note(results.calibration, results.axis)


@figure(
    "predicted-loads",
    title="Predicted beside measured",
    question="What would loads between and a little above those that were measured bring?",
    reading="Points: valid runs, each whole, from its first request to its last answer (other figures show the steady windows of loads "
    "that go on). Lines, with the interval of 90 %: what a model of the server predicts that was calibrated on all of these runs. "
    "How far it is off for runs that it has not seen: “A model of each server”, below.",
    invalid="Not shown",
    finding=_title,
    note=_unpredicted,
)
def predicted_loads(results: Tables) -> alt.VConcatChart | alt.LayerChart:
    """Throughput, TTFT and TPOT against load, measured and predicted; a row a metric, a column a workload.

    Args:
        results: `calibration`, of the curves that `runs` has.
    """
    predicted, measured = _predicted(results), _measured(results)
    if predicted.is_empty():
        return nothing_to_show(unpredicted_reason(results.calibration, results.axis))
    workloads = predicted["workload"].unique(maintain_order=True).to_list()
    width = _WIDTH if len(workloads) <= _FEW_PANELS else _NARROW
    rows = []
    for number, (metric, title) in enumerate(_METRICS.items()):
        panels = []
        for workload in workloads:
            here = pl.col("metric").eq(metric) & pl.col("workload").eq(workload)
            titles, scale = [title, _WHOLE], _scale(predicted, measured, metric)
            panel = _panel(results, predicted.filter(here), measured.filter(here), scale, titles)
            panel = panel.properties(width=width, height=_HEIGHT)
            if number == 0:
                panel.title = alt.TitleParams(workload, fontSize=15, fontWeight="normal", anchor="start")
            panels.append(panel)
        rows.append(alt.hconcat(*panels))
    return alt.vconcat(*rows)


def _panel(
    results: Tables, predicted: pl.DataFrame, measured: pl.DataFrame, scale: alt.Scale, title: list[str]
) -> alt.LayerChart:
    x, colour = level_axis(results, log=is_log(results)), curve_colour(results)
    axis = alt.Axis(format="~g") if scale["type"] == "log" else alt.Axis(tickCount=5)
    y = alt.Y("value:Q", title=title, scale=scale, axis=axis)
    base = alt.Chart(predicted)
    band = base.mark_area(opacity=0.15, clip=True).encode(
        x=x, y=alt.Y("low:Q", title=title, scale=scale, axis=axis), y2="high:Q", color=colour
    )
    line = base.mark_line(strokeWidth=1.5, clip=True).encode(x=x, y=y, color=colour)
    dots = (
        alt.Chart(measured)
        .mark_point(filled=True, size=35, opacity=1)
        .encode(
            x=x,
            y=y,
            color=colour,
            shape=curve_shape(results),
            tooltip=["run:N", "level:Q", alt.Tooltip("value:Q", format=".3g")],
        )
    )
    return alt.LayerChart(layer=[band, line, dots])


def _scale(predicted: pl.DataFrame, measured: pl.DataFrame, metric: str) -> alt.Scale:
    """One scale for all workloads: from 0, and of TTFT, which spans orders of magnitude, logarithmic."""
    values = pl.concat([frame.filter(metric=metric)["value"] for frame in (predicted, measured)])
    low, high = (float(end) for end in (values.min() or 1.0, values.max() or 1.0))  # type: ignore[arg-type]
    return (
        alt.Scale(type="log", domain=[0.8 * low, 1.25 * high], nice=False)
        if "ttft" in metric
        else alt.Scale(type="linear", domain=[0, 1.1 * high])
    )


def _predicted(results: Tables) -> pl.DataFrame:
    rows = [
        {**place, **vars(load.numbers[place["metric"]])} for place, load in _numbers(results, lambda model: model.predicted)
    ]
    return _shown(results, pl.DataFrame(rows, schema={**_SCHEMA, **dict.fromkeys(("value", "low", "high"), pl.Float64)}))


def _measured(results: Tables) -> pl.DataFrame:
    found = _numbers(results, lambda model: model.measured)
    rows = [{**place, "run": load.run, "value": load.numbers[place["metric"]]} for place, load in found]
    return _shown(results, pl.DataFrame(rows, schema={**_SCHEMA, "run": pl.String, "value": pl.Float64}))


def _numbers(results: Tables, loads: Callable[[ModelRecord], Sequence[_Load]]) -> Iterator[tuple[dict[str, Any], _Load]]:
    """Each number of each load on the axis: where it belongs, and its load."""
    for model in results.calibration.models if results.calibration else ():
        for load in loads(model):
            if load.axis == results.axis:
                place = {"deployment": model.deployment, "workload": load.workload, "level": load.level}
                yield from (({**place, "metric": metric}, load) for metric in load.numbers)


def _shown(results: Tables, rows: pl.DataFrame) -> pl.DataFrame:
    kept = rows.filter(pl.col("metric").is_in(list(_METRICS)))
    return with_curve(results, kept.join(results.runs, on=["deployment", "workload"], how="semi")).filter(
        pl.col("curve").is_in(curve_column(results))
    )
