"""What a study measured of a server, by the requests that it held: the latencies of its levels, and between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from bench.analysis.levels import LEAST_NOISE
from bench.drifted.batches import BLOCKS, in_blocks, ratio, sums
from bench.drifted.served import SAMPLES, served
from bench.guard import Curve
from bench.servers.metrics import find_catalogue

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

HELD = "held"
#: Latencies that are compared at a load: their sums, and what these are divided by. `held` is the time that requests are in flight for
#: each output token: E2E ÷ output length, also where a server has no histograms (Little, 1961).
SPEEDS = {
    "ttft": ("ttft_sum", "ttft_count"),
    "itl": ("itl_sum", "itl_count"),
    "e2e": ("e2e_sum", "e2e_count"),
    HELD: ("held", "output"),
}
#: The load that decides on each: requests that wait make no step longer.
LOADS = {name: "running" if name == "itl" else "in_flight" for name in SPEEDS}
# least ratio of two levels' mean loads by which they are two places of a line; convention: beyond the slots more levels run as many
_APART = 1.1


@dataclass(frozen=True)
class Line:
    """One latency of a study by load.

    Attributes:
        loads: requests in flight, or of ITL running, ascending, n of them. values: the latency there (s).
        errors: standard error of the logarithm of each, without what starts differ by. freedom: its degrees of freedom.
    """

    loads: Floats
    values: Floats
    errors: Floats
    freedom: float

    def error(self, loads: Floats, weights: Floats) -> float:
        """The standard error of a weighted mean over loads: levels have errors of their own, which partly cancel."""
        shares = [float(np.interp(loads, self.loads, level) @ weights) for level in np.eye(len(self.loads))]
        return float(np.linalg.norm(self.errors * shares) / weights.sum())

    def at(self, loads: Floats) -> tuple[Floats, Floats]:
        """The least and the highest value that each load can have; beyond the measured loads, that of the outermost.

        A curve that bends one way lies between the straight line from one level to the next and the lines of its neighbours, drawn on;
        a rising one lies between the values of both levels.
        """
        straight = np.interp(loads, self.loads, self.values)
        if len(self.loads) == 1:
            return straight, straight
        place = np.clip(np.searchsorted(self.loads, loads) - 1, 0, len(self.loads) - 2)
        ends = np.stack([self.values[place], self.values[place + 1]])
        inside = (loads > self.loads[0]) & (loads < self.loads[-1])
        if len(self.loads) == 2:
            return np.where(inside, ends.min(axis=0), straight), np.where(inside, ends.max(axis=0), straight)
        slopes = np.diff(self.values) / np.diff(self.loads)
        lowest, highest = straight, straight
        for neighbour, end in ((place - 1, 0), (place + 1, 1)):
            there = inside & (neighbour >= 0) & (neighbour < len(slopes))
            drawn = ends[end] + slopes[np.clip(neighbour, 0, len(slopes) - 1)] * (loads - self.loads[place + end])
            drawn = np.where(there, np.clip(drawn, ends.min(axis=0), ends.max(axis=0)), straight)
            lowest, highest = np.minimum(lowest, drawn), np.maximum(highest, drawn)
        return lowest, highest


@dataclass(frozen=True)
class Studied:
    """What a study knows that production can be compared with; None where it is not known.

    Attributes:
        prompt, output: mean length (tokens). hits: mean prefix-cache hit rate of its runs (0–1); hits_error: standard error of that.
        loads: lowest and highest mean number of requests in flight. rates: of requests/s. lines: by latency of `SPEEDS`.
        sessions: starts of the server behind it. names: of metrics that it exposed.
    """

    prompt: float | None
    output: float | None
    hits: float | None
    hits_error: float
    loads: tuple[float, float] | None
    rates: tuple[float, float] | None
    lines: Mapping[str, Line]
    sessions: int
    names: frozenset[str]


def read_studied(curve: Curve) -> Studied:
    """What the valid runs with a steady window showed, by the server's own counts there."""
    runs = curve.runs.filter(pl.col("valid") & pl.col("counts_valid")).drop_nulls(["steady_from_s", "steady_until_s"])
    rows, names = [], set[str]()
    for run in runs.iter_rows(named=True):
        telemetry = curve.telemetry(run)
        if telemetry is None:
            continue
        exposed = telemetry["name"].unique().to_list()
        names.update(exposed)
        samples = telemetry.with_columns(instance=pl.lit(""), at_s="elapsed_s").select(*SAMPLES)
        catalogue = find_catalogue(exposed, curve.facts.engine_version if curve.facts else None)
        steady = pl.col("at_s").is_between(run["steady_from_s"], run["steady_until_s"])
        blocks = in_blocks(
            served(samples.filter(steady), catalogue), run["steady_from_s"], run["steady_until_s"] - run["steady_from_s"]
        )
        rows.append({"level": run["level"], **_shown(blocks)})
    table = pl.DataFrame(rows, infer_schema_length=None)
    loads = table["in_flight"].drop_nulls() if rows else pl.Series(dtype=pl.Float64)
    rates = runs["steady_requests_per_s"].drop_nulls()
    hits = table["hits"].drop_nulls() if rows else pl.Series(dtype=pl.Float64)
    return Studied(
        prompt=runs["prompt_tokens"].mean(),  # type: ignore[arg-type]
        output=runs["output_tokens"].mean(),  # type: ignore[arg-type]
        hits=hits.mean(),  # type: ignore[arg-type]
        hits_error=float(hits.std() or 0.0) / max(1, len(hits)) ** 0.5,  # type: ignore[arg-type]
        loads=(loads.min(), loads.max()) if len(loads) else None,  # type: ignore[arg-type]
        rates=(rates.min(), rates.max()) if len(rates) else None,  # type: ignore[arg-type]
        lines={} if not rows else {name: line for name in SPEEDS if (line := _line(table, name)) is not None},
        sessions=max(1, runs["session"].n_unique()),
        names=frozenset(names),
    )


def _shown(blocks: pl.DataFrame) -> dict[str, float | None]:
    """The mean load of a run, its hit rate and its latencies; of each latency `…_error` too, the standard error of its logarithm."""
    ratios = {"in_flight": ("held", "seconds"), "running": ("ran", "seconds"), "hits": ("hits", "queries"), **SPEEDS}
    blocks = blocks.with_columns(ran=pl.col("running") * pl.col("seconds"))
    found = {name: ratio(*sums(blocks, *columns)) for name, columns in ratios.items()}
    shown: dict[str, float | None] = {name: each.value if each else None for name, each in found.items()}
    return {**shown, **{f"{name}_error": each.relative if (each := found[name]) else None for name in SPEEDS}}


def _line(table: pl.DataFrame, name: str) -> Line | None:
    """A latency by load. A level's error is that of its runs' blocks, or by how far its runs differ where that is more.

    Levels at which as many requests run are one.
    """
    columns = {"load": pl.col(LOADS[name]), "value": pl.col(name), "error": pl.col(f"{name}_error")}
    known = table.select("level", **{each: column.cast(pl.Float64) for each, column in columns.items()}).drop_nulls()
    known = known.filter((pl.col("value") > 0) & (pl.col("load") > 0))
    if known.is_empty():
        return None
    log = pl.col("value").log()
    levels = known.with_columns(load=pl.col("load").mean().over("level")).sort("load", "level")
    firsts: list[float] = []  # load of each place's first level: dense levels would chain from one to the next
    for load in levels["load"]:
        firsts.append(load if not firsts or load > firsts[-1] * _APART else firsts[-1])
    levels = levels.with_columns(place=pl.Series(firsts))
    levels = levels.group_by("place", maintain_order=True).agg(
        load=pl.col("load").mean(),
        log=log.mean(),
        squares=((log - log.mean()) ** 2).sum(),
        error=(pl.col("error") ** 2).mean().sqrt(),
        runs=pl.len(),
    )
    freedom = int((levels["runs"] - 1).sum())
    apart = (float(levels["squares"].sum()) / freedom) ** 0.5 if freedom else 0.0
    errors = np.maximum(levels["error"].to_numpy(), max(LEAST_NOISE, apart)) / np.sqrt(levels["runs"].to_numpy())
    return Line(levels["load"].to_numpy(), np.exp(levels["log"].to_numpy()), errors, float(max(freedom, BLOCKS - 1)))
