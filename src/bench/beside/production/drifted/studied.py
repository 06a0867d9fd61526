"""What a study measured of a server, by the requests that it held: the latencies of its levels, and between them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

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


class Quantity(NamedTuple):
    """What is compared: a ratio of two columns of `in_blocks`.

    Attributes:
        name: for readers. above, below: the columns. unit: empty for a ratio of tokens, `0–1` for a share.
        load: of a latency, the column with the load that decides on it: requests that wait make no step longer.
    """

    name: str
    above: str
    below: str
    unit: str
    load: str = ""


LOAD = Quantity("requests in flight, a server", "held", "seconds", "requests")
LENGTHS = (Quantity("prompt length", "prompt", "requests", "tokens"), Quantity("output length", "output", "requests", "tokens"))
HITS = Quantity("prefix-cache hit rate", "hits", "queries", "0–1")
TTFT = Quantity("TTFT, mean", "ttft_sum", "ttft_count", "s", "in_flight")
ITL = Quantity("ITL, mean", "itl_sum", "itl_count", "s", "running")
E2E = Quantity("E2E, mean", "e2e_sum", "e2e_count", "s", "in_flight")
# Of engines that count no requests; the first hides lengths that grow alike.
MIXED = Quantity("prompt ÷ output tokens", "prompt", "output", "")
HELD = Quantity("time in flight for an output token", "held", "output", "s", "in_flight")
LATENCIES = (TTFT, ITL, E2E, HELD)


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


def ratio_of(blocks: pl.DataFrame, above: str, below: str) -> Ratio | None:
    """The ratio of two columns, where both are known."""
    whole = blocks.drop_nulls([above, below]).group_by("block").agg(pl.col(above, below).sum()).sort("block")
    return ratio(whole[above].to_numpy(), whole[below].to_numpy())


@dataclass(frozen=True)
class Line:
    """One latency of a study by load.

    Attributes:
        loads: requests in flight, or of ITL running, ascending. values: the latency there (s).
        errors: standard error of the logarithm of each, without what starts differ by.
    """

    loads: Floats
    values: Floats
    errors: Floats

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
        means: of lengths, their ratio and prefix-cache hits, by the quantity's name. loads: lowest and highest mean number of requests
            in flight. lines: latencies, by name. sessions: starts of the server behind it. names: of metrics that it exposed.
    """

    means: Mapping[str, float | None]
    loads: tuple[float, float] | None
    lines: Mapping[str, Line]
    sessions: int
    names: frozenset[str]


def read_studied(curve: Curve) -> Studied:
    """What the valid runs with a steady window showed: lengths by the client, all else by the server's own counts there."""
    runs = curve.runs.filter(pl.col("valid") & pl.col("counts_valid")).drop_nulls(["steady_from_s", "steady_until_s"])
    ratios = {"in_flight": ("held", "seconds"), "running": ("ran", "seconds"), HITS.name: HITS[1:3]}
    ratios |= {latency.name: latency[1:3] for latency in LATENCIES}
    rows, names = [], set[str]()
    for run in runs.iter_rows(named=True):
        if (telemetry := curve.telemetry(run)) is None:
            continue
        exposed = telemetry["name"].unique().to_list()
        names.update(exposed)
        samples = telemetry.with_columns(instance=pl.lit(""), at_s="elapsed_s").select(*SAMPLES)
        begin, end = run["steady_from_s"], run["steady_until_s"]
        between = served(samples.filter(pl.col("at_s").is_between(begin, end)), find_catalogue(exposed, curve.version))
        blocks = in_blocks(between, begin, end - begin)
        found = {name: each for name, columns in ratios.items() if (each := ratio_of(blocks, *columns))}
        values = {name: each.value for name, each in found.items()}
        rows.append({"level": run["level"], **values, **{f"{name}_error": each.relative for name, each in found.items()}})
    table = pl.DataFrame(rows, schema=dict.fromkeys(("level", *ratios, *(f"{name}_error" for name in ratios)), pl.Float64))
    prompt, output, hits = runs["prompt_tokens"].mean(), runs["output_tokens"].mean(), table[HITS.name].mean()
    mixed = prompt / output if prompt and output else None  # type: ignore[operator]
    names_of = (*(length.name for length in LENGTHS), MIXED.name, HITS.name)
    loads = table["in_flight"].drop_nulls()
    return Studied(
        means=dict(zip(names_of, (prompt, output, mixed, hits), strict=True)),  # type: ignore[arg-type]
        loads=(loads.min(), loads.max()) if len(loads) else None,  # type: ignore[arg-type]
        lines={latency.name: line for latency in LATENCIES if (line := _line(table, latency)) is not None},
        sessions=max(1, runs["session"].n_unique()),
        names=frozenset(names),
    )


def _line(table: pl.DataFrame, latency: Quantity) -> Line | None:
    """A latency by load, of a level's runs together."""
    known = table.select("level", load=latency.load, value=latency.name, error=f"{latency.name}_error").drop_nulls()
    known = known.filter((pl.col("value") > 0) & (pl.col("load") > 0))
    error = (pl.max_horizontal("error", pl.lit(LEAST_NOISE)).pow(2).mean() / pl.len()).sqrt()
    levels = known.group_by("level").agg(pl.col("load").mean(), pl.col("value").log().mean().exp(), error=error)
    levels = levels.sort("load", "level")  # beyond the slots more levels run as many
    return Line(*(levels[column].to_numpy() for column in ("load", "value", "error"))) if len(levels) else None
