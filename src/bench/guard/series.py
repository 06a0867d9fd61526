"""The series that the rules record, by name, and how an alert on one is written."""

from __future__ import annotations

import json
from typing import Any

from bench.axes import CONCURRENCY, RATE
from bench.guard.measured import Measured

#: The recorded series that counts a load, by its axis.
LOADS = {CONCURRENCY: "saturate:requests_in_flight", RATE: "saturate:requests:rate5m"}
WAITS = "saturate:requests_waiting"


def whole(measured: Measured, series: str) -> str:
    """The recorded series that a limit on `series` is held against: that of a server, or the sum over the workers of a fleet."""
    return series.replace("saturate:", "saturate:fleet_", 1) if measured.workers else series


def fleet_size(measured: Measured) -> str:
    """How many workers Prometheus scrapes, those that do not answer included: a fleet that lost one has no more than its limit."""
    return f"count by (job) (up{{job={json.dumps(measured.deployment)}}})"


def as_measured(measured: Measured, expr: str) -> str:
    """A condition on `whole`, of a fleet only while it has as many workers as were measured: others have other limits."""
    return f"{expr} and {fleet_size(measured)} == {measured.workers}" if measured.workers else expr


def slow_name(window: str) -> str:
    """The recorded share of requests over the limit of an SLO, in a window."""
    return f"saturate:slow_requests:ratio_rate{window}"


def quantile_name(metric: str) -> str:
    """The recorded quantiles of a latency (s)."""
    return f"saturate:{metric}_seconds:quantile5m"


def alert(
    measured: Measured, name: str, expr: str, stands: str, severity: str, summary: str, shown: str, **labels: str
) -> dict[str, Any]:
    """An alerting rule. Args: stands: for how long, before it fires. shown: what was measured."""
    annotations = {"summary": summary, "measured": f"{shown} {measured.limit_text}.".strip()}
    return {
        "alert": f"Saturate{name}",
        "expr": expr,
        "for": stands,
        "labels": {"severity": severity, "workload": measured.point["workload"], **labels},
        "annotations": {**annotations, "study": measured.digest or "not recorded"},
    }
