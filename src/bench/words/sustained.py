"""What load one server sustains, and how it recovers from a step, in words."""

from __future__ import annotations

from collections.abc import Sequence

from bench.analysis.judging import Miss
from bench.analysis.sustained import Recovery, Sustained
from bench.study import Slo
from bench.words.answer import AGAIN, Answer, listed, shortened
from bench.words.capacity import c_max, high_needs, judged_alone, low_needs, missed
from bench.words.loads import load_text

__all__ = ["answer"]


def answer(curves: Sequence[Sustained], steps: Sequence[Recovery], slos: Sequence[Slo], failed_share: float) -> Answer:
    """What load each workload sustains, and how the server recovers."""
    several = len({*(each.deployment for each in curves), *(each.deployment for each in steps)}) > 1
    what = f"within {listed([str(slo) for slo in slos])}" if slos else "without falling behind"
    asked = [f"What load does one server carry {what}"] if curves else []
    asked += ["how does it recover from a step of its load"] if steps else []
    question = ", and ".join(asked) + "?"
    return Answer(
        name="sustained",
        question=question[0].upper() + question[1:],
        lines=shortened(
            [
                *(f"{_name(each, several)}: {_curve(each, bool(slos))}" for each in curves),
                *(f"{_name(each, several)}: {_step(each)}" for each in steps),
            ],
            10,
        ),
        sure=_sure(curves, slos, failed_share, several),
        do=_do(curves, steps, slos, several),
    )


def _name(found: Sustained | Recovery, several: bool) -> str:
    return f"{found.deployment} · {found.workload}" if several else found.workload


def _curve(found: Sustained, by_slo: bool) -> str:
    point = found.point
    match point["kind"]:
        case "unknown":
            return "not known, no run is valid."
        case "unsettled" | "unjudged":
            return f"not known: at {load_text(point['missed_at'], point['unit'])} {missed(point)}."
        case "below":
            less = f"less than {load_text(point['missed_at'], point['unit'])}, the lowest load{judged_alone(point)}"
            return f"{less}: {_beyond(found, by_slo)}."
    tail = f" (TTFT P99 {'' if found.bounded else '~'}{found.ttft_p99_s:.2g} s)" if found.ttft_p99_s is not None else ""
    carried = f"carries {load_text(point['c_max'], point['unit'])}{tail}"
    if point["missed_at"] is None:
        return f"{carried}, the highest load that can be judged; its limit was not reached."
    return f"{carried}; at {point['missed_at']:g} {_beyond(found, by_slo)}."


def _beyond(found: Sustained, by_slo: bool) -> str:
    """What happens at the first load that is not carried."""
    misses = [Miss(**miss) for miss in found.point["missed"]]
    if by_slo:
        text = f"it misses {missed(found.point)}"
    elif misses and misses[0].by == "failed":
        text = f"{misses[0].misses} of {misses[0].requests} requests fail"
    else:
        text = "requests pile up"
    return text + (f", and the median TTFT is {found.missed_p50_s:.2g} s" if found.missed_p50_s is not None else "")


def _step(found: Recovery) -> str:
    if not found.valid:
        return "how it recovers from the step is not known, the run is invalid."
    if not found.recovered or found.after_s is None:
        return "TTFT had not recovered from the step when the run ended."
    return f"after the step, TTFT is as before within {found.after_s:.2g} s."


def _sure(curves: Sequence[Sustained], slos: Sequence[Slo], failed_share: float, several: bool) -> tuple[str, ...]:
    sure = []
    if curves and not slos:
        sure.append(
            "No SLO is set under decision. So a load counts as carried where requests do not pile up and no more than "
            f"{100 * failed_share:g} % of them fail."
        )
    ends = [f"{_name(each, several)} {c_max(each.point)}" for each in curves if each.point["c_max"] is not None]
    if ends:
        sure.append(f"With the bounds at 95 % confidence: {'; '.join(ends)}. ~ marks a P99 of too few requests for a bound.")
    return tuple(sure)


def _do(curves: Sequence[Sustained], steps: Sequence[Recovery], slos: Sequence[Slo], several: bool) -> tuple[str, ...]:
    do = []
    found = [each for each in curves if each.point["kind"] == "found"]
    if found:
        limits = [f"{load_text(each.point['c_max'], each.point['unit'])} of {_name(each, several)}" for each in found]
        do.append(f"Send one server no more than {listed(limits)}, and add servers beyond.")
    for each in curves:
        if (need := high_needs(each.point) or low_needs(each.point)) is not None:
            do.append(f"{_name(each, several)}: {need[0].lower()}{need[1:]}")
    if curves and not slos:
        do.append("Set `decision.slo` to learn what is carried within limits on latency; nothing is measured again.")
    if any(each.point["kind"] == "unknown" for each in curves) or any(not each.valid for each in steps):
        do.append(AGAIN)
    return shortened(do, 5)
