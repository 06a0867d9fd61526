"""What a search found, in words: from a record of it, or while it goes on."""

from __future__ import annotations

import math
from collections.abc import Iterable

from bench.errors import shown_share
from bench.records.searches import SearchRecord
from bench.words.answer import Answer, shortened
from bench.words.loads import count_text

__all__ = ["answer", "limit_text", "search_ended", "search_limit"]


def answer(found: Iterable[tuple[str, SearchRecord]]) -> Answer:
    """What searches found; without lines where there was none.

    Args:
        found: the deployment of each search, and its record.
    """
    searches = list(found)
    slos = {" and ".join(record.slos) for _, record in searches}
    deployments = {deployment for deployment, _ in searches}
    alone = len(deployments) == len(searches)
    named = [(deployment if alone else f"{deployment}, {record.workload}", record) for deployment, record in searches]
    return Answer(
        name="searches",
        question=f"What is the highest load within {slos.pop() if len(slos) == 1 else 'the SLOs'}?",
        lines=shortened([f"{name}: {search_limit(record)}." for name, record in named]),
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
    if not math.isfinite(high):
        return f"{_load(low, held)} or more, perhaps {_load(limit, held)}"
    ends = f"{low:g} to {high:g}" if held else f"{low:.3g} to {high:.3g}"
    return f"{_load(limit, held)} ({ends} at 95 % confidence)"


def _load(load: float, held: bool) -> str:
    return f"{load:g} in flight" if held else f"{load:.3g} requests/s"


def search_limit(record: SearchRecord) -> str:
    """The limit that a search found."""
    if not record.limit and not record.low and record.high is None:  # nothing could be judged
        return "not known"
    high = math.inf if record.high is None else record.high
    return limit_text(record.limit, record.low, high, held=record.axis == "concurrency", why=record.why)


def search_ended(record: SearchRecord) -> str:
    """Why a search ended, and what would show more."""
    asked = f"± {shown_share(record.precision)}"
    why = {
        "found": f"as precise as asked ({asked})",
        "above": "every load up to `highest` meets the SLOs; raise it to look further",
        "below": "even the lowest load misses an SLO",
        "runs": f"not yet {asked}: its `runs` are spent; with more, it goes on from here",
        "seconds": f"not yet {asked}: its `seconds` are spent; with more, it goes on from here",
        "invalid": "three runs in a row cannot be trusted; `bench discard --invalid`, then the same command, goes on",
        "short": "no run was long enough to be judged; raise `runs`",
    }[record.why]
    return f"{count_text(len(record.runs), 'run')}, {record.seconds:.0f} s under load: {why}"
