"""What more devices of one instance buy (tensor parallelism), at loads that the fewest hold and at those that they do not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from bench.analysis.compare import compare
from bench.analysis.locked import Difference, Differs
from bench.analysis.saturation import saturation
from bench.axes import AXES

__all__ = ["DeviceGain", "Gain", "device_gains"]

_METRIC = "throughput_tokens_per_s"
# What may differ between deployments besides the number of devices, and what follows from that number.
_SETTINGS = ("parameters", "device", "engine_version", "kv_bytes_per_token", "max_model_len", "max_num_seqs", "environment")
# How many requests a closed loop sends, and so their mean lengths, depends on speed.
_FOLLOWS = {"tensor_parallel", "gpus", "kv_tokens", "num_requests", "prompt_tokens", "output_tokens"}
Beside = Literal["more", "less", "unknown"]


@dataclass(frozen=True)
class Ratio:
    """A ratio of throughputs, with its 95 % interval; None where the noise is not known."""

    value: float
    low: float | None
    high: float | None

    def beside(self, whole: float) -> Beside:
        """Whether it is surely more, or less, than `whole`."""
        if self.low is None or self.high is None:
            return "unknown"
        return "more" if self.low > whole else "less" if self.high < whole else "unknown"


@dataclass(frozen=True)
class Gain:
    """Throughput of many devices ÷ that of few, over a part of the ladder.

    Attributes:
        loads: levels of which a pair of runs is compared, ascending. same: at the same load an instance; None where no pair is valid.
        shared_loads: those at which the few were measured under the load that each of several separate instances would get of it.
        shared: at the same load in all ÷ that of the separate instances together; None where the few were not measured so.
    """

    loads: tuple[float, ...] = ()
    same: Ratio | None = None
    shared_loads: tuple[float, ...] = ()
    shared: Ratio | None = None


@dataclass(frozen=True)
class DeviceGain:
    """One instance on `many` devices beside one on `few`, under the same load.

    Attributes:
        deployments: on few and on many devices. full: the load at which the KV cache of each is full; None where no load fills it, or
            it is not known (`full_known`).
        room: while the KV cache of the few has room. short: from where it is full on. None where no such load was measured of both,
            and of an open loop: its throughput is the load that it offers, whatever serves it.
        doubling: the factor by which the gain changes with each doubling of the load; None where it does not surely.
        pairs: of valid runs. spread_assumed: whether how far sessions differ is assumed, and not measured. gpus: whether they are GPUs.
        differences: what differs besides the number of devices and what follows from it.
    """

    model: str
    workload: str
    axis: str
    few: int
    many: int
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
    def whole(self) -> float:
        """As many instances on few devices take the devices of one on many."""
        return self.many / self.few


def device_gains(runs: pl.DataFrame) -> list[DeviceGain]:
    """What more devices buy, of each model and load that was measured on different numbers of them.

    Throughput is compared level by level (`compare`), apart for the levels at which the KV cache of the few has room and for those
    from which on it is full: there more devices bring memory, which is no speed. Of several deployments on as many devices those two
    are compared that differ least in anything else.

    Args:
        runs: summary rows of workloads whose load is what is asked about (`tensor_parallel`, `pipeline_parallel`, `data_parallel`,
            `model`, `engine`, `device`, what `compare` and `saturation` take).
    """
    alone = runs.filter(
        (pl.col("pipeline_parallel").fill_null(1) == 1)
        & (pl.col("data_parallel").fill_null(1) == 1)
        & pl.col("tensor_parallel").is_not_null()
    )
    found = []
    for _, group in alone.group_by("model", "engine", "workload", "axis", maintain_order=True):
        fewest, *more = (
            part.partition_by("deployment", maintain_order=True)
            for part in group.sort("tensor_parallel", maintain_order=True).partition_by("tensor_parallel", maintain_order=True)
        )
        found += [_gain(*min(((few, many) for few in fewest for many in part), key=_unlike)) for part in more]
    return found


def _unlike(pair: tuple[pl.DataFrame, pl.DataFrame]) -> int:
    """In how many settings two deployments differ."""
    few, many = (_settings(side) for side in pair)
    return sum(few[name] != many[name] for name in few)


def _settings(runs: pl.DataFrame) -> dict[str, Any]:
    return {name: set(runs[name]) for name in _SETTINGS}


def _gain(few: pl.DataFrame, many: pl.DataFrame) -> DeviceGain:
    first = few.row(0, named=True)
    full, known = zip(*(_full(side) for side in (few, many)), strict=True)
    border = full[0] if full[0] is not None else float("inf")
    whole = compare(few, many, [_METRIC])
    trends = whole.trends.filter(pl.col("verdict") != "no evidence")
    closed = AXES[first["axis"]].held
    times = many["tensor_parallel"][0] / first["tensor_parallel"]
    return DeviceGain(
        model=first["model"],
        workload=first["workload"],
        axis=first["axis"],
        few=first["tensor_parallel"],
        many=many["tensor_parallel"][0],
        deployments=(first["deployment"], many["deployment"][0]),
        full=(full[0], full[1]),
        full_known=(known[0], known[1]),
        room=_over(few, many, times, pl.col("level") < border) if closed else None,
        short=_over(few, many, times, pl.col("level") >= border) if closed else None,
        doubling=trends["ratio"][0] if trends.height and closed else None,
        pairs=whole.matched,
        spread_assumed=bool(whole.overall["spread_assumed"].any()),
        gpus=first["device"] == "cuda",
        differences=tuple(each for each in whole.differences if not (isinstance(each, Differs) and each.variable in _FOLLOWS)),
    )


def _full(runs: pl.DataFrame) -> tuple[float | None, bool]:
    """The load that fills the KV cache, and whether any run shows if one does."""
    rows = saturation(runs)
    return (rows["measured"][0], rows["cache_known"][0]) if rows.height else (None, False)


def _over(few: pl.DataFrame, many: pl.DataFrame, times: float, part: pl.Expr) -> Gain | None:
    """The gain over some levels; None where not both have them. Args: times: as `DeviceGain.whole`."""
    there = many.filter(part)
    if not set(few.filter(part)["level"]) & set(there["level"]):
        return None
    loads, same = _ratio(few.filter(part), there)
    shared_loads, each = _ratio(few.with_columns(level=pl.col("level") * times), there)
    shared = each and Ratio(each.value / times, *(end / times if end is not None else None for end in (each.low, each.high)))
    return Gain(loads, same, shared_loads, shared)


def _ratio(few: pl.DataFrame, many: pl.DataFrame) -> tuple[tuple[float, ...], Ratio | None]:
    """The levels of which pairs are compared, and their geometric mean."""
    found = compare(few, many, [_METRIC])
    if found.pairs is None or found.overall.is_empty():
        return (), None
    row = found.overall.row(0, named=True)
    return tuple(sorted(set(found.pairs["level"]))), Ratio(row["ratio"], row["low"], row["high"])
