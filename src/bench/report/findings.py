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
    instances_for,
    judge,
    knees,
    predictions,
    sized,
)
from bench.analysis.bands import Judged
from bench.analysis.economics import Prices
from bench.analysis.slo import load_text
from bench.figures import Results
from bench.models import Geometry
from bench.study import Deployment

__all__ = ["Curve", "Findings", "findings"]


_NOISE = {
    "repeats": "from this curve's repeats",
    "others": "from repeats of the workload's other deployments",
    "neighbours": "from how far levels lie off their neighbours",
}


@dataclass(frozen=True)
class Curve:
    """One deployment under one workload.

    Attributes:
        point: row of `operating_points`; None without SLOs. saturation: row of `saturation`; None where no run can be trusted.
        limit: why it carries no more; None without SLOs. fleet: of `sized`; None without a peak, or where no load meets the SLOs.
        knee: row of `knees`. there: means at the operating point of `ttft_p50_s`, `ttft_p99_s`, its bound (null unless each run has
            one), `requests` of a run, `runs`, and `profit_per_h` (USD). burst: whether its arrivals are bursts. gpu: what a GPU of the
            fleet is called: a machine, where the engine runs on a CPU. measured: the operating point, for Little's law.
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
        if point["kind"] == "unknown":
            return "No valid run: nothing is told."
        if point["kind"] == "unjudged":
            return f"{point['told']}. Answers that are not streamed have no TTFT, those of a single token no TPOT."
        if point["kind"] == "below":
            at = load_text(point["missed_at"], point["unit"])
            return f"No measured load meets the SLOs: at {at}, the lowest, it misses {point['missed']}."
        said = f"Carries {point['usable_rps']:.3g} requests/s at {load_text(point['operate_at'], point['unit'])}"
        if point["operate_at"] < point["c_max"]:
            return f"{said}, the most up to C_max, which is {point['told']}."
        return f"{said}: C_max is {point['told']}."

    @property
    def sure(self) -> str:
        """How sure C_max is, in a sentence or two; empty where there is none."""
        point = self.point
        if point is None or point["c_max"] is None:
            return ""
        runs, met = int(point["runs"]), int(point["runs_met"])
        share = (
            f"{met} of {runs} runs there met"
            if runs > 1
            else "One run there, which met"
            if met
            else "One run there, which missed"
        )
        told = f"{share} the SLOs by {'themselves' if runs > 1 else 'itself'}."
        if point["high"] is None or (point["missed_at"] is not None and point["high"] > point["missed_at"]):
            told += f" {point['missed_at']:g} is not surely too much." if point["missed_at"] is not None else ""
        noise = f" A run's noise: {point['noise']:.0%}, {_NOISE[point['noise_of']]}." if point["low"] is not None else ""
        return told + noise

    def _unjudged(self) -> str:
        """Without SLOs: where it saturates."""
        row = self.saturation
        if row is None:
            return "No run whose content can be trusted: nothing is told."
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
        told = self.point["kind"] == "found"
        missed = f" At {self.point['missed_at']:g} it misses {self.point['missed']}." if told else ""
        return self.limit.why + missed

    @property
    def takes(self) -> str:
        """The fleet in a sentence; empty without one."""
        if self.fleet is None:
            return ""
        count, gpus = self.fleet["instances"], self.fleet["gpus"]
        return (
            f"{count} instance{'s' if count > 1 else ''} for {self.fleet['peak_rps']:g} requests/s{self.at_most}; with the "
            f"safety factor {self.fleet['safety']:g}, {gpus} {self.gpu}{'s' if gpus > 1 else ''}."
        )

    @property
    def at_most(self) -> str:
        """How many instances it takes if C_max is the lower end of its interval, in brackets; empty where that is no other number."""
        low = self.point["usable_low"] if self.point else None
        if self.fleet is None or not low:
            return ""
        count = instances_for(self.fleet["peak_rps"], low)
        return f" ({count} if C_max is {self.point['low']:g})" if self.point and count > self.fleet["instances"] else ""


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
    return Findings(
        curves=_curves(results),
        advice=advice(runs, results.saturation, results.points),
        predictions=predictions(
            runs, results.saturation, geometries=geometries, deployments=deployments, device=results.device
        ),
        bands=bands,
        band_names=[name for name in BANDS if any(name in judged for judged in bands.values())],
        economics=best_points(results.priced.join(results.curves, on=["deployment", "run"], how="semi")).to_dicts(),
        recovery=runs.filter(pl.col("recovered").is_not_null()).to_dicts() if "recovered" in runs.columns else [],
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
                gpu="machine" if first["device"] == "cpu" else "GPU",
                measured=measured,
                burst=first["arrival"] == "burst",
            )
        )
    return curves


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
    columns = ("ttft_p50_s", "ttft_p99_s", "ttft_p99_bound_s", "requests", "profit_per_h")
    at = rows.filter(pl.col("valid") & pl.col("level").is_in([point["operate_at"] if point else None]))
    told: dict[str, Any] = {column: at[column].mean() if column in at.columns else None for column in columns}
    if "ttft_p99_bound_s" in at.columns and at["ttft_p99_bound_s"].null_count():
        told["ttft_p99_bound_s"] = None
    return {**told, "runs": at.height}
