"""Where a throughput curve turns: the end of proportional growth, and the load from which more buys nothing.

Region A, spare capacity, ends at the equilibrium point; region B, shared capacity, at the saturation point; region C is overload.
Measured levels are compared with one another: no form is fitted, and nothing is concluded of loads that were not measured.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from bench.analysis.levels import Floats, Levels
from bench.analysis.windows import with_rates_of_windows
from bench.axes import AXES
from bench.statistics import isotonic

FEWEST_LEVELS = 4  # fewest levels of a curve with regions; derived: of three, each would be its own region
# share of the lowest level's throughput a request that is kept up to the equilibrium point; measured: docs/explanation/regions.md:
# with 5 % noise, 90 % is inside the error of one comparison
PROPORTIONAL = 0.8
FLAT = 0.9  # share of any higher level's throughput from which a curve is flat; convention
Kind = Literal["peak", "flat", "left", "above", "below", "unknown"]
_SCHEMA = {
    **{"deployment": pl.String, "workload": pl.String, "levels": pl.Int64},
    **{"top": pl.Float64, "noise": pl.Float64, "noise_of": pl.String},
    **{f"{point}_{key}": pl.Float64 for point in ("equilibrium", "saturation") for key in ("at", "low", "high")},
    **{f"{point}_{key}": pl.String for point in ("equilibrium", "saturation") for key in ("kind", "why")},
}


@dataclass(frozen=True)
class Point:
    """A turning point of a curve, or why there is none.

    Attributes:
        kind: `peak` or `flat` (found, with a fall after it or without), `left` (found: proportional growth left), `above` or
            `below` what was measured, `unknown`.
        at: the load; null unless found. low, high: the levels between which it lies, 95 times in 100; null where a side is open.
        why: what hides it, where it is unknown: `few` levels, tokens that are `uncounted`, `noise`, or `disorder`: throughput (for the
            equilibrium, that of a request) falls and comes back.
    """

    kind: Kind
    at: float | None = None
    low: float | None = None
    high: float | None = None
    why: Literal["few", "uncounted", "noise", "disorder"] | None = None


_FEW = Point("unknown", why="few")
_UNCOUNTED = Point("unknown", why="uncounted")
_COLUMN = "throughput_tokens_per_s"


def regions(runs: pl.DataFrame) -> pl.DataFrame:
    """The equilibrium and saturation point of each curve, each with its interval, or the reason why there is none.

    Args:
        runs: summary rows (`deployment`, `workload`, `axis`, `level`, `repeat`, `valid` and `throughput_tokens_per_s`, which is that
            of the steady windows where each valid run of a curve has one); invalid runs are left out.

    Returns:
        One row a deployment and workload: `levels` (their number), `top` (the highest), `noise` (of one run, relative) and `noise_of`,
        as `Levels` has it; of `equilibrium` and `saturation` the `…_kind`, `…_why`, `…_at`, `…_low` and `…_high` (in the load's
        unit), as `Point` has them.
    """
    rows = []
    runs = with_rates_of_windows(runs, _COLUMN)
    for (deployment, workload), group in runs.group_by("deployment", "workload", maintain_order=True):
        others = runs.filter((pl.col("workload") == workload) & (pl.col("deployment") != deployment))
        levels = Levels.of(group, _COLUMN, others.partition_by("deployment"))
        few = len(levels) < FEWEST_LEVELS
        first, second = equilibrium(levels, whole=AXES[group["axis"][0]].held), saturation_point(levels)
        if not len(levels) and group["valid"].any() and group[_COLUMN].null_count() == len(group):
            first = second = _UNCOUNTED
        if first.at is not None and second.at is not None and (first.low or 0) <= second.at < first.at:
            first = replace(first, at=second.at)  # it is proportional as long as it grows
        rows.append(
            {
                "deployment": deployment,
                "workload": workload,
                "levels": len(levels),
                "top": float(levels.load[-1]) if len(levels) else None,
                "noise": None if few else levels.noise,
                "noise_of": None if few else levels.noise_of,
                **_columns("equilibrium", first),
                **_columns("saturation", second),
            }
        )
    return pl.DataFrame(rows, schema=_SCHEMA)


def equilibrium(levels: Levels, *, whole: bool) -> Point:
    """Where growth stops being proportional: each request gets less than 80 % of the throughput that one at the lowest level gets.

    The interval reaches from the highest level that keeps significantly more than 80 % to the lowest that keeps significantly less.
    Within it, the point is where the line through load ÷ throughput (never falling: neighbours out of order are averaged) crosses
    1 / 80 % of its first value.

    Args:
        whole: loads are numbers of requests. One request alone is then proportional by definition; any other lowest level must be
            less than half the point, for it may lie beyond the proportional part itself.
    """
    if len(levels) < FEWEST_LEVELS:
        return _FEW
    load = levels.load
    kept = levels.log - np.log(load)
    kept = kept - kept[0] - np.log(PROPORTIONAL)
    margin = levels.sure * levels.errors[0]
    margin[0] = 0.0  # the lowest level is the measure
    keeps, loses = np.flatnonzero(kept > margin), np.flatnonzero(kept < -margin)
    low = float(load[keeps.max()])
    if not len(loses):
        if keeps.max() == len(load) - 1:
            return Point("above", low=low)
        return Point("unknown", low=low, why="noise")
    high = float(load[loses.min()])
    if high <= low:
        return Point("unknown", why="disorder")
    time = np.exp(-isotonic(levels.log - np.log(load), levels.runs, rising=False))
    at = min(max(_crossing(load, time, time[0] / PROPORTIONAL), low), high)
    if at <= 2 * load[0] and not (whole and load[0] == 1):
        return Point("below", high=high)
    return Point("left", at, low, high)


def saturation_point(levels: Levels) -> Point:
    """Where more load stops buying throughput: the peak, where a significant fall follows; else the begin of a flat top.

    A level is before the peak if a higher one gives significantly more, after it if a lower one does: the peak lies between. Without
    a fall, a top is flat from the lowest level whose throughput every higher one exceeds by significantly less than 1 / 90 %, if it
    reaches to twice that load: doubling it buys less than 11 %. It begins where the line through the levels reaches 90 % of the top
    level, between the highest level that a higher one exceeds by significantly more than 1 / 90 % and that lowest one.
    """
    if len(levels) < FEWEST_LEVELS:
        return _FEW
    load, top = levels.load, float(levels.load[-1])
    more = levels.more()
    after, low = np.flatnonzero(np.tril(more).any(axis=1)), _highest(load, np.triu(more))
    if len(after):
        high = float(load[after[0]])
        if low is not None and low >= high:
            return Point("unknown", why="disorder")
        if after[0] == 1:
            return Point("below", high=high)
        between = (load < high) & (load >= (low or 0.0))
        return Point("peak", float(load[between][np.argmax(levels.log[between])]), low, high)
    much = np.triu(levels.more(1 / FLAT))
    low, flat = _highest(load, much), _flat_from(levels)
    if flat is not None and top >= 2 * load[flat]:
        rising = np.exp(isotonic(levels.log, levels.runs))
        at, high = _crossing(load, rising, FLAT * rising[-1]), float(load[flat])
        return Point("flat", min(max(at, low or 0.0), high), low, high)
    near = min(int(np.searchsorted(load, top / 2)), len(load) - 2)
    if much[near:-1, -1].any() and np.argmax(levels.log) == len(load) - 1:
        return Point("above", low=low)
    return Point("unknown", low=low, why="noise")


def _highest(load: Floats, any_of: npt.NDArray[np.bool_]) -> float | None:
    """The highest load with a true value in its row."""
    rows = np.flatnonzero(any_of.any(axis=1))
    return float(load[rows[-1]]) if len(rows) else None


def _flat_from(levels: Levels) -> int | None:
    """The lowest level that each higher one exceeds by significantly less than 1 / 90 %; all must, so each is tested by itself."""
    gain = levels.log[None, :] - levels.log[:, None] + levels.sure * levels.errors
    within = [i for i in range(len(levels) - 1) if (gain[i, i + 1 :] < -np.log(FLAT)).all()]
    return within[0] if within else None


def _crossing(load: Floats, values: Floats, goal: float) -> float:
    """The load at which the line through `values`, which never fall, reaches `goal`; the last load if it does not."""
    i = int(np.searchsorted(values, goal))
    if i == 0 or i == len(load):
        return float(load[min(i, len(load) - 1)])
    return float(load[i - 1] + (goal - values[i - 1]) / (values[i] - values[i - 1]) * (load[i] - load[i - 1]))


def _columns(name: str, point: Point) -> dict[str, float | str | None]:
    return {f"{name}_{key}": value for key, value in asdict(point).items()}
