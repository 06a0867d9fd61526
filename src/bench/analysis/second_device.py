"""What more devices of one instance buy (tensor parallelism), at loads that the fewest hold and at those that they do not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import polars as pl

from bench.analysis.compare import compare
from bench.analysis.saturation import saturation

__all__ = ["DeviceGain", "Gain", "device_gains"]

_METRIC = "throughput_tokens_per_s"
Beside = Literal["more", "less", "unknown"]


@dataclass(frozen=True)
class Gain:
    """Throughput of many devices ÷ that of few, over a part of the ladder.

    Attributes:
        loads: of the levels that both measured, ascending. ratio: their geometric mean; None where no pair of runs is valid.
        low, high: its 95 % interval; None where the noise is not known.
    """

    loads: tuple[float, ...]
    ratio: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class DeviceGain:
    """One instance on `many` devices beside one on `few`, under the same load.

    Attributes:
        deployments: on few and on many devices. full: the load at which the KV cache of each is full; None where no load fills it, or
            it is not known (`full_known`).
        room: while the KV cache of the few has room. short: from where it is full on; None where it never is. In each `ratio` is of
            throughput.
        doubling: the factor by which the gain changes with each doubling of the load; None where it does not surely.
        pairs: of valid runs. spread_assumed: whether how far sessions differ is assumed, and not measured. gpus: whether they are GPUs.
    """

    model: str
    workload: str
    unit: str
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

    def beside(self, gain: Gain) -> Beside:
        """Whether the instance on many devices surely gives more than as many instances on few as take the same devices."""
        whole = self.many / self.few
        if gain.low is None or gain.high is None:
            return "unknown"
        return "more" if gain.low > whole else "less" if gain.high < whole else "unknown"


def device_gains(runs: pl.DataFrame) -> list[DeviceGain]:
    """What more devices buy, of each model and load that was measured on different numbers of them.

    Throughput is compared level by level (`compare`), apart for the levels at which the KV cache of the few has room and for those
    from which on it is full: there more devices bring memory, which is no speed.

    Args:
        runs: summary rows (`tensor_parallel`, `pipeline_parallel`, `data_parallel`, `model`, `engine`, `device`, what `compare` and
            `saturation` take).
    """
    alone = runs.filter(
        (pl.col("workload") == pl.col("family"))
        & (pl.col("pipeline_parallel").fill_null(1) == 1)
        & (pl.col("data_parallel").fill_null(1) == 1)
        & pl.col("tensor_parallel").is_not_null()
    )
    found = []
    for _, group in alone.group_by("model", "engine", "workload", "axis", maintain_order=True):
        parts = group.sort("tensor_parallel", maintain_order=True).partition_by("tensor_parallel", maintain_order=True)
        few = _one(parts[0])
        found += [_gain(few, _one(many)) for many in parts[1:]]
    return found


def _one(runs: pl.DataFrame) -> pl.DataFrame:
    """The runs of the first of several deployments on as many devices."""
    return runs.filter(pl.col("deployment") == runs["deployment"][0])


def _gain(few: pl.DataFrame, many: pl.DataFrame) -> DeviceGain:
    first = few.row(0, named=True)
    full, known = zip(*(_full(side) for side in (few, many)), strict=True)
    loads = sorted(set(few["level"].drop_nulls()) & set(many["level"].drop_nulls()))
    border = full[0] if full[0] is not None else float("inf")
    whole = compare(few, many, [_METRIC])
    trends = whole.trends.filter(pl.col("verdict") != "no evidence")
    return DeviceGain(
        model=first["model"],
        workload=first["workload"],
        unit="requests in flight" if first["axis"] == "concurrency" else "requests/s",
        few=first["tensor_parallel"],
        many=many["tensor_parallel"][0],
        deployments=(first["deployment"], many["deployment"][0]),
        full=(full[0], full[1]),
        full_known=(known[0], known[1]),
        room=_over(few, many, [load for load in loads if load < border]),
        short=_over(few, many, [load for load in loads if load >= border]),
        doubling=trends["ratio"][0] if trends.height else None,
        pairs=whole.matched,
        spread_assumed=bool(whole.overall["spread_assumed"].any()),
        gpus=first["device"] == "cuda",
    )


def _full(runs: pl.DataFrame) -> tuple[float | None, bool]:
    """The load that fills the KV cache, and whether any run shows if one does."""
    rows = saturation(runs)
    return (rows["measured"][0], rows["cache_known"][0]) if rows.height else (None, False)


def _over(few: pl.DataFrame, many: pl.DataFrame, loads: list[float]) -> Gain | None:
    """The gain over some levels; None where there are none."""
    if not loads:
        return None
    at = pl.col("level").is_in(loads)
    overall = compare(few.filter(at), many.filter(at), [_METRIC]).overall
    if overall.is_empty():
        return Gain(tuple(loads))
    row = overall.row(0, named=True)
    return Gain(tuple(loads), row["ratio"], row["low"], row["high"])
