"""What the report says beyond tables, as codes and numbers: of each curve, and of the study."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from bench.findings.advice import advice
from bench.findings.ceilings import Ceiling, Server, ceilings
from bench.findings.economics import Prices, best_points, economics
from bench.findings.factors.decided import Decided, decided
from bench.findings.lengths import LengthCost, StreamingGain, length_costs, streaming_gains
from bench.findings.regions import knees
from bench.findings.settings import SettingGain, setting_gains
from bench.findings.sizing import OperatingPoint, is_machine, sized
from bench.findings.workers import Efficiency, efficiencies
from bench.models.catalogue import Accelerator
from bench.parse.windows import level_values
from bench.servers.settings import settings_in
from bench.statistics.percentiles import upper_bound
from bench.study.decision import Decision
from bench.study.questions import crossed_factors, several_settings, swept_length, with_and_without_streaming
from bench.workloads.workload import ALIKE

_ASKED = ("family", "workload", "model", "engine", "stream", "baseline", *ALIKE)
_CURVE = ("deployment", "workload")
Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class CurveFindings:
    """One deployment under one workload.

    Attributes:
        burst: whether its arrivals are bursts. machine: whether an instance is a machine with an engine on its CPU.
        knee: as `knees` has it. there: the values at the operating point of `ttft_p50_s`, `ttft_p99_s`, its bound (null
            without one), and `profit_per_h` (USD).
        measured: the operating point; None without SLOs, or where no load meets them. fleet: of `sized`; None without a peak, too.
    """

    deployment: str
    workload: str
    burst: bool
    machine: bool
    knee: float | None
    there: Mapping[str, float | None]
    measured: OperatingPoint | None
    fleet: Mapping[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What the report says beyond tables.

    Attributes:
        economics: rows of `best_points`.
        factors, lengths, streaming, settings: what answers those questions; empty where the runs do not ask them.
        efficiencies: of each fleet that was measured beside one of its replicas.
    """

    curves: tuple[CurveFindings, ...]
    advice: tuple[str, ...]
    ceilings: tuple[Ceiling, ...]
    economics: tuple[Mapping[str, Any], ...]
    factors: tuple[Decided, ...]
    lengths: tuple[LengthCost, ...]
    streaming: tuple[StreamingGain, ...]
    settings: tuple[SettingGain, ...]
    efficiencies: tuple[Efficiency, ...] = ()


def asked_of(runs: pl.DataFrame) -> list[dict[str, Any]]:
    """The runs by what tells which questions they ask, for the conditions in `bench.study.questions`."""
    return runs.select(*dict.fromkeys((*_ASKED, *settings_in(runs.columns)))).to_dicts()


def find(
    runs: pl.DataFrame,
    decision: Decision,
    device: Accelerator | None,
    servers: Mapping[str, Server],
    *,
    plain: pl.DataFrame,
    curves: pl.DataFrame,
    points: pl.DataFrame,
) -> Findings:
    """What the runs say.

    Args:
        device: that they ran on. servers: by deployment; those that are missing have no ceilings. plain, curves: of the runs, those
            that `plain_of` and `curves_of` give. points: of `operating_points`; none without SLOs.
    """
    asked = asked_of(runs)
    priced = economics(runs, Prices.of(decision, device)).join(
        curves, on=["deployment", "run"], how="semi", maintain_order="left"
    )
    return Findings(
        curves=_curves(priced, decision, device, points, knees(curves)),
        advice=tuple(advice(runs, points)),
        ceilings=tuple(ceilings(runs, servers, device)) if device else (),
        economics=tuple(best_points(priced).to_dicts()),
        factors=tuple(decided(runs)) if crossed_factors(asked) else (),
        lengths=tuple(length_costs(runs)) if swept_length(asked) else (),
        streaming=tuple(streaming_gains(runs)) if with_and_without_streaming(asked) else (),
        settings=tuple(setting_gains(plain)) if several_settings(asked) else (),
        efficiencies=tuple(efficiencies(plain, decision.slos, decision.failed_share)),
    )


def _curves(
    priced: pl.DataFrame,
    decision: Decision,
    device: Accelerator | None,
    points: pl.DataFrame,
    bent: Mapping[tuple[str, str], float],
) -> tuple[CurveFindings, ...]:
    known = {(row["deployment"], row["workload"]): row for row in points.iter_rows(named=True)}
    found = []
    for _, rows in priced.group_by(*_CURVE, maintain_order=True):
        first = rows.row(0, named=True)
        curve = (first["deployment"], first["workload"])
        point = known.get(curve)
        measured = OperatingPoint.of(point, first) if point else None
        found.append(
            CurveFindings(
                deployment=first["deployment"],
                workload=first["workload"],
                burst=first["arrival"] == "burst",
                machine=is_machine(first),
                knee=bent.get(curve),
                there=_there(rows, point),
                measured=measured,
                fleet=_fleet(measured, decision, device) if measured else None,
            )
        )
    return tuple(found)


def _fleet(measured: OperatingPoint, decision: Decision, device: Accelerator | None) -> dict[str, Any] | None:
    if decision.peak_rps is None:
        return None
    return sized(
        measured,
        decision.peak_rps,
        safety=decision.safety,
        slos=decision.slos,
        gpu_hour=Prices.of(decision, device).gpu_hour,
        token_price=decision.price_per_million_tokens,
    )


def _there(rows: pl.DataFrame, point: Row | None) -> dict[str, float | None]:
    """The values of a curve at its operating point. Args: rows: of `economics`, of the curve."""
    columns = ("ttft_p50_s", "ttft_p99_s", "profit_per_h")
    at = rows.filter(pl.col("valid") & pl.col("level").is_in([point["operate_at"] if point else None]))
    values: dict[str, Any] = next(level_values(at, columns).select(columns).iter_rows(named=True), dict.fromkeys(columns))
    judged = [each for run in at["judged"].to_list() for each in run or ()]
    bound = upper_bound(pl.Series([each["ttft"] if each["ok"] else math.inf for each in judged], dtype=pl.Float64), 0.99)
    return {**values, "ttft_p99_bound_s": None if bound is None or math.isinf(bound) else bound}
