"""What guards a server in production by what a study measured: Prometheus rules, a dashboard, limits of admission and scaling."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from bench.axes import CONCURRENCY, RATE
from bench.beside.production.guard.measured import Measured
from bench.beside.production.guard.measured import read_measured as read_measured
from bench.beside.production.guard.rules import LOADS, WAITS, Rules
from bench.errors import shown_share
from bench.report.render import render
from bench.runs.latencies import LATENCIES

#: The files, each a template.
FILES = ("rules.yaml", "dashboard.json", "haproxy.cfg", "keda.yaml")
_FILLED = 0.8  # load of an instance ÷ lower end of C_max's interval; convention: the most that `bench fleet` wants at a peak
_Panel = tuple[str, str, Sequence[tuple[str, str]], Sequence[tuple[float, str]]]


def written(measured: Measured) -> tuple[dict[str, str], list[str]]:
    """The text of each file of which something is known, and a line on each thing that is left out."""
    rules = Rules(measured)
    found: dict[str, dict[str, Any] | str] = {
        "rules.yaml": {"records": rules.records, "alerts": rules.alerts, "notes": _rules_notes(measured)},
        "dashboard.json": {"panels": [panel for panel in _panels(rules) if any(name in rules.there for name, _ in panel[2])]},
        "haproxy.cfg": _haproxy(measured),
        "keda.yaml": _keda(rules),
    }
    if not rules.records:
        del found["rules.yaml"], found["dashboard.json"]
    texts = {
        name: render("bench.beside.production.guard", f"{name}.j2", measured=measured, **numbers)
        for name, numbers in found.items()
        if not isinstance(numbers, str)
    }
    return texts, rules.left + [f"No {name}: {why}." for name, why in found.items() if isinstance(why, str)]


def _rules_notes(measured: Measured) -> list[str]:
    return [
        f"What a study measured of {measured.deployment}, as rules of Prometheus. {measured.limit_text}.",
        f'Every rule reads the job "{measured.deployment}": give that name to the scrape job of its servers (`job_name`), or put '
        "yours in its place in all files of this folder. Limits are those of one server (`instance`).",
    ]


def _panels(rules: Rules) -> Iterator[_Panel]:
    """Title, unit, queries with their legends, and lines of each panel, from the values with the colour that begins there."""
    measured, point, sustained = rules.measured, rules.measured.point, rules.measured.sustained
    low, c_max, axis = measured.low, point["c_max"], measured.axis
    near = [(low, "orange")] if low is not None and low < c_max else []
    limits = [*near, (max(c_max, low or 0.0), "red")] if measured.found else []
    by = {each: limits if axis == each else [] for each in (CONCURRENCY, RATE)}
    queue, tokens, usage, hits = (
        [] if value is None else [(value, colour)]
        for value, colour in (
            (sustained.waiting, "orange"),
            (point["tokens_per_s"], "blue"),
            (sustained.kv_usage, "orange"),
            (sustained.hit_rate, "orange"),
        )
    )
    yield "Requests in flight, by server", "short", [(LOADS[CONCURRENCY], "{{instance}}")], by[CONCURRENCY]
    if axis == RATE:
        yield "Requests that come, by server", "reqps", [(LOADS[RATE], "{{instance}}")], by[RATE]
    waits = [("saturate:requests_running", "{{instance}} run"), (WAITS, "{{instance}} wait")]
    yield "Requests that run and wait", "short", waits, queue
    yield "KV-cache usage", "percentunit", [("saturate:kv_usage", "{{instance}}")], usage
    for metric, latency in LATENCIES.items():
        if not latency.replayed and metric not in measured.histograms:
            continue  # no server has it
        slos = [slo for slo in measured.slos if slo.metric == metric]
        title = f"{latency.title}, quantiles" + (f" ({', '.join(map(str, slos))})" if slos else "")
        yield title, "s", [(f"saturate:{metric}_seconds:quantile5m", "P{{quantile}}")], [(slo.limit_s, "red") for slo in slos]
    yield "Output tokens/s, by server", "short", [("saturate:output_tokens:rate5m", "{{instance}}")], tokens
    yield "Preemptions/s, by server", "short", [("saturate:preemptions:rate5m", "{{instance}}")], []
    yield "Prefix-cache hit rate", "percentunit", [("saturate:prefix_hit_ratio:rate30m", "{{job}}")], hits


def _haproxy(measured: Measured) -> dict[str, Any] | str:
    """Numbers of a backend of HAProxy, 2.2 or later, or why there are none."""
    limits = measured.limits
    if limits is None or limits.admission is None:
        return f"how many requests to admit is not known, as {measured.no_low if measured.found else 'no limit was found'}"
    production = getattr(measured.kind, "production", None)
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


def _keda(rules: Rules) -> dict[str, Any] | str:
    """Numbers of a ScaledObject of KEDA, by the load that the study's limit is counted in, or why there are none."""
    measured = rules.measured
    low, unit, series = measured.low, measured.point["unit"], LOADS.get(measured.axis or "")
    if not measured.found or low is None:
        return measured.no_low if measured.found else "no limit was found"
    if series not in rules.there:
        return f"{measured.engine or 'the server'} does not show {unit}"
    admitted = measured.limits.admission if measured.limits and measured.axis == CONCURRENCY else None
    # Behind a proxy that admits fewer, an instance never shows more.
    sustained = min(low, measured.point["c_max"], math.inf if admitted is None else admitted)
    return {
        "name": re.sub(r"[^a-z0-9]+", "-", measured.deployment.lower()).strip("-")[:50].strip("-") or "model",
        "query": f"sum({series}{{job={json.dumps(measured.deployment)}}})",
        "threshold": f"{_FILLED * sustained:.3g}",
        "notes": [
            f"A ScaledObject of KEDA. {measured.limit_text}.",
            f"The threshold is {shown_share(_FILLED)} of what one instance is established to sustain, in {unit}: the rest is for the "
            "time that a new instance takes to start. It needs the rules of rules.yaml.",
            "CHANGE-ME: the Deployment, and the address of Prometheus.",
        ],
    }
