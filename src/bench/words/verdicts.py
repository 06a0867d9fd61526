"""Why parts of a run cannot be trusted, and what failed in it, in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from bench.analysis.validity import Check, Part, Reason
from bench.errors import count_text, shown, shown_share, was_were
from bench.parse.drift import Drift, RoundPart
from bench.words.templates import filled

PARTS: dict[Part, str] = {
    "load": "the load was not the one asked for",
    "content": "other requests were served than asked for",
    "client": "the load generator was late, starved or the limit itself",
    "telemetry": "the server's metrics are incomplete",
    "machine": "something else ran on the machine, or its speed changed",
}
_COUNTED = "[ ({counted:.4g} tokens on average, not {limit:.4g})]"
_TEXTS: dict[Check, str] = {
    "burst_spread": "the burst took too long to leave: {value:.3g} s, over {limit:g} s",
    "schedule_delay": "requests left late: P99 of the delay {value:.3g} s, over {limit:g} s",
    "other_requests": "the server had {value:.1f} requests in flight on average, the client {limit:.1f}: others use it too",
    "other_tokens": "the server made {value:.0f} tokens, the load at most {limit:.0f}: others use it too",
    "held_back": "the server had {value:.3g} ({share:share}) fewer requests in flight than the client, at half of the scrapes or more: "
    "something holds them back",
    "nothing_sent": "no request was sent",
    "unreachable": "no request reached the server",
    "refused": "refused for what they are: {value:.0f} of {limit:requests}[ ({kinds})]",
    "none_answered": "every request failed, and not because of the load[ ({kinds})]",
    "not_counted": "the server counts no tokens in {value:requests}, so that their lengths cannot be checked (no readable usage)",
    "prompt_lengths": f"{{value:requests}} had another prompt length than asked for{_COUNTED}",
    "output_lengths": f"{{value:requests}} had another output length than asked for{_COUNTED}",
    "cached_tokens": "{value:.0f} tokens came from the prefix cache, where {most} should",
    "hit_rate": "the prefix cache served {value:share.1} of the prompts' tokens, where the workload implies {limit:share.1}",
    "lru_hits": "the prefix cache served {value:share.1} of the prompts' tokens, where one of its size serves {limit:share.1}",
    "loop_lag": "the client's event loop was late: P99 {value:.3g} s, over {limit:g} s",
    "loop_stall": "the client's event loop stood still for {value:.3g} s, over {limit:g} s",
    "clock_skew": "the clocks of our processes differ by {value:.3g} s, over {limit:g} s",
    "client_cpu": "the client was the limit: {value:share} of a core in a load process, over {limit:share}",
    "other_processes": "other processes took {value:share} of the cores' time, over {limit:share}",
    "clock_step": "the wall clock moved by {value:+.3g} s against the clock of the stamps: the machine was suspended, or its time set",
    "drift": "{drift}",
    "worker_silent": "no scrape of {names}[ for {value:.3g} s, over {limit:g} s]",
    "worker_restarted": "{names} started again during the run: what had been counted is lost",
    "scrape_gap": "no scrape for {value:.3g} s, over {limit:g} s",
    "never_scraped": "no scrape succeeded[: {names}]",
    "scrape_share": "only {value:share} of the scrapes due during the load came, under {limit:share}[: {names}]",
    "not_scraped_before": "no scrape came before the load: what the server counted until the first one is lost",
    "not_scraped_after": "no scrape came after the load: what the server counted since the last one is lost",
    "metrics_missing": "the exposition lacks {names}",
    "counters_fell": "the server's counters fell back ({names}): it was started again, or another one answered",
    "tokens_not_counted": "the metrics count {value:.0f} generated tokens, the answers {limit:.0f} or more: they are another "
    "server's, one of several replicas', or old",
}


def reason_text(reason: Reason) -> str:
    """Why a part of a run cannot be trusted, with its number."""
    words = {
        "kinds": _kinds(reason.outcomes) or None,
        "most": f"at most {reason.limit:.0f}" if reason.limit else "none",
        "names": "; ".join(reason.names) or None,
        "drift": _drift(reason.drift) if reason.drift else None,
    }
    return filled(_TEXTS[reason.check], {**vars(reason), **words})


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
