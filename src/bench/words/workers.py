"""What sets the engines of a fleet apart, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bench.analysis.efficiency import Efficiency
from bench.analysis.front import FEW_FURTHER, LEAST_WAIT_S, WAIT_SHARE, Front, FrontKind, front, unknown_fronts
from bench.analysis.workers import Check, WorkerVerdict
from bench.axes import AXES
from bench.errors import count_text, shown_share
from bench.words.answer import listed
from bench.words.loads import latency_text, load_text
from bench.words.streams import QUEUED
from bench.words.templates import filled

COUNTED = {"requests": "requests", "generation_tokens": "output tokens"}
# In {runs} stand how many of the runs showed it.
_TEXTS: dict[Check, str] = {
    "silent": "{worker} was silent in {runs}[: no scrape for up to {value:.3g} s]. What the server counted is not known there.",
    "restarted": "{worker} was started again during {runs}. What the server counted is not known there.",
    "version": "{worker} runs version {value}, the others {usual}.",
    "kv_tokens": "{worker} has a KV cache of {value} tokens, the others one of {usual}.",
    "kv_blocks": "{worker} has a KV cache of {value} blocks, the others one of {usual}.",
    "requests": "{worker} got {value} of the requests in {runs}, where an even share is {usual}. Chance makes no such difference; a "
    "router may mean it.",
    "generation_tokens": "{worker} made {value} of the output tokens in {runs}, where an even share is {usual}. Chance makes no such "
    "difference; a router may mean it.",
}


# What a router or gateway did; in {runs} stand how many of the runs showed it.
_BETWEEN: dict[FrontKind, str] = {
    "queues": f"{{fleet}}, {{runs}}: {QUEUED}. If it is the gateway and the workers have room, let it pass more on.",
    "buffers": "What stands in front of {fleet} passes whole answers on, up to {wait_s:.3g} s after their first token, in {runs}. "
    "Turn its buffering of responses off.",
    "gathers": "What stands in front of {fleet} passes on {tokens:.3g} tokens together in {runs}. Turn its buffering of responses off.",
    "repeats": "What stands in front of {fleet} sends requests again: in {runs} the workers counted up to {requests:.0f} more than the "
    "client sent.",
    "repeats_or_others": "In {runs} the workers of {fleet} counted up to {requests:.0f} requests more than the client sent: what "
    "stands in front sends some again, or to several workers, or others send requests of this length.",
}
# Not known, in one sentence for all such fleets.
_UNKNOWN: dict[FrontKind, str] = {
    "queues": "Whether what stands in front of {fleet} queues requests is not known: that takes two loads or more, and "
    "workers that report the TTFT of exactly the requests that the client sent.",
    "repeats": "Whether what stands in front of {fleet} sends requests again is not known: that takes workers that report "
    "how many requests they had, with how many prompt tokens, and a run without failed requests and preemptions. Workers that prefill "
    "for others count each request once more.",
}
_NEITHER = (
    "Whether what stands in front of {fleet} queues requests or sends some again is not known: that takes two loads or more "
    "without failed requests and preemptions, and workers that report the number, the prompt tokens and the TTFT of exactly these "
    "requests. Workers that prefill for others count each request once more."
)
_LOST = (
    "Whether what stands in front of {fleet} queues requests or sends some again is not known, as a worker was killed: no sum "
    "of the workers is taken then."
)
_NOTHING = (
    "What stands in front of {fleet} adds no more than {share:share} of TTFT, or {wait_s:.3g} s, beyond the load where it adds least, "
    "and counts of the workers show no more than {few:share.1} of the requests sent again."
)


def between(fleets: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """What stands in front of fleets does to their requests, and what is not known of that.

    Args:
        fleets: rows of the summary, by deployment.
    """
    said: list[str] = []
    open_questions: dict[str, list[str]] = {}
    for fleet, runs in fleets.items():
        done, unknown = _done(fleet, runs), _unknown(runs)
        said += done
        for text, number in unknown:
            part = "" if number == len(runs) else f" (in {count_text(number, 'run', of=len(runs))})"
            open_questions.setdefault(text, []).append(f"{fleet}{part}")
        if not done and not unknown:
            open_questions.setdefault(_NOTHING, []).append(fleet)
    limits = {"wait_s": LEAST_WAIT_S, "share": WAIT_SHARE, "few": FEW_FURTHER}
    return said + [filled(text, {"fleet": listed(names), **limits}) for text, names in open_questions.items()]


def _done(fleet: str, runs: Sequence[Mapping[str, Any]]) -> list[str]:
    found: dict[FrontKind, list[Front]] = {}
    for each in (each for run in runs for each in front(run)):
        found.setdefault(each.kind, []).append(each)
    said = []
    for kind, same in found.items():
        most = {name: max(getattr(each, name) or 0.0 for each in same) for name in ("wait_s", "tokens", "requests")}
        wait = {"wait": f"up to {most['wait_s']:.3g} s", "waiting": None}
        said.append(
            filled(_BETWEEN[kind], {"fleet": fleet, "runs": count_text(len(same), "run", of=len(runs)), **wait, **most})
        )
    return said


def _unknown(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, int]]:
    """What is not known, and of how many runs."""
    lost = sum(run.get("lost_at_s") is not None for run in runs)
    lacking = Counter(kind for run in runs if run.get("lost_at_s") is None for kind in unknown_fronts(run))
    texts = [(_UNKNOWN[kind], number) for kind, number in lacking.items()]
    if set(lacking) == set(_UNKNOWN) and len(set(lacking.values())) == 1:
        texts = [(_NEITHER, texts[0][1])]
    return [*texts, (_LOST, lost)] if lost else texts


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


def hits(level: Mapping[str, Any]) -> str:
    """What prefix caches served at a load. Args: level: of `level_values`, with `prefix_hit_rate` and `ttft_p50_s`."""
    load = load_text(level["level"], AXES[level["axis"]].unit)
    return (
        f"{level['deployment']}, {level['workload']} at {load}: prefix caches served {shown_share(level['prefix_hit_rate'])} of the "
        f"prompt tokens; TTFT P50 is {latency_text(level['ttft_p50_s'])}."
    )


def loss(run: Mapping[str, Any], holds: bool | None) -> str:
    """What the loss of a worker did in a run, and whether the others hold its load. Args: run: its summary row. holds: as of `Loss`."""
    failed, errors = "no request failed", ""
    if run["lost_failed"]:
        failed = f"{count_text(run['lost_failed'], 'request')} failed ({shown_share(run['lost_failed_share'] or 0.0)})"
        if run["lost_errors_s"] is not None:
            errors = f"; errors ended {run['lost_errors_s']:.2g} s after it"
        elif run["lost_recovered"] is None and run["lost_failed_share"] != 1:
            errors = "; whether errors had ended is not known"
        else:
            errors = ", until the run ended"
    begun = f"{run['deployment']}, {run['workload']} at {run['level']:g}/s: a worker was killed, and {failed}{errors}."
    if not run["valid"]:
        return f"{begun} The run is invalid: the rest is not known."
    held = {
        True: "They sustain this load within the SLOs: N + 1 holds.",
        False: "They do not sustain this load within the SLOs: N + 1 does not hold.",
        None: "Whether they sustain this load within the SLOs is not known.",
    }[holds]
    if run["lost_recovered"] is None:
        return f"{begun} When the others came to a steady level is not known, as the run is too short after it. {held}"
    if not run["lost_recovered"]:
        return f"{begun} The others had not come to a steady level when the run ended. {held}"
    return f"{begun} The others were at their steady level after {run['lost_recovery_s'] or 0.0:.2g} s. {held}"


def sentences(found: Mapping[str, Sequence[WorkerVerdict]]) -> list[str]:
    """What sets the workers of a deployment apart, a sentence for each worker and way; none where all are alike.

    Args:
        found: verdicts by run.
    """
    groups: dict[tuple[str, Check], list[WorkerVerdict]] = {}
    for verdicts in found.values():
        for each in verdicts:
            groups.setdefault((each.worker, each.check), []).append(each)
    return [_sentence(same, len(found)) for same in groups.values()]


def _sentence(same: Sequence[WorkerVerdict], runs: int) -> str:
    first = same[0]
    numbers = [each.value for each in same if isinstance(each.value, int | float)]
    value: float | str | None = max(numbers) if numbers else first.value
    usual = first.usual
    if first.check in COUNTED:
        low, high = shown_share(min(numbers)), shown_share(max(numbers))
        value = low if low == high else f"{low.removesuffix(' %')} to {high}"
        usual = shown_share(float(usual or 0.0))
    elif first.check in ("kv_tokens", "kv_blocks"):
        value, usual = (f"{float(each or 0):,.0f}" for each in (value, usual))
    words = {"worker": first.worker, "value": value, "usual": usual, "runs": count_text(len(same), "run", of=runs)}
    return filled(_TEXTS[first.check], words)
