"""What one instance sustains and what a peak takes, in words for the first screen."""

from __future__ import annotations

from collections.abc import Sequence

from bench.errors import count_text, listed
from bench.findings.capacity.curves import Curve, limits
from bench.findings.capacity.words import BURSTS, it_misses, rate, too_close
from bench.report.answer import AGAIN, Answer, by_advice, in_line, shortened
from bench.runs.sentences import load_text
from bench.study.decision import Decision


def answer(curves: Sequence[Curve], decision: Decision) -> Answer:
    """What one instance sustains within the SLOs, or without any while requests do not pile up; and what a peak takes.

    Args:
        curves: those with a `point`.
    """
    slos, peak = decision.slos, decision.peak_rps
    within = f"within {limits(curves)}" if limits(curves) else "without falling behind"
    sized = peak is not None and any(curve.fleet for curve in curves)
    fleet = f", and how many does a peak of {peak:g} requests/s take" if sized else ""
    raise_it = by_advice(
        (curve.name, f"to sustain more: {_lower_case(curve.remedy)}" if curve.remedy else "") for curve in curves
    )
    admit = by_advice(
        (curve.name, f"admit at most {load_text(point['operate_at'], point['unit'])}, and add instances beyond.")
        for curve in curves
        if (point := curve.point) and (point["kind"], point["basis"]) == ("found", "steady")
    )
    unknown = any(curve.point and curve.point["kind"] == "unknown" for curve in curves)
    ends = _upper_ends(curves)
    bursts = [curve for curve in curves if curve.burst and curve.point and curve.point["c_max"] is not None]
    others = [curve for curve in curves if curve not in bursts]
    return Answer(
        name="capacity",
        question=f"What load does one instance sustain {within}{fleet}?",
        lines=(
            *shortened([f"{curve.name}: {_lower_case(_in_short(curve))}" for curve in others]),
            *([f"Bursts that meet the SLOs: {listed([_burst(curve) for curve in bursts])}."] if bursts else []),
        ),
        sure=(
            *_limits(curves, decision),
            *shortened([f"{curve.name}: {_bounds(curve)}{curve.sure}" for curve in others if curve.sure]),
            *([BURSTS] if any(curve.burst for curve in curves) else []),
        ),
        do=(
            *([f"To sustain the peak at 95 % confidence, plan {listed(ends)}."] if ends else []),
            *shortened(admit, 4),
            *shortened(raise_it, 4),
            *(
                []
                if slos
                else ["Set `decision.slo` to learn what is sustained within limits on latency; nothing is measured again."]
            ),
            *([AGAIN] if unknown else []),
        ),
    )


def _limits(curves: Sequence[Curve], decision: Decision) -> list[str]:
    """By which SLOs each curve is judged, where they differ; of those without any, by what else."""
    limited: dict[tuple[str, ...], list[str]] = {}
    for curve in curves:
        limited.setdefault(curve.slos, []).append(curve.name)
    free = limited.pop((), None)
    said = [f"{in_line(names)}: judged by {listed(slos)}." for slos, names in limited.items() if free or len(limited) > 1]
    if free is None:
        return said
    none = f"No SLO limits {in_line(free)}" if decision.slos else "`decision` sets no SLO"
    sustained = "so a load counts as sustained while requests do not pile up and no more than"
    return [*said, f"{none}, {sustained} {100 * decision.failed_share:g} % of them fail."]


def _burst(curve: Curve) -> str:
    """How many requests at once meet the SLOs, and how many do not."""
    assert curve.point
    most, point = count_text(int(curve.point["c_max"]), "request"), curve.point
    if point["missed_at"] is None:
        return f"{most} of {curve.name}"
    return f"{most} of {curve.name} ({point['missed_at']:g} {'are too close to tell' if too_close(point) else 'do not'})"


def _upper_ends(curves: Sequence[Curve]) -> list[str]:
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


def _in_short(curve: Curve) -> str:
    """What a curve sustains and what a peak takes, without C_max; where no rate is known, why."""
    point = curve.point
    if point is None or curve.burst or point["c_max"] is None:
        return curve.sustains
    at, most, unit = point["operate_at"], point["c_max"], point["unit"]
    also, more, beyond = "meet the SLOs" if curve.limit else "keep up", "", ""
    if at < most:
        more = f"; up to {load_text(most, unit)} {also} too, but sustain hardly more"
    if curve.limit is None and point["missed_at"]:
        beyond = f"; at {load_text(point['missed_at'], unit)} it {it_misses(point)}"
    return f"{rate(point)}{more}{beyond}. {curve.takes}".rstrip()


def _bounds(curve: Curve) -> str:
    assert curve.point
    if curve.searched and curve.point["c_max"] is None:
        return ""
    highest = f"C_max, the highest load {'within the SLOs' if curve.limit else 'that is sustained'} ({curve.point['unit']}), is"
    return f"{highest} {curve.c_max}{'. ' if curve.searched else '; '}"


def _lower_case(text: str) -> str:
    return text if text[1].isupper() else text[0].lower() + text[1:]  # TPOT stays TPOT
