"""What the report concludes of each curve: what it carries, why not more, what would raise it, and how many a peak takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from bench.analysis import (
    BANDS,
    Advice,
    Bottleneck,
    OperatingPoint,
    Prediction,
    advice,
    best_points,
    bottleneck,
    is_machine,
    judge,
    knees,
    predictions,
    sized,
)
from bench.analysis.bands import Judged
from bench.analysis.economics import Prices
from bench.figures import Results
from bench.models import Geometry
from bench.records.searches import SearchRecord
from bench.study import Deployment
from bench.words import capacity, causes, fleet, searches

__all__ = ["Curve", "Findings", "findings"]


@dataclass(frozen=True)
class Curve:
    """One deployment under one workload.

    Attributes:
        point: row of `operating_points`; None without SLOs. saturation: row of `saturation`; None where no run can be trusted.
        limit: why it carries no more; None without SLOs. fleet: of `sized`; None without a peak, or where no load meets the SLOs.
        knee: row of `knees`. there: means at the operating point of `ttft_p50_s`, `ttft_p99_s`, its bound (null unless each run has
            one), and `profit_per_h` (USD). searched: what a search for the decision's SLOs found; None without one. burst: whether its
            arrivals are bursts. gpu: what a GPU of the fleet is called: a machine, where the engine runs on a CPU. measured: the
            operating point, for Little's law.
    """

    deployment: str
    workload: str
    name: str
    point: Mapping[str, Any] | None
    saturation: Mapping[str, Any] | None
    limit: Bottleneck | None
    fleet: Mapping[str, Any] | None
    knee: Mapping[str, Any]
    there: Mapping[str, float | None]
    gpu: str
    measured: OperatingPoint | None
    searched: SearchRecord | None
    burst: bool

    @property
    def carries(self) -> str:
        """Its capacity in a sentence."""
        return capacity.carries(self.point, burst=self.burst) if self.point else capacity.full_cache(self.saturation)

    @property
    def c_max(self) -> str:
        """C_max with its bounds; empty without SLOs."""
        return capacity.c_max(self.point) if self.point else ""

    @property
    def sure(self) -> str:
        """How much was measured at C_max, and what would narrow its bounds or those of a search; empty where there is none."""
        if self.searched:
            return f"A search puts the limit at {searches.search_limit(self.searched)}: {searches.search_ended(self.searched)}."
        return capacity.evidence(self.point) if self.point else ""

    @property
    def why(self) -> str:
        """Why it carries no more, with what it would miss."""
        assert self.limit
        assert self.point
        found = self.point["kind"] == "found" and self.limit.cause != "refusals"
        return (causes.why(self.limit) + (f" It misses {capacity.missed(self.point)}." if found else "")).strip()

    @property
    def remedy(self) -> str:
        """What would raise it; empty where nothing follows."""
        if self.limit is None or (self.limit.cause == "none" and self.searched):  # the search has looked further
            return ""
        return causes.remedy(self.limit)

    @property
    def contradiction(self) -> str:
        """That load, latency and rate contradict one another; empty where they do not, or nothing is known."""
        if self.measured is None or self.measured.little is None or self.measured.consistent:
            return ""
        return fleet.little(self.measured.little)

    @property
    def takes(self) -> str:
        """The fleet in a sentence; empty without one."""
        return fleet.takes(self.fleet, self.gpu)

    @property
    def at_most(self) -> str:
        """Between how many instances the fleet lies, in brackets; what is not established is said to be so."""
        return fleet.interval(self.fleet, "instances")


@dataclass(frozen=True)
class Findings:
    """Everything that the report concludes.

    Attributes:
        bands: each run, by `deployment/run`, on each monitoring band of which it shows something; band_names: the bands that any
        run is on. economics: rows of `best_points`. recovery: summary rows of runs with a step in their load.
    """

    curves: list[Curve]
    advice: list[Advice]
    predictions: list[Prediction]
    bands: dict[str, dict[str, Judged]]
    band_names: list[str]
    economics: list[dict[str, Any]]
    recovery: list[dict[str, Any]]

    @property
    def of_bursts(self) -> str:
        """What bursts do not show; empty where there are none."""
        return capacity.BURSTS if any(curve.burst for curve in self.curves) else ""


def findings(
    results: Results,
    geometries: Mapping[str, Geometry],
    deployments: Mapping[str, Deployment],
    searched: Iterable[tuple[str, SearchRecord]] = (),
) -> Findings:
    """What the results say.

    Args:
        geometries, deployments: by deployment, for the ceilings of speed; those that are missing have none.
        searched: the deployment of each search, and what it found.
    """
    runs = results.runs
    memory = results.device.memory if results.device else None
    bands = {
        f"{run['deployment']}/{run['run']}": judge({**run, "device_memory_bytes": memory}) for run in runs.iter_rows(named=True)
    }
    curves = _curves(results, replace(results, searches=tuple(searched)).limits)
    causes = {(curve.deployment, curve.workload): curve.limit.cause for curve in curves if curve.limit}
    return Findings(
        curves=curves,
        advice=advice(runs, results.saturation, results.points, causes),
        predictions=predictions(
            runs, results.saturation, geometries=geometries, deployments=deployments, device=results.device
        ),
        bands=bands,
        band_names=[name for name in BANDS if any(name in judged for judged in bands.values())],
        economics=best_points(results.priced.join(results.curves, on=["deployment", "run"], how="semi")).to_dicts(),
        recovery=runs.filter(pl.col("recovered").is_not_null()).to_dicts(),
    )


def _curves(results: Results, searched: Mapping[tuple[str, str], SearchRecord]) -> list[Curve]:
    key = ("deployment", "workload")
    points = {tuple(row[k] for k in key): row for row in results.points.iter_rows(named=True)}
    saturates = {tuple(row[k] for k in key): row for row in results.saturation.iter_rows(named=True)}
    bent = {tuple(row[k] for k in key): row for row in knees(results.curves).iter_rows(named=True)}
    priced = results.priced.join(results.curves, on=["deployment", "run"], how="semi", maintain_order="left")
    curves = []
    for at, rows in priced.group_by(*key, maintain_order=True):
        deployment, workload = map(str, at)
        first, point = rows.row(0, named=True), points.get(at)
        measured = OperatingPoint.of(point, first) if point else None
        curves.append(
            Curve(
                deployment=deployment,
                workload=workload,
                name=f"{deployment} · {workload}" if results.several_workloads else deployment,
                point=point,
                saturation=saturates.get(at),
                limit=bottleneck(rows, point, results.decision.slos) if point else None,
                fleet=_fleet(results, measured) if measured else None,
                knee=bent[at],
                there=_there(rows, point),
                gpu="machine" if is_machine(first) else "GPU",
                measured=measured,
                searched=searched.get((deployment, workload)),
                burst=first["arrival"] == "burst",
            )
        )
    return sorted(curves, key=lambda curve: curve.burst)  # what a decision can rest on comes first


def _fleet(results: Results, measured: OperatingPoint) -> dict[str, Any] | None:
    decision = results.decision
    if decision.peak_rps is None:
        return None
    return sized(
        measured,
        decision.peak_rps,
        safety=decision.safety,
        slos=decision.slos,
        gpu_hour=Prices.of(decision, results.device).gpu_hour,
        token_price=decision.price_per_million_tokens,
    )


def _there(rows: pl.DataFrame, point: Mapping[str, Any] | None) -> dict[str, float | None]:
    """Means of a curve's runs at its operating point.

    Args:
        rows: of `economics`, of the curve.
    """
    columns = ("ttft_p50_s", "ttft_p99_s", "ttft_p99_bound_s", "profit_per_h")
    at = rows.filter(pl.col("valid") & pl.col("level").is_in([point["operate_at"] if point else None]))
    steady = point is not None and point["basis"] == "steady"
    means: dict[str, Any] = {}
    for column in columns:
        source = f"steady_{column}" if steady and column.startswith("ttft") else column
        values = at[source]
        means[column] = None if column.endswith("bound_s") and values.null_count() else values.mean()
    return means
