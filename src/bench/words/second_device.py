"""What more devices of one instance buy, in words."""

from __future__ import annotations

from collections.abc import Sequence

from bench.analysis.second_device import DeviceGain, Gain, Ratio
from bench.axes import AXES
from bench.words.answer import AGAIN, Answer, listed
from bench.words.comparison import difference_text, percent_text
from bench.words.loads import count_text, load_text

__all__ = ["answer"]

_USELESS = 25.0  # upper ÷ lower end of an interval above which it says nothing


def answer(gains: Sequence[DeviceGain]) -> Answer:
    """What another device buys, and at what load."""
    first = gains[0]
    second = f"a second {_noun(first)}" if (first.few, first.many) == (1, 2) else f"more {_noun(first)}s"
    several = len(gains) > 1
    return Answer(
        name="devices",
        question=f"What does {second} buy, and at what load?",
        lines=tuple(_of(each, several) + line for each in gains for line in _lines(each)),
        sure=tuple(_of(each, several) + _sure(each) for each in gains if each.pairs),
        do=tuple(dict.fromkeys(_of(each, several) + line for each in gains for line in _do(each))),
    )


def _noun(found: DeviceGain) -> str:
    return "GPU" if found.gpus else "worker"


def _of(found: DeviceGain, several: bool) -> str:
    return f"{found.model} · {found.workload}, {found.many} against {found.few}: " if several else ""


def _lines(found: DeviceGain) -> list[str]:
    few, many = (count_text(number, _noun(found)) for number in (found.few, found.many))
    memory = f"Memory: on {few} {_full(found, 0)}; on {many} {_full(found, 1)}."
    if not AXES[found.axis].held:
        return [
            f"Speed: not known, because the throughput of an open loop is the load that it offers, on {few} as on {many}.",
            memory,
        ]
    if not found.pairs:
        return [f"Speed: not known, because no pair of runs under the same load is valid on {few} and on {many}.", memory]
    lines = [memory]
    border = found.full[0]
    for gain, where in (
        (found.room, f"while the KV cache of {few} has room" if border is not None else "at all loads measured"),
        (found.short, f"where the KV cache of {few} is full"),
    ):
        if gain is not None:
            loads = f" ({_loads(gain.loads)})" if gain.loads else ""
            lines.append(f"Speed {where}{loads}: {_speed(found, gain)}.")
    if found.doubling is not None:
        lines.append(f"The gain changes by {percent_text(found.doubling)} with each doubling of the load.")
    else:
        lines.append("No change of the gain with the load is established.")
    return lines


def _full(found: DeviceGain, side: int) -> str:
    if (full := found.full[side]) is not None:
        return f"the KV cache is full from {load_text(full, AXES[found.axis].unit)} on"
    return (
        "no measured load fills the KV cache" if found.full_known[side] else "whether the KV cache was ever full is not known"
    )


def _loads(loads: Sequence[float]) -> str:
    return f"{loads[0]:g}" if loads[0] == loads[-1] else f"{loads[0]:g} to {loads[-1]:g}"


def _speed(found: DeviceGain, gain: Gain) -> str:
    if gain.same is None:
        return "not known, no pair of runs is valid there"
    times = f"{gain.same.value:.2f} times the throughput{_interval(gain.same)}"
    if gain.same.beside(1) == "unknown" and gain.same.low is not None:
        times += ", so no gain is established"
    return f"{times}; {_beside(found, gain)}"


def _interval(ratio: Ratio) -> str:
    if ratio.low is None or ratio.high is None:
        return ", of which the uncertainty is not known"
    if ratio.high > _USELESS * ratio.low:
        return " (the pairs differ too much to say how sure that is)"
    return f" ({ratio.low:.2f} to {ratio.high:.2f} at 95 % confidence)"


def _separate(found: DeviceGain) -> str:
    return f"{found.whole:g} separate instances on {count_text(found.few, _noun(found))} each"


def _beside(found: DeviceGain, gain: Gain) -> str:
    """How it compares with separate instances that share the same load."""
    if gain.shared is None:
        return f"no run shows what {_separate(found)} would give under the same total load"
    times = f"{gain.shared.value:.2f} times as much{_interval(gain.shared)}"
    of = f"that share the same load ({_loads(gain.shared_loads)} in all)"
    match gain.shared.beside(1):
        case "more":
            return f"more than {_separate(found)} {of} would give: {times}"
        case "less":
            return f"less than {_separate(found)} {of} would give: {times}"
    return f"whether {_separate(found)} {of} would give more is not established: {times}"


def _sure(found: DeviceGain) -> str:
    assumed = " How far two starts of a server differ is assumed; several sessions (study.sessions) would measure it."
    others = listed([difference_text(each) for each in found.differences])
    besides = f" What else differs may explain the gain: {others}." if others else ""
    pairs = f"{count_text(found.pairs, 'pair')} of valid runs under the same load."
    return f"{pairs}{besides}{assumed if found.spread_assumed and AXES[found.axis].held else ''}"


def _do(found: DeviceGain) -> list[str]:
    if not AXES[found.axis].held:
        return ["Compare speed under a ladder of `concurrency`."]
    if not found.pairs:
        return [AGAIN]
    do = []
    many = count_text(found.many, _noun(found))
    room, short = found.room, found.short
    if room is not None and room.shared is not None and room.shared.beside(1) == "less":
        do.append(
            f"While {count_text(found.few, _noun(found))} can hold the load, run {_separate(found)}: together they give more."
        )
    elif room is not None and room.same is not None and room.same.beside(found.whole) == "less":
        loads = f"{_loads(room.loads)} {AXES[found.axis].unit}"
        do.append(f"If there is load for all of them ({loads} each), {_separate(found)} give more together.")
    if room is not None and room.shared is not None and room.shared.beside(1) == "more":
        do.append(
            f"If an instance gets no more load than that, use {many} for it: it gives more than {_separate(found)} would of it."
        )
    if short is not None and short.shared is not None and short.shared.beside(1) == "more":
        loads = f"{_loads(short.shared_loads)} {AXES[found.axis].unit}"
        do.append(f"Under {loads} in all, use {many} for one instance: KV memory is what is short.")
    return do
