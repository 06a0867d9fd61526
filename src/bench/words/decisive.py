"""Which factor decides which metric, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bench.analysis.decisive import Decided, Decisive, FactorEffect
from bench.errors import listed, shown_size
from bench.words.answer import AGAIN, Answer

_DIGITS = 10  # factor below which two decimals are shown
_LITTLE = 0.05  # change in ln metric below which a visible effect depends on other factors


def answer(found: Sequence[Decided]) -> Answer:
    """Which factor decides what, and how well the model behind that predicts."""
    several = len(found) > 1
    return Answer(
        name="factors",
        question="Which factor decides latency and throughput?",
        lines=tuple(_of(each, several) + line for each in found for line in _lines(each)),
        sure=tuple(_of(each, several) + line for each in found for line in _sure(each)),
        do=(
            *(_of(each, several) + line for each in found for line in _do(each)),
            *([AGAIN] if any(not each.metrics and each.configurations < each.measured for each in found) else []),
        ),
    )


def _of(found: Decided, several: bool) -> str:
    return f"{found.family}: " if several else ""


def _name(metric: Decisive) -> str:
    return metric.metric.split(" (")[0]


def _lines(found: Decided) -> list[str]:
    if not found.metrics:
        few = f"{found.configurations} configurations have a valid run, and it takes {found.fewest}"
        return [f"Not known: {few}."]
    return [f"{_name(each)[0].upper()}{_name(each)[1:]}: {_line(each)}." for each in found.metrics]


def _line(metric: Decisive) -> str:
    if metric.effects is None:
        return f"not known, because no model of it predicts configurations that it has not seen (R² {_r2(metric.score[0])})"
    none = f"; no visible effect: {', '.join(metric.none)}" if metric.none else ""
    if not metric.effects:
        return "no factor has a visible effect"
    first, *others = metric.effects
    then = f", then {listed([_effect(each) for each in others])}" if others else ""
    return f"{_effect(first)} decides most{then}{none}"


def _effect(found: FactorEffect) -> str:
    if found.change is None or found.between is None:
        return found.factor
    low, high = (each if isinstance(each, str) else _shown(found.factor, each) for each in found.between)
    times = f"{found.change:.2f}" if found.change < _DIGITS else f"{found.change:,.0f}"
    if abs(math.log(found.change)) < _LITTLE:
        return f"{found.factor} (direction depends on the other factors; × {times} on average from {low} to {high})"
    return f"{found.factor} (× {times} from {low} to {high})"


def _shown(factor: str, value: float) -> str:
    if factor.partition(",")[0] == "kv_cache_memory":
        return shown_size(int(value))
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"


def _r2(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def _sure(found: Decided) -> list[str]:
    sure = []
    if found.metrics:
        scores = listed([f"{_r2(each.score[0])} for {_name(each)}" for each in found.metrics])
        sure.append(
            f"A model of {found.configurations} configurations predicts those that it has not seen with an R² of {scores} (1 is "
            "perfect, 0 no better than the mean; below 0.5 nothing is concluded)."
        )
    if found.together:
        pairs = "; ".join(f"{one} and {other}" for one, other in found.together)
        sure.append(f"These vary together, so their effects cannot be separated: {pairs}.")
    return sure


def _do(found: Decided) -> list[str]:
    if not found.metrics:
        few = f"Add levels or lengths: the study has {found.measured} configurations, and it takes {found.fewest} with a valid run."
        return [few] if found.measured < found.fewest else []
    if any(each.effects for each in found.metrics):
        return []
    return ["Vary the factors over wider ranges, or repeat each configuration: these runs decide nothing."]
