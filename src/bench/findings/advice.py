"""What to try next, of each curve, and its sentence."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import polars as pl

from bench.axes import AXES, CONCURRENCY
from bench.findings.comparison.compare import ALIKE
from bench.findings.sizing import gpus_of
from bench.parse.stream import engine_is_ahead
from bench.report.blocks import Answer
from bench.runs.sentences import filled, load_text, sure_text

_RATIO = 1.5  # least ratio of two loads that count as different; convention
_LARGER = 1.2  # least ratio of parameters of a larger model; convention
_LOST_HITS = 0.2  # loss of prefix-cache hit rate that is reported; convention
_CURVE = ("deployment", "workload")


Kind = Literal["kv_bytes", "pools", "front_end", "eviction"]


@dataclass(frozen=True)
class Advice:
    """One recommendation.

    Attributes:
        kind: what is advised; `bench.findings.advice` has its sentence.
        numbers: by name, as that sentence takes them: loads in the workload's unit, times in s, shares 0–1, sizes in bytes. None: not
            known.
        carried: of `pools`, what one server sustains of each workload (requests/s, as text), the most first.
    """

    kind: Kind
    numbers: Mapping[str, float | str | None]
    carried: Mapping[str, str] | None = None


def advice(runs: pl.DataFrame, saturation: pl.DataFrame, points: pl.DataFrame) -> list[Advice]:
    """What the runs advise.

    Args:
        runs: summary rows. saturation: of `saturation`. points: of `operating_points`; empty without SLOs.
    """
    valid = runs.filter("valid")
    return [*kv_bytes(valid, saturation), *pools(points), *front_end(valid), *evicted(valid)]


def _of(kind: Kind, row: Mapping[str, Any], columns: Mapping[str, str], **numbers: Any) -> Advice:
    """A recommendation for a curve. Args: row: of the summary. columns: its numbers that count, by their names in the sentence."""
    where = {"deployment": row["deployment"], "workload": row["workload"]}
    unit = AXES[row["axis"]].counted(conversations=(row["turns"] or 1) > 1)
    return Advice(kind, where | {"unit": unit} | {name: row[column] for name, column in columns.items()} | numbers)


def kv_bytes(valid: pl.DataFrame, saturation: pl.DataFrame) -> Iterator[Advice]:
    """The largest model that holds more requests than a smaller one in as much KV memory on as many GPUs.

    With unequal memory, memory could be the reason.
    """
    memory = {
        row["deployment"]: (row["kv_tokens"] * row["kv_bytes_per_token"], gpus)
        for row in valid.unique("deployment", maintain_order=True).iter_rows(named=True)
        if row["kv_tokens"] and row["kv_bytes_per_token"] and (gpus := gpus_of(row)) is not None
    }
    full = valid.select(*_CURVE, measured="level").unique()  # half of a pair is no comparison
    known = saturation.filter(pl.col("axis") == CONCURRENCY, pl.col("deployment").is_in(list(memory)))
    known = known.drop_nulls(["parameters", "kv_bytes_per_token"]).join(full, on=[*_CURVE, "measured"], how="semi")
    pairs = [
        (a, b)
        for a, b in itertools.permutations(known.to_dicts(), 2)
        if a["workload"] == b["workload"]
        and a["parameters"] >= _LARGER * b["parameters"]
        and a["measured"] > b["measured"]
        and a["kv_bytes_per_token"] < b["kv_bytes_per_token"]
        and _as_much(*(memory[row["deployment"]] for row in (a, b)))
    ]
    if pairs:
        a, b = max(pairs, key=lambda pair: math.prod(pair[0][of] / pair[1][of] for of in ("measured", "parameters")))
        numbers: dict[str, Any] = {"deployment": a["deployment"], "other": b["deployment"], "workload": a["workload"]}
        numbers |= {"parameters": a["parameters"] / b["parameters"], "kv_bytes": memory[a["deployment"]][0]}
        for name, row in (("", a), ("other_", b)):
            numbers |= {f"{name}requests": row["measured"], f"{name}token_bytes": row["kv_bytes_per_token"]}
        yield Advice("kv_bytes", numbers)


def _as_much(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether two deployments have the same KV memory (bytes) and number of GPUs."""
    return one[1] == other[1] and abs(one[0] - other[0]) <= ALIKE * min(one[0], other[0])


def pools(points: pl.DataFrame) -> Iterator[Advice]:
    """Workloads of which one server sustains different rates: by half as much again, in intervals that do not overlap."""
    for part in points.drop_nulls("usable_rps").partition_by("deployment", maintain_order=True):
        rows = part.sort("usable_rps", descending=True).to_dicts()
        most, least = rows[0]["usable_low"], rows[-1]["usable_high"]
        apart = most is not None and least is not None and most > least
        if apart and rows[0]["usable_rps"] >= _RATIO * rows[-1]["usable_rps"]:
            carried = {row["workload"]: sure_text(row["usable_rps"], row["usable_low"], row["usable_high"])[0] for row in rows}
            yield Advice("pools", {"deployment": rows[0]["deployment"]}, carried)


def front_end(valid: pl.DataFrame) -> Iterator[Advice]:
    """Curves whose engine makes tokens faster than clients get them: the fastest such level of each."""
    columns = {
        "level": "level",
        "server_s": "server_itl_mean_s",
        "busy": "gpu_utilisation_mean",
        "tokens": "throughput_tokens_per_s",
    }
    for _, part in valid.filter(engine_is_ahead().fill_null(False)).group_by(_CURVE, maintain_order=True):
        most = part.sort("throughput_tokens_per_s").row(-1, named=True)
        client_s = most["tpot_mean_s"] if most["itl_mean_s"] is None else most["itl_mean_s"]
        yield _of("front_end", most, columns, client_s=client_s)


def evicted(valid: pl.DataFrame) -> Iterator[Advice]:
    """Curves whose prefix cache loses its hits as load rises."""
    for _, part in valid.drop_nulls("prefix_hit_rate").group_by(_CURVE, maintain_order=True):
        levels = part.sort("level")
        first, last = levels.row(0, named=True), levels.row(-1, named=True)
        if first["prefix_hit_rate"] - last["prefix_hit_rate"] >= _LOST_HITS and last["saturated"]:
            high = {"high": last["level"], "high_rate": last["prefix_hit_rate"]}
            yield _of("eviction", first, {"low": "level", "low_rate": "prefix_hit_rate"}, **high)


TEXTS = {
    "kv_bytes": "KV bytes per token, not parameters, decide how many requests fit: {deployment} has {parameters:.2g} times the "
    "parameters of {other}, and fills the same {kv_bytes:size} at {requests:g} requests of {workload}, not {other_requests:g} "
    "({token_bytes:,.0f} and {other_token_bytes:,.0f} bytes a token).",
    "pools": "Give each workload its own pool: within its SLOs one {deployment} sustains, in requests/s, {carried}. A mixed pool is "
    "sized by the heaviest.",
    "front_end": "{workload} on {deployment} is limited between engine and client, for example by the API server: at {level} the "
    "engine makes a token of each request every {server_s:ms}, and clients get one every {client_s:ms}[; its GPUs are busy "
    "{busy:share} of the time]. More API server processes (vLLM: `--api-server-count`) may yield more than {tokens:,.0f} tokens/s.",
    "eviction": "Tiered KV memory would keep shared prefixes: in {workload} on {deployment} the prefix cache serves {low_rate:share} "
    "of prompt tokens at {low} and {high_rate:share} at {high}, where it is full.",
}

_LOADS = ("level", "low", "high")  # of the numbers those that are loads


def answer(found: Sequence[Advice]) -> Answer:
    """What the runs advise beyond what would raise each limit."""
    return Answer("advice", "What else follows from these runs?", tuple(map(sentence, found)))


def sentence(advice: Advice) -> str:
    """A recommendation with its numbers."""
    numbers = cast("dict[str, Any]", dict(advice.numbers))
    if unit := numbers.get("unit"):
        numbers |= {name: load_text(numbers[name], unit) for name in _LOADS if name in numbers}
    if advice.carried:
        numbers["carried"] = ", ".join(f"{rps} of {workload}" for workload, rps in advice.carried.items())
    return filled(TEXTS[advice.kind], numbers)
