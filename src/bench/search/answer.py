"""What a search found, in words: from a record of it, or while it goes on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bench.axes import AXES
from bench.errors import count_text, shown_share
from bench.report.answer import Answer, shortened
from bench.runs.searches import SearchRecord
from bench.shipped import BENCH

_GOES_ON = "are spent; with more, it goes on from here"
# What bounds a search, as a study calls it.
_BOUNDS = {name: f"`{name}`" for name in ("highest", "runs", "seconds")}
# By why the search ended.
ENDED = {
    "found": "as precise as asked ({asked})",
    "above": "every load up to {highest} meets the SLOs; raise it to look further",
    "below": "even the lowest load misses an SLO",
    "runs": f"not yet {{asked}}: its {{runs}} {_GOES_ON}",
    "seconds": f"not yet {{asked}}: its {{seconds}} {_GOES_ON}",
    "alone": "one request alone misses an SLO",
    "invalid": "three runs in a row cannot be trusted, for the reasons listed below; "
    f"`{BENCH} runs --discard invalid`, then the same command, goes on. Where other users' work disturbs it and cannot be ended, raise "
    "`thresholds.other_share`",
    "short": f"no run could be judged: each was invalid (`{BENCH} runs` says why) or too short (raise `runs`)",
}


def answer(found: Iterable[tuple[str, SearchRecord]]) -> Answer:
    """What searches found; without lines where there was none."""
    searches = list(found)
    slos = {looked_for(record.slos) for _, record in searches}
    curves = {(deployment, record.workload) for deployment, record in searches}
    alone = len({deployment for deployment, _ in curves}) == len(curves)
    named = [(deployment if alone else f"{deployment}, {record.workload}", record) for deployment, record in searches]
    return Answer(
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


def _unit(record: SearchRecord) -> LoadUnit:
    return LoadUnit(AXES[record.axis].held, record.turns > 1)


def limit_text(limit: float, low: float, high: float, *, unit: LoadUnit, why: str) -> str:
    """The limit with its interval, such as `12 in flight (11 to 13 at 95 % confidence)`."""
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


def looked_for(slos: Iterable[object]) -> str:
    """What a search looks for, as a noun."""
    return f"the highest load within {' and '.join(map(str, slos))}"


def search_limit(record: SearchRecord) -> str:
    """The limit that a search found."""
    high = math.inf if record.high is None else record.high
    if record.limit is None:
        return "not known"
    return limit_text(record.limit, record.low, high, unit=_unit(record), why=record.why)


def search_ended(record: SearchRecord) -> str:
    """Why a search ended, and what would show more."""
    unjudged = bool(record.runs) and not any(run.excess for run in record.runs)
    why = "short" if record.why == "seconds" and unjudged else record.why
    text = ended_text(why, record.precision, _BOUNDS)
    own = " by its own runs" if why == "found" and _wider(record) else ""
    return f"{count_text(len(record.runs), 'run')}, {record.seconds:.0f} s under load: {text}{own}"


def ended_text(why: str, precision: float, names: Mapping[str, str]) -> str:
    """Why a search ended. Args: names: of its bounds, by their names in a study."""
    return ENDED[why].format(**names, asked=f"± {shown_share(precision)}")


def _wider(record: SearchRecord) -> bool:
    """Whether the interval is wider than was asked for, as later runs of the curve showed."""
    if record.high is None or (AXES[record.axis].held and record.high - record.low <= 1):
        return False
    return record.high - record.low > record.precision * (record.high + record.low)
