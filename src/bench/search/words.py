"""What a search found, in words."""

from __future__ import annotations

import math

from bench.errors import count_text, shown_share, two_digits
from bench.measure.progress import duration_text
from bench.parse.observation import CAP
from bench.runs.latencies import LATENCIES
from bench.search.answer import LoadUnit, ended_text, limit_text
from bench.search.placing import Aim, Answer
from bench.search.probe import Alone, Probed
from bench.search.search import Budget, Found, Look, Next, expected_s
from bench.statistics.observation import FAILED, GROWTH
from bench.study.slo import Slo, time_text

_SPEEDS = 0.2  # range of ln share that a machine's speed may move beyond a bound; convention
_BOUNDS = {"highest": "--set most=N", "runs": "--set max_runs=N", "seconds": "--max-minutes"}  # as the command has them
# Why a search of the command ended, where a study's search would not say it so.
_ENDED = {
    "seconds, unfit": "not yet {asked}: the next run, {next}, does not fit into what is left of --max-minutes; with more, it goes on "
    "from here.",
    "alone": "{alone}. {advice}.",
    "invalid": "three runs in a row cannot be trusted: {reasons}.",
    "gone": "the server stopped answering. Start it again: the same command goes on from here.",
    "untrusted": "no run can be trusted: {reasons}. Put that right, and search again.",
    "unfit": "no run at the load that is next fits into --max-minutes: the shortest there is {next}. Raise it, or begin at another "
    "load with --set start=N.",
    "seconds, none judged": "no run was long enough to be judged. Raise --max-minutes.",
    "short, none judged": "no run was long enough to be judged. Raise it: --set max_runs=N.",
}
# What helps where one request alone misses an SLO, by the latency that it limits.
_HELPS = {
    "ttft": "Allow more time, or send shorter prompts",
    "ttfo": "Allow more time, or let the model reason less",
    "tpot": "Allow more time for each token; other prompts and answers change that little",
    "e2e": "Allow more time, or ask for shorter prompts and answers",
}
# why nothing is drawn, by those ends with which no run is judged
_NOTHING = {"untrusted": "no run can be trusted", "unfit": "no run fits into --max-minutes"}


def load_text(load: float, aim: Aim) -> str:
    """A load with its unit."""
    return _unit(aim).text(load)


def _unit(aim: Aim) -> LoadUnit:
    return LoadUnit(aim.held, aim.turns > 1)


def answer_text(answer: Answer, aim: Aim, *, whole: bool = False) -> str:
    """The limit with its interval. Args: whole: as a sentence of its own, without its full stop."""
    name = "The highest load within the SLOs is" if whole else "limit"
    if answer.why == "alone":
        return "No load meets the SLOs" if whole else "no load meets the SLOs"
    if not answer.known:
        return f"{name} not known"
    return f"{name} {limit_text(answer.limit, answer.low, answer.high, unit=_unit(aim), why=answer.why)}"


def probed_text(probed: Probed, aim: Aim) -> str:
    """What a probe found."""
    if probed.alone:
        return f"{_probe_text(probed)}: {alone_text(probed.alone)}"
    rate = f"about {probed.rate:.3g} requests/s at most, with {probed.in_flight} in flight" if probed.rate else "no answer"
    return f"{_probe_text(probed)}: {rate}; first load {load_text(probed.load, aim)}"


def expected_text(probed: Probed, aim: Aim) -> str | None:
    """How long the precision that is asked for takes, and what a minute more buys; None where nothing shows it."""
    seconds = expected_s(probed, aim)
    if probed.alone or seconds is None:
        return None
    narrower = aim.precision * math.sqrt(seconds / (seconds + 60))
    return (
        f"± {shown_share(aim.precision)} takes about {duration_text(seconds)} under load; a minute more makes it "
        f"± {shown_share(narrower)}"
    )


def _probe_text(probed: Probed) -> str:
    return f"probe of {two_digits(probed.seconds)} s"


def criterion_text(key: str) -> str:
    """What a criterion of an observation is called: an SLO without its limit, or what else is looked for."""
    return Slo.of_column(key, 1.0).name if key.endswith("_s") else key.upper()


def alone_text(alone: Alone) -> str:
    """That single requests miss an SLO."""
    took = f"{time_text(alone.latency_s, alone.slo.unit)}{' or more' if alone.cut else ''}"
    return (
        f"one request alone has a {LATENCIES[alone.slo.metric].title} of {took}, the least of {alone.requests} sent one after the "
        f"other, and the SLO is {alone.slo}"
    )


def next_text(run: Next, aim: Aim) -> str:
    """A run that begins, and about how long it takes."""
    count = count_text(f"{run.requests}", "conversation" if aim.turns > 1 else "request")
    about = f", about {duration_text(run.seconds)}" if run.seconds is not None else ""
    return f"{count} at {load_text(run.load, aim)}{about}"


def look_text(look: Look, aim: Aim) -> str:
    """One run, and how it did."""
    start = f"{load_text(look.load, aim)}, {count_text(look.requests, 'request')} in {look.seconds:.1f} s"
    if look.reasons:
        return f"{start}: invalid, {'; '.join(look.reasons)}"
    if look.observation is None:
        return f"{start}: too short to judge"
    seen = look.observation
    key, worst = max(
        ((key, each) for key, each in seen.excesses.items() if key not in (FAILED, GROWTH)), key=lambda item: item[1].value
    )
    name = criterion_text(key)
    bound = abs(worst.value) > CAP - _SPEEDS
    beyond = "" if not bound else "less than " if worst.value < 0 else "more than "
    parts = [f"{name} at {beyond}{shown_share(math.exp(worst.value))} of its limit"]
    failed = f"{seen.failed} of {seen.requests} failed"
    if bound and seen.failed > round((1 - Slo.of_column(key, 1.0).share) * seen.requests, 6):
        parts = [f"{failed}, more than {name} allows"]
    elif seen.failed:
        parts.append(failed)
    if seen.grows:
        parts.append("requests pile up")
    return f"{start}: {', '.join(parts)}"


def spent_text(found: Found, budget: Budget) -> str:
    """What a search has spent so far, and what it may."""
    return (
        f"{len(found.looks)} of at most {count_text(budget.runs, 'run')}, {found.seconds:.0f} of at most {budget.seconds:.0f} s"
    )


def why_text(found: Found, aim: Aim) -> str:
    """Why the search ended, and what would show more."""
    why = _why(found)
    if why not in _ENDED:
        return f"{took_text(found)}; {ended_text(why, aim.precision, _BOUNDS)}."
    ended = _ENDED[why].format(
        asked=f"± {shown_share(aim.precision)}",
        reasons="; ".join(found.looks[-1].reasons) if found.looks else "",
        next=next_text(found.unfit, aim) if found.unfit else "",
        alone=alone_text(found.alone) if found.alone else "",
        advice=_HELPS[found.alone.slo.metric] if found.alone else "",
    )
    return f"{took_text(found)}; {ended}"


def _why(found: Found) -> str:
    """The key of `_ENDED` for how the search ended."""
    why: str = found.answer.why
    if why in ("seconds", "short") and not found.observations:
        untrusted = found.looks and all(look.reasons for look in found.looks)
        return "untrusted" if untrusted else "unfit" if found.unfit else f"{why}, none judged"
    return "seconds, unfit" if why == "seconds" and found.unfit else why


def nothing_text(found: Found) -> str:
    """Why there is nothing to draw, where no run could be judged."""
    if found.alone:
        return alone_text(found.alone)
    return _NOTHING.get(_why(found), "no run was long enough to be judged" if found.looks else "no run was measured")


def took_text(found: Found) -> str:
    """What the search took: its runs, and its probe where it sent one."""
    probe = f", after a {_probe_text(found.probed)}" if found.probed else ""
    return f"{count_text(len(found.looks), 'run')}, {found.seconds:.0f} s under load{probe}"
