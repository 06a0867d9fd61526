"""What a search found, in words while it goes on or from a record of it, and as a figure: what each run reached of its limits, over
the load, and where the limit lies.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from bench.axes import AXES, CONCURRENCY, RATE
from bench.errors import count_text, listed, shown_share, two_digits
from bench.measure.progress import duration_text
from bench.parse.observation import CAP
from bench.report.blocks import Answer as Answered
from bench.report.blocks import shortened
from bench.report.figure import alt
from bench.report.save import save_chart
from bench.report.theme import NEUTRAL, PALETTE, finish, layered, marked, nothing_to_show, shapes
from bench.runs.latencies import LATENCIES
from bench.runs.searches import SearchRecord
from bench.search.placing import Aim, Answer
from bench.search.probe import Alone, Probed
from bench.search.search import Budget, Found, Look, Next, expected_s
from bench.shipped import BENCH
from bench.statistics.observation import FAILED, GROWTH
from bench.statistics.textbook import Z
from bench.study.slo import Slo, time_text

# What bounds a search, as a study calls it.
_KEYS = {name: f"`{name}`" for name in ("highest", "runs", "seconds")}
# By why the search ended.
ENDED = {
    "found": "as precise as asked ({asked})",
    "above": "every load up to {highest} meets the SLOs; raise it to look further",
    "below": "even the lowest load misses an SLO",
    "runs": "not yet {asked}; raise {runs} to continue from here",
    "seconds": "not yet {asked}; raise {seconds} to continue from here",
    "alone": "one request alone misses an SLO",
    "invalid": "three runs in a row cannot be trusted, for the reasons below; to continue, "
    f"`{BENCH} runs --discard invalid`, then the same command. If other users' work cannot be ended, raise `thresholds.other_share`",
    "short": f"no run could be judged: each was invalid (`{BENCH} runs` says why) or too short (raise `runs`)",
}
_SPEEDS = 0.2  # range of ln share that a machine's speed may move beyond a bound; convention
_BOUNDS = {"highest": "--set most=N", "runs": "--set max_runs=N", "seconds": "--max-minutes"}  # as the command has them
# Why a search of the command ended, where a study's search would not say it so.
_ENDED = {
    "seconds, unfit": "not yet {asked}: the next run ({next}) does not fit into --max-minutes; raise it to continue from here.",
    "alone": "{alone}. {advice}.",
    "invalid": "three runs in a row cannot be trusted: {reasons}. Put that right, and search again.",
    "gone": "the server stopped answering. Restart it; the same command continues from here.",
    "untrusted": "no run can be trusted: {reasons}. Put that right, and search again.",
    "unfit": "no run at the next load fits into --max-minutes: the shortest is {next}. Raise it, or begin elsewhere: --set start=N.",
    "seconds, none judged": "no run was long enough to be judged. Raise --max-minutes.",
    "short, none judged": "no run was long enough to be judged. Allow more: --set max_runs=N.",
}
# What helps where one request alone misses an SLO, by the latency that it limits.
_HELPS = {
    "ttft": "Allow more time, or send shorter prompts",
    "ttfo": "Allow more time, or let the model reason less",
    "tpot": "Allow more time for each token: other prompts and answers hardly change it",
    "e2e": "Allow more time, or ask for shorter prompts and answers",
}
# why nothing is drawn, by those ends with which no run is judged
_NOTHING = {"untrusted": "no run can be trusted", "unfit": "no run fits into --max-minutes"}


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
    return limit_text(record.limit, record.low, high, unit=LoadUnit(AXES[record.axis].held, record.turns > 1), why=record.why)


def search_ended(record: SearchRecord) -> str:
    """Why a search ended, and what would show more."""
    unjudged = bool(record.runs) and not any(run.excess for run in record.runs)
    why = "short" if record.why == "seconds" and unjudged else record.why
    text = ended_text(why, record.precision, _KEYS)
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


_CLOSEST = 0.05  # lowest value that is drawn, as a share of the limit; convention
_FARTHEST = 20.0  # highest value that is drawn, as a multiple of the limit; convention
_TITLE = "percentile ÷ its limit (log)"


def draw(found: Found, aim: Aim, stem: Path) -> Path:
    """Save the figure as `stem` with .svg, .png and .json; the path of the PNG."""
    rows = _rows(found)
    spent = f"{took_text(found)}."
    reading = "Grey: where the limit lies. Lines: 95 % of each run."
    if rows.is_empty():
        chart: alt.LayerChart = nothing_to_show(nothing_text(found))
        notes = [spent]
    else:
        chart, notes = _chart(rows, found, aim), [spent, reading]
    whole = finish(chart, answer_text(found.answer, aim, whole=True), notes).to_dict()
    return next(path for path in save_chart(whole, stem) if path.suffix == ".png")


def _rows(found: Found) -> pl.DataFrame:
    """What each run reached of each limit, with its 95 % interval."""
    rows = [
        (each.load, criterion_text(key), *(_readable(excess.value + side * Z * excess.error) for side in (0, -1, 1)))
        for each in found.observations
        for key, excess in each.excesses.items()
        if key not in (FAILED, GROWTH)
    ]
    schema = {"load": pl.Float64, "slo": pl.String, **dict.fromkeys(("reached", "low", "high"), pl.Float64)}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _readable(excess: float) -> float:
    """What was reached of a limit, within the axis. Args: excess: its logarithm, of which the end of an interval may be any."""
    return math.exp(min(math.log(_FARTHEST), max(math.log(_CLOSEST), excess)))


def _chart(rows: pl.DataFrame, found: Found, aim: Aim) -> alt.LayerChart:
    axis = AXES[CONCURRENCY if aim.held else RATE].title
    if aim.turns > 1:
        axis = axis.replace("request", "conversation")
    least, most = float(rows["load"].min()), float(rows["load"].max())  # type: ignore[arg-type]
    ends = [0.95 * least, 1.05 * most]
    # From the lowest to the highest, and the limit: a frame that is wider is half empty.
    low, high = 0.9 * min(0.9, *rows["low"]), 1.1 * max(1.1, *rows["high"])
    across = alt.Scale(type="log", domain=ends, nice=False)
    x = alt.X("load:Q", title=axis, scale=across, axis=alt.Axis(format="~g"))
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    y = alt.Y("reached:Q", title=_TITLE, scale=scale, axis=alt.Axis(format="~%"))
    names = rows["slo"].unique(maintain_order=True).to_list()
    legend = alt.Legend(symbolFillColor=PALETTE[0], symbolStrokeColor=PALETTE[0]) if len(names) > 1 else None
    shape = marked(alt.Shape, "slo:N", shapes(names), title="SLO", legend=legend)
    colour = alt.ColorValue(PALETTE[0])  # of the one server
    answer = found.answer
    band = pl.DataFrame({"low": [max(answer.low, ends[0])], "high": [min(answer.high, ends[1])]})
    return layered(
        alt.Chart(band).mark_rect(color=NEUTRAL, opacity=0.2).encode(x=alt.X("low:Q", title=axis, scale=across), x2="high:Q"),
        alt.Chart(pl.DataFrame({"reached": [1.0]})).mark_rule(color="#000000", strokeDash=[5, 4]).encode(y=y),
        alt.Chart(rows)
        .mark_rule(opacity=0.5)
        .encode(x=x, y=alt.Y("low:Q", scale=scale, title=_TITLE), y2="high:Q", color=colour),
        alt.Chart(rows).mark_point(filled=True, size=60, opacity=1).encode(x=x, y=y, color=colour, shape=shape),
    )
