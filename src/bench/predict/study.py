"""The models of a study: each deployment calibrated, judged by runs that it has not seen, and asked for loads near those measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import polars as pl

from bench.axes import AXES
from bench.parse.stream import gaps_between_tokens
from bench.predict.calibrate import Calibrated, MeasuredRun, Z, calibrate, parameters, planned_again
from bench.predict.calibration import METRICS, Calibration, Interval, Judgement, MeasuredLoad, ModelRecord, PredictedLoad
from bench.predict.limits import Limits
from bench.predict.predict import measures, misfits, predict, widened
from bench.predict.sources import FEW_STEPS, Source
from bench.predict.step_time import ASSUMED_ERROR, ASSUMED_THROUGHPUT_ERROR
from bench.statistics.percentiles import percentile
from bench.statistics.textbook import FREEDOM
from bench.workloads.schedule import schedule
from bench.workloads.workload import Workload

MEMBERS = 8  # servers of an ensemble whose replays are many: those that judge a model, or relieve a resource; convention
_CONDITIONS = 16  # most conditions that are left out in turn; convention: 100 runs a server take minutes and not hours


@dataclass(frozen=True)
class HeldOut:
    """A number of a run that was predicted without it. Attributes: condition: its workload and level. metric: in `METRICS`."""

    condition: tuple[str, float]
    metric: str
    measured: float
    predicted: Interval


def measured(run: MeasuredRun) -> dict[str, float]:
    """The numbers of `METRICS` of a measured run."""
    answered = run.requests.filter(pl.col("outcome") == "ok")
    chunks = {name: run.row.get(name) for name in ("tokens_per_chunk", "tokens_per_arrival", "unknown_streamed")}
    gaps = answered["token_times_s"].list.diff(null_behavior="drop").explode()
    itl_p99_s = percentile(gaps, 0.99) if gaps_between_tokens(chunks) else None
    return measures(answered.with_columns(output_tokens="completion_tokens"), itl_p99_s)


#: What a run's predictions do without: the runs of its level, or those of its workload.
_FOLDS: dict[str, Callable[[MeasuredRun], Any]] = {
    "level": lambda run: run.condition,
    "workload": lambda run: run.condition[0],
}


def held_out(runs: Sequence[MeasuredRun], limits: Limits, fold: str, *, each: int | None = None) -> list[HeldOut]:
    """Predict runs from those of other levels, or of other workloads. Intervals are those of the ensembles alone.

    Args:
        fold: of `_FOLDS`. each: so many runs of those that are left out together; None for all.
    """
    of, found = _FOLDS[fold], []
    for left_out in _left_out(runs, fold):
        others = [run for run in runs if of(run) != left_out]
        model = calibrate(others, limits, draws=MEMBERS) if others else None
        if model is None:
            continue
        for run in [run for run in runs if of(run) == left_out][:each]:
            plan = planned_again(run)
            predicted = predict(model, lambda _, plan=plan: plan, held=run.held, members=MEMBERS)  # type: ignore[misc]
            numbers = {} if predicted.doubts else predicted.numbers
            found += [
                HeldOut(run.condition, name, value, numbers[name])
                for name, value in measured(run).items()
                if name in numbers and value > 0
            ]
    return found


def _left_out(runs: Sequence[MeasuredRun], fold: str) -> list[Any]:
    """The conditions, or workloads, that are left out, one after the other."""
    every = sorted({_FOLDS[fold](run) for run in runs})
    return every if len(every) <= _CONDITIONS else [every[round(i)] for i in np.linspace(0, len(every) - 1, _CONDITIONS)]


def self_judged(model: Calibrated, runs: Sequence[MeasuredRun]) -> Calibrated:
    """The model with intervals as wide as its predictions of measured levels were off, each without the runs of its level."""
    return replace(model, beyond=beyond(held_out(runs, model.limits, "level", each=1)))


def beyond(found: Sequence[HeldOut]) -> dict[str, float]:
    """By metric, the standard deviation of ln predicted ÷ measured beyond the ensembles' own: what `found` shows, and what is assumed
    before any is seen.
    """
    off_by = {}
    for metric in METRICS:
        squares: dict[tuple[str, float], list[float]] = {}
        for each in found:
            if each.metric == metric:
                off = math.log(each.predicted.value / each.measured)
                own = math.log(each.predicted.high / each.predicted.low) / 2 / Z
                squares.setdefault(each.condition, []).append(off**2 - own**2)
        seen = max(0.0, sum(map(fmean, squares.values())))  # repeats of a load err alike
        assumed = ASSUMED_THROUGHPUT_ERROR if metric.startswith("throughput") else ASSUMED_ERROR
        off_by[metric] = math.sqrt((seen + FREEDOM * assumed**2) / (len(squares) + FREEDOM))
    return off_by


def judged(predictions: Sequence[HeldOut], runs: Sequence[MeasuredRun], fold: str) -> list[Judgement]:
    """How good predictions are, by metric.

    Intervals have the error beyond the ensembles' own that other conditions show, so that no run judges itself.

    Args:
        predictions: of `held_out` with the same runs and fold.
    """
    left_out, found = _left_out(runs, fold), []
    numbers = [measured(run) for run in runs if _FOLDS[fold](run) in left_out]
    for metric in METRICS:
        rows = [each for each in predictions if each.metric == metric]
        if not rows:
            continue
        widths = [beyond([other for other in rows if other.condition != each.condition])[metric] for each in rows]
        held = [widened(each.predicted, width) for each, width in zip(rows, widths, strict=True)]
        found.append(
            Judgement(
                fold,
                metric,
                error=fmean(abs(each.predicted.value / each.measured - 1) for each in rows),
                coverage=fmean(end.low <= each.measured <= end.high for each, end in zip(rows, held, strict=True)),
                runs=len(rows),
                of=sum(metric in each for each in numbers),
            )
        )
    return found


_LEVELS = 12  # levels of a predicted curve; convention
_HIGHER = (
    1.2  # highest predicted level ÷ the highest measured one; convention: below `BEYOND` of predict.predict, rounded as well
)


def calibrate_study(
    table: pl.DataFrame,
    results: Path,
    workloads: Mapping[tuple[str, str], Workload],
    *,
    code: str,
    known: Calibration | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Calibration:
    """The model of each deployment, and those that are known of others. One whose runs, limits and code are those of a known model
    keeps it.

    Args:
        table: the summary. results: the folder that it is of. workloads: of each run, by (deployment, run). code: a digest of the
            sources that decide the result. known: from an earlier call. say: takes progress lines.
    """
    before = {model.deployment: model for model in known.models} if known else {}
    models = []
    names = table["deployment"].unique(maintain_order=True).to_list()
    for number, name in enumerate(names, 1):
        source, model = Source(table, results, name), before.pop(name, None)
        asked = {run.name: workloads[name, run.name] for run in source.runs if (name, run.name) in workloads}
        of = source.digest(code=code, workloads={run: load.model_dump(mode="json") for run, load in asked.items()})
        if model is None or model.digest != of:
            say(f"calibrating {name}, {number} of {len(names)}")
            try:
                model = _modelled(source, of, asked)
            except (ArithmeticError, ValueError) as error:  # a server without a model must not cost the study its report
                model = ModelRecord(deployment=name, digest=of, why_not=f"fitting it failed ({error})", parameters={})
        models.append(model)
    # Of deployments that were not selected this time: they need not be calibrated again when they are.
    return Calibration(models=(*models, *before.values()))


def _modelled(source: Source, of: str, workloads: Mapping[str, Workload]) -> ModelRecord:
    """Args: of: its digest. workloads: by run."""
    name, runs, model = source.name, source.runs, source.model
    if model is None:
        return ModelRecord(deployment=name, digest=of, why_not=source.why_not or FEW_STEPS, parameters={})
    unseen = held_out(runs, model.limits, "level")
    model = replace(model, beyond=beyond(unseen))
    if doubts := tuple(misfits(model)):
        return ModelRecord(deployment=name, digest=of, doubts=doubts, parameters={})
    others = held_out(runs, model.limits, "workload")
    curves: dict[tuple[str, str], list[MeasuredRun]] = {}
    for run in runs:
        # What a server will count of a prompt from a file, or of an answer that ends by itself, cannot be drawn for another load.
        workload = workloads.get(run.name)
        # A pack goes without the files that workloads read.
        if workload and workload.lengths_known and all(Path(file).is_file() for file in workload.files):
            curves.setdefault((str(run.row["workload"]), str(run.row["axis"])), []).append(run)
    predicted = [
        _load(model, curve, level, workloads[_nearest(curve, level).name])
        for (_, axis), curve in curves.items()
        for level in _levels(curve, whole=AXES[axis].held)
    ]
    return ModelRecord(
        deployment=name,
        digest=of,
        parameters=parameters(model),
        run_noise=model.fitted.run_noise,
        residual=model.fitted.residual,
        judged=(*judged(unseen, runs, "level"), *judged(others, runs, "workload")),
        predicted=tuple(predicted),
        measured=tuple(MeasuredLoad(run=run.name, **_place(run.row), numbers=measured(run)) for run in runs),
    )


def _place(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"workload": str(row["workload"]), "axis": str(row["axis"]), "level": float(row["level"])}


def _levels(curve: Sequence[MeasuredRun], *, whole: bool) -> list[float]:
    """Loads of a curve to predict: over what was measured, and a little beyond; none where there is one level."""
    measured_levels = {float(run.row["level"]) for run in curve}
    if len(measured_levels) < 2:
        return []
    grid = np.geomspace(min(measured_levels), _HIGHER * max(measured_levels), _LEVELS).tolist()
    return sorted({float(round(level)) if whole else float(f"{level:.3g}") for level in grid})


def _nearest(curve: Sequence[MeasuredRun], level: float) -> MeasuredRun:
    return min(curve, key=lambda run: abs(math.log(float(run.row["level"]) / level)))


def _load(model: Calibrated, curve: Sequence[MeasuredRun], level: float, workload: Workload) -> PredictedLoad:
    """The prediction of a level, with as many requests for each one in flight as the nearest measured level."""
    near = _nearest(curve, level)
    if workload.arrival == "closed" and isinstance(workload.num_requests, int):
        requests = max(int(level), round(workload.num_requests * level / float(near.row["level"])))
        workload = workload.model_copy(update={"num_requests": requests})
    found = predict(
        model,
        lambda number: schedule(workload, level, f"predict/{number}"),
        held=int(level) if workload.arrival == "closed" else None,
    )
    return PredictedLoad(
        **{**_place(near.row), "level": level},
        numbers={} if found.doubts else found.numbers,
        doubts=found.doubts,
        shares={} if found.doubts else found.shares,
    )
