"""The workers of a fleet: their shares, the fleet's efficiency, and their words."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from bench.axes import AXES
from bench.errors import count_text, shown_share
from bench.findings.capacity.judging import judged_levels, limits_of, unmeasured
from bench.findings.capacity.points import limit_ends
from bench.parse.fleet import Check, WorkerVerdict, workers_of_runs
from bench.report.blocks import Block, Column, Items, Section, Table, Text, cell_of_load
from bench.runs.sentences import filled
from bench.servers.settings import settings_in
from bench.statistics.limit import Belief
from bench.study.slo import Slo

if TYPE_CHECKING:
    from bench.findings.view import View

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

    The highest load within all criteria has a distribution for each of both (`bench.statistics.limit`), and their draws are
    independent: another start of another server measured them. Bursts have none, and of a load sweep that
    does not bound a limit the end that rests on it is not established.

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
    settled = [level for level in levels if not level.unsettled]
    if limit is None or not settled or any(unmeasured(level.rows, slo) for level in levels for slo in limits):
        return None
    low, high = limit_ends(limit, settled, whole=held)
    return _Limit(limit, low is not None, high is not None)


def _ratio(fleet: _Limit | None, one: _Limit | None, replicas: int) -> tuple[float | None, float | None, float | None]:
    """The middle and both ends of the distribution of fleet ÷ (replicas × one)."""
    if fleet is None or one is None:
        return None, None, None
    count = min(len(fleet.belief.limits), len(one.belief.limits))
    above = np.random.default_rng(1).permutation(fleet.belief.limits)[:count]
    below = np.random.default_rng(0).permutation(one.belief.limits)[:count]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = Belief(np.sort(np.nan_to_num(above / (replicas * below), nan=np.inf, posinf=np.inf)))
    low, high = ratio.interval
    middle = ratio.middle if fleet.low and fleet.high and one.low and one.high else None
    return middle, low if fleet.low and one.high else None, high if fleet.high and one.low else None


# In {runs} stand how many of the runs showed it.
_TEXTS: dict[Check, str] = {
    "silent": "{worker} was silent in {runs}[: no scrape for up to {value:.3g} s]. What the server counted is not known there.",
    "restarted": "{worker} was started again during {runs}. What the server counted is not known there.",
    "version": "{worker} runs version {value}, the others {usual}.",
}


def efficiency(found: Efficiency) -> str:
    """What a fleet sustains against as many times what one replica does."""
    whole = f"{found.replicas} times what {found.one} sustains"
    low, high = (None if end is None else shown_share(end) for end in (found.low, found.high))
    known = " and ".join(filter(None, [low and f"at least {low}", high and f"at most {high}"]))
    if found.value is not None:
        known = f"{shown_share(found.value)} ({low} to {high})"
    if not known:
        unknown = "is not known, as the measured loads do not bound both limits. Measure loads around both."
        return f"{found.fleet}, {found.workload}: its share of {whole} {unknown}"
    return f"{found.fleet}, {found.workload}: {found.replicas} replicas sustain {known} of {whole}."


def sentences(found: Mapping[str, Sequence[WorkerVerdict]]) -> list[str]:
    """What sets the workers of a deployment apart, a sentence for each worker and way; none where all are alike."""
    groups: dict[tuple[str, Check], list[WorkerVerdict]] = {}
    for each in itertools.chain(*found.values()):
        groups.setdefault((each.worker, each.check), []).append(each)
    told = []
    for (worker, check), same in groups.items():
        numbers = [each.value for each in same if isinstance(each.value, int | float)]
        value = max(numbers) if numbers else same[0].value
        words = {"worker": worker, "value": value, "usual": same[0].usual, "runs": count_text(len(same), "run", of=len(found))}
        told.append(filled(_TEXTS[check], words))
    return told


_WORKER = ("deployment", "workload", "family", "axis", "turns", "level")
_MEANS = ("running_mean", "waiting_mean", "kv_usage_mean", "prefix_hit_rate")


def worker_rows(runs: pl.DataFrame) -> list[dict[str, Any]]:
    """Each worker of a fleet at each level; none where there is a single one, which had all of the load.

    The shares of requests and of output tokens (0–1) that it had of its level's runs, the highest KV usage, and the means over runs of
    the other columns; null where no run has a value. Args: runs: rows of the summary with `workers`.
    """
    table = runs.select(*_WORKER, pl.col("workers")).explode("workers").unnest("workers")
    if table["worker"].n_unique() < 2:
        return []
    alike, counted = (*_WORKER, "role"), ("requests", "generation_tokens")
    each = table.group_by(*alike, "worker", maintain_order=True).agg(
        pl.col(counted).sum(),
        *(pl.col(name).null_count().alias(f"{name}_lacking") for name in counted),
        pl.col("kv_usage_peak").max(),
        pl.col(_MEANS).mean(),
        pl.col("version").first(),
    )
    shares = [
        pl.when(pl.col(f"{name}_lacking").sum().over(alike) == 0, pl.col(name).sum().over(alike) > 0)
        .then(pl.col(name) / pl.col(name).sum().over(alike))
        .alias(f"{name}_share")
        for name in counted
    ]
    return each.with_columns(shares).sort("workload", "axis", "level", maintain_order=True).to_dicts()


_COLUMNS = (
    Column("workload", "workload"),
    Column("load", "load"),
    Column("worker", "worker"),
    Column("requests", "requests_share", "%.0f %%", 100),
    Column("output tokens", "generation_tokens_share", "%.0f %%", 100),
    Column("running", "running_mean", "%.3g"),
    Column("waiting", "waiting_mean", "%.3g"),
    Column("KV usage, mean", "kv_usage_mean", "%.0f %%", 100),
    Column("KV usage, peak", "kv_usage_peak", "%.0f %%", 100),
    Column("prefix-cache hit rate", "prefix_hit_rate", "%.0f %%", 100),
    Column("version", "version"),
)
_MEANING = (
    "Requests and output tokens: the worker's share of what the fleet, or the workers of its role (prefill, decode), counted at this "
    "load. Running and waiting: requests, in the mean over the load. A dash: not reported."
)


def section(view: View) -> Section:
    """Of each deployment with several workers what sets them apart, and what each had of the load."""
    known = view.results.runs.filter(pl.col("workers").is_not_null())
    said: list[Block] = []
    tables: list[Block] = []
    rows: list[dict[str, object]] = []
    for name, apart in workers_of_runs(known, view.thresholds.scrape_gap_s).items():
        measured = [each for each in view.results.analysis.findings.efficiencies if each.fleet == name]
        said.append(Items([*map(efficiency, measured), *sentences(apart)]))
        rows = [{**row, "load": cell_of_load(row)} for row in worker_rows(known.filter(deployment=name))]
        tables += [said[-1], Table(f"What each worker of {name} had of the load", _COLUMNS, rows)]
    if rows:
        tables.append(Text(_MEANING))
    return Section("workers", "Workers of a fleet", tables, short=said)
