"""The curves of a study, each with what is known of it."""

from __future__ import annotations

from bench.figures.results import Results
from bench.words.curves import Curve


def curves(results: Results) -> list[Curve]:
    """The curves of a study, bursts last: what a decision can rest on comes first."""
    key = ("deployment", "workload")
    points, saturates = (
        {tuple(row[k] for k in key): row for row in table.iter_rows(named=True)}
        for table in (results.capacity, results.saturation)
    )
    found = []
    for each in results.analysis.findings.curves:
        at = (each.deployment, each.workload)
        name = f"{each.deployment} · {each.workload}" if results.several_workloads else each.deployment
        found.append(
            Curve(name, each, points.get(at), saturates.get(at), results.analysis.causes.get(at), results.limits.get(at))
        )
    return sorted(found, key=lambda curve: curve.burst)
