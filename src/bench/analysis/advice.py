"""Recommendations, each with its numbers and the runs that show it; without such runs there is none."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import polars as pl

from bench.analysis.evidence import Bottleneck
from bench.analysis.judging import Miss
from bench.analysis.locked import ALIKE
from bench.analysis.sizing import KV_HEADROOM, gpus_of
from bench.axes import AXES, CONCURRENCY
from bench.parse.stream import engine_is_ahead
from bench.predict.relief_record import Gain

_RATIO = 1.5  # least ratio of two loads that count as different; convention
_LARGER = 1.2  # least ratio of parameters of a larger model; convention
_LOST_HITS = 0.2  # loss of prefix-cache hit rate that is reported; convention


Recommendation = Literal["kv_bytes", "pools", "front_end", "admission", "headroom", "memory_bound", "interference", "eviction"]
_MAKERS: dict[str, Recommendation] = {"kv": "memory_bound", "interference": "interference"}  # by the cause of a curve's end


@dataclass(frozen=True)
class Carried:
    """What one server sustains of a workload within its SLOs: `rps` requests/s, or at least so many."""

    workload: str
    rps: float
    at_least: bool


@dataclass(frozen=True)
class Advice:
    """One recommendation.

    Attributes:
        kind: what is advised; `bench.words.advice` has its sentence. runs: those that show it (`deployment/run`).
        numbers: by name, as that sentence takes them: loads in the workload's unit, times in s, shares 0–1, sizes in bytes. None: not
            known.
        missed: by what the load beyond an admission misses. carried: of `pools`, the most first. gain: what relief would bring, where
            a cause was replayed.
    """

    kind: Recommendation
    runs: tuple[str, ...]
    numbers: Mapping[str, float | str | None]
    missed: tuple[Miss, ...] = ()
    carried: tuple[Carried, ...] = ()
    gain: Gain | None = None


def advice(
    runs: pl.DataFrame,
    saturation: pl.DataFrame,
    points: pl.DataFrame,
    causes: Mapping[tuple[str, str], Bottleneck] | None = None,
) -> list[Advice]:
    """What the runs advise, in the order of the roles that it is for.

    Args:
        runs: summary rows. saturation: of `saturation`. points: of `operating_points`; empty without SLOs.
        causes: of each curve, by deployment and workload, as `bottleneck` has them.
    """
    valid = runs.filter("valid")
    behind = list(front_end(valid))
    found = [
        *kv_bytes(valid, saturation),
        *pools(valid, points),
        *behind,
        *admission(valid, points),
        *headroom(valid, saturation, points),
        *makers(causes or {}, behind),
        *evicted(valid),
    ]
    return [each for each in found if each.runs]  # of invalid runs alone nothing is advised


def _names(runs: pl.DataFrame) -> tuple[str, ...]:
    return tuple(runs.select(pl.format("{}/{}", "deployment", "run")).to_series().to_list())


def _of(runs: pl.DataFrame, row: dict[str, Any], *levels: float | None) -> pl.DataFrame:
    return runs.filter(
        (pl.col("deployment") == row["deployment"])
        & (pl.col("workload") == row["workload"])
        & pl.col("level").is_in([level for level in levels if level is not None])
    )


def _unit(run: Mapping[str, Any]) -> str:
    return AXES[run["axis"]].counted(conversations=(run["turns"] or 1) > 1)


def _kv_memory(runs: pl.DataFrame) -> dict[str, tuple[int, int]]:
    """KV memory (bytes) and GPUs of each deployment of which both are known."""
    found = {}
    for row in runs.unique("deployment", maintain_order=True).iter_rows(named=True):
        tokens, each, gpus = row["kv_tokens"], row["kv_bytes_per_token"], gpus_of(row)
        if tokens and each and gpus is not None:
            found[row["deployment"]] = (tokens * each, gpus)
    return found


def kv_bytes(valid: pl.DataFrame, saturation: pl.DataFrame) -> Iterator[Advice]:
    """The largest model that holds more requests than a smaller one in as much KV memory on as many GPUs.

    With unequal memory, memory could be the reason.
    """
    memory = _kv_memory(valid)

    def alike(a: str, b: str) -> bool:
        if a not in memory or b not in memory:
            return False
        (ours, here), (theirs, there) = memory[a], memory[b]
        return here == there and abs(ours - theirs) <= ALIKE * min(ours, theirs)

    known = saturation.filter(pl.col("axis") == CONCURRENCY).drop_nulls(["measured", "parameters", "kv_bytes_per_token"])
    pairs = [
        (a, b)
        for workload in known.partition_by("workload", maintain_order=True)
        for a, b in itertools.permutations(workload.to_dicts(), 2)
        if a["parameters"] >= _LARGER * b["parameters"]
        and a["measured"] > b["measured"]
        and a["kv_bytes_per_token"] < b["kv_bytes_per_token"]
        and alike(a["deployment"], b["deployment"])
        and all(_of(valid, row, row["measured"]).height for row in (a, b))  # half of a pair is no comparison
    ]
    if pairs:
        a, b = max(
            pairs, key=lambda pair: pair[0]["measured"] / pair[1]["measured"] * pair[0]["parameters"] / pair[1]["parameters"]
        )
        yield Advice(
            "kv_bytes",
            _names(pl.concat([_of(valid, row, row["below"], row["measured"]) for row in (a, b)])),
            {
                "deployment": a["deployment"],
                "other": b["deployment"],
                "workload": a["workload"],
                "parameters": a["parameters"] / b["parameters"],
                "requests": a["measured"],
                "other_requests": b["measured"],
                "token_bytes": a["kv_bytes_per_token"],
                "other_token_bytes": b["kv_bytes_per_token"],
                "kv_bytes": memory[a["deployment"]][0],
            },
        )


def pools(valid: pl.DataFrame, points: pl.DataFrame) -> Iterator[Advice]:
    """Workloads of which one server sustains different rates: by half as much again, in intervals that do not overlap."""
    for part in points.drop_nulls("usable_rps").partition_by("deployment", maintain_order=True):
        rows = part.sort("usable_rps").to_dicts()
        most, least = rows[-1]["usable_low"], rows[0]["usable_high"]
        apart = most is not None and least is not None and most > least
        if apart and rows[-1]["usable_rps"] >= _RATIO * rows[0]["usable_rps"]:
            carried = tuple(Carried(row["workload"], row["usable_rps"], row["kind"] == "above") for row in reversed(rows))
            runs = _names(pl.concat([_of(valid, row, row["c_max"]) for row in rows]))
            yield Advice("pools", runs, {"deployment": rows[0]["deployment"]}, carried=carried)


def front_end(valid: pl.DataFrame) -> Iterator[Advice]:
    """Curves whose engine makes tokens faster than clients get them: the fastest such level of each."""
    behind = valid.filter(engine_is_ahead().fill_null(False))
    for (deployment, workload), part in behind.group_by("deployment", "workload", maintain_order=True):
        most = part.sort("throughput_tokens_per_s").row(-1, named=True)
        yield Advice(
            "front_end",
            _names(part.sort("level")),
            {
                "deployment": cast("str", deployment),
                "workload": cast("str", workload),
                "level": most["level"],
                "unit": _unit(most),
                "client_s": most["tpot_mean_s"] if most["itl_mean_s"] is None else most["itl_mean_s"],
                "server_s": most["server_itl_mean_s"],
                "busy": most["gpu_utilisation_mean"],
                "tokens": most["throughput_tokens_per_s"],
            },
        )


def admission(valid: pl.DataFrame, points: pl.DataFrame) -> Iterator[Advice]:
    for row in points.filter((pl.col("kind") == "found") & (pl.col("basis") == "steady")).iter_rows(named=True):
        numbers = {name: row[name] for name in ("deployment", "workload", "unit", "operate_at", "missed_at")}
        yield Advice(
            "admission",
            _names(_of(valid, row, row["operate_at"], row["c_max"], row["missed_at"])),
            {**numbers, "c_max": row["c_max"] if row["operate_at"] < row["c_max"] else None},
            missed=tuple(Miss(**miss) for miss in row["missed"]),
        )


def _filled(valid: pl.DataFrame, saturation: pl.DataFrame) -> pl.DataFrame:
    """Curves over requests in flight that fill a KV cache without slots."""
    slots = valid.filter(pl.col("kv_slots").fill_null(False))["deployment"].unique()
    known = saturation.filter((pl.col("axis") == CONCURRENCY) & ~pl.col("deployment").is_in(slots.implode()))
    return known.drop_nulls(["measured", "below"])


def headroom(valid: pl.DataFrame, saturation: pl.DataFrame, points: pl.DataFrame) -> Iterator[Advice]:
    """The headroom that keeps a cache from filling; not where an SLO ends the range before memory does.

    None for slots: a free one makes no room for a longer request.
    """
    operated = {(row["deployment"], row["workload"]): row["c_max"] for row in points.to_dicts()}
    for row in _filled(valid, saturation).drop_nulls("predicted").iter_rows(named=True):
        if (operated.get((row["deployment"], row["workload"])) or row["predicted"]) < (1 - KV_HEADROOM[1]) * row["predicted"]:
            continue
        yield Advice(
            "headroom",
            _names(_of(valid, row, row["below"], row["measured"])),
            {
                "deployment": row["deployment"],
                "workload": row["workload"],
                "fewest": (1 - KV_HEADROOM[1]) * row["predicted"],
                "most": (1 - KV_HEADROOM[0]) * row["predicted"],
                "full": row["measured"],
                "below": row["below"],
            },
        )


def makers(causes: Mapping[tuple[str, str], Bottleneck], behind: Sequence[Advice]) -> Iterator[Advice]:
    """Curves that the KV cache ends, or others' prompts, as their cause has it; not where it ties with another, nor where replays say
    that more of it brings nothing.

    Args:
        behind: of `front_end`: clients that wait for an API server would get no more from another accelerator.
    """
    excused = {(each.numbers["deployment"], each.numbers["workload"]) for each in behind}
    for (deployment, workload), limit in causes.items():
        kind = _MAKERS.get(limit.cause)
        gain = next((each for each in limit.gains if each.resource == limit.cause), None)
        if kind and limit.tied < 2 and (gain is None or gain.sure) and (deployment, workload) not in excused:
            yield Advice(kind, limit.runs, {"deployment": deployment, "workload": workload}, gain=gain)


def evicted(valid: pl.DataFrame) -> Iterator[Advice]:
    """Curves whose prefix cache loses its hits as load rises."""
    for _, part in valid.drop_nulls("prefix_hit_rate").group_by("deployment", "workload", maintain_order=True):
        levels = part.sort("level")
        first, last = levels.row(0, named=True), levels.row(-1, named=True)
        if first["prefix_hit_rate"] - last["prefix_hit_rate"] >= _LOST_HITS and last["saturated"]:
            yield Advice(
                "eviction",
                _names(pl.concat([levels.head(1), levels.tail(1)])),
                {
                    "deployment": first["deployment"],
                    "workload": first["workload"],
                    "unit": _unit(first),
                    "low": first["level"],
                    "low_rate": first["prefix_hit_rate"],
                    "high": last["level"],
                    "high_rate": last["prefix_hit_rate"],
                },
            )
