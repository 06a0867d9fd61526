"""Which settings of a server are best, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping

from bench.errors import count_text
from bench.records.tuning import Contribution, TuningRecord
from bench.study.settings import setting_name, value_text
from bench.words.answer import Answer, listed, shortened

__all__ = ["answer", "tuning_lines"]

_MISSES = ("below", "alone")  # why a search ended that found no rate within the SLOs


def tuning_lines(found: TuningRecord) -> list[str]:
    """What a tuning found, a sentence a line."""
    answered = answer(found)
    return [*answered.lines, *answered.sure, *answered.do]


def answer(found: TuningRecord) -> Answer:
    """Which settings are best, what they gain, and what each adds."""
    return Answer(
        name="tuning",
        question=f"Which settings carry the most requests/s{' for each GPU' if found.objective == 'cost' else ''} within the SLOs?",
        lines=tuple(_lines(found)),
        sure=tuple(_sure(found)),
        do=tuple(_do(found)),
    )


def _lines(found: TuningRecord) -> list[str]:
    if found.winner is None:
        return [f"Not known: {_first(found)}."]
    rates = _rates(found)
    default = f"{found.default}{rates.get(found.default, '')}"
    if found.leader == found.default:
        if found.settled:
            return [f"The default, {default}: no other candidate is better."]
        return [f"No candidate is shown to be better than the default, {default}."]
    confirmed, leader = found.confirmed, f"{found.leader}{rates.get(found.leader or '', '')}"
    if confirmed is None:
        return [f"No gain over the default, {default}, is shown: {leader} led the race, {_unconfirmed(found)}."]
    gain = f"{_percent(confirmed.gain)} ({_percent(confirmed.low)} to {_percent(confirmed.high)})"
    if found.winner != found.leader:
        return [f"No gain over the default, {default}, is shown: {leader} led the race, and has {gain}."]
    changed = listed([f"{setting_name(each.setting)} {_value(each, each.winner)}" for each in found.contributions])
    first = f"{found.leader}, with {changed}: {gain} over the default. It carries{_bare(rates, found.leader)}, the default"
    return [f"{first}{_bare(rates, found.default)}.", *map(_contribution, found.contributions)]


def _bare(rates: Mapping[str, str], name: str | None) -> str:
    return f" {rates.get(name or '', ' (not known)').strip(' ()')}"


def _unconfirmed(found: TuningRecord) -> str:
    """Why there was no confirmation, or none that counts."""
    if any(visit.phase == "confirmation" for visit in found.visits):
        return "and one of the starts that were to confirm it showed no rate"
    return "but not by so much that the confirmation could have shown it"


def _first(found: TuningRecord) -> str:
    """Why nothing is known: the default's own visit."""
    first = found.visits[0]
    if first.why in _MISSES:
        return f"no rate of the default, {found.default}, meets {listed(found.slos)}"
    return f"the search on the default, {found.default}, ended ({first.why}) before its rate was known"


def _contribution(each: Contribution) -> str:
    name = setting_name(each.setting)
    values = f"{name} {_value(each, each.winner)} in place of {_value(each, each.default)}"
    if each.gain is None or each.low is None or each.high is None:
        return f"{values}: what it adds alone is not known, as no two candidates differ in it alone."
    return f"{values} adds {_percent(each.gain)} ({_percent(each.low)} to {_percent(each.high)}), in the mean over the other settings."


def _sure(found: TuningRecord) -> list[str]:
    by_phase = {
        phase: [visit for visit in found.visits if visit.phase == phase] for phase in ("first look", "race", "confirmation")
    }
    looked = by_phase["first look"]
    lines = [
        f"{count_text(len(found.visits), 'start')} of a server in {found.seconds / 60:.0f} of {found.minutes:g} min: "
        f"{count_text(len(looked), 'first look')}, {len(by_phase['race'])} in the race, {len(by_phase['confirmation'])} to confirm."
    ]
    if found.confirmed:
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
        elif visit.why in _MISSES:
            lines.append(f"{name} is out: no rate meets the SLOs.")
        else:
            lines.append(f"{name} is out: its search ended ({visit.why}) before any run could be judged.")
    if found.unpromising:
        lines.append(f"Not started, as the others left too little to expect of them: {listed(shortened(found.unpromising))}.")
    if found.untried and found.winner is not None:
        lines.append(f"Not started, for want of minutes: {listed(shortened(found.untried))}.")
    return lines


def _do(found: TuningRecord) -> list[str]:
    if found.winner is None:
        return ["Name another default with `tune.default`, or allow more in `decision.slo`."]
    lines = []
    if found.untried:
        lines.append("More `tune.minutes` go on from what is measured, and may reach the candidates that were not started.")
    if found.winner == found.leader != found.default:
        lines.append(f"`bench export {found.winner}` writes its command line, a Compose file or Helm values.")
    return lines


def _rates(found: TuningRecord) -> Mapping[str, str]:
    """The rate of each candidate in words: the geometric mean of the starts that confirmed, else of those that were not ended early."""
    logs: dict[str, list[float]] = {}
    confirmed = {visit.deployment for visit in found.visits if visit.phase == "confirmation"}
    for visit in found.visits:
        counts = visit.phase == "confirmation" if visit.deployment in confirmed else visit.why != "lost"
        if counts and visit.middle is not None:
            logs.setdefault(visit.deployment, []).append(visit.middle - math.log(found.units.get(visit.deployment, 1.0)))
    unit = "requests/s for each GPU" if found.objective == "cost" else "requests/s"
    return {name: f" ({math.exp(sum(each) / len(each)):.3g} {unit})" for name, each in logs.items()}


def _percent(factor: float) -> str:
    return f"{100 * (factor - 1):+.0f} %".replace("-", "−")


def _value(each: Contribution, value: object) -> str:
    return value_text(each.setting, value)
