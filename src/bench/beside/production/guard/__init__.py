"""What guards a server in production by what a study measured: Prometheus rules, a dashboard, limits of admission and scaling."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from bench.axes import CONCURRENCY, RATE
from bench.beside.production.guard.measured import Measured
from bench.beside.production.guard.rules import HITS, LOADS, PREEMPTIONS, RUNS, TOKENS, USAGE, WAITS, alerts, job, records
from bench.errors import shown_share
from bench.predict.fleet import Scaling
from bench.report.render import render
from bench.runs.latencies import LATENCIES

#: The files, each a template.
FILES = ("rules.yaml", "dashboard.json", "haproxy.cfg", "keda.yaml")
_Lines = Sequence[tuple[float | None, str]]
_Panel = tuple[str, str, Sequence[tuple[str, str]], _Lines]


def written(measured: Measured) -> tuple[dict[str, str], list[str]]:
    """The text of each file of which something is known, and a line on each thing that is left out."""
    recorded = list(records(measured)) if measured.catalogue.kind else []
    there = {rule["record"] for rule in recorded}
    alerting = list(alerts(measured, there)) if recorded else []
    left = [each for each in alerting if isinstance(each, str)]
    found = {"haproxy.cfg": _haproxy(measured), "keda.yaml": _keda(measured, there)}
    if recorded:
        notes = [
            f"What a study measured of {measured.deployment}, as rules of Prometheus. {measured.limit_text}.",
            f'Every rule reads the job "{measured.deployment}": give that name to the scrape job of its servers (`job_name`), or put '
            "yours in its place in all files of this folder. Limits are those of one server (`instance`).",
        ]
        rules = [each for each in alerting if not isinstance(each, str)]
        found["rules.yaml"] = {"records": recorded, "alerts": rules, "notes": notes}
        found["dashboard.json"] = {"panels": list(_panels(measured, there))}
    else:
        left = [f"No rules and no dashboard: no sustained run of {measured.deployment} has telemetry of a known engine."]
    texts = {
        name: render("bench.beside.production.guard", f"{name}.j2", measured=measured, **numbers)
        for name in FILES
        if not isinstance(numbers := found.get(name, ""), str)
    }
    return texts, left + [f"No {name}: {why}." for name, why in found.items() if isinstance(why, str)]


def _panels(measured: Measured, there: Collection[str]) -> Iterator[_Panel]:
    """Title, unit, queries with their legends, and lines of each panel, from the values with the colour that begins there."""
    low, c_max = measured.low, measured.point["c_max"]
    near = [(low, "orange")] if low is not None and low < c_max else []
    limits: _Lines = [*near, (max(c_max, low or 0.0), "red")] if measured.found else []
    by = {axis: limits if measured.axis == axis else [] for axis in LOADS}
    run_and_wait = [(RUNS, "{{instance}} run"), (WAITS, "{{instance}} wait")]
    panels: list[_Panel] = [
        ("Requests in flight, by server", "short", [(LOADS[CONCURRENCY], "{{instance}}")], by[CONCURRENCY]),
        ("Requests that come, by server", "reqps", [(LOADS[RATE], "{{instance}}")], by[RATE]),
        ("Requests that run and wait", "short", run_and_wait, [(measured.waiting, "orange")]),
        ("KV-cache usage", "percentunit", [(USAGE, "{{instance}}")], [(measured.kv_usage, "orange")]),
    ]
    for metric in measured.histograms:
        slos = [slo for slo in measured.slos if slo.metric == metric]
        title = f"{LATENCIES[metric].title}, quantiles" + (f" ({', '.join(map(str, slos))})" if slos else "")
        query = (f"saturate:{metric}_seconds:quantile5m", "P{{quantile}}")
        panels.append((title, "s", [query], [(slo.limit_s, "red") for slo in slos]))
    panels += [
        ("Output tokens/s, by server", "short", [(TOKENS, "{{instance}}")], [(measured.point["tokens_per_s"], "blue")]),
        ("Preemptions/s, by server", "short", [(PREEMPTIONS, "{{instance}}")], []),
        ("Prefix-cache hit rate", "percentunit", [(HITS, "{{job}}")], [(measured.hit_rate, "orange")]),
    ]
    for title, unit, queries, lines in panels:
        if any(name in there for name, _ in queries):
            yield title, unit, queries, [line for line in lines if line[0] is not None]


def _haproxy(measured: Measured) -> dict[str, Any] | str:
    """Numbers of a backend of HAProxy, 2.2 or later, or why there are none."""
    limits = measured.limits
    if limits is None or limits.admission is None:
        return f"how many requests to admit is not known, as {measured.no_low if measured.found else 'no limit was found'}"
    production = getattr(measured.catalogue.kind, "production", None)
    return {
        "name": re.sub(r"[^A-Za-z0-9_.-]", "-", measured.deployment),
        "ttft_ms": round(1000 * min((slo.limit_s for slo in measured.slos if slo.metric == "ttft"), default=0.0)),
        "queue": limits.queue,
        "port": production.port if production else 8000,
        "admission": limits.admission,
        "notes": [
            f"A backend of HAProxy. {measured.limit_text}.",
            "It admits as many in flight as `bench fleet` says of these results, and queues as many.",
            "Write one line `server` for each instance, with its address.",
            "No SLO on TTFT, so how many requests may wait is not known: HAProxy's own default stands."
            * (limits.queue is None),
        ],
    }


def _keda(measured: Measured, there: Collection[str]) -> dict[str, Any] | str:
    """Numbers of a ScaledObject of KEDA, by the load that the study's limit is counted in, or why there are none."""
    low, unit, series = measured.low, measured.point["unit"], LOADS.get(measured.axis or "")
    if not measured.found or low is None:
        return measured.no_low if measured.found else "no limit was found"
    if series not in there:
        return f"{measured.catalogue.engine or 'the server'} does not show {unit}"
    admitted = measured.limits.admission if measured.limits and measured.axis == CONCURRENCY else None
    # Behind a proxy that admits fewer, an instance never shows more.
    sustained = min(low, measured.point["c_max"], math.inf if admitted is None else admitted)
    return {
        "name": re.sub(r"[^a-z0-9]+", "-", measured.deployment.lower()).strip("-")[:50].strip("-") or "model",
        "query": f"sum({series}{{{job(measured)}}})",
        "threshold": f"{Scaling.high * sustained:.3g}",
        "notes": [
            f"A ScaledObject of KEDA. {measured.limit_text}.",
            f"The threshold is {shown_share(Scaling.high)} of what one instance is established to sustain, in {unit}: the rest is for "
            "the time that a new instance takes to start. It needs the rules of rules.yaml.",
            "CHANGE-ME: the Deployment, and the address of Prometheus.",
        ],
    }
