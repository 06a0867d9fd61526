"""The models of a study: each deployment calibrated, judged by runs that it has not seen, and asked for loads near those measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bench.axes import AXES
from bench.predict.calibrate import Calibrated, MeasuredRun, calibrate, parameters
from bench.predict.calibration import Calibration, MeasuredLoad, ModelRecord, PredictedLoad
from bench.predict.judge import MEMBERS, beyond, held_out, judged, measured, widened_by_others
from bench.predict.predict import misfits, predict
from bench.predict.sources import Source, why_none
from bench.workloads.schedule import schedule
from bench.workloads.workload import Workload

_LEVELS = 12  # levels of a predicted curve; convention
_HIGHER = 1.2  # highest predicted level ÷ the highest measured one; convention: below `_BEYOND` of predict.predict


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
        source = Source(table, results, name)
        asked = {run.name: workloads[name, run.name] for run in source.runs if (name, run.name) in workloads}
        of = source.digest(code=code, workloads={run: load.model_dump(mode="json") for run, load in asked.items()})
        if name in before and before[name].digest == of:
            models.append(before[name])
            continue
        say(f"calibrating {name}, {number} of {len(names)}")
        try:
            model, why_not = _modelled(source, of, asked), source.why_not or why_none(table, name, source.runs)
        except (ArithmeticError, ValueError) as error:  # a server without a model must not cost the study its report
            model, why_not = None, f"fitting it failed ({error})"
        models.append(model or ModelRecord(deployment=name, digest=of, why_not=why_not, parameters={}))
    # Of deployments that were not selected this time: they need not be calibrated again when they are.
    return Calibration(models=(*models, *(model for model in before.values() if model.deployment not in names)))


def _modelled(source: Source, of: str, workloads: Mapping[str, Workload]) -> ModelRecord | None:
    """None where nothing can be fitted, or the runs show too few steps. Args: of: its digest. workloads: by run."""
    name, runs, limits = source.name, source.runs, source.limits
    model = calibrate(runs, limits) if runs and limits else None
    if model is None or limits is None:
        return None
    if doubts := tuple(misfits(model)):
        return ModelRecord(deployment=name, digest=of, doubts=doubts, parameters={})
    unseen = held_out(runs, limits, members=MEMBERS)
    model = replace(model, beyond=beyond([each for each in unseen if each.fold == "level"]))
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
    return replace(
        described(name, model),
        digest=of,
        judged=tuple(judged(widened_by_others(unseen), runs)),
        predicted=tuple(predicted),
        measured=tuple(MeasuredLoad(run=run.name, **_place(run.row), numbers=measured(run)) for run in runs),
    )


def described(deployment: str, model: Calibrated) -> ModelRecord:
    """The record of a model alone."""
    fitted = model.fitted
    return ModelRecord(
        deployment=deployment,
        digest="",
        parameters=parameters(model),
        run_noise=fitted.run_noise,
        residual=fitted.residual,
        steps=fitted.intervals,
        runs=fitted.runs,
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
        kv_peak=found.kv_peak,
        waiting=found.waiting,
        preemptions=found.preemptions,
        doubts=found.doubts,
        shares={} if found.doubts else found.shares,
    )
