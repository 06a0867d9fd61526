"""Why parts of a run cannot be trusted, and what failed in it, in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from bench.analysis.validity import CHECKS, Reason
from bench.errors import count_text, shown, shown_share, was_were
from bench.parse.drift import Drift, RoundPart
from bench.words.templates import filled


def reason_text(reason: Reason) -> str:
    """Why a part of a run cannot be trusted, with its number."""
    words = {
        "kinds": _kinds(reason.outcomes) or None,
        "most": f"at most {reason.limit:.0f}" if reason.limit else "none",
        "names": "; ".join(reason.names) or None,
        "drift": _drift(reason.drift) if reason.drift else None,
    }
    return filled(CHECKS[reason.check].text, {**vars(reason), **words})


def reason_texts(codes: Iterable[str]) -> list[str]:
    """The reasons in a run's column `reasons`, in words."""
    return [reason_text(Reason.of(code)) for code in codes]


def failures(run: Mapping[str, Any]) -> str | None:
    """How many requests failed, how, and what was said about it; None where none did. Args: run: its summary, or its row."""
    if not run["failed"]:
        return None
    kinds = {key.removeprefix("outcome_"): n for key, n in run.items() if key.startswith("outcome_") and n}
    how = f" ({listed})" if (listed := _kinds(kinds)) else ""
    said = f": {shown(run['failure_said'], 160)}" if run.get("failure_said") else ""
    return f"{count_text(run['failed'], 'request', of=run['requests'])} failed{how}{said}"


def retries(run: Mapping[str, Any]) -> str | None:
    """How many requests were sent again after they were refused, and how long that took; None if none was."""
    if not run.get("retried"):
        return None
    return (
        f"{count_text(run['retried'], 'request', of=run['requests'])} {was_were(run['retried'])} refused and sent again, after waits "
        f"of up to {run['retry_wait_max_s']:.3g} s"
    )


def hits(run: Mapping[str, Any]) -> str | None:
    """What the prefix cache served, beside what it could; None where nothing was to be served, or nothing says what was."""
    expected, counted = run.get("prefix_hit_rate_expected"), run.get("prefix_hit_rate")
    rate, lru = run.get("prefix_hit_rate_answers") if counted is None else counted, run.get("prefix_hit_rate_lru")
    if not expected or rate is None:
        return None
    size = "" if lru is None else f"; a cache of its size serves {shown_share(lru, 1)}"
    return f"{shown_share(rate, 1)} of the prompts' tokens; {shown_share(expected, 1)} had been sent before{size}"


def stopped(run: Mapping[str, Any]) -> str | None:
    """That a run ended early, and why; None where all of its requests were sent."""
    if run.get("stopped_at_s") is None:
        return None
    sent = f"{count_text(run['requests'], 'request', of=run['num_requests'])} sent"
    return f"stopped after {run['stopped_at_s']:.0f} s: requests pile up ({sent})"


def _kinds(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in kinds.items())


def _drift(drift: Drift) -> str:
    off, other = drift.log - drift.usual, drift.other
    against = "the others" if other is None else _round(other) if other.round != drift.at.round else f"its part{_since(other)}"
    return (
        f"the machine was {shown_share(math.expm1(abs(off)))} {'slower' if off > 0 else 'faster'} in {_round(drift.at)} than in "
        f"{against} "
        f"(reference load {math.exp(drift.log):.3g} s against {math.exp(drift.usual):.3g} s)"
    )


def _round(part: RoundPart) -> str:
    """`round 2`; with the time of day where the round was measured in parts."""
    return f"round {part.round}{_since(part)}"


def _since(part: RoundPart) -> str:
    return f" from {part.since[11:19]} UTC on" if part.since else ""
