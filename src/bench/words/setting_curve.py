"""How throughput follows a numeric setting, and how many devices are best at which load, in words."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from bench.analysis.setting_curve import Form, LoadCurve, SettingCurve
from bench.axes import AXES
from bench.study.settings import setting_name, value_text, with_others
from bench.words.answer import Answer, listed, shortened
from bench.words.loads import interval_text, load_text, loads_text

#: What the forms are called in a legend.
FORMS = {"power": "power law", "inverse": "fixed part and divided part"}
_NOT = {
    "undecided": "not decided, both forms fit",
    "neither": "neither form fits",
    "few": "not known, fewer than three values have valid runs to compare",
    "unknown": "not known, too few runs were repeated",
}


def answers(curves: Sequence[SettingCurve]) -> Iterator[Answer]:
    """How throughput follows numbers of devices and other numeric settings, and which number of devices is best at what load."""
    if devices := [each for each in curves if each.devices]:
        yield _answer("scaling", f"How many {_noun(devices[0])}s for one instance, at what load?", devices)
    if others := [each for each in curves if not each.devices]:
        names = list(dict.fromkeys(setting_name(each.setting) for each in others))
        yield _answer("forms", f"How does throughput follow {listed(names)}?", others)


def _answer(name: str, question: str, curves: Sequence[SettingCurve]) -> Answer:
    of = [f"{each.deployments[0]} to {each.deployments[-1]} · {each.workload}: " if len(curves) > 1 else "" for each in curves]
    lines = [prefix + line for prefix, each in zip(of, curves, strict=True) for line in _lines(each)]
    together = dict.fromkeys(with_others(setting_name(each.setting), each.others) for each in curves if each.others)
    assumed = "How far two starts of a server differ is assumed; four sessions (study.sessions) would measure it."
    return Answer(
        name=name,
        question=question,
        lines=shortened(lines),
        sure=(
            "At 95 % confidence for each load. A form is chosen where the runs reject the other one.",
            *([assumed] if any(each.spread_assumed for each in curves) else []),
            *([f"These settings changed together: {listed(list(together))}."] if together else []),
        ),
    )


def _noun(curve: SettingCurve) -> str:
    return "GPU" if curve.gpus else "worker"


def _lines(curve: SettingCurve) -> Iterator[str]:
    if curve.devices:
        noun = _noun(curve)
        yield f"Most output tokens/s of each {noun}: {_best(curve, [load.most for load in curve.loads])}."
        yield f"Shortest E2E P50: {_best(curve, [load.quickest for load in curve.loads])}."
    if max(len(load.values) for load in curve.loads) > 2:
        yield f"Throughput by {setting_name(curve.setting)}: {'; '.join(_forms(curve))}."


def _best(curve: SettingCurve, best: Sequence[tuple[int, ...]]) -> str:
    """Which numbers of devices are best at which loads, those in a row that have the same ones together."""
    parts, noun = [], _noun(curve)
    for numbers, group in itertools.groupby(zip(best, curve.loads, strict=True), key=lambda each: each[0]):
        at = _at(curve, [load for _, load in group])
        texts = [f"{number:g}" for number in numbers]
        if not texts:
            parts.append(f"not known {at}")
        elif len(texts) == 1:
            parts.append(f"{texts[0]} {noun}{'' if texts[0] == '1' else 's'} {at}")
        else:
            parts.append(f"{', '.join(texts[:-1])} or {texts[-1]} {at}, not decided")
    return "; ".join(parts)


def _forms(curve: SettingCurve) -> Iterator[str]:
    name = setting_name(curve.setting)
    for verdict, group in itertools.groupby(curve.loads, key=lambda load: load.verdict):
        loads = list(group)
        at = _at(curve, loads)
        if verdict == "power":
            yield f"proportional to {name}ᵇ {at}, b = {_shapes([(load, load.power) for load in loads])}"
        elif verdict == "inverse":
            least = value_text(curve.setting, loads[0].values[0])
            yield (
                f"{at} the time per token is a fixed part and one that {name} divides, the fixed part as a share of the time with "
                f"{least}: "
                f"{_shapes([(load, load.inverse) for load in loads])}"
            )
        else:
            yield f"{_NOT[verdict]} {at}"


def _shapes(found: Sequence[tuple[LoadCurve, Form | None]]) -> str:
    """The parameter with its interval, of the lowest load and of the highest."""
    ends = found if len(found) == 1 else (found[0], found[-1])
    return " and ".join(
        f"{form.shape.value:.2f}{f' at {load.level:g}' if len(ends) > 1 else ''} "
        f"({interval_text(form.shape.low, form.shape.high, '{:.2f}')})"
        for load, form in ends
        if form is not None
    )


def _at(curve: SettingCurve, loads: Sequence[LoadCurve]) -> str:
    """Where, such as `at 1, 2, 4 requests in flight`, or of many `at 1 to 16 requests in flight`."""
    levels = [load.level for load in loads]
    if len(levels) == 1:
        return f"at {load_text(levels[0], AXES[curve.axis].unit)}"
    text = loads_text(levels) if len(levels) <= 3 else f"{levels[0]:g} to {levels[-1]:g}"
    return f"at {text} {AXES[curve.axis].unit}"
