"""Why a curve sustains no more, and what would raise it, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.analysis.evidence import RESOURCES, RULES, Bottleneck
from bench.analysis.judging import Unsettled
from bench.predict.relief_record import Gain
from bench.words.capacity import shown_over, unsettled_text
from bench.words.loads import load_text
from bench.words.templates import filled


def why(limit: Bottleneck) -> str:
    """Why it sustains no more, a sentence or two; empty where nothing was judged."""
    return "" if limit.evidence is None else filled(RULES[limit.evidence].why, _numbers(limit))


def remedy(limit: Bottleneck) -> str:
    """What would raise it, a sentence or two; empty where nothing follows."""
    if limit.evidence is None:
        return ""
    causes = [gain.resource for gain in limit.gains[: limit.tied]] if limit.evidence == "relieved" else [limit.cause]
    own = RULES[limit.evidence].remedy
    remedies = [own] if own else [RESOURCES[cause].remedy for cause in causes if cause in RESOURCES]
    return " ".join(filled(text, _numbers(limit)) for text in remedies)


def _numbers(limit: Bottleneck) -> dict[str, Any]:
    why = unsettled_text(Unsettled(limit.unsettled, limit.needs_s)) if limit.unsettled else None
    reasons = [filled(RESOURCES[gain.resource].reason, vars(limit)) for gain in limit.gains[: limit.tied]]
    reason = f"either {' or '.join(reasons)}" if len(reasons) > 1 else "".join(reasons)
    texts = {"at": _at(limit), "unsettled": why, "reason": reason, "reliefs": _reliefs(limit.gains), "unknown": _unknown(limit)}
    return {**vars(limit), **texts}


def _unknown(limit: Bottleneck) -> str:
    """Why no resource is known to be the cause."""
    if not limit.gains:
        return "The cause is not known: the limit was not replayed" + (f" ({limit.no_model})" if limit.no_model else "")
    if all(gain.none for gain in limit.gains):
        return "In replays, no resource by itself would bring more"
    return f"The cause is not known: replayed {_reliefs(limit.gains)}"


def _reliefs(gains: Sequence[Gain]) -> str:
    """What more of each resource brings, the most first."""
    texts = [_relief(gain, first=i == 0) for i, gain in enumerate(each for each in gains if not each.none)]
    if none := [RESOURCES[gain.resource].relief for gain in gains if gain.none]:
        texts.append(f"{' or '.join(none)}, no more")
    return "; ".join(texts)


def _relief(gain: Gain, *, first: bool) -> str:
    """What more of a resource brings, such as `with steps twice as fast, it carries 1.8 times the requests/s (1.7 to 2)`."""
    low = shown_over(gain.low, 1.0) if gain.low > 1 else "1"
    ends = f"at least {low}" if gain.more else f"{low} to {gain.high:.3g}"
    times = f"{gain.gain:.3g} times"
    established = "" if gain.low > 1 else ", not established"
    return (
        f"{RESOURCES[gain.resource].relief}, {f'it carries {times} the requests/s' if first else times} ({ends}){established}"
    )


def _at(limit: Bottleneck) -> str | None:
    if limit.level is None:
        return None
    if limit.burst:
        return f"In a burst of {limit.level:g}"
    return f"At {limit.level:g}" if limit.unit is None else f"At {load_text(limit.level, limit.unit)}"
