"""What is known of one curve, in words: what it sustains, why not more, what would raise it, and how many a peak takes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from bench.errors import listed
from bench.findings import causes, fleet
from bench.findings.capacity import words as capacity
from bench.findings.causes import Bottleneck
from bench.findings.economics import gpu_hour
from bench.findings.sizing import OperatingPoint, is_machine, sized
from bench.findings.tables import Tables
from bench.models.catalogue import Accelerator
from bench.parse.windows import level_values
from bench.runs.searches import SearchRecord
from bench.search import words as searches
from bench.statistics.percentiles import upper_bound
from bench.study.decision import Decision

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Curve:
    """One deployment under one workload, and what is known of it in words, each empty where nothing is.

    Attributes:
        burst: whether its arrivals are bursts. gpu: what a GPU of the fleet is called: a machine where the engine runs on a CPU.
        there: the values at the operating point of `ttft_p50_s`, `ttft_p99_s`, its bound (None without one), and `profit_per_h` (USD).
        fleet: of `sized`; None without a peak, without SLOs, or where no load meets them.
        point: row of `capacity`; None for a closed loop without SLOs. saturation: row of `saturation`; None where no run can be
            trusted. limit: why it sustains no more; None without SLOs. slos: the limits that judge it, as text.
        searched: what a search for the decision's SLOs found; None without one.
        sustains: what follows "sustains". ends: where its limit lies, by all its runs; a search's own record may know less.
        misses: the first load that misses, and by what. why: why it sustains no more. remedy: what would raise it.
        evidence: how much was measured at what it sustains. narrowed: what would narrow its interval.
        contradiction: that load, latency and rate contradict one another. plan: how many to plan for the peak.
    """

    name: str
    deployment: str
    workload: str
    burst: bool
    gpu: str
    there: Row
    fleet: Row | None
    point: Row | None
    saturation: Row | None
    limit: Bottleneck | None
    slos: tuple[str, ...]
    searched: SearchRecord | None
    sustains: str = ""
    ends: str = ""
    misses: str = ""
    why: str = ""
    remedy: str = ""
    evidence: str = ""
    narrowed: str = ""
    contradiction: str = ""
    plan: str = ""

    @property
    def close(self) -> bool:
        """Whether the first load that it does not sustain is too close to its limits to tell."""
        return self.point is not None and capacity.too_close(self.point)

    @property
    def found(self) -> bool:
        """Whether a load is known that it sustains."""
        return self.point is not None and self.point["kind"] in ("found", "above")

    @property
    def causes(self) -> tuple[str, ...]:
        """What ends it, where it misses for sure."""
        missed = self.misses.startswith("at ") and not self.close
        return tuple(sorted(causes.alike(self.limit))) if self.limit and missed else ()


def limits_text(judged: Iterable[Sequence[object]]) -> str:
    """The limits of any of these curves; those that do not judge all are said to be of classes. Args: judged: the limits of each."""
    judged = list(judged)
    found = dict.fromkeys(slo for each in judged for slo in each)
    common = [str(slo) for slo in found if all(slo in each for each in judged)]
    of_classes = [str(slo) for slo in found if str(slo) not in common]
    return listed([*common, *([f"the limits of its own classes ({', '.join(of_classes)})"] if of_classes else [])])


def curves_of(results: Tables) -> list[Curve]:
    """The curves of a study, bursts last: what a decision can rest on comes first."""
    points, saturates, judged = (
        {(row["deployment"], row["workload"]): row for row in table.iter_rows(named=True)}
        for table in (results.capacity, results.saturation, results.points)
    )
    found = []
    for _, rows in results.priced_curves.group_by("deployment", "workload", maintain_order=True):
        first = rows.row(0, named=True)
        at = (first["deployment"], first["workload"])
        measured = OperatingPoint.of(judged[at], first) if at in judged else None
        point, searched = points.get(at), results.limits.get(at)
        curve = Curve(
            name=" · ".join(at) if results.several_workloads else at[0],
            deployment=at[0],
            workload=at[1],
            burst=first["arrival"] == "burst",
            gpu="machine" if is_machine(first) else "GPU",
            there=_there(rows, judged.get(at)),
            fleet=_fleet(measured, results.decision, results.device) if measured else None,
            point=point,
            saturation=saturates.get(at),
            limit=results.analysis.causes.get(at),
            slos=tuple(searched.slos if searched else point["slos"] if point else ()),
            searched=searched,
        )
        found.append(_said(curve, point, measured) if point else curve)
    limited = any(curve.slos for curve in found)
    found = [
        replace(each, sustains=f"{each.sustains}, no SLO limits it") if limited and not each.slos else each for each in found
    ]
    return sorted(found, key=lambda curve: curve.burst)


def _said(curve: Curve, point: Row, measured: OperatingPoint | None) -> Curve:
    limit, searched = curve.limit, curve.searched
    further = searched and limit and limit.cause == "none"  # a search has looked further
    return replace(
        curve,
        sustains=capacity.sustains(point),
        ends=capacity.limit(point),
        misses=capacity.first_miss(point),
        why=causes.why(limit, point["missed_at"]) if limit else "",
        remedy=causes.remedy(limit) if limit and not further else "",
        evidence=capacity.evidence(point),
        narrowed=f"Its search: {searches.search_ended(searched)}." if searched else capacity.narrowed(point),
        contradiction=fleet.little(measured.little) if measured and measured.little and not measured.consistent else "",
        plan=fleet.plan(curve.fleet, curve.gpu, curve.name),
    )


def _fleet(measured: OperatingPoint, decision: Decision, device: Accelerator | None) -> dict[str, Any] | None:
    if decision.peak_rps is None:
        return None
    return sized(
        measured,
        decision.peak_rps,
        safety=decision.safety,
        slos=decision.slos,
        gpu_hour=gpu_hour(decision, device),
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
