"""What relieving one resource of a server would bring: the cause of a limit, by replays of its calibrated model.

A curve's own requests are replayed around its limit, on the server as it is and on the same server with one resource relieved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from bench.predict.asked import Asked
from bench.predict.calibrate import Calibrated, MeasuredRun
from bench.predict.carried import CLOSE, FEWEST_REQUESTS
from bench.predict.ensemble import Member, members
from bench.predict.limit import Replays
from bench.predict.relief_record import Gain, Relief
from bench.statistics.textbook import student_t
from bench.study.slo import Slo

Floats: TypeAlias = npt.NDArray[np.float64]

MEMBERS = 5  # servers of the ensemble that are replayed; convention: a t interval with 4 degrees of freedom
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
    farther = dict.fromkeys(
        tried, 1.0
    )  # highest load with the resource relieved ÷ without, of the server before: where to look first
    for member in members(model, count=MEMBERS):
        replays = Replays(member, Asked(near, fewest, seed=member.number), slos, missed_at)
        limit = replays.own(measured)
        if limit is None:
            continue
        for name, relieved in tried.items():
            spare = name in limit.spare
            start = farther[name] * limit.level
            found = limit if spare else replays.limit(relieved(member), start, limit.over)
            farther[name] = found.level / limit.level if found else 1.0
            logs[name].append(math.log(max(1.0, found.rps / limit.rps)) if found else 0.0)
            more |= {name} if found and found.open and not spare else set()
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


def agreed(found: Sequence[Relief]) -> Relief:
    """What several models of one server say together: each gain from the least to the greatest, and every cause that one names."""
    if len(found) == 1:
        return found[0]
    causes = (
        {gain.resource for each in found for gain in each.gains[: each.tied]} if all(each.tied for each in found) else set()
    )
    by_name = [{gain.resource: gain for gain in each.gains} for each in found]
    gains = [
        Gain(
            name,
            float(np.exp(np.mean([math.log(each[name].gain) for each in by_name]))),
            min(each[name].low for each in by_name),
            max(each[name].high for each in by_name),
            any(each[name].more for each in by_name),
        )
        for name in by_name[0]
    ]
    gains.sort(key=lambda each: (each.resource not in causes, -each.gain))
    return Relief(tuple(gains), len(causes))


def _gain(resource: str, logs: Sequence[float], *, more: bool) -> Gain:
    mean, half = float(np.mean(logs)), _half(logs)
    return Gain(resource, math.exp(mean), math.exp(max(0.0, mean - half)), math.exp(mean + half), more)


def _least(logs: Floats) -> float:
    """The lower end of the mean's 95 % interval."""
    return float(np.mean(logs)) - _half(logs)


def _half(logs: Sequence[float] | Floats) -> float:
    """Half of the 95 % interval of a further server, and of the search for the limit."""
    return student_t(len(logs) - 1) * float(np.std(logs, ddof=1)) + math.log(CLOSE)
