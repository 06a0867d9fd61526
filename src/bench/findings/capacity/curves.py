"""What is known of one curve, in words: what it sustains, why not more, what would raise it, and how many a peak takes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from bench.errors import listed
from bench.findings import causes, fleet
from bench.findings.capacity import words as capacity
from bench.findings.causes import Bottleneck
from bench.findings.economics import Prices
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
    """One deployment under one workload.

    Attributes:
        burst: whether its arrivals are bursts. machine: whether an instance is a machine with an engine on its CPU.
        there: the values at the operating point of `ttft_p50_s`, `ttft_p99_s`, its bound (None without one), and `profit_per_h` (USD).
        measured: the operating point; None without SLOs, or where no load meets them. fleet: of `sized`; None without a peak, too.
        point: row of `capacity`; None for a closed loop without SLOs. saturation: row of `saturation`; None where no run can be
            trusted. limit: why it sustains no more; None without SLOs.
        searched: what a search for the decision's SLOs found; None without one.
    """

    name: str
    deployment: str
    workload: str
    burst: bool
    machine: bool
    there: Row
    measured: OperatingPoint | None
    fleet: Row | None
    point: Row | None
    saturation: Row | None
    limit: Bottleneck | None
    searched: SearchRecord | None

    @property
    def gpu(self) -> str:
        """What a GPU of the fleet is called."""
        return "machine" if self.machine else "GPU"

    @property
    def slos(self) -> tuple[str, ...]:
        """The limits that judge it, as text: of a decision, those of all requests and of the classes that it has."""
        return tuple(self.searched.slos if self.searched else self.point["slos"] if self.point else ())

    @property
    def sustains(self) -> str:
        """What follows "sustains"; empty where nothing was judged."""
        return capacity.sustains(self.point) if self.point else ""

    @property
    def ends(self) -> str:
        """Where its limit lies, by all its runs; empty where they do not say. A search's own record may know less."""
        if self.searched and self.point and self.point["limit"]:
            return searches.search_limit(self.searched).replace(" at 95 % confidence", "")
        return capacity.limit(self.point) if self.point else ""

    @property
    def misses(self) -> str:
        """The first load that misses, and by what."""
        return capacity.first_miss(self.point) if self.point else ""

    @property
    def why(self) -> str:
        """Why it sustains no more; empty where nothing limits it or is known."""
        return causes.why(self.limit, self.point["missed_at"]) if self.limit and self.point else ""

    @property
    def remedy(self) -> str:
        """What would raise it; empty where nothing follows."""
        if self.limit is None or (self.limit.cause == "none" and self.searched):  # the search has looked further
            return ""
        return causes.remedy(self.limit)

    @property
    def sure(self) -> str:
        """How much was measured at what it sustains, and what would narrow it where its plan does not say so."""
        narrowed = "" if self.plan else self.narrowed
        return " ".join(filter(None, [capacity.evidence(self.point) if self.point else "", narrowed]))

    @property
    def narrowed(self) -> str:
        """What would narrow its interval; empty where nothing is known."""
        if self.searched:
            return f"Its search: {searches.search_ended(self.searched)}."
        return capacity.narrowed(self.point) if self.point else ""

    @property
    def contradiction(self) -> str:
        """That load, latency and rate contradict one another; empty where they do not, or nothing is known."""
        measured = self.measured
        if measured is None or measured.little is None or measured.consistent:
            return ""
        return fleet.little(measured.little)

    @property
    def at_most(self) -> str:
        """Between how many instances the fleet lies, in brackets; what is not established is said to be so."""
        return fleet.interval(self.fleet)

    @property
    def plan(self) -> str:
        """How many to plan for the peak, in a sentence; empty without a fleet."""
        return fleet.plan(self.fleet, self.gpu, self.name)


def limits(curves: Sequence[Curve]) -> str:
    """The limits that judge any of these curves; those that do not judge all are said to be of classes. Empty where none judges any."""
    return limits_text([curve.slos for curve in curves if curve.point or curve.slos])


def limits_text(judged: Sequence[Sequence[object]]) -> str:
    """As `limits` has them. Args: judged: the limits of each curve."""
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
        found.append(
            Curve(
                name=" · ".join(at) if results.several_workloads else at[0],
                deployment=at[0],
                workload=at[1],
                burst=first["arrival"] == "burst",
                machine=is_machine(first),
                there=_there(rows, judged.get(at)),
                measured=measured,
                fleet=_fleet(measured, results.decision, results.device) if measured else None,
                point=points.get(at),
                saturation=saturates.get(at),
                limit=results.analysis.causes.get(at),
                searched=results.limits.get(at),
            )
        )
    return sorted(found, key=lambda curve: curve.burst)


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
