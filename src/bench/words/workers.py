"""What sets the engines of a fleet apart, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.analysis.efficiency import Efficiency
from bench.analysis.workers import Check, WorkerVerdict
from bench.errors import count_text, shown_share
from bench.words.templates import filled

COUNTED = {"requests": "requests", "generation_tokens": "output tokens"}
# In {runs} stand how many of the runs showed it.
_TEXTS: dict[Check, str] = {
    "silent": "{worker} was silent in {runs}[: no scrape for up to {value:.3g} s]. What the server counted is not known there.",
    "restarted": "{worker} was started again during {runs}. What the server counted is not known there.",
    "version": "{worker} runs version {value}, the others {usual}.",
}


def efficiency(found: Efficiency) -> str:
    """What a fleet sustains against as many times what one replica does."""
    whole = f"{found.replicas} times what {found.one} sustains"
    low, high = (None if end is None else shown_share(end) for end in (found.low, found.high))
    if found.value is not None:
        known = f"{shown_share(found.value)} ({low} to {high})"
    elif low or high:
        known = " and ".join([*([f"at least {low}"] if low else []), *([f"at most {high}"] if high else [])])
    else:
        return (
            f"{found.fleet}, {found.workload}: its share of {whole} is not known, as the measured loads do not bound both limits. "
            "Measure loads around both."
        )
    return f"{found.fleet}, {found.workload}: {found.replicas} replicas sustain {known} of {whole}."


def sentences(found: Mapping[str, Sequence[WorkerVerdict]]) -> list[str]:
    """What sets the workers of a deployment apart, a sentence for each worker and way; none where all are alike."""
    groups: dict[tuple[str, Check], list[WorkerVerdict]] = {}
    for verdicts in found.values():
        for each in verdicts:
            groups.setdefault((each.worker, each.check), []).append(each)
    return [_sentence(same, len(found)) for same in groups.values()]


def _sentence(same: Sequence[WorkerVerdict], runs: int) -> str:
    first = same[0]
    numbers = [each.value for each in same if isinstance(each.value, int | float)]
    value = max(numbers) if numbers else first.value
    words = {"worker": first.worker, "value": value, "usual": first.usual, "runs": count_text(len(same), "run", of=runs)}
    return filled(_TEXTS[first.check], words)
