"""Which settings of a server are best, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping

from bench.errors import count_text, is_are
from bench.records.tuning import Contribution, TuningRecord, Visit
from bench.study.settings import setting_name, value_text
from bench.words.answer import Answer, listed, shortened

__all__ = ["answer", "tuning_lines"]


def tuning_lines(found: TuningRecord) -> list[str]:
    """What a tuning found, a sentence a line."""
    told = answer(found)
    return [*told.lines, *told.sure, *told.do]


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
    confirmed = found.confirmed
    if found.leader == found.default:
        return [f"The default, {found.default}{rates.get(found.default, '')}: no other candidate was better in the race."]
    gain = f"{_percent(confirmed.gain)} ({_percent(confirmed.low)} to {_percent(confirmed.high)})" if confirmed else ""
    against = f"{found.leader}{rates.get(found.leader or '', '')} against {found.default}{rates.get(found.default, '')}"
    if found.winner == found.leader:
        changed = listed([f"{setting_name(each.setting)} {_value(each, each.winner)}" for each in found.contributions])
        return [
            f"{found.winner}, with {changed}: {gain} over the default. {against}.",
            *map(_contribution, found.contributions),
        ]
    if confirmed:
        return [
            f"No gain over the default, {found.default}, is shown: the best of the race, {found.leader}, has {gain}. {against}."
        ]
    return [
        f"No gain over the default, {found.default}, is shown: the best of the race, {found.leader}, was not so far ahead that "
        f"the confirmation could have shown it. {against}."
    ]


def _first(found: TuningRecord) -> str:
    """Why nothing is known: the default's own visit."""
    first = found.visits[0]
    if first.why in ("below", "alone"):
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
    if lost := [name for name in found.dropped if name not in found.untried]:
        lines.append(f"Out of the race, surely worse than its leader: {listed(shortened(lost))}.")
    died = {visit.deployment: visit for visit in found.visits if visit.why == "died"}
    lines += [f"{name} could not be measured: {visit.said.splitlines()[0]}" for name, visit in died.items()]
    missed = [visit.deployment for visit in found.visits if visit.why in ("below", "alone")]
    if missed:
        lines.append(f"{listed(shortened(missed))} {is_are(len(missed))} out: no rate meets the SLOs.")
    if found.untried:
        lines.append(f"Not tried: {listed(shortened(found.untried))}.")
    return lines


def _do(found: TuningRecord) -> list[str]:
    lines = []
    if found.untried:
        lines.append("More `tune.minutes` go on from what is measured, and may reach the candidates that were not tried.")
    if found.winner and found.winner == found.leader != found.default:
        lines.append(f"`bench export {found.winner}` writes its command line, a Compose file or Helm values.")
    return lines


def _rates(found: TuningRecord) -> Mapping[str, str]:
    """The rate of each candidate in words, by all its whole visits: the mean of their logarithms."""
    logs: dict[str, list[float]] = {}
    for visit in found.visits:
        if _whole(visit) and visit.middle is not None:
            logs.setdefault(visit.deployment, []).append(visit.middle)
    return {name: f" ({math.exp(sum(each) / len(each)):.3g} requests/s)" for name, each in logs.items()}


def _whole(visit: Visit) -> bool:
    return visit.why not in ("lost", "died")


def _percent(factor: float) -> str:
    return f"{100 * (factor - 1):+.0f} %".replace("-", "−")


def _value(each: Contribution, value: object) -> str:
    return value_text(each.setting, value)
