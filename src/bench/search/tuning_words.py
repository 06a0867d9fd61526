"""Which settings of a server are best, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from bench.errors import count_text, listed, signed_percent
from bench.report.blocks import Answer, shortened
from bench.runs.searches import MISSES, Confirmed, TuningRecord, Visit
from bench.servers.settings import setting_name, value_text

_UNCONFIRMED = "and one of the starts that were to confirm it showed no rate"


def tuning_lines(found: TuningRecord) -> list[str]:
    """What a tuning found, a sentence a line."""
    answered = answer(found)
    return [*answered.lines, *answered.sure, *answered.do]


def state_line(visits: Sequence[Visit], found: TuningRecord | None, candidates: int, minutes: float) -> str:
    """How far a tuning is. Args: visits: so far. found: what it found; None until it has ended. candidates, minutes: that it has."""
    if found:
        return f"Tuning, ended: {_lines(found)[0]}"
    started, spent = len({visit.deployment for visit in visits}), sum(visit.seconds for visit in visits) / 60
    done = f"{started} started, {count_text(len(visits), 'start')} in {spent:.0f} of {minutes:g} min"
    return (
        f"Tuning: {count_text(candidates, 'candidate')}, {done if visits else f'{minutes:g} min'}; `bench tune` measures them."
    )


def answer(found: TuningRecord) -> Answer:
    """Which settings are best, and what they gain."""
    return Answer(
        name="tuning",
        question=f"Which settings sustain the most {_unit(found)} within the SLOs?",
        lines=tuple(_lines(found)),
        sure=tuple(_sure(found)),
        do=tuple(_do(found)),
    )


def _lines(found: TuningRecord) -> list[str]:
    rates, confirmed = _rates(found), found.confirmed
    if found.winner is None:
        leader = found.leader and f" {found.leader}{rates.get(found.leader, '')} led the race, {_UNCONFIRMED}."
        return [f"Not known: {_first(found)}.{leader or ''}"]
    default_of, winner_of = (found.settings.get(name, {}) for name in (found.default, found.winner))
    changed = listed(
        [f"{setting_name(key)} {value_text(key, value)}" for key, value in winner_of.items() if value != default_of.get(key)]
    )
    if confirmed and confirmed.gain is None:
        return [
            f"{found.winner}, with {changed}: it carries{_bare(rates, found.winner)}, as {count_text(confirmed.pairs, 'start')} of its "
            f"own confirmed. The default, {found.default}, meets {listed(found.slos)} at no rate that was tried."
        ]
    default = f"{found.default}{rates.get(found.default, '')}"
    if found.leader == found.default:
        if found.settled:
            return [f"The default, {default}: no other candidate is better."]
        return [f"No candidate is shown to be better than the default, {default}."]
    leader = f"{found.leader}{rates.get(found.leader or '', '')}"
    if confirmed is None or confirmed.gain is None or confirmed.low is None or confirmed.high is None:
        return [f"No gain over the default, {default}, is shown: {leader} led the race, {_UNCONFIRMED}."]
    gain = _gain(confirmed)
    if found.winner != found.leader:
        return [f"No gain over the default, {default}, is shown: {leader} led the race, and has {gain}."]
    first = f"{found.leader}, with {changed}: {gain} over the default. It carries{_bare(rates, found.leader)}, the default"
    return [f"{first}{_bare(rates, found.default)}."]


def _bare(rates: Mapping[str, str], name: str | None) -> str:
    return f" {rates.get(name or '', ' (not known)').strip(' ()')}"


def _first(found: TuningRecord) -> str:
    """Why nothing is known: the default's own visit."""
    first = found.visits[0]
    if first.why in MISSES and len(found.visits) > 1 and found.leader is None:
        return f"no rate of the default, {found.default}, or of another candidate that was started meets {listed(found.slos)}"
    if first.why in MISSES:
        return f"no rate of the default, {found.default}, meets {listed(found.slos)}"
    return f"the search on the default, {found.default}, ended ({first.why}) before its rate was known"


def _sure(found: TuningRecord) -> list[str]:
    by_phase = {
        phase: [visit for visit in found.visits if visit.phase == phase] for phase in ("first look", "race", "confirmation")
    }
    looked = by_phase["first look"]
    lines = [
        f"{count_text(len(found.visits), 'start')} of a server in {found.seconds / 60:.0f} of {found.minutes:g} min: "
        f"{count_text(len(looked), 'first look')}, {len(by_phase['race'])} in the race, {len(by_phase['confirmation'])} to confirm."
    ]
    if found.confirmed and found.confirmed.gain is not None:
        lines.append(
            f"The gain is by {count_text(found.confirmed.pairs, 'pair')} of starts that took no part in the race, at 95 % confidence."
        )
    if found.dropped:
        lines.append(
            f"Worse than the leader, each with a probability of 95 % or more: {listed(shortened(list(found.dropped)))}."
        )
    nothing = {visit.deployment: visit for visit in found.visits if visit.middle is None and visit.deployment != found.default}
    for name, visit in nothing.items():
        if visit.why == "died":
            lines.append(f"{name} could not be measured: {visit.said.splitlines()[0]}")
        elif visit.why in MISSES:
            lines.append(f"{name} is out: no rate meets the SLOs.")
        elif visit.phase == "first look":
            lines.append(f"{name} is out: its search ended ({visit.why}) before any run could be judged.")
        else:
            lines.append(f"A start of {name} shows no rate: its search ended ({visit.why}) before any run could be judged.")
    if found.untried and found.winner is not None:
        lines.append(f"Not started, for want of minutes: {listed(shortened(found.untried))}.")
    return lines


def _do(found: TuningRecord) -> list[str]:
    lines = []
    if found.winner is None:
        return ["Let another server be the first of `tune.deployments` or of the sweep, or allow more in `decision.slo`."]
    if found.untried:
        lines.append("More `tune.minutes` go on from what is measured, and may reach the candidates that were not started.")
    if found.winner == found.leader != found.default:
        lines.append(f"`bench export {found.winner}` writes its command line, a Compose file or a Kubernetes manifest.")
    return lines


def _rates(found: TuningRecord) -> Mapping[str, str]:
    return {name: f" ({rate:.3g} {_unit(found)})" for name, rate in measured_rates(found).items()}


def _unit(found: TuningRecord) -> str:
    return f"{found.unit} for each GPU" if found.objective == "cost" else found.unit


def measured_rates(found: TuningRecord) -> dict[str, float]:
    """The rate of each candidate (requests/s, for each GPU where that is what counts), where it is known.

    It is the geometric mean of the starts that confirmed, else of those that were not ended early and have both ends of an interval.
    """
    logs: dict[str, list[float]] = {}
    confirmed = {visit.deployment for visit in found.visits if visit.phase == "confirmation"}
    for visit in found.visits:
        whole = visit.why != "lost" and bool(visit.low) and visit.high is not None
        counts = visit.phase == "confirmation" if visit.deployment in confirmed else whole
        if counts and visit.middle is not None:
            logs.setdefault(visit.deployment, []).append(visit.middle - math.log(found.units.get(visit.deployment, 1.0)))
    return {name: math.exp(sum(each) / len(each)) for name, each in logs.items()}


def _gain(known: Confirmed) -> str:
    gain, low, high = (f"{signed_percent((factor or 0.0) - 1, 0)} %" for factor in (known.gain, known.low, known.high))
    return f"{gain} ({low} to {high})"
