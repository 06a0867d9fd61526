"""What is known of one curve, in words: what it sustains, why not more, what would raise it, and how many a peak takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.errors import listed
from bench.findings import causes, fleet
from bench.findings.capacity import words as capacity
from bench.findings.causes import Bottleneck
from bench.findings.found import CurveFindings
from bench.findings.tables import Tables
from bench.runs.searches import SearchRecord
from bench.search import words as searches


@dataclass(frozen=True)
class Curve:
    """One deployment under one workload.

    Attributes:
        found: what is known of it beyond tables. point: row of `capacity`; None for a closed loop without SLOs.
        saturation: row of `saturation`; None where no run can be trusted. limit: why it sustains no more; None without SLOs.
        searched: what a search for the decision's SLOs found; None without one.
    """

    name: str
    found: CurveFindings
    point: Mapping[str, Any] | None
    saturation: Mapping[str, Any] | None
    limit: Bottleneck | None
    searched: SearchRecord | None

    @property
    def deployment(self) -> str:
        return self.found.deployment

    @property
    def workload(self) -> str:
        return self.found.workload

    @property
    def burst(self) -> bool:
        return self.found.burst

    @property
    def fleet(self) -> Mapping[str, Any] | None:
        """As `sized` gives it; None without a peak, or where no load meets the SLOs."""
        return self.found.fleet

    @property
    def gpu(self) -> str:
        """What a GPU of the fleet is called."""
        return "machine" if self.found.machine else "GPU"

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
        measured = self.found.measured
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
    key = ("deployment", "workload")
    points, saturates = (
        {tuple(row[k] for k in key): row for row in table.iter_rows(named=True)}
        for table in (results.capacity, results.saturation)
    )
    found = []
    for each in results.analysis.findings.curves:
        at = (each.deployment, each.workload)
        name = " · ".join(at) if results.several_workloads else each.deployment
        found.append(
            Curve(name, each, points.get(at), saturates.get(at), results.analysis.causes.get(at), results.limits.get(at))
        )
    return sorted(found, key=lambda curve: curve.burst)
