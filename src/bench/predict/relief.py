"""What relieving one resource of a server would bring to a curve whose limit was measured: its cause, by replays of a calibrated
model.

A curve's own requests are replayed around its limit, on the server as it is and on the same server with one resource relieved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from bench.predict.asked import Asked
from bench.predict.calibrate import Calibrated, MeasuredRun, Member, members
from bench.predict.calibration import CurveRelief, Gain, Relief, Reliefs
from bench.predict.carried import CLOSE, FEWEST_REQUESTS
from bench.predict.limit import Replays
from bench.predict.predict import misfits
from bench.predict.sources import FEW_STEPS, NO_STEPS, Source
from bench.predict.study import MEMBERS
from bench.runs.latencies import LATENCIES
from bench.statistics.textbook import student_t
from bench.study.slo import Slo

Row = Mapping[str, Any]
Floats: TypeAlias = npt.NDArray[np.float64]

_KV = 4.0  # factor meant by "more KV memory"; measured: docs/explanation/decisions.md

#: By name, a server with one resource relieved: by so much that more of it would change nothing (slots), or by a factor.
RESOURCES: dict[str, Callable[[Member], Member]] = {
    "kv": lambda server: replace(server, limits=replace(server.limits, blocks=int(_KV * (server.limits.blocks or 0)))),
    "sequences": lambda server: replace(
        server, limits=replace(server.limits, sequences=max(server.limits.tokens, server.limits.sequences))
    ),
    "prefill": lambda server: replace(server, step=replace(server.step, prompts=server.step.prompts / 2)),
    "decode": lambda server: replace(server, step=replace(server.step, bare=server.step.bare / 2)),
    "interference": lambda server: replace(server, step=replace(server.step, prompts=0.0)),
}


def relief_of(
    model: Calibrated,
    runs: Sequence[MeasuredRun],
    slos: Sequence[Slo],
    missed: Collection[str],
    missed_at: float,
    measured: float | None = None,
    *,
    fewest: int = FEWEST_REQUESTS,
) -> Relief | None:
    """What relieving each resource would bring to a curve. Each server that the model allows gets another order of its requests.

    Args:
        runs: of the curve, valid. slos: that bound it. missed: metrics that miss; of the time between tokens, prompts are others'.
        missed_at: the lowest level that misses. measured: the highest load within the SLOs; None where it is not known.
        fewest: requests of a replay, at least.

    Returns:
        None where the replays of more than half of the servers that the model allows are far from what was measured
        (`Replays.own`): what is off there cannot say what would move it.
    """
    near = sorted(runs, key=lambda run: abs(math.log(float(run.row["level"]) / missed_at)))
    left_out = {"prefill" if "tpot" in missed else "interference"} | ({"kv"} if model.limits.blocks is None else set())
    tried = {name: relieved for name, relieved in RESOURCES.items() if name not in left_out}
    logs: dict[str, list[float]] = {name: [] for name in tried}
    more: set[str] = set()
    # highest load with the resource relieved ÷ without, of the server before: where to look first
    farther = dict.fromkeys(tried, 1.0)
    for member in members(model, count=MEMBERS):
        replays = Replays(member, Asked(near, fewest, seed=member.number), slos, missed_at)
        limit = replays.own(measured)
        if limit is None:
            continue
        for name, relieved in tried.items():
            found = replays.limit(relieved(member), farther[name] * limit.level, limit) or limit
            farther[name] = found.level / limit.level
            logs[name].append(math.log(max(1.0, found.rps / limit.rps)))
            more |= {name} if found.open and found is not limit else set()
    if 2 * len(logs["decode"]) < MEMBERS:
        return None
    return _ordered({name: _gain(name, each, more=name in more) for name, each in logs.items()}, logs)


def _ordered(gains: dict[str, Gain], logs: dict[str, list[float]]) -> Relief:
    """The best gain, those that are not surely less, and the rest."""
    ordered = sorted(gains.values(), key=lambda each: -each.gain)
    best = ordered[0]
    if not best.sure:
        return Relief(tuple(ordered), 0)
    apart = {each.resource: _least(np.array(logs[best.resource]) - np.array(logs[each.resource])) > 0 for each in ordered[1:]}
    tied = [each for each in ordered[1:] if each.sure and not apart[each.resource]]
    rest = [each for each in ordered[1:] if each not in tied]
    return Relief((best, *tied, *rest), 1 + len(tied))


def _gain(resource: str, logs: Sequence[float], *, more: bool) -> Gain:
    mean, half = float(np.mean(logs)), _half(logs)
    return Gain(resource, math.exp(mean), math.exp(max(0.0, mean - half)), math.exp(mean + half), more)


def _least(logs: Floats) -> float:
    """The lower end of the mean's 95 % interval."""
    return float(np.mean(logs)) - _half(logs)


def _half(logs: Sequence[float] | Floats) -> float:
    """Half of the 95 % interval of a further server, and of the search for the limit."""
    return student_t(len(logs) - 1) * float(np.std(logs, ddof=1)) + math.log(CLOSE)


def find_reliefs(
    table: pl.DataFrame,
    results: Path,
    capacity: pl.DataFrame,
    slos: Sequence[Slo],
    *,
    code: str,
    known: Reliefs | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Reliefs:
    """The relief of each curve that misses an SLO under a load that goes on. One whose runs, limit and code are those of a known one
    keeps it.

    Args:
        table: the summary. results: the folder that it is of. capacity: `operating_points` of its curves. slos: that they are for.
        code: a digest of the sources that decide the result. known: from an earlier call. say: takes progress lines.
    """
    before = (known or Reliefs()).by_curve()
    limited = pl.col("kind").is_in(["found", "below"]) & (pl.col("basis") == "steady") & (pl.col("slos").list.len() > 0)
    found: list[CurveRelief] = []
    for (name,), points in capacity.filter(limited).group_by("deployment", maintain_order=True):
        source = Source(table, results, str(name))
        for point in points.iter_rows(named=True):
            limits, workload = [slo for slo in slos if str(slo) in point["slos"]], point["workload"]
            asked = {"slos": [str(slo) for slo in limits], "missed": sorted(_metrics(point))}
            of = source.digest(code=code, **asked, missed_at=point["missed_at"], measured=point["limit"])
            kept = before.get((source.name, workload))
            if kept is None or kept.digest != of:
                say(f"replaying {source.name}, {workload}, with one resource relieved at a time")
                try:
                    relief, why_not = _relieved(source, point, limits)
                except (ArithmeticError, ValueError) as error:  # a server without a model must not cost the study its report
                    relief, why_not = None, f"replaying it failed ({error})"
                why = None if relief else why_not
                kept = CurveRelief(deployment=source.name, workload=workload, digest=of, relief=relief, why_not=why)
            found.append(kept)
    # Of curves that were not selected this time: they need not be replayed again when they are.
    mine = set(table.select("deployment", "workload").iter_rows())
    return Reliefs(curves=(*found, *(each for at, each in before.items() if at not in mine)))


def _relieved(source: Source, point: Row, slos: Sequence[Slo]) -> tuple[Relief | None, str]:
    """A curve's relief, and why there is none."""
    if unknown := [slo for slo in slos if not LATENCIES[slo.metric].replayed]:
        return None, f"how long answers reason is not replayed, and {unknown[0]} limits that"
    curve = [run for run in source.runs if (run.row["workload"], run.row["axis"]) == (point["workload"], point["axis"])]
    if not curve:
        return None, source.why_not or NO_STEPS
    if source.model is None:
        return None, FEW_STEPS
    if any(misfits(source.model)):
        return None, "steps stray too far from the calibrated model"
    relief = relief_of(source.model, curve, slos, _metrics(point), point["missed_at"], point["limit"])
    return relief, "the replays do not find the limit near the measured one"


def _metrics(point: Row) -> set[str]:
    """The latencies that a curve misses, of all requests or of a class."""
    missed = {miss["by"] for miss in point["missed"] or ()}
    return {Slo.of_column(by, 0.0).metric if by.endswith("_s") else by for by in missed}
