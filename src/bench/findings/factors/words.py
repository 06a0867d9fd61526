"""Which factor decides which metric, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bench.errors import listed, shown_size
from bench.findings.factors.decided import FEWEST_SCORE, Decided
from bench.report.answer import Answer
from bench.study.questions import FEWEST_CONFIGURATIONS

_LITTLE = 0.05  # change in ln metric below which a visible effect depends on other factors
Effect = Mapping[str, Any]


def answer(found: Sequence[Decided]) -> Answer:
    """Which factor decides what, and how well the model behind that predicts."""
    of = {each.family: f"{each.family}: " if len(found) > 1 else "" for each in found}
    few = [each for each in found if each.configurations < FEWEST_CONFIGURATIONS]
    more = f"Add levels or lengths: it takes {FEWEST_CONFIGURATIONS} configurations with a valid run."
    r2 = (
        "R² is of a model that predicts configurations that it has not seen: 1 is perfect, 0 no better than the mean; below "
        f"{FEWEST_SCORE} nothing is concluded."
    )
    return Answer(
        name="factors",
        question="Which factor decides latency and throughput?",
        lines=tuple(of[each.family] + line for each in found for line in _lines(each)),
        sure=(r2,) if any(each.effects for each in found) else (),
        do=(more,) if any(each.measured < FEWEST_CONFIGURATIONS for each in few) else (),
    )


def _lines(found: Decided) -> list[str]:
    if not found.effects:
        return [f"Not known: {found.configurations} configurations have a valid run, and it takes {FEWEST_CONFIGURATIONS}."]
    metrics = dict.fromkeys(row["metric"] for row in found.effects)
    return [_line(metric, [row for row in found.effects if row["metric"] == metric]) for metric in metrics]


def _line(metric: str, rows: Sequence[Effect]) -> str:
    name = metric.split(" (", maxsplit=1)[0]
    head = f"{name[0].upper()}{name[1:]} (R² {rows[0]['score']:.2f}): ".replace("-", "−")
    if rows[0]["importance"] is None:
        return f"{head}not known, because no model predicts it."
    sure = sorted((row for row in rows if row["low"] > 0), key=lambda row: -row["importance"])
    if not sure:
        return f"{head}no factor has a visible effect."
    first, *others = map(_effect, sure)
    none = [row["factor"] for row in rows if row["low"] <= 0]
    then = f", then {listed(others)}" if others else ""
    without = f"; no visible effect: {', '.join(none)}" if none else ""
    return f"{head}{first} decides most{then}{without}."


def _effect(row: Effect) -> str:
    if row["change"] is None:
        return str(row["factor"])
    ends = " to ".join(_shown(row["factor"], row[end]) for end in ("first", "last"))
    if abs(math.log(row["change"])) < _LITTLE:
        return f"{row['factor']} (direction depends on the other factors)"
    return f"{row['factor']} (× {row['change']:.3g} from {ends})"


def _shown(factor: str, value: str) -> str:
    number = float(value) if value.replace(".", "").isdigit() else None
    if number is None:
        return value
    return shown_size(int(number)) if factor.partition(",")[0] == "kv_cache_memory" else f"{number:,.10g}"
