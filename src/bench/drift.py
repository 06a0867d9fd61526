"""Whether the machine was as fast in one round as in the others: what the reference loads show.

The session asks, to measure a round again; the analysis asks, to leave out what drifted all the same.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median, stdev
from typing import TYPE_CHECKING, Any

from bench.records.run import ReferenceLoad, RunHeader
from bench.statistics import student_t

if TYPE_CHECKING:  # each run that is parsed asks this module, and pydantic takes a quarter of a second to import
    from bench.study.config import Thresholds

__all__ = ["Drift", "RoundPart", "drift_reasons", "place_of_run"]

_FALSE_ALARMS = 0.01  # of a deployment's rounds together
# What the noise of a reference is taken for until its repeats have shown it: a few of them often spread far too little or too much. A
# variance from few values is moderated by one from experience, with a weight in degrees of freedom (G. K. Smyth, Linear models and
# empirical Bayes methods, 2004). The values: benchmarks/drift.py.
_USUAL_NOISE, _WEIGHT = 0.05, 6
_FREEDOM = 3  # of the noise of one reference: four times are kept
_FOUR_OF_FIVE = 0.666  # variance within the four smallest of five normal values, as a share of theirs (4,000,000 draws)
_MEAN_VARIANCE = 0.2157  # of the mean of the four smallest of five normal values, in the variance of one (4,000,000 draws)


def place_of_run(run: RunHeader) -> dict[str, Any]:
    """When the run was measured, and how fast the machine was then.

    The slowest of a reference load's five times is left out: what interrupts a machine for a moment is not drift.

    Returns:
        `round`, `session` and `position` (null where nothing planned one); of the reference load, null without one, `reference_s`
        (geometric mean of the four fastest times), `reference_noise` (standard deviation of the logarithm of a time, from the same
        four), when it started (`reference_started`) and what it was (`reference_load`).
    """
    reference = run.reference or ReferenceLoad()
    shape = (reference.requests, reference.in_flight, reference.prompt_tokens, reference.output_tokens)
    kept = sorted(reference.seconds)[:-1]
    return {
        "round": run.round,
        "position": run.position,
        "session": run.session,
        "reference_s": geometric_mean(kept) if kept else None,
        "reference_noise": stdev(map(math.log, kept)) / math.sqrt(_FOUR_OF_FIVE) if kept else None,
        "reference_started": reference.started,
        "reference_load": "{} requests, {} at once, {} + {} tokens".format(*shape) if kept else None,
    }


@dataclass(frozen=True)
class _Reference:
    """One reference load: its round, when it started, the logarithm of its time (s), and the noise of one of its five times."""

    round: int
    started: str
    log: float
    noise: float


@dataclass(frozen=True)
class RoundPart:
    """A round, or the part of one that began at `since` (ISO, UTC)."""

    round: int
    since: str | None = None


@dataclass(frozen=True)
class Drift:
    """A round in which the machine was slower or faster than in others.

    Attributes:
        at: the round. other: the only other one; None where there are several. log, usual: ln of the reference load's time (s) in it,
            and of what it is compared with.
    """

    at: RoundPart
    other: RoundPart | None
    log: float
    usual: float


def drift_reasons(runs: Sequence[Mapping[str, Any]], thresholds: Thresholds) -> dict[tuple[str, str], Drift]:
    """Of each run of a round in which the machine was slower or faster than in the deployment's others: by how much.

    A round drifted where ln `reference_s` lies further from the median of all rounds than
    max(ln(1 + `thresholds.drift`), t · s · √(0.2157 (1 + 1 / (2 (K − 1))))), with K rounds, s the moderated noise of one time, and t
    Student's at 1 % over all K rounds (Bonferroni). Of two rounds that differ the slower one drifted (√(0.2157 · 2)): whatever else
    uses a machine makes it slower.

    Args:
        runs: summaries, with `deployment`, `run`, `round`, `reference_s`, `reference_noise`, `reference_started` and `reference_load`.
            A run without a reference is not judged, nor is a single round.

    Returns:
        The drifts by (deployment, run).
    """
    found: dict[tuple[str, str], dict[str, _Reference]] = defaultdict(dict)
    for run in runs:
        if run.get("reference_s") is not None:
            reference = _Reference(run["round"], run["reference_started"], math.log(run["reference_s"]), run["reference_noise"])
            found[_alike(run)][reference.started] = reference
    drifted = {key: _drifted(list(references.values()), thresholds.drift) for key, references in found.items()}
    return {
        (run["deployment"], run["run"]): drifted[_alike(run)][run["reference_started"]]
        for run in runs
        if run.get("reference_s") is not None and run["reference_started"] in drifted[_alike(run)]
    }


def _alike(run: Mapping[str, Any]) -> tuple[str, str]:
    """What references that may be compared have in common."""
    return run["deployment"], run["reference_load"]


def _drifted(references: Sequence[_Reference], floor: float) -> dict[str, Drift]:
    """The references that drifted, by when they started."""
    count = len(references)
    if count < 2:
        return {}
    two = count == 2
    logs = [reference.log for reference in references]
    usual = min(logs) if two else median(logs)
    freedom = _FREEDOM * count + _WEIGHT
    within = _FREEDOM * sum(reference.noise**2 for reference in references)
    noise = math.sqrt((within + _WEIGHT * _USUAL_NOISE**2) / freedom)
    t = student_t(freedom, 1 - _FALSE_ALARMS / (1 if two else count))
    against = 1.0 if two else 0.5 / (count - 1)  # variance of what it is compared with, in that of one reference
    bound = max(math.log1p(floor), t * noise * math.sqrt(_MEAN_VARIANCE * (1 + against)))
    rounds = Counter(reference.round for reference in references)
    return {
        reference.started: Drift(
            _part(reference, rounds),
            _part(next(x for x in references if x is not reference), rounds) if two else None,
            reference.log,
            usual,
        )
        for reference in references
        if abs(reference.log - usual) > bound
    }


def _part(reference: _Reference, rounds: Mapping[int, int]) -> RoundPart:
    """Its round, with the time of day where the round was measured in parts."""
    return RoundPart(reference.round, reference.started if rounds[reference.round] > 1 else None)
