"""What a study measured of a server, by the requests that it held: the latencies of its levels, and between them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from bench.beside.production.curve import Curve
from bench.beside.production.drifted.served import SAMPLES, served
from bench.servers.metrics import find_catalogue
from bench.statistics.levels import LEAST_NOISE
from bench.statistics.textbook import student_t

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

BLOCKS = 12  # blocks that a time is cut into; convention: Student's t is 2.2 for so many
FEWEST_BLOCKS = 4  # fewest blocks with a request that show how far they differ; derived: Student's t is 3.2 for four
#: Latencies that are compared at a load: their sums, and what these are divided by.
SPEEDS = {name: (f"{name}_sum", f"{name}_count") for name in ("ttft", "itl", "e2e")}
#: With the time that requests are in flight for each output token.
LINES = {**SPEEDS, "held": ("held", "output")}
#: The load that decides on each: requests that wait make no step longer.
LOADS = {name: "running" if name == "itl" else "in_flight" for name in LINES}
_APART = 1.1  # ratio of two levels' loads by which they are two places of a line; convention: beyond the slots more levels run as many


@dataclass(frozen=True)
class Ratio:
    """A ratio of two sums over blocks of the time, its standard error, and the degrees of freedom of that.

    Requests of one moment are alike, so that thousands of them are fewer observations than they seem: the error follows from how far
    the blocks lie apart (batch means; Law, Simulation Modeling and Analysis, 2015, 9.5.3).
    """

    value: float
    error: float
    freedom: int

    @property
    def relative(self) -> float:
        """The standard error of its logarithm."""
        return self.error / self.value if self.value > 0 else math.inf


def ratio(above: Floats, below: Floats) -> Ratio | None:
    """The ratio of two sums over blocks; None below four blocks that have any of what is counted.

    Neighbouring blocks may be alike still: pairs of them are looked at too, and the wider error counts.
    """
    above, below = above[below > 0], below[below > 0]
    if len(below) < FEWEST_BLOCKS:
        return None
    value = float(above.sum() / below.sum())
    off, found = above - value * below, []
    for each in (off, off[: len(off) // 2 * 2].reshape(-1, 2).sum(axis=1)):
        if (count := len(each)) >= FEWEST_BLOCKS:
            found.append(Ratio(value, math.sqrt(float(each @ each) * count / (count - 1)) / float(below.sum()), count - 1))
    return max(found, key=lambda each: each.error * student_t(each.freedom))


def in_blocks(between: pl.DataFrame, begin: float, seconds: float) -> pl.DataFrame:
    """The rows of `served`, with their `block`, and `held` and `ran`, the time that requests were in flight and running (s)."""
    return between.with_columns(
        block=((pl.col("at_s") - begin) * BLOCKS / seconds).floor().clip(0, BLOCKS - 1).cast(pl.Int32),
        held=pl.col("in_flight") * pl.col("seconds"),
        ran=pl.col("running") * pl.col("seconds"),
    )


def sums(blocks: pl.DataFrame, above: str, below: str) -> tuple[Floats, Floats]:
    """Both sums by block, where both are known."""
    whole = blocks.drop_nulls([above, below]).group_by("block").agg(pl.col(above, below).sum()).sort("block")
    return whole[above].to_numpy().astype(float), whole[below].to_numpy().astype(float)


@dataclass(frozen=True)
class Line:
    """One latency of a study by load.

    Attributes:
        loads: requests in flight, or of ITL running, ascending. values: the latency there (s).
        errors: standard error of the logarithm of each, without what starts differ by. freedom: its degrees of freedom.
    """

    loads: Floats
    values: Floats
    errors: Floats
    freedom: int

    def at(self, loads: Floats) -> Floats:
        """On straight lines between the levels; beyond them, the value of the outermost (s)."""
        found: Floats = np.interp(loads, self.loads, self.values)
        return found

    def error(self, loads: Floats, weights: Floats) -> float:
        """The standard error of the logarithm of a weighted mean over loads: levels have errors of their own, which partly cancel."""
        levels = [float(np.interp(loads, self.loads, level) @ weights) for level in np.eye(len(self.loads))]
        return float(np.linalg.norm(self.errors * levels)) / float(weights.sum())


@dataclass(frozen=True)
class Studied:
    """What a study knows that production can be compared with; None where it is not known.

    Attributes:
        prompt, output: mean length (tokens). hits: mean prefix-cache hit rate of its runs (0–1); hits_error: standard error of that.
        loads: lowest and highest mean number of requests in flight. lines: by latency, and of `held`, the time in flight of an output
            token.
        sessions: starts of the server behind it. names: of metrics that it exposed.
    """

    prompt: float | None
    output: float | None
    hits: float | None
    hits_error: float
    loads: tuple[float, float] | None
    lines: Mapping[str, Line]
    sessions: int
    names: frozenset[str]


def read_studied(curve: Curve) -> Studied:
    """What the valid runs with a steady window showed, by the server's own counts there."""
    runs = curve.runs.filter(pl.col("valid") & pl.col("counts_valid")).drop_nulls(["steady_from_s", "steady_until_s"])
    ratios = {"in_flight": ("held", "seconds"), "running": ("ran", "seconds"), "hits": ("hits", "queries"), **LINES}
    schema = {name: pl.Float64 for each in ratios for name in (each, f"{each}_error")}
    rows, names = [], set[str]()
    for run in runs.iter_rows(named=True):
        if (telemetry := curve.telemetry(run)) is None:
            continue
        exposed = telemetry["name"].unique().to_list()
        names.update(exposed)
        samples = telemetry.with_columns(instance=pl.lit(""), at_s="elapsed_s").select(*SAMPLES)
        begin, end = run["steady_from_s"], run["steady_until_s"]
        between = served(samples.filter(pl.col("at_s").is_between(begin, end)), find_catalogue(exposed, curve.version))
        blocks, row = in_blocks(between, begin, end - begin), {"level": run["level"]}
        for name, columns in ratios.items():
            if each := ratio(*sums(blocks, *columns)):
                row |= {name: each.value, f"{name}_error": each.relative}
        rows.append(row)
    table = pl.DataFrame(rows, schema={"level": pl.Float64, **schema})
    loads, hits = table["in_flight"].drop_nulls(), table["hits"].drop_nulls()
    return Studied(
        prompt=runs["prompt_tokens"].mean(),  # type: ignore[arg-type]
        output=runs["output_tokens"].mean(),  # type: ignore[arg-type]
        hits=hits.mean(),  # type: ignore[arg-type]
        hits_error=float(hits.std() or 0.0) / max(1, len(hits)) ** 0.5,  # type: ignore[arg-type]
        loads=(loads.min(), loads.max()) if len(loads) else None,  # type: ignore[arg-type]
        lines={name: line for name in LINES if (line := _line(table, name)) is not None},
        sessions=max(1, runs["session"].n_unique()),
        names=frozenset(names),
    )


def _line(table: pl.DataFrame, name: str) -> Line | None:
    """A latency by load. A level's error is that of its runs' blocks, or by how far its runs differ where that is more.

    Levels at which as many requests run are one.
    """
    known = table.select("level", load=LOADS[name], value=name, error=f"{name}_error").drop_nulls()
    known = known.filter((pl.col("value") > 0) & (pl.col("load") > 0))
    if known.is_empty():
        return None
    log = pl.col("value").log()
    places = known.with_columns(place=(pl.col("load").mean().over("level").log() / math.log(_APART)).round())
    levels = places.group_by("place").agg(
        load=pl.col("load").mean(),
        log=log.mean(),
        squares=((log - log.mean()) ** 2).sum(),
        error=(pl.col("error") ** 2).mean().sqrt(),
        runs=pl.len(),
    )
    levels = levels.sort("load")
    freedom = int((levels["runs"] - 1).sum())
    apart = (float(levels["squares"].sum()) / freedom) ** 0.5 if freedom else 0.0
    errors = np.maximum(levels["error"].to_numpy(), max(LEAST_NOISE, apart)) / np.sqrt(levels["runs"].to_numpy())
    return Line(levels["load"].to_numpy(), np.exp(levels["log"].to_numpy()), errors, max(freedom, BLOCKS - 1))
