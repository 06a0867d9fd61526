"""What several replicas behind a router sustain, against as many times what one does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from bench.analysis.belief import Belief
from bench.analysis.capacity import limit_ends
from bench.analysis.judging import judged_levels, limits_of, unmeasured
from bench.axes import AXES
from bench.servers.settings import settings_in
from bench.study.slo import Slo

_OF_A_FLEET = {"replicas", "router", "balance"}


@dataclass(frozen=True)
class Efficiency:
    """A fleet beside one of its replicas, under the same workload.

    Attributes:
        fleet, one: the deployments. replicas: of the fleet. value: C_max of the fleet ÷ (replicas × C_max of one), the middle of its
            distribution; low, high: its 95 % interval. Each is None where it is not established.
    """

    workload: str
    fleet: str
    one: str
    replicas: int
    value: float | None
    low: float | None
    high: float | None


def efficiencies(runs: pl.DataFrame, slos: Sequence[Slo], failed_share: float = 0.01) -> list[Efficiency]:
    """Each fleet of a study beside the deployment that differs from it in `replicas`, `router` and `balance` alone: of several
    the one with the fleet's router, or else with another one.

    The highest load within all criteria has a distribution for each of both (`bench.analysis.belief`), and their draws are independent:
    another start of another server measured them. Bursts have none, and of a load sweep that does not bound a limit the end that rests
    on it is not established.

    Args:
        runs: as of `operating_points`, with the settings of deployments.
    """
    found = []
    keys = ["model", "engine", "workload", "axis", *(name for name in settings_in(runs.columns) if name not in _OF_A_FLEET)]
    held = runs.filter(pl.col("arrival") != "burst")
    if not set(held.columns) >= _OF_A_FLEET:
        return []
    for _, group in held.group_by(keys, maintain_order=True):
        sides = group.partition_by("deployment", maintain_order=True)
        alone = [side for side in sides if side["replicas"][0] == 1]
        for fleet in sides:
            replicas = fleet["replicas"][0]
            if alone and replicas is not None and replicas > 1:
                one = min(alone, key=lambda side: (side["router"][0] != fleet["router"][0], side["router"][0] is None))
                names = (str(fleet["workload"][0]), str(fleet["deployment"][0]), str(one["deployment"][0]))
                ratio = _ratio(_limit(fleet, slos, failed_share), _limit(one, slos, failed_share), replicas)
                found.append(Efficiency(*names, int(replicas), *ratio))
    return found


@dataclass(frozen=True)
class _Limit:
    """The highest load within all criteria. Attributes: low, high: whether measured loads bound it from below, and from above."""

    belief: Belief
    low: bool
    high: bool


def _limit(runs: pl.DataFrame, slos: Sequence[Slo], failed_share: float) -> _Limit | None:
    limits, held, valid = limits_of(runs, slos), AXES[runs["axis"][0]].held, runs.filter("valid").to_dicts()
    if not valid or (not limits and held):
        return None
    levels, limit = judged_levels(valid, limits, failed_share)
    if any(unmeasured(level.rows, slo) for level in levels for slo in limits):
        return None
    settled = [level for level in levels if level.unsettled is None]
    if limit is None or not settled:
        return None
    low, high = limit_ends(limit, settled, whole=held)
    return _Limit(limit, low is not None, high is not None)


def _ratio(fleet: _Limit | None, one: _Limit | None, replicas: int) -> tuple[float | None, float | None, float | None]:
    """The middle and both ends of the distribution of fleet ÷ (replicas × one)."""
    if fleet is None or one is None:
        return None, None, None
    above, below = fleet.belief.limits, np.random.default_rng(0).permutation(one.belief.limits)
    count = min(len(above), len(below))
    above = np.random.default_rng(1).permutation(above)[:count]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = above / (replicas * below[:count])
    ratio = Belief(np.sort(np.nan_to_num(ratio, nan=np.inf, posinf=np.inf)))
    low, high = ratio.interval
    middle = ratio.middle if fleet.low and fleet.high and one.low and one.high else None
    return middle, low if fleet.low and one.high else None, high if fleet.high and one.low else None
