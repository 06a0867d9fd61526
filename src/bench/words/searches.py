"""What a search found, in words: from a record of it, or while it goes on."""

from __future__ import annotations

import math
from collections.abc import Iterable

from bench.analysis.regions import FLAT, PROPORTIONAL
from bench.errors import shown_share
from bench.records.searches import SearchRecord
from bench.shipped import BENCH
from bench.study.search import EQUILIBRIUM, KV_CACHE, SLO, THROUGHPUT
from bench.words.answer import Answer, shortened
from bench.words.loads import count_text

__all__ = ["answer", "limit_text", "looked_for", "search_ended", "search_limit", "search_sentence", "target_text"]

_PROPORTIONAL, _FLAT = shown_share(PROPORTIONAL), shown_share(FLAT)


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


def limit_text(limit: float, low: float, high: float, *, held: bool, why: str) -> str:
    """The limit with its interval, such as `12 in flight (11 to 13 at 95 % confidence)`.

    Args:
        held: whether the load is requests in flight; else requests/s. why: the search ended.
    """
    if why == "below" or (not limit and math.isfinite(high)):
        return f"below {_load(high, held)}"
    if why == "above" or not math.isfinite(limit):
        return f"{_load(low, held)} or more"
    if not math.isfinite(high) and low <= 0:
        return f"perhaps {_load(limit, held)}"
    if not math.isfinite(high):
        return f"{_load(low, held)} or more, perhaps {_load(limit, held)}"
    ends = f"{low:g} to {high:g}" if held else f"{low:.3g} to {high:.3g}"
    return f"{_load(limit, held)} ({ends} at 95 % confidence)"


def _load(load: float, held: bool) -> str:
    return f"{load:g} in flight" if held else f"{load:.3g} requests/s"


def looked_for(target: str, slos: Iterable[object], *, held: bool) -> str:
    """What a search looks for, as a noun."""
    return {
        SLO: f"the highest load within {' and '.join(map(str, slos))}",
        KV_CACHE: "the load that fills the KV cache",
        THROUGHPUT: f"the load with {_FLAT} of the highest throughput"
        if held
        else "the highest rate that the server keeps up with",
        EQUILIBRIUM: f"the load at which a request gets less than {_PROPORTIONAL} of the throughput that it gets alone",
    }[target]


def target_text(target: str, limit: float, low: float, high: float, *, held: bool, why: str, top: float | None = None) -> str:
    """What a search found of a target other than the SLOs, as a sentence without its full stop.

    Args:
        as of `limit_text`. top: the highest throughput (tokens/s).
    """
    highest = "" if top is None else f"{top:,.3g} tokens/s" if top < 1000 else f"{top:,.0f} tokens/s"
    if why == "unmeasured":
        shown = "how full the KV cache was" if target == KV_CACHE else "a throughput"
        return f"{looked_for(target, (), held=held)} is not known: no run shows {shown}"
    if math.isinf(high) and not (limit if target == THROUGHPUT else low):
        return f"{looked_for(target, (), held=held)} is not known"
    at = limit_text(limit, low, high, held=held, why="found")
    end = "above" if why == "above" else "below" if why == "below" else "open" if math.isinf(high) else ""
    if why == "never":
        return f"the KV cache does not fill: at {_load(low, held)}, requests wait for something else"
    if target == KV_CACHE:
        return {
            "above": f"the KV cache is not full at {_load(low, held)}, the highest load tried",
            "below": f"the KV cache is full at {_load(high, held)}, the lowest load tried",
            "open": f"the KV cache is not full up to {_load(low, held)}",
        }.get(end, f"the KV cache is full from {at}")
    if target == EQUILIBRIUM:
        return {
            "above": f"throughput grows in proportion up to {_load(low, held)}, the highest load tried",
            "below": f"throughput stops growing in proportion below {_load(high, held)}",
            "open": f"throughput grows in proportion up to {_load(low, held)}",
        }.get(end, f"throughput stops growing in proportion at {at}")
    if not held:
        return {
            "above": f"the server keeps up with {_load(low, held)}, the highest rate tried",
            "below": f"the server does not keep up with {_load(high, held)}, the lowest rate tried",
            "open": f"the server keeps up with {_load(low, held)} or more",
        }.get(end, f"the server keeps up with {at}")
    return {
        "above": f"throughput may still rise at {_load(low, held)}, the highest load tried ({highest})",
        "below": f"{_FLAT} of the highest throughput, {highest}, is reached at {_load(high, held)}, the lowest load tried",
        "open": f"throughput may still rise at {_load(limit, held)} ({highest})",
    }.get(end, f"the highest throughput is {highest}; {_FLAT} of it is reached at {at}")


def search_limit(record: SearchRecord) -> str:
    """The limit that a search found."""
    if record.target != SLO:
        high = math.inf if record.high is None else record.high
        held = record.axis == "concurrency"
        return target_text(record.target, record.limit, record.low, high, held=held, why=record.why, top=record.top)
    if not record.limit and not record.low and record.high is None:  # nothing could be judged
        return "not known"
    high = math.inf if record.high is None else record.high
    return limit_text(record.limit, record.low, high, held=record.axis == "concurrency", why=record.why)


def search_sentence(record: SearchRecord) -> str:
    """What a search found, as a sentence that names what it looked for."""
    found = search_limit(record)
    return found if record.target != SLO else f"{looked_for(SLO, record.slos, held=record.axis == 'concurrency')} is {found}"


def search_ended(record: SearchRecord) -> str:
    """Why a search ended, and what would show more."""
    asked = f"± {shown_share(record.precision)}"
    within = record.target == SLO
    further = "" if record.axis == "concurrency" and record.high == 1 else "; lower `lowest` to look further"
    why = {
        "found": f"as precise as asked ({asked})",
        "above": f"{'every load up to `highest` meets the SLOs' if within else '`highest` is reached'}; raise it to look further",
        "below": "even the lowest load misses an SLO" if within else "reached at the lowest load tried" + further,
        "never": "no load fills it; `max_num_seqs` may bound what runs",
        "unmeasured": "the engine's metrics are not there, or lack the cache's usage"
        if record.target == KV_CACHE
        else "the server does not report how many tokens it made",
        "runs": f"not surely {asked} yet: its `runs` are spent; with more, it goes on from here",
        "seconds": f"not surely {asked} yet: its `seconds` are spent; with more, it goes on from here",
        "invalid": f"three runs in a row cannot be trusted, for the reasons listed below; `{BENCH} discard --invalid`, then the same "
        "command, goes on. Where other users' work disturbs it and cannot be ended, raise `thresholds.other_share`",
        "short": "no run was long enough to be judged; raise `runs`",
    }[record.why]
    return f"{count_text(len(record.runs), 'run')}, {record.seconds:.0f} s under load: {why}"
