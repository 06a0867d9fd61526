"""Whether the machine was as fast in one round as in the others: what the reference loads show.

The session asks, to measure a round again; the analysis asks, to leave out what drifted all the same.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from bench.errors import shown_share
from bench.runs.run import ReferenceLoad, RunHeader
from bench.statistics.textbook import student_t

if TYPE_CHECKING:  # each run that is parsed asks this module, and pydantic takes a quarter of a second to import
    from bench.study.config import Thresholds

# false alarms of a deployment's rounds together; measured: docs/explanation/method.md: twice that, as references shortly after one
# another are alike
_FALSE_ALARMS = 0.005
# noise of a reference (standard deviation of ln time) until its repeats have shown it: a few of them often spread far too little or
# too much; tuned: benchmarks.drift
USUAL_NOISE = 0.05
# degrees of freedom that this counts for (Smyth, Linear models and empirical Bayes methods, 2004); tuned: benchmarks.drift
USUAL_WEIGHT = 6


def place_of_run(run: RunHeader) -> dict[str, Any]:
    """When the run was measured, and how fast the machine was then.

    The faster of a reference load's two times counts: what interrupts a machine for a moment is not drift.

    Returns:
        `round`, `session` and `position` (null where nothing planned one); of the reference load, null without one, `reference_s`
        (that time), when it started (`reference_started`), when its round, or this part of it, began (`reference_since`) and
        what it was (`reference_load`).
    """
    reference = run.reference or ReferenceLoad()
    shape = (reference.requests, reference.in_flight, reference.prompt_tokens, reference.output_tokens, len(reference.seconds))
    return {
        "round": run.round,
        "position": run.position,
        "session": run.session,
        "reference_s": min(reference.seconds, default=None),
        "reference_started": reference.started,
        "reference_since": reference.since,
        "reference_load": "{} requests, {} at once, {} + {} tokens, {} times".format(*shape) if reference.seconds else None,
    }


@dataclass(frozen=True)
class _Part:
    """A round, or the part of one that was measured together.

    Attributes:
        since: when it began. logs: logarithms of the times (s) of its reference loads.
    """

    round: int
    since: str
    logs: Sequence[float]

    @property
    def log(self) -> float:
        """The mean of `logs`: how fast the machine was."""
        return fmean(self.logs)


def drift_reasons(runs: Sequence[Mapping[str, Any]], thresholds: Thresholds) -> dict[tuple[str, str], str]:
    """How the machine was slower or faster than in the deployment's other rounds, in words, of each run of a round in which it was.

    Formula: docs/explanation/method.md, "Drift". Of two rounds that differ the slower one drifted: whatever else uses a machine makes
    it slower.

    Args:
        runs: summaries, with `deployment`, `run`, `round`, `reference_s`, `reference_started`, `reference_since` and `reference_load`.
            A run without a reference is not judged, nor is a single round.

    Returns:
        The sentences by (deployment, run).
    """
    known = [run for run in runs if run.get("reference_s") is not None]
    logs: dict[tuple[str, str], dict[tuple[int, str], dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for run in known:  # several runs may have one reference
        logs[_alike(run)][_place(run)][run["reference_started"]] = math.log(run["reference_s"])
    drifted = {
        key: _drifted([_Part(*place, tuple(each.values())) for place, each in parts.items()], thresholds.drift)
        for key, parts in logs.items()
    }
    return {
        (run["deployment"], run["run"]): drifted[_alike(run)][_place(run)]
        for run in known
        if _place(run) in drifted[_alike(run)]
    }


def _alike(run: Mapping[str, Any]) -> tuple[str, str]:
    """What two references have in common that may be compared."""
    return run["deployment"], run["reference_load"]


def _place(run: Mapping[str, Any]) -> tuple[int, str]:
    return run["round"], run["reference_since"]


def _drifted(parts: Sequence[_Part], floor: float) -> dict[tuple[int, str], str]:
    count = len(parts)
    if count < 2:
        return {}
    two = count == 2
    usual = min(part.log for part in parts) if two else median(part.log for part in parts)
    confidence = 1 - _FALSE_ALARMS / (1 if two else count)
    within = [(sum(len(part.logs) - 1 for part in parts), sum((log - part.log) ** 2 for part in parts for log in part.logs))]
    rounds = Counter(part.round for part in parts)
    found = {}
    for part in parts:
        others = [each for each in parts if each is not part]
        # Variances, in that of one reference: of its own mean, and of what it is compared with.
        of_others = fmean(1 / len(each.logs) for each in others) * (1.0 if two else 0.5 / (count - 1))
        noise = min(_noise(within, confidence), _noise([*within, _between(others)], confidence))
        if abs(part.log - usual) > max(math.log1p(floor), noise * math.sqrt(1 / len(part.logs) + of_others)):
            against = _named(others[0], rounds) if two else "the others"
            off = part.log - usual
            found[part.round, part.since] = (
                f"the machine was {shown_share(math.expm1(abs(off)))} {'slower' if off > 0 else 'faster'} in {_named(part, rounds)} "
                f"than in {against} (reference load {math.exp(part.log):.3g} s against {math.exp(usual):.3g} s)"
            )
    return found


def _noise(seen: Sequence[tuple[int, float]], confidence: float) -> float:
    """What noise alone moves one reference by at most, with that confidence.

    Args:
        seen: degrees of freedom and sums of squares that estimate its variance, beside what is usual.
    """
    freedom = USUAL_WEIGHT + sum(each for each, _ in seen)
    squares = USUAL_WEIGHT * USUAL_NOISE**2 + sum(each for _, each in seen)
    return student_t(freedom, confidence) * math.sqrt(squares / freedom)


def _between(parts: Sequence[_Part]) -> tuple[int, float]:
    """What rounds differ by: no less than the noise does. Of rounds of a run each nothing else shows how quiet a machine is."""
    count = sum(len(part.logs) for part in parts)
    mean = sum(len(part.logs) * part.log for part in parts) / count
    return len(parts) - 1, sum(len(part.logs) * (part.log - mean) ** 2 for part in parts)


def _named(part: _Part, rounds: Mapping[int, int]) -> str:
    """Its round, with the time of day where the round was measured in parts."""
    return f"round {part.round}" + (f" from {part.since[11:19]} UTC on" if rounds[part.round] > 1 else "")
