"""What another value of a setting changes, in words; of more devices, what they buy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.analysis.effects import Ratio
from bench.analysis.locked import Differs
from bench.analysis.setting_gain import Gain, SettingGain
from bench.axes import AXES
from bench.errors import count_text
from bench.study.settings import setting_name, value_text
from bench.words.answer import AGAIN, Answer, listed
from bench.words.capacity import UNFILLED
from bench.words.comparison import difference_text, percent_text
from bench.words.loads import interval_text, load_text


def answers(gains: Sequence[SettingGain]) -> Iterator[Answer]:
    """What another device buys, and what other settings change, and at what load."""
    devices = [each for each in gains if each.times]
    if devices:
        first = devices[0]
        second = f"does a second {_noun(first)}" if first.devices == (1, 2) else f"do more {_noun(first)}s"
        yield _answer("devices", f"What {second} buy, and at what load?", devices)
    if others := [each for each in gains if not each.times]:
        names = list(dict.fromkeys(_name(each) for each in others))
        what = f"does {names[0]}" if len(names) == 1 else "do the settings change"
        yield _answer("settings", f"What {what}, and at what load?", others)


def _answer(name: str, question: str, gains: Sequence[SettingGain]) -> Answer:
    engines = len({each.engine for each in gains}) > 1
    of = [_of(each, engines) if len(gains) > 1 else "" for each in gains]
    named = list(zip(of, gains, strict=True))
    return Answer(
        name=name,
        question=question,
        lines=tuple(prefix + " ".join(_lines(each)) for prefix, each in named) if len(gains) > 1 else tuple(_lines(gains[0])),
        sure=(
            *dict.fromkeys(_together(each) for each in gains if _is_mode(each)),
            *(prefix + _sure(each) for prefix, each in named if each.pairs),
        ),
        do=tuple(dict.fromkeys(prefix + line for prefix, each in named for line in _do(each))),
    )


def _noun(found: SettingGain) -> str:
    return "GPU" if found.gpus else "worker"


def _is_mode(found: SettingGain) -> bool:
    """Whether several settings changed at once, as a mode and its parameters do. Then the deployments are named, and none of these."""
    return bool(found.beside) and not found.times


def _name(found: SettingGain) -> str:
    """The setting, or the deployment, with the verb that says what it does."""
    first, other = found.deployments
    return f"{other} change against {first}" if _is_mode(found) else f"{setting_name(found.setting)} change"


def _together(found: SettingGain) -> str:
    """In which settings two deployments differ, as a sentence."""
    first, other = found.deployments
    old, new = (value_text(found.setting, value) for value in found.values)
    others = {each.variable: difference_text(each) for each in found.differences if isinstance(each, Differs)}
    changed = [
        f"{setting_name(found.setting)}: {old} → {new}",
        *(others.get(name, setting_name(name)) for name in found.beside),
    ]
    return f"From {first} to {other} these settings changed together: {listed(changed)}."


def _value(found: SettingGain, side: int) -> str:
    """The value of the first deployment or of the other, such as `2 GPUs`, `8192` or `its default`."""
    if found.times:
        return count_text(found.devices[side], _noun(found))
    value = found.values[side]
    return "its default" if value is None else value_text(found.setting, value)


def _with(found: SettingGain, side: int) -> str:
    """Such as `on 2 GPUs` or `with max_num_seqs 64`."""
    if found.times:
        return f"on {_value(found, side)}"
    if _is_mode(found):
        return f"with {found.deployments[side]}"
    return f"with {setting_name(found.setting)} {'at ' if found.values[side] is None else ''}{_value(found, side)}"


def _of(found: SettingGain, engines: bool) -> str:
    """What one of several is of. Args: engines: whether there are several."""
    where = " · ".join((found.model, *([found.engine or "unknown engine"] if engines else []), found.workload))
    first, other = found.deployments
    if _is_mode(found):
        return f"{where}, {other} against {first}: "
    if found.times:
        return f"{where}, {found.devices[1]} against {found.devices[0]}: "
    return f"{where}, {setting_name(found.setting)} {_value(found, 1)} against {_value(found, 0)}: "


def _lines(found: SettingGain) -> list[str]:
    first, other = (_with(found, side) for side in (0, 1))
    memory = f"Memory: {first}, {_full(found, 0)}; {other}, {_full(found, 1)}."
    if not AXES[found.axis].held:
        return [f"Speed: not known, an open loop's throughput is the load that it offers, {first} as {other}.", memory]
    if not found.pairs:
        return [f"Speed: not known, no pair of runs under the same load is valid {first} and {other}.", memory]
    lines = [memory]
    for gain, where in _parts(found):
        loads = f" ({_loads(gain.loads)})" if gain.loads else ""
        lines.append(f"Speed {where}{loads}: {_speed(found, gain)}.")
    if found.doubling is not None:
        lines.append(f"The gain changes by {percent_text(found.doubling)} with each doubling of the load.")
    else:
        lines.append("No change of the gain with the load is established.")
    return lines


def _parts(found: SettingGain) -> list[tuple[Gain, str]]:
    """The gain below the load that fills the first deployment's KV cache and from it on, as far as they were measured; and where."""
    if found.full[0] is None:
        room, short = "at all loads measured", ""
    elif found.times:
        few = _value(found, 0)
        room, short = f"while the KV cache of {few} has room", f"where the KV cache of {few} is full"
    else:
        first = _with(found, 0)
        room, short = f"while the KV cache has room {first}", f"where the KV cache is full {first}"
    return [(gain, where) for gain, where in ((found.room, room), (found.short, short)) if gain is not None]


def _full(found: SettingGain, side: int) -> str:
    if (full := found.full[side]) is not None:
        return f"the KV cache is full from {load_text(full, AXES[found.axis].unit)} on"
    return UNFILLED[found.full_known[side]]


def _loads(loads: Sequence[float]) -> str:
    return f"{loads[0]:g}" if loads[0] == loads[-1] else f"{loads[0]:g} to {loads[-1]:g}"


def _speed(found: SettingGain, gain: Gain) -> str:
    """The gain at the same load an instance; of more devices, also beside separate instances at the same total load."""
    if gain.same is None:
        return "not known, no pair of runs is valid there"
    text = f"{gain.same.value:.2f} times the throughput{_interval(gain.same)}"
    if gain.same.beside(1) == "unknown" and gain.same.low is not None:
        text += f", so no {'gain' if found.times else 'difference'} is established"
    if not found.times:
        return text
    separate = _separate(found, found.times)
    if gain.shared is None:
        return f"{text}; no run shows what {separate} would give under the same total load"
    unsure = ", so which gives more is not established" if gain.shared.beside(1) == "unknown" else ""
    times = f"{gain.shared.value:.2f} times that of {separate} under the same total load, {_loads(gain.shared_loads)}"
    return f"{text}; {times}{_interval(gain.shared)}{unsure}"


def _interval(ratio: Ratio) -> str:
    if ratio.low is None or ratio.high is None:
        return " (interval not known)"
    return f" ({interval_text(ratio.low, ratio.high, '{:.2f}')})"


def _separate(found: SettingGain, times: float) -> str:
    return f"{times:g} separate instances on {_value(found, 0)} each"


def _besides(found: SettingGain) -> list[str]:
    """What differs besides the setting, and besides those that changed with it."""
    known = found.beside if _is_mode(found) else ()
    return [difference_text(each) for each in found.differences if not (isinstance(each, Differs) and each.variable in known)]


def _sure(found: SettingGain) -> str:
    assumed = " How far two starts of a server differ is assumed; several sessions (study.sessions) would measure it."
    others = listed(_besides(found))
    besides = f" What else differs may explain the gain: {others}." if others else ""
    pairs = f"{count_text(found.pairs, 'pair')} of valid runs under the same load."
    return f"{pairs}{besides}{assumed if found.spread_assumed and AXES[found.axis].held else ''}"


def _do(found: SettingGain) -> list[str]:
    if not AXES[found.axis].held:
        return ["Compare speed under a load sweep of `concurrency`."]
    if not found.pairs:
        return [AGAIN]
    if found.times:
        return _of_devices(found, found.times)
    if _is_mode(found) or not found.differences:
        return []
    return [f"To learn what {setting_name(found.setting)} does, change it alone: {listed(_besides(found))} changed too."]


def _of_devices(found: SettingGain, whole: float) -> list[str]:
    do = []
    few, many, separate = _value(found, 0), _value(found, 1), _separate(found, whole)
    room, short = found.room, found.short
    if room is not None and room.shared is not None and room.shared.beside(1) == "less":
        do.append(f"While {few} can hold the load, run {separate}: together they give more.")
    elif room is not None and room.same is not None and room.same.beside(whole) == "less":
        loads = f"{_loads(room.loads)} {AXES[found.axis].unit}"
        do.append(f"If there is load for all of them ({loads} each), {separate} give more together.")
    if room is not None and room.shared is not None and room.shared.beside(1) == "more":
        do.append(f"For such loads, use {many} for one instance: it gives more than {separate}.")
    if short is not None and short.shared is not None and short.shared.beside(1) == "more":
        loads = f"{_loads(short.shared_loads)} {AXES[found.axis].unit}"
        do.append(f"Under {loads} in all, use {many} for one instance: KV memory is what is short.")
    return do
