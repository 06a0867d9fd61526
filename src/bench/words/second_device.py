"""What more devices of one instance buy, in words."""

from __future__ import annotations

from collections.abc import Sequence

from bench.analysis.second_device import DeviceGain, Gain
from bench.words.answer import AGAIN, Answer
from bench.words.comparison import percent_text
from bench.words.loads import count_text

__all__ = ["answer"]


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
    lines = [f"Memory: on {few} {_full(found, 0)}; on {many} {_full(found, 1)}."]
    if not found.pairs:
        return [f"Speed: not known, because no pair of runs under the same load is valid on {few} and on {many}.", *lines]
    border = found.full[0]
    for gain, where in (
        (found.room, f"while the KV cache of {few} has room" if border is not None else "at all loads measured"),
        (found.short, f"where the KV cache of {few} is full"),
    ):
        if gain is not None:
            lines.append(f"Speed {where} ({_loads(gain)}): {_speed(found, gain)}.")
    if found.doubling is not None:
        lines.append(f"The gain changes by {percent_text(found.doubling)} with each doubling of the load.")
    else:
        lines.append("No change of the gain with the load is established.")
    return lines


def _full(found: DeviceGain, side: int) -> str:
    if (full := found.full[side]) is not None:
        return f"the KV cache is full from {full:g} {found.unit} on"
    return (
        "no measured load fills the KV cache" if found.full_known[side] else "whether the KV cache was ever full is not known"
    )


def _loads(gain: Gain) -> str:
    low, high = gain.loads[0], gain.loads[-1]
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _speed(found: DeviceGain, gain: Gain) -> str:
    if gain.ratio is None:
        return "not known, no pair of runs is valid there"
    times = f"{gain.ratio:.2f} times the throughput"
    if gain.low is None or gain.high is None:
        return f"{times}, of which the uncertainty is not known"
    times += f" ({gain.low:.2f} to {gain.high:.2f} at 95 % confidence)"
    if gain.low <= 1 <= gain.high:
        times += ", so no gain is established"
    return f"{times}; {_beside(found, gain)}"


def _separate(found: DeviceGain) -> str:
    return f"{found.many / found.few:g} separate instances on {count_text(found.few, _noun(found))} each"


def _beside(found: DeviceGain, gain: Gain) -> str:
    match found.beside(gain):
        case "more":
            return f"more than {_separate(found)} would give"
        case "less":
            return f"less than {_separate(found)} would give"
    return f"about what {_separate(found)} would give"


def _sure(found: DeviceGain) -> str:
    assumed = " How far two starts of a server differ is assumed; several sessions (study.sessions) would measure it."
    return f"{count_text(found.pairs, 'pair')} of valid runs under the same load.{assumed if found.spread_assumed else ''}"


def _do(found: DeviceGain) -> list[str]:
    if not found.pairs:
        return [AGAIN]
    do = []
    if found.room is not None and found.beside(found.room) == "less":
        do.append(
            f"While {count_text(found.few, _noun(found))} can hold the load, run {_separate(found)} instead: together they give more."
        )
    if found.short is not None and found.beside(found.short) == "more":
        many = count_text(found.many, _noun(found))
        do.append(f"From {found.short.loads[0]:g} {found.unit} on one instance, use {many}: KV memory is what is short.")
    if found.room is not None and found.beside(found.room) == "more":
        do.append(f"Use {count_text(found.many, _noun(found))} for an instance: it gives more than {_separate(found)}.")
    return do or ["No choice follows from these runs: measure more sessions (study.sessions) or higher loads."]
