"""What a search found, in words while it goes on or from a record of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bench.axes import AXES
from bench.errors import count_text, listed, shown_share, two_digits
from bench.measure.progress import duration_text
from bench.parse.observation import CAP
from bench.report.blocks import Answer as Answered
from bench.report.blocks import shortened
from bench.runs.latencies import LATENCIES
from bench.runs.searches import SearchRecord
from bench.search.placing import Aim, Answer
from bench.search.probe import Alone, Probed
from bench.search.search import Budget, Found, Look, Next, expected_s
from bench.shipped import BENCH
from bench.study.slo import Slo, time_text

# What bounds a search, and what helps where its runs are invalid, as a study has it.
_KEYS = {
    **{name: f"`{name}`" for name in ("highest", "runs", "seconds")},
    "again": f"`{BENCH} runs --discard invalid`, then the same command, measures them again",
}
# By why the search ended.
ENDED = {
    "found": "as precise as asked ({asked})",
    "above": "every load up to {highest} meets the SLOs; raise it to look further",
    "below": "even the lowest load misses an SLO",
    "runs": "not yet {asked}; raise {runs} to continue from here",
    "seconds": "not yet {asked}; raise {seconds} to continue from here",
    "alone": "one request alone misses an SLO",
    "decided": "enough to tell",
    "invalid": "runs cannot be trusted; {again}",
    "short": "no run was long enough to be judged; raise {seconds} or {runs}",
    "gone": "the server stopped answering. Restart it; the same command continues from here",
}
_SPEEDS = 0.2  # range of ln share that a machine's speed may move beyond a bound; convention
# The same as the command has it.
_BOUNDS = {
    "highest": "--set most=N",
    "runs": "--set max_runs=N",
    "seconds": "--max-minutes",
    "again": "put right why, and search again",
}


def answer(found: Iterable[tuple[str, SearchRecord]]) -> Answered:
    """What searches found; without lines where there was none."""
    searches = list(found)
    slos = {looked_for(record.slos) for _, record in searches}
    curves = {(deployment, record.workload) for deployment, record in searches}
    alone = len({deployment for deployment, _ in curves}) == len(curves)
    named = [(deployment if alone else f"{deployment}, {record.workload}", record) for deployment, record in searches]
    return Answered(
        name="searches",
        question=f"What is {slos.pop() if len(slos) == 1 else looked_for(['the SLOs'])}?",
        lines=shortened([f"{name}: {search_limit(record)}." for name, record in named]),
        sure=shortened([f"{name}: {search_ended(record)}." for name, record in named]),
    )


@dataclass(frozen=True)
class LoadUnit:
    """What a searched load counts. Attributes: held: requests in flight; else what comes a second. conversations: not requests."""

    held: bool
    conversations: bool = False

    def number(self, load: float) -> str:
        """A load, as a whole number or with three digits."""
        return f"{load:g}" if self.held else f"{load:.3g}"

    def text(self, load: float) -> str:
        """A load with its unit."""
        number = self.number(load)
        return (
            f"{number} in flight"
            if self.held
            else f"{count_text(number, 'conversation' if self.conversations else 'request')}/s"
        )


def limit_text(limit: float, low: float, high: float, *, unit: LoadUnit, why: str) -> str:
    """The limit with its interval, such as `12 in flight (11 to 13 at 95 % confidence)`."""
    if why == "alone":
        return "none: one request alone misses an SLO"
    if why == "below" or (not limit and math.isfinite(high)):
        return f"below {unit.text(high)}"
    if why == "above" or not math.isfinite(limit) or (not math.isfinite(high) and 0 < limit <= low):
        return f"{unit.text(low)} or more"
    if not math.isfinite(high) and low <= 0:
        return f"perhaps {unit.text(limit)}"
    if not math.isfinite(high):
        return f"{unit.text(low)} or more, perhaps {unit.text(limit)}"
    ends = f"{unit.number(low)} to {unit.number(high)} " if low > 0 else f"at most {unit.number(high)} "
    return f"{unit.text(limit)} ({'' if low == high else ends}at 95 % confidence)"


def looked_for(slos: Iterable[object]) -> str:
    """What a search looks for, as a noun."""
    return f"the highest load within {' and '.join(map(str, slos))}"


def search_limit(record: SearchRecord) -> str:
    """The limit that a search found."""
    high = math.inf if record.high is None else record.high
    if record.limit is None:
        return "not known"
    return limit_text(record.limit, record.low, high, unit=LoadUnit(AXES[record.axis].held, record.turns > 1), why=record.why)


def search_ended(record: SearchRecord) -> str:
    """Why a search ended, and what would show more."""
    unjudged = bool(record.runs) and not any(run.excess for run in record.runs)
    why = "short" if record.why == "seconds" and unjudged else record.why
    own = " by its own runs" if why == "found" else ""
    text = ended_text(why, record.precision, _KEYS)
    return f"{count_text(len(record.runs), 'run')}, {record.seconds:.0f} s under load: {text}{own}"


def ended_text(why: str, precision: float, names: Mapping[str, str]) -> str:
    """Why a search ended. Args: names: of what bounds it, and of what helps."""
    return ENDED[why].format(**names, asked=f"± {shown_share(precision)}")


def load_text(load: float, aim: Aim) -> str:
    """A load with its unit."""
    return _unit(aim).text(load)


def _unit(aim: Aim) -> LoadUnit:
    return LoadUnit(aim.held, aim.turns > 1)


def answer_text(answer: Answer, aim: Aim, *, whole: bool = False) -> str:
    """The limit with its interval. Args: whole: as a sentence of its own, without its full stop."""
    name = f"The highest load within {listed([str(slo) for slo in aim.slos])} is" if whole else "limit"
    if answer.why == "alone":
        return "No load meets the SLOs" if whole else "no load meets the SLOs"
    if not answer.known:
        return f"{name} not known"
    return f"{name} {limit_text(answer.limit, answer.low, answer.high, unit=_unit(aim), why=answer.why)}"


def probed_text(probed: Probed, aim: Aim) -> str:
    """What a probe found."""
    if probed.alone:
        return f"{_probe_text(probed)}: {alone_text(probed.alone)}"
    rate = f"up to about {probed.rate:.3g} requests/s, with {probed.in_flight} in flight" if probed.rate else "no answer"
    return f"{_probe_text(probed)}: {rate}; first load {load_text(probed.load, aim)}{_expected_text(probed, aim)}"


def _expected_text(probed: Probed, aim: Aim) -> str:
    """How long the precision that is asked for takes, and what a minute more buys; empty where nothing shows it."""
    if (seconds := expected_s(probed, aim)) is None:
        return ""
    narrower = aim.precision * math.sqrt(seconds / (seconds + 60))
    return (
        f"; ± {shown_share(aim.precision)} takes about {duration_text(seconds)} under load, a minute more makes it "
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
        f"one request alone has a {LATENCIES[alone.slo.metric].title} of {took}, the lowest of {alone.requests} sent one by one; "
        f"the SLO is {alone.slo}"
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
    key, worst = max(seen.of_slos.items(), key=lambda item: item[1].value)
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
    reasons = found.looks[-1].reasons if found.looks else ()
    why: str = found.answer.why
    if why in ("seconds", "short") and not found.observations:
        why = "invalid" if reasons else "short"
    ended = alone_text(found.alone) if found.alone else ended_text(why, aim.precision, _BOUNDS)
    invalid = f" The last run is invalid: {'; '.join(reasons)}." if reasons else ""
    return f"{took_text(found)}; {ended}.{invalid}"


def took_text(found: Found) -> str:
    """What the search took: its runs, and its probe where it sent one."""
    probe = f", after a {_probe_text(found.probed)}" if found.probed else ""
    return f"{count_text(len(found.looks), 'run')}, {found.seconds:.0f} s under load{probe}"
