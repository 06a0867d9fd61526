"""What another value of a setting changes in throughput: at loads that fit the first value's KV cache, and at those that do not.

More devices of one instance (tensor parallelism) are a setting, with a question of their own: whether separate instances on as many
devices would give more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from bench.analysis.compare import Comparison, compare
from bench.analysis.effects import Ratio, sweep
from bench.analysis.locked import Difference, Differs
from bench.analysis.saturation import saturation
from bench.analysis.windows import OF_WINDOWS
from bench.axes import AXES
from bench.study.settings import settings_in, varying_settings

_PARALLEL = ("tensor_parallel", "pipeline_parallel", "data_parallel")
_METRIC = "throughput_tokens_per_s"
_THROUGHPUT = (_METRIC, OF_WINDOWS[_METRIC])
_SETTINGS = (
    "parameters",
    "device",
    "engine_version",
    "kv_bytes_per_token",
    "max_model_len",
)  # that follow from no key of a deployment
# What follows from a setting, or from speed, which decides how many requests a closed loop sends, and so their mean lengths.
_FOLLOWS = {"gpus", "kv_tokens", "num_requests", "prompt_tokens", "output_tokens"}
_TYPES = {"dtype", "kv_cache_dtype"}  # which decide kv_bytes_per_token too


@dataclass(frozen=True)
class Gain:
    """Throughput with the other value of a setting ÷ that with the first, over a part of a load sweep.

    Attributes:
        loads: levels of which a pair of runs is compared, ascending. same: at the same load an instance; None where no pair is valid.
        shared_loads: of more devices, those at which the fewer were measured under the load that each of several separate instances
            would get of it.
        shared: at the same load in all ÷ that of the separate instances together; None where they were not measured so.
    """

    loads: tuple[float, ...] = ()
    same: Ratio | None = None
    shared_loads: tuple[float, ...] = ()
    shared: Ratio | None = None


@dataclass(frozen=True)
class SettingGain:
    """A deployment with one value of a setting beside one with another, under the same load.

    Attributes:
        setting: its column. beside: other settings in which the two deployments differ.
        values: the first and the other, as the summary has them.
        devices: of an instance with either: tensor × pipeline × data parallelism.
        deployments: with either. full: the load at which the KV cache of each is full; None where no load fills it, or it is not known
            (`full_known`).
        room: while the KV cache of the first has room. short: from where it is full on. None where no such load was measured of both,
            and of an open loop: its throughput is the load that it offers, whatever serves it.
        doubling: the factor by which the gain changes with each doubling of the load; None where no change is established.
        pairs: of valid runs. spread_assumed: whether how far sessions differ is assumed, and not measured.
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
    full: tuple[float | None, float | None]
    full_known: tuple[bool, bool]
    room: Gain | None
    short: Gain | None
    doubling: float | None
    pairs: int
    spread_assumed: bool
    gpus: bool
    differences: tuple[Difference, ...]

    @property
    def times(self) -> float | None:
        """How many times as many devices the other takes; None where it takes as many."""
        return self.devices[1] / self.devices[0] if self.devices[0] != self.devices[1] else None


@dataclass(frozen=True)
class Pair:
    """The runs of a deployment with the first value of a setting and of one with another, under one workload.

    Attributes:
        beside: as in `SettingGain`.
    """

    setting: str
    beside: tuple[str, ...]
    first: pl.DataFrame
    other: pl.DataFrame


def setting_gains(runs: pl.DataFrame) -> list[SettingGain]:
    """What another value of each setting changes, of each model, engine and load that was measured with several.

    Throughput is compared level by level (`compare`): a mean of the levels at which the KV cache of the first has room, and one of
    those at which it is full, since there a setting may bring memory, not speed. Both are at the confidence of the comparison's verdict
    over all levels.

    Args:
        runs: summary rows of workloads whose load is what is asked about (settings, `model`, `engine`, `device`, `baseline`, what
            `compare` and `saturation` take).
    """
    return [_gain(each) for each in setting_pairs(runs)]


def setting_pairs(runs: pl.DataFrame) -> list[Pair]:
    """The deployments that are compared, by each setting that varies.

    The first value is that of the study's baseline; of parallelism, and without a baseline, the least. Of several deployments with a
    value those two are compared that differ least in anything else, and no two are compared twice.

    Args:
        runs: as `setting_gains` takes them.
    """
    found = []
    for _, group in runs.group_by("model", "engine", "workload", "axis", maintain_order=True):
        sides, compared = group.partition_by("deployment", maintain_order=True), set()
        for setting in varying_settings([side.row(0, named=True) for side in sides]):
            if setting == "replicas":  # no setting of a server: `bench.analysis.efficiency` says what they bring
                continue
            for first, other in _pairs(setting, sides):
                names = frozenset((first["deployment"][0], other["deployment"][0]))
                if names not in compared:
                    compared.add(names)
                    found.append(Pair(setting, _beside(setting, first, other), first, other))
    return found


def _beside(setting: str, first: pl.DataFrame, other: pl.DataFrame) -> tuple[str, ...]:
    """The other settings in which two deployments differ."""
    groups = varying_settings([side.row(0, named=True) for side in (first, other)]).items()
    return tuple(name for one, others in groups for name in (one, *others) if name != setting)


def _pairs(setting: str, sides: list[pl.DataFrame]) -> list[tuple[pl.DataFrame, pl.DataFrame]]:
    """The deployments that are compared: for each other value, the pair that differs least from the first value in anything else."""
    values = sorted({side[setting][0] for side in sides}, key=rank)
    based = baseline_value(setting, sides)
    values.sort(key=lambda value: value not in based)
    of = [[side for side in sides if side[setting][0] == value] for value in values]
    return [min(((one, other) for one in of[0] for other in part), key=_unlike) for part in of[1:]]


def baseline_value(setting: str, sides: Sequence[pl.DataFrame]) -> list[Any]:
    """That of the study's baseline, with which the others are compared; none of parallelism, or without a baseline: the least is."""
    return [side[setting][0] for side in sides if side["baseline"][0]] if setting not in _PARALLEL else []


def rank(value: Any) -> tuple[bool, float, str]:
    """A sort key for a setting's values: the default first, numbers by size, texts by name."""
    try:
        return value is not None, float(value), ""
    except (TypeError, ValueError):
        return value is not None, 0.0, str(value)


def _unlike(pair: tuple[pl.DataFrame, pl.DataFrame]) -> int:
    """In how many settings two deployments differ."""
    one, other = (side.row(0, named=True) for side in pair)
    return sum(one[name] != other[name] for name in (*_SETTINGS, *settings_in(one)))


def devices_of(side: pl.DataFrame) -> int:
    """Devices of an instance; what is not known counts as one."""
    return math.prod(side[name][0] or 1 for name in _PARALLEL)


def _gain(pair: Pair) -> SettingGain:
    setting, first, other = pair.setting, pair.first, pair.other
    row = first.row(0, named=True)
    full, known = zip(*(_full(side) for side in (first, other)), strict=True)
    border = full[0] if full[0] is not None else float("inf")
    whole = compare(first, other, [_METRIC])
    trends = whole.trends.filter(pl.col("verdict") != "no evidence")
    closed = AXES[row["axis"]].held
    devices = (devices_of(first), devices_of(other))
    times = devices[1] / devices[0] if devices[0] != devices[1] else None
    # So many of the first, each with its own load: as one with all of the load, that gives as many times as much.
    several = compare(first.with_columns(pl.col("level", *_THROUGHPUT) * times), other, [_METRIC]) if times and closed else None
    follows = {setting, *_FOLLOWS, *({"kv_bytes_per_token"} if setting in _TYPES else ())}
    return SettingGain(
        model=row["model"],
        engine=row["engine"],
        workload=row["workload"],
        axis=row["axis"],
        setting=setting,
        beside=pair.beside,
        values=(row[setting], other[setting][0]),
        devices=devices,
        deployments=(row["deployment"], other["deployment"][0]),
        full=(full[0], full[1]),
        full_known=(known[0], known[1]),
        room=_gains((first, other), pl.col("level") < border, whole, several) if closed else None,
        short=_gains((first, other), pl.col("level") >= border, whole, several) if closed else None,
        doubling=trends["ratio"][0] if trends.height and closed else None,
        pairs=whole.matched,
        spread_assumed=bool(whole.overall["spread_assumed"].any()),
        gpus=row["device"] == "cuda",
        differences=tuple(each for each in whole.differences if not (isinstance(each, Differs) and each.variable in follows)),
    )


def _full(runs: pl.DataFrame) -> tuple[float | None, bool]:
    """The load that fills the KV cache, and whether any run shows if one does."""
    rows = saturation(runs)
    return (rows["measured"][0], rows["cache_known"][0]) if rows.height else (None, False)


def _gains(sides: tuple[pl.DataFrame, pl.DataFrame], part: pl.Expr, same: Comparison, shared: Comparison | None) -> Gain | None:
    """The gain over some levels; None where not both have them. Args: shared: None of as many devices."""
    first, other = (set(side.filter(part)["level"]) for side in sides)
    if not first & other:
        return None
    return Gain(*_over(same, other), *(_over(shared, other) if shared else ()))


def _over(found: Comparison, levels: set[float]) -> tuple[tuple[float, ...], Ratio | None]:
    """Those of the levels of which a pair is compared, and their geometric mean."""
    assert found.pairs is not None
    # A setting that brings memory raises throughput at once where the cache is full: that step is no noise.
    known = sweep(found.pairs.with_columns(part=pl.col("level").is_in(levels)))
    loads = tuple(load for load in known.loads if load in levels) if known else ()
    return loads, known.ratio(loads, found.overall["confidence"][0]) if known and loads else None
