"""What a search found, in words: from a record of it, or while it goes on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bench.analysis.regions import FLAT, PROPORTIONAL
from bench.axes import AXES
from bench.errors import count_text, shown_share, three_digits
from bench.records.searches import SearchRecord
from bench.shipped import BENCH
from bench.study.search import EQUILIBRIUM, KV_CACHE, SLO, THROUGHPUT
from bench.words.answer import Answer, shortened
from bench.words.templates import filled

_PROPORTIONAL, _FLAT = shown_share(PROPORTIONAL), shown_share(FLAT)
_RATE = "rate"  # the target `throughput` of an open loop
LOOKED_FOR = {
    SLO: "the highest load within {slos}",
    KV_CACHE: "the load that fills the KV cache",
    THROUGHPUT: f"the load with {_FLAT} of the highest throughput",
    _RATE: "the highest rate that the server keeps up with",
    EQUILIBRIUM: f"the load at which a request gets less than {_PROPORTIONAL} of the throughput that it gets alone",
}
# By the target and where what was looked for lies: between loads tried (`found`), beyond all of them, or above one (`open`).
FOUND = {
    (KV_CACHE, "found"): "the KV cache is full from {at}",
    (KV_CACHE, "above"): "the KV cache is not full at {low}, the highest load tried",
    (KV_CACHE, "below"): "the KV cache is full at {high}, the lowest load tried",
    (KV_CACHE, "open"): "the KV cache is not full up to {low}",
    (KV_CACHE, "never"): "the KV cache does not fill: at {low}, requests wait for something else",
    (EQUILIBRIUM, "found"): "throughput stops growing in proportion at {at}",
    (EQUILIBRIUM, "above"): "throughput grows in proportion up to {low}, the highest load tried",
    (EQUILIBRIUM, "below"): "throughput stops growing in proportion below {high}",
    (EQUILIBRIUM, "open"): "throughput grows in proportion up to {low}",
    (_RATE, "found"): "the server keeps up with {at}",
    (_RATE, "above"): "the server keeps up with {low}, the highest rate tried",
    (_RATE, "below"): "the server does not keep up with {high}, the lowest rate tried",
    (_RATE, "open"): "the server keeps up with {low} or more",
    (THROUGHPUT, "found"): f"{_FLAT} of the highest throughput is reached at {{at}}",
    (THROUGHPUT, "above"): "throughput may still rise at {low}, the highest load tried ({top})",
    (THROUGHPUT, "below"): f"{_FLAT} of the highest throughput is reached at {{high}}, the lowest load tried",
    (THROUGHPUT, "open"): "throughput may still rise at {limit} ({top})",
}
_GOES_ON = "are spent; with more, it goes on from here"
# What bounds a search, as a study calls it.
_BOUNDS = {name: f"`{name}`" for name in ("highest", "runs", "seconds")}
# By why the search ended, and by the target where that says it otherwise.
ENDED = {
    "found": "as precise as asked ({asked})",
    "above": "{highest} is reached; raise it to look further",
    (SLO, "above"): "every load up to {highest} meets the SLOs; raise it to look further",
    "below": "reached at the lowest load tried[; lower `{lower}` to look further]",
    (SLO, "below"): "even the lowest load misses an SLO",
    "never": "no load fills it; `max_num_seqs` may bound what runs",
    "unmeasured": "the server does not report how many tokens it made",
    (KV_CACHE, "unmeasured"): "the engine's metrics are not there, or lack the cache's usage",
    "runs": f"not yet {{asked}}: its {{runs}} {_GOES_ON}",
    "seconds": f"not yet {{asked}}: its {{seconds}} {_GOES_ON}",
    "alone": "one request alone misses an SLO",
    "invalid": "three runs in a row cannot be trusted, for the reasons listed below; "
    f"`{BENCH} discard --invalid`, then the same command, goes on. Where other users' work disturbs it and cannot be ended, raise "
    "`thresholds.other_share`",
    "short": f"no run could be judged: each was invalid (`{BENCH} runs` says why) or too short (raise `runs`)",
}


def answer(found: Iterable[tuple[str, SearchRecord]]) -> Answer:
    """What searches found; without lines where there was none.

    Args:
        found: the deployment of each search, and its record.
    """
    searches = list(found)
    slos = {" and ".join(record.slos) for _, record in searches if record.target == SLO}
    curves = {(deployment, record.workload) for deployment, record in searches}
    alone = len({deployment for deployment, _ in curves}) == len(curves)
    named = [(deployment if alone else f"{deployment}, {record.workload}", record) for deployment, record in searches]
    alike = all(record.target == SLO for _, record in searches)
    within = f"What is the highest load within {slos.pop() if len(slos) == 1 else 'the SLOs'}?"
    return Answer(
        name="searches",
        question=within if alike else "Which loads did the searches find?",
        lines=shortened([f"{name}: {search_limit(record) if alike else search_sentence(record)}." for name, record in named]),
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
        """The same with its unit."""
        number = self.number(load)
        return (
            f"{number} in flight"
            if self.held
            else f"{count_text(number, 'conversation' if self.conversations else 'request')}/s"
        )


def _unit(record: SearchRecord) -> LoadUnit:
    return LoadUnit(AXES[record.axis].held, record.turns > 1)


def limit_text(limit: float, low: float, high: float, *, unit: LoadUnit, why: str) -> str:
    """The limit with its interval, such as `12 in flight (11 to 13 at 95 % confidence)`.

    Args:
        unit: of the load. why: the search ended.
    """
    if why == "alone":
        return "none, as one request alone misses an SLO"
    if why == "below" or (not limit and math.isfinite(high)):
        return f"below {unit.text(high)}"
    if why == "above" or not math.isfinite(limit) or (not math.isfinite(high) and 0 < limit <= low):
        return f"{unit.text(low)} or more"
    if not math.isfinite(high) and low <= 0:
        return f"perhaps {unit.text(limit)}"
    if not math.isfinite(high):
        return f"{unit.text(low)} or more, perhaps {unit.text(limit)}"
    ends = f"{unit.number(low)} to {unit.number(high)}" if low > 0 else f"at most {unit.number(high)}"
    return f"{unit.text(limit)} ({ends} at 95 % confidence)"


def looked_for(target: str, slos: Iterable[object], *, held: bool) -> str:
    """What a search looks for, as a noun."""
    return LOOKED_FOR[_goal(target, held)].format(slos=" and ".join(map(str, slos)))


def _goal(target: str, held: bool) -> str:
    return _RATE if target == THROUGHPUT and not held else target


def target_text(
    target: str, limit: float | None, low: float, high: float, *, unit: LoadUnit, why: str, top: float | None = None
) -> str:
    """What a search found of a target other than the SLOs, as a sentence without its full stop.

    Args:
        as of `limit_text`. top: the highest throughput (tokens/s).
    """
    unknown = f"{looked_for(target, (), held=unit.held)} is not known"
    if why == "unmeasured":
        return f"{unknown}: no run shows {'how full the KV cache was' if target == KV_CACHE else 'a throughput'}"
    if limit is None or (math.isinf(high) and not (limit if target == THROUGHPUT else low)):
        return unknown
    return FOUND[
        _goal(target, unit.held), why if why in ("above", "below", "never") else "open" if math.isinf(high) else "found"
    ].format(
        **{name: unit.text(load) for name, load in (("limit", limit), ("low", low), ("high", high))},
        at=limit_text(limit, low, high, unit=unit, why="found"),
        top="" if top is None else f"{three_digits(top)} tokens/s",
    )


def search_limit(record: SearchRecord) -> str:
    """The limit that a search found."""
    high = math.inf if record.high is None else record.high
    if record.target != SLO:
        return target_text(record.target, record.limit, record.low, high, unit=_unit(record), why=record.why, top=record.top)
    if record.limit is None:
        return "not known"
    return limit_text(record.limit, record.low, high, unit=_unit(record), why=record.why)


def search_sentence(record: SearchRecord) -> str:
    """What a search found, as a sentence that names what it looked for."""
    found = search_limit(record)
    return found if record.target != SLO else f"{looked_for(SLO, record.slos, held=AXES[record.axis].held)} is {found}"


def search_ended(record: SearchRecord) -> str:
    """Why a search ended, and what would show more."""
    unjudged = bool(record.runs) and not any(run.excess for run in record.runs)
    why = "short" if record.why == "seconds" and unjudged else record.why
    lower = None if AXES[record.axis].held and record.high == 1 else "lowest"
    text = ended_text(record.target, why, record.precision, {**_BOUNDS, "lower": lower})
    own = " by its own runs" if why == "found" and _wider(record) else ""
    return f"{count_text(len(record.runs), 'run')}, {record.seconds:.0f} s under load: {text}{own}"


def ended_text(target: str, why: str, precision: float, names: Mapping[str, str | None]) -> str:
    """Why a search ended. Args: names: of its bounds, by their names in a study; `lower`: of the lowest, None where none is lower."""
    return filled(ENDED.get((target, why)) or ENDED[why], {**names, "asked": f"± {shown_share(precision)}"})


def _wider(record: SearchRecord) -> bool:
    """Whether the interval is wider than was asked for, as later runs of the curve showed."""
    if record.high is None or (AXES[record.axis].held and record.high - record.low <= 1):
        return False
    return record.high - record.low > record.precision * (record.high + record.low)
