"""What the report concludes of each curve: what it carries, why not more, what would raise it, and how many a peak takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
from bench.analysis.capacity import load_text
from bench.analysis.economics import Prices
from bench.figures import Results
from bench.models import Geometry
from bench.study import Deployment

__all__ = ["Curve", "Findings", "findings"]


@dataclass(frozen=True)
class Curve:
    """One deployment under one workload.

    Attributes:
        point: row of `operating_points`; None without SLOs. saturation: row of `saturation`; None where no run can be trusted.
        limit: why it carries no more; None without SLOs. fleet: of `sized`; None without a peak, or where no load meets the SLOs.
        knee: row of `knees`. there: means at the operating point of `ttft_p50_s`, `ttft_p99_s`, its bound (null unless each run has
            one), `requests` of a run, `runs`, `profit_per_h` (USD), and `client_cpu_share` (of a core). burst: whether its arrivals are
            bursts. gpu: what a GPU of the fleet is called: a machine, where the engine runs on a CPU. measured: the operating point,
            for Little's law.
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
    burst: bool

    @property
    def carries(self) -> str:
        """Its capacity in a sentence."""
        point = self.point
        if point is None:
            return self._unjudged()
        match point["kind"]:
            case "unknown":
                return "No valid run, so its capacity is not known."
            case "unjudged":
                return f"{point['c_max_text']}. Answers that are not streamed have no TTFT, those of a single token no TPOT."
            case "unsettled":
                at = load_text(point["missed_at"], point["unit"])
                return f"No steady state, so its capacity is not known: at {at} {point['missed']}."
            case "below":
                at = load_text(point["missed_at"], point["unit"])
                return f"No measured load meets the SLOs: at {at}, the lowest, it misses {point['missed']}."
        if self.burst:
            return f"A burst of {load_text(point['c_max'], point['unit'])} meets the SLOs: C_max is {point['c_max_text']}."
        at = load_text(point["operate_at"], point["unit"])
        said = f"Carries {point['usable_rps']:.3g} requests/s at {at} ({self._between()})"
        if point["operate_at"] < point["c_max"]:
            return f"{said}. C_max is {point['c_max_text']}, and carries no more."
        return f"{said}. C_max is {point['c_max_text']}."

    def _between(self) -> str:
        """Within which bounds what it carries lies."""
        assert self.point
        low, high = self.point["usable_low"], self.point["usable_high"]
        if low is None and high is None:
            return "neither end of its 95 % interval is established"
        if low is None:
            return f"less than {high:.3g} at 95 % confidence, its lower end is not established"
        if high is None:
            return f"at least {low:.3g} at 95 % confidence, its upper end is not established"
        return f"{low:.3g} to {high:.3g} at 95 % confidence"

    @property
    def sure(self) -> str:
        """What C_max rests on, and what would narrow it; empty where there is none."""
        point = self.point
        if point is None or point["c_max"] is None:
            return ""
        runs = int(point["runs"])
        rests = f"C_max rests on {point['requests']:,.0f} requests in {runs} run{'s' if runs > 1 else ''}."
        low = f" {point['low_needs']}" if point["low_needs"] else ""
        high = f" {point['high_needs']}" if point["high_needs"] else ""
        burst = " A burst says nothing of a load that goes on: measure arrivals of a closed or open loop for requests/s and a fleet."
        return rests + low + high + (burst if self.burst else "")

    def _unjudged(self) -> str:
        """Without SLOs: where it saturates."""
        row = self.saturation
        if row is None:
            return "No run of which the server's counts can be trusted."
        full = (
            f"Its KV cache is full from {row['measured']:g} on"
            if row["measured"] is not None
            else "No load filled its KV cache"
        )
        return full + (f"; throughput is highest at {row['peak_at']:g}." if row["peak_at"] is not None else ".")

    @property
    def why(self) -> str:
        """Why it carries no more, with what it would miss."""
        assert self.limit
        assert self.point
        found = self.point["kind"] == "found" and self.limit.cause != "refusals"
        return self.limit.why + (f" It misses {self.point['missed']}." if found else "")

    @property
    def takes(self) -> str:
        """The fleet in a sentence; empty without one."""
        if self.fleet is None:
            return ""
        count, gpus = self.fleet["instances"], self.fleet["gpus"]
        bought = f"{gpus} {self.gpu}{'s' if gpus > 1 else ''}" if gpus is not None else "how many GPUs is not known"
        return (
            f"{count} instance{'s' if count > 1 else ''} for {self.fleet['peak_rps']:g} requests/s{self.at_most}; with the "
            f"safety factor {self.fleet['safety']:g}, {bought}."
        )

    @property
    def at_most(self) -> str:
        """Between how many instances the fleet lies, in brackets; what is not established is said to be so."""
        return _range(self.fleet, "instances") if self.fleet else ""


def _range(fleet: Mapping[str, Any], what: str) -> str:
    """The 95 % interval of a number of a fleet, such as ` (12 to 17)`."""
    least, most = fleet[f"{what}_least"], fleet[f"{what}_most"]
    if least is None and most is None:
        return " (neither end of the 95 % interval is established)"
    if most is None:
        return f" ({least:,} or more: the upper end of the 95 % interval is not established)"
    if least is None:
        return f" (at most {most:,}: the lower end of the 95 % interval is not established)"
    return f" ({least:,} to {most:,} at 95 % confidence)"


@dataclass(frozen=True)
class Findings:
    """Everything that the report concludes.

    Attributes:
        bands: each run, by `deployment/run`, on each monitoring band that it tells something of; band_names: the bands that any
        run is on. economics: rows of `best_points`. recovery: summary rows of runs with a step in their load.
    """

    curves: list[Curve]
    advice: list[Advice]
    predictions: list[Prediction]
    bands: dict[str, dict[str, Judged]]
    band_names: list[str]
    economics: list[dict[str, Any]]
    recovery: list[dict[str, Any]]


def findings(results: Results, geometries: Mapping[str, Geometry], deployments: Mapping[str, Deployment]) -> Findings:
    """What the results say.

    Args:
        geometries, deployments: by deployment, for the ceilings of speed; those that are missing have none.
    """
    runs = results.runs
    memory = results.device.memory if results.device else None
    bands = {
        f"{run['deployment']}/{run['run']}": judge({**run, "device_memory_bytes": memory}) for run in runs.iter_rows(named=True)
    }
    curves = _curves(results)
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


def _curves(results: Results) -> list[Curve]:
    key = ("deployment", "workload")
    points = {tuple(row[k] for k in key): row for row in results.points.iter_rows(named=True)}
    told = {tuple(row[k] for k in key): row for row in results.saturation.iter_rows(named=True)}
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
                saturation=told.get(at),
                limit=bottleneck(rows, point, results.decision.slos) if point else None,
                fleet=_fleet(results, measured) if measured else None,
                knee=bent[at],
                there=_there(rows, point),
                gpu="machine" if is_machine(first) else "GPU",
                measured=measured,
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
    columns = ("ttft_p50_s", "ttft_p99_s", "ttft_p99_bound_s", "requests", "profit_per_h", "client_cpu_share")
    at = rows.filter(pl.col("valid") & pl.col("level").is_in([point["operate_at"] if point else None]))
    steady = point is not None and point["basis"] == "steady"
    means: dict[str, Any] = {}
    for column in columns:
        source = f"steady_{column}" if steady and column.startswith("ttft") else column
        values = at[source]
        means[column] = None if column.endswith("bound_s") and values.null_count() else values.mean()
    return {**means, "runs": at.height}
