"""Why parts of a run cannot be trusted, and what failed in it, in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from bench.analysis.validity import Check, Part, Reason
from bench.drift import Drift, RoundPart
from bench.errors import shown, shown_share
from bench.words.loads import count_text

__all__ = ["PARTS", "failures", "hits", "reason_text", "reason_texts", "retries", "stopped"]

PARTS: dict[Part, str] = {
    "load": "the load was not the one asked for",
    "content": "other requests were served than asked for",
    "client": "the load generator was late, starved or the limit itself",
    "telemetry": "the server's metrics are incomplete",
    "machine": "something else ran on the machine, or its speed changed",
}
_TEXTS: dict[Check, str] = {
    "burst_spread": "the burst took too long to leave: {value:.3g} s, over {limit:g} s",
    "schedule_delay": "requests left late: P99 of the delay {value:.3g} s, over {limit:g} s",
    "other_requests": "the server had {value:.1f} requests in flight on average, the client {limit:.1f}: others use it too",
    "other_tokens": "the server made {value:.0f} tokens, the load at most {limit:.0f}: others use it too",
    "held_back": "of the requests that the client had in flight the server lacked {value:.3g} ({share_text}) at half of the scrapes or "
    "more: something holds them back",
    "nothing_sent": "no request was sent",
    "unreachable": "no request reached the server",
    "refused": "{value:.0f} of {limit:.0f} requests were refused for what they are{outcomes}",
    "none_answered": "every request failed, and not because of the load{outcomes}",
    "not_counted": "the server counts no tokens in {requests}, so that their lengths cannot be checked (no usage)",
    "prompt_lengths": "{requests} had another prompt length than asked for{counted}",
    "output_lengths": "{requests} had another output length than asked for{counted}",
    "cached_tokens": "{value:.0f} tokens came from the prefix cache, where {most} should",
    "hit_rate": "the prefix cache served {value_share} of the prompts' tokens, where the workload implies {limit_share}",
    "lru_hits": "the prefix cache served {value_share} of the prompts' tokens, where one of its size serves {limit_share}",
    "loop_lag": "the client's event loop was late: P99 {value:.3g} s, over {limit:g} s",
    "loop_stall": "the client's event loop stood still for {value:.3g} s, over {limit:g} s",
    "clock_skew": "the clocks of our processes differ by {value:.3g} s, over {limit:g} s",
    "client_cpu": "the client was the limit: {value_share} of a core in a load process, over {limit_share}",
    "other_processes": "other processes took {value_share} of the cores' time, over {limit_share}",
    "clock_step": "the wall clock moved by {value:+.3g} s against the clock of the stamps: the machine was suspended, or its time set",
    "drift": "{drift}",
    "scrape_gap": "no scrape for {value:.3g} s, over {limit:g} s",
    "never_scraped": "no scrape succeeded",
    "scrape_share": "only {value_share} of the scrapes due during the load came, under {limit_share}",
    "not_scraped_before": "no scrape came before the load: what the server counted until the first one is lost",
    "not_scraped_after": "no scrape came after the load: what the server counted since the last one is lost",
    "metrics_missing": "the exposition lacks {metrics}",
    "counters_fell": "the server's counters fell back ({counters}): it was started again, or another one answered",
    "tokens_not_counted": "the metrics count {value:.0f} generated tokens, the answers {limit:.0f} or more: they are another "
    "server's, one of several replicas', or old",
}


def reason_text(reason: Reason) -> str:
    """Why a part of a run cannot be trusted, with its number."""
    digits = 1 if reason.check in ("hit_rate", "lru_hits") else 0
    return _TEXTS[reason.check].format(
        value=reason.value,
        limit=reason.limit,
        value_share=shown_share(reason.value or 0.0, digits),
        limit_share=shown_share(reason.limit or 0.0, digits),
        share_text=shown_share(reason.share or 0.0),
        requests=count_text(round(reason.value or 0), "request"),
        outcomes=_listed(reason.outcomes),
        counted=f" ({reason.counted:.4g} tokens on average, not {reason.limit:.4g})" if reason.counted and reason.limit else "",
        most=f"at most {reason.limit:.0f}" if reason.limit else "none",
        metrics="; ".join(reason.names),
        counters=", ".join(reason.names),
        drift=_drift(reason.drift) if reason.drift else "",
    )


def reason_texts(codes: Iterable[str]) -> list[str]:
    """The reasons in a run's column `reasons`, in words. What is no code was written by an older version, in words."""
    return [_text(code) for code in codes]


def _text(code: str) -> str:
    try:
        return reason_text(Reason.of(code))
    except (ValueError, KeyError):
        return code


def failures(run: Mapping[str, Any]) -> str | None:
    """How many requests failed, how, and what was said about it; None where none did. Args: run: its summary, or its row."""
    if not run["failed"]:
        return None
    kinds = {key.removeprefix("outcome_"): n for key, n in run.items() if key.startswith("outcome_") and n}
    said = f": {shown(run['failure_said'], 160)}" if run.get("failure_said") else ""
    return f"{run['failed']} of {run['requests']} requests failed{_listed(kinds)}{said}"


def retries(run: Mapping[str, Any]) -> str | None:
    """How many requests were sent again after they were refused, and how long that took; None if none was."""
    if not run.get("retried"):
        return None
    return (
        f"{run['retried']} of {count_text(run['requests'], 'request')} were refused and sent again, after waits of up to "
        f"{run['retry_wait_max_s']:.3g} s"
    )


def hits(run: Mapping[str, Any]) -> str | None:
    """What the prefix cache served, beside what it could; None where nothing was to be served, or nothing says what was."""
    expected, counted = run.get("prefix_hit_rate_expected"), run.get("prefix_hit_rate")
    rate, lru = run.get("prefix_hit_rate_answers") if counted is None else counted, run.get("prefix_hit_rate_lru")
    if not expected or rate is None:
        return None
    size = "" if lru is None else f", of which a cache of its size keeps {shown_share(lru, 1)}"
    return f"{shown_share(rate, 1)} of the prompts' tokens; {shown_share(expected, 1)} had been sent before{size}"


def stopped(run: Mapping[str, Any]) -> str | None:
    """That a run ended early, and why; None where all of its requests were sent."""
    if run.get("stopped_at_s") is None:
        return None
    sent = f"{run['requests']} of {count_text(run['num_requests'], 'request')} sent"
    return f"stopped after {run['stopped_at_s']:.0f} s: requests pile up ({sent})"


def _listed(kinds: Mapping[str, int]) -> str:
    return f" ({', '.join(f'{n} {kind}' for kind, n in kinds.items())})" if kinds else ""


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
