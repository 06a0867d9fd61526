"""Prometheus rules on requests in flight, from the capacity of a closed loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["load_rules"]

_WINDOW = "5m"  # over which requests in flight are averaged: a moment above the limit is no overload; convention
_STANDS = "5m"  # for which a rule holds before it fires; convention


def load_rules(point: Mapping[str, Any], names: Mapping[str, str], digest: str) -> tuple[list[dict[str, Any]], list[str]]:
    """The rules of a group in a rules file, and a line on each rule that is left out.

    Series are chosen by the label `job`, which is the deployment's name.

    Args:
        point: a row of `capacity.parquet`. names: what the server calls `running` and `waiting` (`Catalogue.names`).
        digest: of what was measured.
    """
    job, workload = point["deployment"], point["workload"]
    where = f"{job} with {workload}"
    if point["axis"] != "concurrency" or point["basis"] != "steady":
        return [], [f"{where}: no rule on its load, which is not a closed loop that goes on."]
    if not {"running", "waiting"} <= names.keys():
        return [], [f"{where}: no rule on its load: the server does not say how many requests run and wait."]
    if point["kind"] != "found":
        return [], [f"{where}: no rule on its load: its limit is not known ({point['kind']})."]
    parts = " + ".join(f'sum by (job, instance) ({names[name]}{{job="{job}"}})' for name in ("running", "waiting"))
    record = "saturate:requests_in_flight"
    found: list[dict[str, Any]] = [{"record": record, "expr": parts}]
    low, high, c_max = point["low"], point["high"], point["c_max"]
    ends = "–".join("not established" if end is None else f"{end:g}" for end in (low, high))
    text = f"C_max {c_max:g} requests in flight ({', '.join(point['slos'])}); 95 % interval of the limit: {ends}"
    levels = [("warning", low, ">="), ("critical", c_max, ">")]
    for severity, limit, sign in levels:
        if limit is None:
            continue
        found.append(
            {
                "alert": f"SaturateLoad{severity.capitalize()}",
                "expr": f'avg_over_time({record}{{job="{job}"}}[{_WINDOW}]) {sign} {limit:g}',
                "for": _STANDS,
                "labels": {"severity": severity, "workload": workload},
                "annotations": {
                    "summary": "{{ $labels.instance }}: {{ $value }} requests in flight",
                    "measured": text,
                    "study": digest,
                },
            }
        )
    left = [f"{where}: no warning ahead of C_max: the lower end of its interval is not established."] if low is None else []
    return found, left
