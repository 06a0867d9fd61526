"""A Grafana dashboard of what the rules record, with the measured limits as lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from bench.axes import CONCURRENCY, RATE
from bench.guard.measured import Measured
from bench.guard.rules import records
from bench.guard.series import LOADS, WAITS, quantile_name, slow_name, whole
from bench.runs.latencies import LATENCIES

_SCHEMA = 39  # version of Grafana's classic dashboard model, which 11 and later read; source: grafana.com, "JSON model"
_COLUMNS = 24  # width of Grafana's grid; source: the same page
_HEIGHT = 8  # of a panel in that grid; convention
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}

# A value, and the colour from it on.
_Line = tuple[float, str]
# An expression, and its legend.
_Query = tuple[str, str]


def dashboard(measured: Measured) -> tuple[str | None, list[str]]:
    """The dashboard as JSON; it needs the recorded series of `rules.yaml`. Panels of series that are not recorded are left out."""
    recorded, _ = records(measured)
    there = {rule["record"] for rule in recorded}
    if not there:
        return None, []
    known = [panel for panel in _panels(measured) if any(query.split("{")[0] in there for query, _ in panel[2])]
    panels = [_panel(number, *panel) for number, panel in enumerate(known)]
    content = {
        "title": f"Saturate: {measured.deployment}",
        "description": f"{measured.limit_text}. Study: {measured.digest or 'not recorded'}. Needs the rules of rules.yaml.",
        "tags": ["saturate", "llm"],
        "schemaVersion": _SCHEMA,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "annotations": {"list": []},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
                {
                    "name": "job",
                    "type": "query",
                    "datasource": _SOURCE,
                    "query": "label_values(saturate:requests_running, job)",
                    "current": {"text": measured.deployment, "value": measured.deployment},
                    "refresh": 1,
                },
            ]
        },
        "panels": panels,
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n", []


def _panels(measured: Measured) -> Iterable[tuple[str, str, Sequence[_Query], Sequence[_Line]]]:
    """Title, unit, queries and lines of each panel."""
    point, sustained = measured.point, measured.sustained
    limits = _limits(measured)
    queue = [(sustained.waiting, "orange")] if sustained.waiting is not None else []
    tokens = [(point["tokens_per_s"], "blue")] if point["tokens_per_s"] is not None else []
    if measured.workers:  # whose limits are of all together
        for title, unit, series, lines in (
            ("Requests in flight, all workers", "short", LOADS[CONCURRENCY], limits if measured.axis == CONCURRENCY else []),
            ("Requests that come, all workers", "reqps", LOADS[RATE], limits if measured.axis == RATE else []),
            ("Requests that wait, all workers", "short", WAITS, queue),
        ):
            yield title, unit, [(_of(whole(measured, series)), "{{job}}")], lines
        limits, queue, tokens = [], [], []
    in_flight = limits if measured.axis == CONCURRENCY else []
    yield "Requests in flight, by server", "short", [(_of(LOADS[CONCURRENCY]), "{{instance}}")], in_flight
    if measured.axis == RATE:
        yield "Requests that come, by server", "reqps", [(_of(LOADS[RATE]), "{{instance}}")], limits
    waits = [(_of("saturate:requests_running"), "{{instance}} run"), (_of(WAITS), "{{instance}} wait")]
    yield "Requests that run and wait", "short", waits, queue
    usage = [(sustained.kv_usage, "orange")] if sustained.kv_usage is not None else []
    yield "KV-cache usage", "percentunit", [(_of("saturate:kv_usage"), "{{instance}}")], usage
    for metric, latency in LATENCIES.items():
        slos = [slo for slo in measured.slos if slo.metric == metric]
        title = f"{latency.title}, quantiles" + (f" ({', '.join(map(str, slos))})" if slos else "")
        yield title, "s", [(_of(quantile_name(metric)), "P{{quantile}}")], [(slo.limit_s, "red") for slo in slos]
    slow = [(_of(slow_name(window)), f"{{{{slo}}}} over {window}") for window in ("5m", "1h")]
    yield (
        "Share of requests that miss an SLO",
        "percentunit",
        slow,
        [(round(1 - slo.share, 2), "orange") for slo in measured.slos],
    )
    yield "Output tokens/s, by server", "short", [(_of("saturate:output_tokens:rate5m"), "{{instance}}")], tokens
    yield "Preemptions/s, by server", "short", [(_of("saturate:preemptions:rate5m"), "{{instance}}")], []
    hits = [(sustained.hit_rate, "orange")] if sustained.hit_rate is not None else []
    yield "Prefix-cache hit rate", "percentunit", [(_of("saturate:prefix_hit_ratio:rate30m"), "{{job}}")], hits


def _limits(measured: Measured) -> list[_Line]:
    if not measured.found:
        return []
    low, c_max = measured.low, measured.point["c_max"]
    return [*([(low, "orange")] if low is not None and low < c_max else []), (max(c_max, low or 0.0), "red")]


def _of(series: str) -> str:
    return f'{series}{{job=~"$job"}}'


def _panel(number: int, title: str, unit: str, queries: Sequence[_Query], lines: Sequence[_Line]) -> dict[str, Any]:
    """A panel, two in a row."""
    steps = [{"color": "green", "value": None}, *({"color": colour, "value": value} for value, colour in sorted(set(lines)))]
    width = _COLUMNS // 2
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "datasource": _SOURCE,
        "gridPos": {"x": number % 2 * width, "y": number // 2 * _HEIGHT, "w": width, "h": _HEIGHT},
        "fieldConfig": {
            "defaults": {
                "unit": unit,
                "min": 0,
                "thresholds": {"mode": "absolute", "steps": steps},
                "custom": {"thresholdsStyle": {"mode": "line" if lines else "off"}},
            },
            "overrides": [],
        },
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": _SOURCE, "expr": query, "legendFormat": legend}
            for place, (query, legend) in enumerate(queries)
        ],
    }
