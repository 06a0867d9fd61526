"""What one instance carries and what a peak takes, in words for the first screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from bench.study import Slo
from bench.words.answer import AGAIN, Answer, by_advice, in_line, listed, shortened
from bench.words.capacity import BURSTS, c_max, rate
from bench.words.fleet import interval
from bench.words.loads import count_text

__all__ = ["answer"]


class Carries(Protocol):
    """What an answer about capacity takes of a curve, in words."""

    @property
    def name(self) -> str: ...
    @property
    def point(self) -> Mapping[str, Any] | None: ...
    @property
    def carries(self) -> str: ...
    @property
    def gpu(self) -> str: ...
    @property
    def sure(self) -> str: ...
    @property
    def remedy(self) -> str: ...
    @property
    def searched(self) -> object | None: ...
    @property
    def fleet(self) -> Mapping[str, Any] | None: ...
    @property
    def burst(self) -> bool: ...


def answer(curves: Sequence[Carries], slos: Sequence[Slo], peak_rps: float | None) -> Answer:
    """What one instance carries within the SLOs, and what a peak takes."""
    peak = f", and how many does a peak of {peak_rps:g} requests/s take" if peak_rps is not None else ""
    raise_it = by_advice(
        (curve.name, f"to carry more, {_lower_case(curve.remedy)}" if curve.remedy else "") for curve in curves
    )
    unknown = any(curve.point and curve.point["kind"] == "unknown" for curve in curves)
    ends = _upper_ends(curves)
    plan = [f"To carry the peak at 95 % confidence, plan {listed(ends)}."] if ends else []
    bursts = [curve for curve in curves if _meets_as_burst(curve)]
    others = [curve for curve in curves if curve not in bursts]
    return Answer(
        name="capacity",
        question=f"What load does one instance carry within {listed([str(slo) for slo in slos])}{peak}?",
        lines=(
            *shortened([f"{curve.name}: {_lower_case(_in_short(curve))}" for curve in others]),
            *([f"Bursts that meet the SLOs: {listed([_burst(curve) for curve in bursts])}."] if bursts else []),
        ),
        sure=(
            *shortened([f"{curve.name}: {_bounds(curve)}{curve.sure}" for curve in others if curve.sure]),
            *([BURSTS] if any(curve.burst for curve in curves) else []),
        ),
        do=(*plan, *shortened(raise_it, 4), *([AGAIN] if unknown else [])),
    )


def _meets_as_burst(curve: Carries) -> bool:
    return curve.burst and curve.point is not None and curve.point["c_max"] is not None


def _burst(curve: Carries) -> str:
    """How many requests at once meet the SLOs, and how many do not."""
    assert curve.point
    misses = f" ({curve.point['missed_at']:g} do not)" if curve.point["missed_at"] is not None else ""
    return f"{count_text(int(curve.point['c_max']), 'request')} of {curve.name}{misses}"


def _upper_ends(curves: Sequence[Carries]) -> list[str]:
    """What the peak takes at the lowest rate that the measurements allow, where that is established; alike curves together."""
    alike: dict[tuple[str, str], list[str]] = {}
    for curve in curves:
        fleet = curve.fleet
        if fleet is None or fleet["instances_most"] is None:
            continue
        instances, times = f"{fleet['instances_most']:,} instances", f"times the safety factor {fleet['safety']:g}"
        bought = None if fleet["gpus_most"] is None else count_text(fleet["gpus_most"], curve.gpu)
        key = (instances, f", {times}") if bought is None else (bought, f" ({instances}, {times})")
        alike.setdefault(key, []).append(curve.name)
    return [f"{count} of {in_line(names)}{rest}" for (count, rest), names in alike.items()]


def _in_short(curve: Carries) -> str:
    """What a curve carries and what a peak takes, without C_max; where no rate is known, why."""
    if curve.point is None or curve.burst or curve.point["c_max"] is None:
        return curve.carries
    at, most = curve.point["operate_at"], curve.point["c_max"]
    more = f"; up to {most:g} meet the SLOs too, but carry no more" if at < most else ""
    return f"{rate(curve.point)}{more}.{_takes(curve)}"


def _takes(curve: Carries) -> str:
    """What the peak takes; empty without one."""
    if curve.fleet is None:
        return ""
    fleet = curve.fleet
    gpus = (
        f", {count_text(fleet['gpus'], curve.gpu)} with the safety factor {fleet['safety']:g}"
        if fleet["gpus"] is not None
        else ""
    )
    return f" The peak takes {count_text(fleet['instances'], 'instance')}{interval(fleet, 'instances')}{gpus}."


def _bounds(curve: Carries) -> str:
    assert curve.point
    highest = "C_max, the highest load within the SLOs, is"
    if curve.searched:
        return f"{highest} {curve.point['c_max']:g} of those measured. " if curve.point["c_max"] is not None else ""
    return f"{highest} {c_max(curve.point)}; "


def _lower_case(text: str) -> str:
    return text[0].lower() + text[1:]
