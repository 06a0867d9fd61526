"""What one instance carries and what a peak takes, in words for the first screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from bench.study import Slo
from bench.words.answer import AGAIN, Answer, listed, shortened
from bench.words.capacity import c_max, rate
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
    def fleet(self) -> Mapping[str, Any] | None: ...
    @property
    def burst(self) -> bool: ...


def answer(curves: Sequence[Carries], slos: Sequence[Slo], peak_rps: float | None) -> Answer:
    """What one instance carries within the SLOs, and what a peak takes."""
    peak = f", and how many does a peak of {peak_rps:g} requests/s take" if peak_rps is not None else ""
    raise_it = [f"{curve.name}, to carry more: {_lower_case(curve.remedy)}" for curve in curves if curve.remedy]
    unknown = any(curve.point and curve.point["kind"] == "unknown" for curve in curves)
    most = {curve.name: curve.fleet["instances_most"] for curve in curves if curve.fleet}
    ends = [f"{number:,} of {name}" for name, number in most.items() if number is not None]
    plan = (
        [f"To carry the peak at 95 % confidence, plan the upper end: {listed(ends)}, before the safety factor."] if ends else []
    )
    return Answer(
        name="capacity",
        question=f"What load does one instance carry within {listed([str(slo) for slo in slos])}{peak}?",
        lines=shortened([f"{curve.name}: {_lower_case(_in_short(curve))}" for curve in curves]),
        sure=shortened([f"{curve.name}: {_bounds(curve)}{curve.sure}" for curve in curves if curve.sure]),
        do=(*plan, *shortened(raise_it, 4), *([AGAIN] if unknown else [])),
    )


def _in_short(curve: Carries) -> str:
    """What a curve carries and what a peak takes, without C_max; where no rate is known, why."""
    if curve.point is None or curve.burst or curve.point["c_max"] is None:
        return curve.carries
    return f"{rate(curve.point)}.{_takes(curve)}"


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
    return "" if curve.burst else f"C_max, the highest load within the SLOs, is {c_max(curve.point)}. "


def _lower_case(text: str) -> str:
    return text[0].lower() + text[1:]
