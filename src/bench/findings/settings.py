"""What a setting of a server gains, load by load: found, said, drawn."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from bench.axes import AXES, HELD
from bench.errors import count_text, listed, shown_share
from bench.findings.comparison.compare import Differs, compare
from bench.findings.comparison.effects import Ratio
from bench.findings.comparison.words import difference_text
from bench.findings.tables import Tables
from bench.report.blocks import Answer, Column, Section, Table, Text, cell_of_load, shortened
from bench.report.figure import alt, figure
from bench.report.theme import NEUTRAL, level_axis, nothing_to_show, panels_a_row, series_colour, series_shape, tips
from bench.runs.sentences import between_text, load_text
from bench.servers.settings import setting_name, settings_in, value_text, varying_settings
from bench.statistics.textbook import FEWEST_POINTS

if TYPE_CHECKING:
    from bench.findings.view import View

_PARALLEL = ("tensor_parallel", "pipeline_parallel", "data_parallel")
_THROUGHPUT, _LATENCY = "throughput_tokens_per_s", "e2e_p50_s"
_FACTS = (
    "parameters",
    "device",
    "engine_version",
    "kv_bytes_per_token",
    "max_model_len",
)  # that follow from no key of a deployment
# What follows from a setting, or from speed, which decides how many requests a closed loop sends, and so their mean lengths.
_FOLLOWS = {"gpus", "kv_tokens", "num_requests", "prompt_tokens", "output_tokens"}
_TYPES = {"dtype", "kv_cache_dtype"}  # which decide kv_bytes_per_token too
_ONE = Ratio(1.0, 1.0, 1.0)


@dataclass(frozen=True)
class Load:
    """Throughput with the other value of a setting ÷ that with the first, at one load.

    Attributes:
        verdict: `better`, `worse` or `no evidence`.
        latency: the same of E2E P50; None where it is not known.
        most: of devices, the numbers that may give the most output tokens/s each: no other one is significantly better. quickest:
            likewise with the shortest E2E P50. Empty for other settings.
        power: of a number with three values or more, the b with which throughput is most nearly proportional to its bth power.
    """

    level: float
    ratio: Ratio
    verdict: str
    latency: Ratio | None = None
    most: tuple[int, ...] = ()
    quickest: tuple[int, ...] = ()
    power: float | None = None


@dataclass(frozen=True)
class SettingGain:
    """A deployment with one value of a setting beside one with another, under the same closed load.

    Attributes:
        setting: its column. beside: other settings in which the two deployments differ.
        values: the first and the other, as the summary has them.
        devices: of an instance with either: tensor × pipeline × data parallelism.
        deployments: with either.
        whole: the ratio over all loads; None where no pair of runs is valid. verdict: on it. loads: each load, ascending.
        gpus: whether they run on GPUs.
        differences: what differs besides the setting and what follows from it.
    """

    model: str
    engine: str | None
    workload: str
    axis: str
    setting: str
    beside: tuple[str, ...]
    values: tuple[str | int | float | bool | None, str | int | float | bool | None]
    devices: tuple[int, int]
    deployments: tuple[str, str]
    whole: Ratio | None
    verdict: str | None
    loads: tuple[Load, ...]
    gpus: bool
    differences: tuple[Differs, ...]

    @property
    def times(self) -> float | None:
        """How many times as many devices the other takes; None where it takes as many."""
        return self.devices[1] / self.devices[0] if self.devices[0] != self.devices[1] else None


def setting_gains(runs: pl.DataFrame) -> list[SettingGain]:
    """What another value of each setting changes, of each model, engine and closed load that was measured with several.

    Of open loops nothing is said: their throughput is the load that they offer.

    Args:
        runs: summary rows of workloads whose load is what is asked about.
    """
    gains = [_gain(*pair) for pair in _pairs_of(runs.filter(pl.col("axis").is_in(HELD)))]
    keys = [(gain.workload, gain.setting, gain.deployments[0]) for gain in gains]
    found = []
    for gain, key in zip(gains, keys, strict=True):
        same = [each for each, other in zip(gains, keys, strict=True) if other == key]
        found.append(replace(gain, loads=tuple(_judged(gain, load, same) for load in gain.loads)))
    return found


def _pairs_of(runs: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame, pl.DataFrame]]:
    """Each setting that varies, with the runs of the deployments that are compared.

    The first value is that of the study's baseline; of parallelism, and without a baseline, the least. Of several deployments with a
    value those two are compared that differ least in anything else, and no two are compared twice.
    """
    for _, group in runs.group_by("model", "engine", "workload", "axis", maintain_order=True):
        sides, compared = group.partition_by("deployment", maintain_order=True), set()
        for setting in varying_settings([side.row(0, named=True) for side in sides]):
            if setting == "replicas":  # no setting of a server: `bench.findings.workers` says what they bring
                continue
            for first, other in _pairs(setting, sides):
                names = frozenset((first["deployment"][0], other["deployment"][0]))
                if names not in compared:
                    compared.add(names)
                    yield setting, first, other


def _pairs(setting: str, sides: list[pl.DataFrame]) -> list[tuple[pl.DataFrame, pl.DataFrame]]:
    values = sorted({side[setting][0] for side in sides}, key=_rank)
    # The value of the study's baseline; of parallelism, or without a baseline, the least.
    based = [side[setting][0] for side in sides if side["baseline"][0]] if setting not in _PARALLEL else []
    values.sort(key=lambda value: value not in based)
    of = [[side for side in sides if side[setting][0] == value] for value in values]
    return [min(((one, other) for one in of[0] for other in part), key=_unlike) for part in of[1:]]


def _rank(value: Any) -> tuple[bool, float, str]:
    """A sort key: the default first, numbers by size, texts by name."""
    try:
        return value is not None, float(value), ""
    except (TypeError, ValueError):
        return value is not None, 0.0, str(value)


def _unlike(pair: tuple[pl.DataFrame, pl.DataFrame]) -> int:
    """In how many settings two deployments differ."""
    one, other = (side.row(0, named=True) for side in pair)
    return sum(one[name] != other[name] for name in (*_FACTS, *settings_in(one)))


def _gain(setting: str, first: pl.DataFrame, other: pl.DataFrame) -> SettingGain:
    rows = first.row(0, named=True), other.row(0, named=True)
    varying = varying_settings(rows).items()
    found = compare(first, other, [_THROUGHPUT])
    slower = {each["level"]: _ratio(each) for each in _levels(compare(first, other, [_LATENCY]).effects)}
    follows = {setting, *_FOLLOWS, *({"kv_bytes_per_token"} if setting in _TYPES else ())}
    whole = next(iter(found.overall.to_dicts()), None)
    return SettingGain(
        **{key: rows[0][key] for key in ("model", "engine", "workload", "axis")},
        setting=setting,
        beside=tuple(name for one, others in varying for name in (one, *others) if name != setting),
        values=(rows[0][setting], rows[1][setting]),
        devices=(_devices_of(rows[0]), _devices_of(rows[1])),
        deployments=(rows[0]["deployment"], rows[1]["deployment"]),
        whole=_ratio(whole) if whole else None,
        verdict=whole["pooled"] if whole else None,
        loads=tuple(
            Load(each["level"], _ratio(each), each["verdict"], slower.get(each["level"])) for each in _levels(found.effects)
        ),
        gpus=rows[0]["device"] == "cuda",
        differences=tuple(each for each in found.differences if each.variable not in follows),
    )


def _devices_of(row: Mapping[str, Any]) -> int:
    """Devices of an instance; what is not known counts as one."""
    return math.prod(row[name] or 1 for name in _PARALLEL)


def _levels(effects: pl.DataFrame) -> list[dict[str, Any]]:
    return effects.filter(scope="level").sort("level").to_dicts()


def _ratio(row: dict[str, Any]) -> Ratio:
    return Ratio(row["ratio"], row["low"], row["high"])


def _judged(gain: SettingGain, load: Load, same: Sequence[SettingGain]) -> Load:
    """The load with what it shows together with those of the setting's other values: `power`, `most` and `quickest`.

    Args:
        same: the gains of all values against the same first deployment, this one among them.
    """
    there = [(each, at) for each in same for at in each.loads if at.level == load.level]
    load = replace(load, power=_power([gain.values[0], *(each.values[1] for each, _ in there)], [at.ratio for _, at in there]))
    if not any(each.times for each, _ in there):
        return load
    first, latencies = {gain.devices[0]: _ONE}, {each.devices[1]: at.latency for each, at in there}
    most = _best(first | {each.devices[1]: _over(at.ratio, each.times or 1.0) for each, at in there})
    quick = {
        devices: Ratio(1 / ratio.value, ratio.high and 1 / ratio.high, ratio.low and 1 / ratio.low)
        for devices, ratio in latencies.items()
        if ratio
    }
    return replace(load, most=most, quickest=_best(first | quick) if len(quick) == len(latencies) else ())


def _over(ratio: Ratio, times: float) -> Ratio:
    return Ratio(ratio.value / times, ratio.low and ratio.low / times, ratio.high and ratio.high / times)


def _best(speeds: Mapping[int, Ratio]) -> tuple[int, ...]:
    """The numbers of devices that no other one significantly beats: whose interval ends below no other's begin."""
    highest = max(ratio.low or 0.0 for ratio in speeds.values())
    return tuple(sorted(devices for devices, ratio in speeds.items() if ratio.high is None or ratio.high >= highest))


def _power(values: Sequence[Any], ratios: Sequence[Ratio]) -> float | None:
    """The slope of ln throughput over ln value; None for fewer than three values, or for one that is no number above 0."""
    numbers = [0.0 if isinstance(value, bool) else _rank(value)[1] for value in values]
    if len(numbers) < FEWEST_POINTS or min(numbers) <= 0:
        return None
    return float(np.polyfit(np.log(numbers), [0.0, *(math.log(each.value) for each in ratios)], 1)[0])


_VERDICTS = {"better": "more", "worse": "less", "no evidence": "not established"}


def answer(gains: Sequence[SettingGain]) -> Answer:
    """What other values of settings change, a line a value."""
    names = list(dict.fromkeys(_noun(each) + "s" if each.times else setting_name(each.setting) for each in gains))
    what = f"does another value of {names[0]} change" if len(names) == 1 else "do the settings change"
    what = f"do more {names[0]} bring" if all(each.times for each in gains) else what
    beside = [f"{name(each)}: {listed([*map(difference_text, each.differences)])}" for each in gains if each.differences]
    return Answer(
        name="settings",
        question=f"What {what} in throughput, and at what load?",
        lines=shortened([f"{name(each)}: {'; '.join(_parts(each))}." for each in gains]),
        sure=(
            "Intervals are of 95 %, by pairs of valid runs under the same load.",
            *([f"What else differs, and may explain it: {'; '.join(beside)}."] if beside else []),
        ),
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
        return
    unsure = ", so that no difference is established" if gain.verdict == "no evidence" else ""
    each = f", {shown_share(gain.whole.value / gain.times)} for each {_noun(gain)}" if gain.times else ""
    yield f"{_ratio_text(gain.whole)} times the throughput over all loads{each}{unsure}"
    if len(gain.loads) > 1:
        ends = (gain.loads[0], gain.loads[-1])
        yield " and ".join(f"{_ratio_text(each.ratio)} at {load_text(each.level, AXES[gain.axis].unit)}" for each in ends)


def _ratio_text(ratio: Ratio) -> str:
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
            "ratio": _ratio_text(load.ratio),
            "verdict": _VERDICTS[load.verdict],
            "best": _best_text(load),
            "form": "–" if load.power is None else f"{setting_name(gain.setting)}^{load.power:.2f}",
        }
        for gain in gains
        for load in gain.loads
    ]


def _best_text(load: Load) -> str:
    said = (("most tokens/s each", load.most), ("shortest E2E", load.quickest))
    known = [f"{' or '.join(map(str, numbers))}: {what}" for what, numbers in said if numbers]
    return "; ".join(known) or "–"


@figure(
    "settings",
    title="What a setting changes",
    question="What does another value of a setting bring in throughput, and does the gain hold as load rises?",
    reading="A panel for each setting: output tokens/s over those with the first value at the same load, by pairs of valid runs, with "
    "95 % intervals. For n times as many devices, efficiency: the ratio ÷ n; at 100 % (dashed) throughput grows as fast as the number "
    "of devices.",
    invalid="Left out, with their counterparts",
)
def settings(results: Tables) -> alt.TopLevelMixin:
    """A panel for each setting: a point with its range a value and load."""
    panels: dict[str, list[SettingGain]] = {}
    for gain in setting_gains(results.runs):
        if gain.loads:
            panels.setdefault("devices" if gain.times else setting_name(gain.setting), []).append(gain)
    if not panels:
        return nothing_to_show("no model has valid runs of one closed load with different values of a setting")
    drawn = [_panel(results, title, gains) for title, gains in panels.items()]
    apart = alt.Resolve(scale=alt.ScaleResolveMap(color="independent", shape="independent"))
    return alt.concat(*drawn, columns=panels_a_row(len(drawn)), resolve=apart)


def _panel(results: Tables, title: str, gains: list[SettingGain]) -> alt.LayerChart:
    rows = pl.DataFrame(
        {
            **{"deployment": gain.deployments[1], "series": name(gain), "level": load.level},
            **{"ratio": ratio.value, "low": ratio.low, "high": ratio.high},
        }
        for gain in gains
        for load in gain.loads
        for ratio in [_over(load.ratio, gain.times or 1.0)]
    )
    what = "efficiency" if title == "devices" else "throughput ÷ that with the first value"
    highest = max(1.0, *rows["ratio"])
    top = min(2 * highest, 1.05 * max(highest, *rows["high"].drop_nulls()))  # beyond twice the highest a range says nothing
    x, y = (
        level_axis(results),
        alt.Y("ratio:Q", title=what, axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, top], nice=False)),
    )
    colour, shape = series_colour(results, rows, title=None), series_shape(rows, title=None)
    base = alt.Chart(rows)
    tooltip = ["series:N", "level:Q", *tips(".0%", "ratio", "low", "high")]
    layers = [
        alt.Chart(pl.DataFrame({"ratio": [1.0]})).mark_rule(strokeDash=[5, 4], color=NEUTRAL).encode(y=y),
        base.mark_rule(clip=True).encode(x=x, y=alt.Y("low:Q", title=what), y2="high:Q", color=colour),
        base.mark_point(filled=True, size=60, opacity=1).encode(x=x, y=y, color=colour, shape=shape, tooltip=tooltip),
    ]
    return alt.LayerChart(layer=layers, title=title, width=300)


def section(view: View) -> Section:
    found = [{**row, "load": cell_of_load(row)} for row in rows(view.results.analysis.findings.settings)]
    columns = [
        Column("compared", "name"),
        Column("load", "load"),
        Column("ratio (95 %)", "ratio"),
        Column("verdict", "verdict"),
        Column("best number of devices", "best"),
        Column("nearest power", "form"),
    ]
    meaning = (
        "Best: the numbers of devices that no other one significantly beats. Nearest power: the power of a number (with three values "
        "or more) to which throughput is most nearly proportional; no test says that it fits."
    )
    table = Table("Throughput with another value of a setting, against the first one", columns, found)
    return Section("settings", "What each setting changes", [table, Text(meaning)] if found else [])
