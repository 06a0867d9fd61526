"""The answer as large numbers: what each deployment sustains, where its cache fills and throughput turns, how many a peak takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.analysis.saturation import fills_first
from bench.axes import AXES
from bench.words.capacity import too_close
from bench.words.curves import Curve, limits
from bench.words.loads import between_text, load_text

_MOST_CARDS = 6  # most cards of a first screen
_POINTS = {"equilibrium": "proportional up to", "saturation": "throughput peaks at"}


@dataclass(frozen=True)
class Number:
    """One large number.

    Attributes:
        what: it is. value: as text. unit: of it. between: its interval, or what it lies between; empty where that is not known.
        workload: of its curve, where the study has several; else empty.
    """

    what: str
    value: str
    unit: str = ""
    between: str = ""
    workload: str = ""


@dataclass(frozen=True)
class Card:
    """The numbers of a deployment."""

    deployment: str
    numbers: tuple[Number, ...]


def headline(curves: Sequence[Curve]) -> list[Card]:
    """A card for each deployment that has a known number; no cards where they would not fit a first screen."""
    names = list(dict.fromkeys(curve.deployment for curve in curves))
    if len(names) > _MOST_CARDS:
        return []
    cards = [Card(name, tuple(_numbers([curve for curve in curves if curve.deployment == name]))) for name in names]
    return [card for card in cards if card.numbers]


def _numbers(curves: Sequence[Curve]) -> Iterable[Number]:
    """Each of the first curve that has it; loads that go on come before bursts, and what SLOs limit before what none does."""
    limited = sorted(curves, key=lambda curve: not curve.slos)
    workloads = {curve.workload: curve.workload if curve.name != curve.deployment else "" for curve in curves}
    sustained = [(curve, number) for say in (_sustained, _too_close) for curve in limited if (number := say(curve))]
    for curve, number in sustained[:1]:
        yield replace(number, workload=workloads[curve.workload])
    rows = [curve.saturation for curve in curves if curve.saturation and AXES[curve.saturation["axis"]].requests]
    if full := fills_first(rows):
        below = "" if full["below"] is None else f"and not at {full['below']:g}"
        yield Number("KV cache full at", f"{full['measured']:g}", "in flight", below, workloads[full["workload"]])
    for name, what in _POINTS.items():
        if row := next((row for row in rows if row[f"{name}_at"] is not None), None):
            flat = name == "saturation" and row["saturation_kind"] == "flat"
            between = between_text(row[f"{name}_low"], row[f"{name}_high"], "{:.3g}")
            turn = "throughput is flat from" if flat else what
            yield Number(turn, f"{row[f'{name}_at']:.3g}", "in flight", between, workloads[row["workload"]])
    for curve in [curve for curve in curves if curve.fleet and curve.fleet["instances"]][:1]:
        yield replace(_fleet(curve.fleet or {}), workload=workloads[curve.workload])


def _sustained(curve: Curve) -> Number | None:
    """The highest load within the SLOs: that of a search, or else the highest measured one."""
    what = _sustains(curve)
    if (found := curve.searched) and found.why == "found":
        unit = AXES[found.axis].short
        return Number(what, f"{found.limit:.3g}", unit, between_text(found.low or None, found.high, "{:.3g}"))
    if curve.burst or curve.point is None or curve.point["usable_rps"] is None:
        return None
    point = curve.point
    between = between_text(point["usable_low"], point["usable_high"], "{:.3g}")
    return Number(what, f"{point['usable_rps']:.3g}", "requests/s", between)


def _too_close(curve: Curve) -> Number | None:
    """That the lowest load is too close to its limits to tell."""
    if curve.point is None or curve.point["kind"] != "below" or not too_close(curve.point):
        return None
    return Number(
        _sustains(curve), "too close to tell", between=f"at {load_text(curve.point['missed_at'], curve.point['unit'])}"
    )


def _sustains(curve: Curve) -> str:
    return f"sustains within {limits([curve])}" if curve.slos else "sustains"


def _fleet(fleet: Mapping[str, Any]) -> Number:
    between = between_text(fleet["instances_least"], fleet["instances_most"], "{:.3g}")
    return Number(f"a peak of {fleet['peak_rps']:g} requests/s takes", f"{fleet['instances']:,d}", "instances", between)
