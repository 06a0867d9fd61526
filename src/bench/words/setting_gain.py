"""What another value of a setting changes, in words and in cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bench.analysis.effects import Ratio
from bench.analysis.setting_gain import Load, SettingGain
from bench.axes import AXES
from bench.errors import count_text, listed, shown_share
from bench.servers.settings import setting_name, value_text
from bench.words.answer import AGAIN, Answer, shortened
from bench.words.capacity import UNFILLED
from bench.words.comparison import difference_text
from bench.words.loads import between_text, load_text

_VERDICTS = {"better": "more", "worse": "less", "no evidence": "not established"}


def answer(gains: Sequence[SettingGain]) -> Answer:
    """What other values of settings change, a line a value."""
    names = list(dict.fromkeys(_noun(each) + "s" if each.times else setting_name(each.setting) for each in gains))
    what = f"does another value of {names[0]} change" if len(names) == 1 else "do the settings change"
    if all(each.times for each in gains):
        what = f"do more {names[0]} bring"
    assumed = "How far two starts of a server differ is assumed; several sessions (study.sessions) would measure it."
    beside = [f"{name(each)}: {listed([*map(difference_text, each.differences)])}" for each in gains if each.differences]
    return Answer(
        name="settings",
        question=f"What {what} in throughput, and at what load?",
        lines=shortened([f"{name(each)}: {'; '.join(_parts(each))}." for each in gains]),
        sure=(
            "Intervals are of 95 %, by pairs of valid runs under the same load.",
            *([f"What else differs, and may explain it: {'; '.join(beside)}."] if beside else []),
            *([assumed] if any(each.spread_assumed for each in gains) else []),
        ),
        do=() if all(each.pairs for each in gains) else (AGAIN,),
    )


def name(gain: SettingGain) -> str:
    """What is compared, such as `m · w, max_num_seqs 64 against 8`; deployments where several settings changed at once."""
    where = " · ".join(filter(None, (gain.model, gain.engine, gain.workload)))
    if gain.beside and not gain.times:
        return f"{where}, {gain.deployments[1]} against {gain.deployments[0]}"
    if gain.times:
        return f"{where}, {count_text(gain.devices[1], _noun(gain))} against {gain.devices[0]}"
    first, other = ("the default" if each is None else value_text(gain.setting, each) for each in gain.values)
    return f"{where}, {setting_name(gain.setting)} {other} against {first}"


def _noun(gain: SettingGain) -> str:
    return "GPU" if gain.gpus else "worker"


def _parts(gain: SettingGain) -> Iterator[str]:
    if gain.whole is None:
        yield "not known, no pair of runs under the same load is valid"
    else:
        unsure = ", so that no difference is established" if gain.verdict == "no evidence" else ""
        each = f", {shown_share(gain.whole.value / gain.times)} for each {_noun(gain)}" if gain.times else ""
        yield f"{_ratio(gain.whole)} times the throughput over all loads{each}{unsure}"
        if len(gain.loads) > 1:
            ends = (gain.loads[0], gain.loads[-1])
            yield " and ".join(f"{_ratio(each.ratio)} at {load_text(each.level, AXES[gain.axis].unit)}" for each in ends)
    first, other = (_full(gain, side) for side in (0, 1))
    yield f"{first} with the first value, and {other} with the other" if first != other else first


def _full(gain: SettingGain, side: int) -> str:
    if (full := gain.full[side]) is not None:
        return f"the KV cache is full from {load_text(full, AXES[gain.axis].unit)} on"
    return UNFILLED[gain.full_known[side]]


def _ratio(ratio: Ratio) -> str:
    """Such as `1.30 (1.20 to 1.41)`."""
    return f"{ratio.value:.2f} ({between_text(ratio.low, ratio.high, '{:.2f}') or 'interval not known'})"


def rows(gains: Sequence[SettingGain]) -> list[dict[str, Any]]:
    """The cells of a table with a row a value and load."""
    return [
        {
            "name": name(gain),
            "deployment": gain.deployments[1],
            "axis": gain.axis,
            "level": load.level,
            "ratio": _ratio(load.ratio),
            "verdict": _VERDICTS[load.verdict],
            "best": _best(load),
            "form": "–" if load.power is None else f"{setting_name(gain.setting)}^{load.power:.2f}",
        }
        for gain in gains
        for load in gain.loads
    ]


def _best(load: Load) -> str:
    said = (("most tokens/s each", load.most), ("shortest E2E", load.quickest))
    known = [f"{' or '.join(map(str, numbers))}: {what}" for what, numbers in said if numbers]
    return "; ".join(known) or "–"
