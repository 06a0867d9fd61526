"""Prometheus rules: what is recorded of a server under names of our own, and alerts where that leaves what was measured."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator
from typing import Any

from bench.axes import CONCURRENCY, RATE
from bench.beside.production.guard.measured import Measured
from bench.errors import shown_share

#: The recorded series that counts a load, by its axis; and those of requests that run and wait, and of KV usage.
LOADS = {CONCURRENCY: "saturate:requests_in_flight", RATE: "saturate:requests:rate5m"}
RUNS, WAITS, USAGE = "saturate:requests_running", "saturate:requests_waiting", "saturate:kv_usage"
TOKENS, PREEMPTIONS = "saturate:output_tokens:rate5m", "saturate:preemptions:rate5m"
HITS = "saturate:prefix_hit_ratio:rate30m"
_HITS_KEPT = 0.95  # share of the study's prefix-cache hits below which something was evicted, or routed elsewhere; convention

_HERE = "{{ $labels.instance }}: {{ $value | humanize }}"
_JOB = "{{ $labels.job }}"
_SHARE = "{{ $value | humanizePercentage }}"
_Rule = dict[str, Any]


def job(measured: Measured) -> str:
    """The label by which every rule knows the server."""
    return f"job={json.dumps(measured.deployment)}"


def _own(measured: Measured, name: str, window: str = "", mark: str = "") -> str:
    """A series of the engine, each request once; with a window its rate. Args: mark: a further matcher of labels."""
    kind = measured.catalogue.kind
    assert kind
    matchers = [job(measured), *(f'{label}="{value}"' for label, value in kind.totals.items()), mark]
    found = f"{name}{{{','.join(filter(None, matchers))}}}"
    found = f"rate({found}[{window}])" if window else found
    return f"max without ({', '.join(kind.repeats)}) ({found})" if kind.repeats else found


def _each(measured: Measured, name: str, window: str = "") -> str:
    """Of each instance, all engines in it together."""
    return f"sum by (job, instance) ({_own(measured, name, window)})"


def _share(measured: Measured, part: str, whole: str, mark: str = "") -> str:
    """How one rate of the whole job is to another."""
    above, below = _own(measured, part, "30m", mark), _own(measured, whole, "30m")
    return f"sum by (job) ({above}) / sum by (job) ({below})"


def records(measured: Measured) -> Iterator[_Rule]:
    """What is recorded: the only place where the engine's own names stand."""
    names, own = measured.catalogue.names, job(measured)
    found = {
        series: _each(measured, names[ours], window)
        for series, ours, window in (
            (RUNS, "running", ""),
            (WAITS, "waiting", ""),
            (TOKENS, "server_generation_tokens", "5m"),
            (PREEMPTIONS, "preemptions", "5m"),
        )
        if ours in names
    }
    if {"running", "waiting"} <= names.keys():
        found[LOADS[CONCURRENCY]] = f"{RUNS}{{{own}}} + {WAITS}{{{own}}}"
        if "e2e" in measured.histograms:
            # Requests that come are those that end and those by which more are in flight.
            ended, grows = f"{measured.histograms['e2e'][0]}_count", f"deriv({LOADS[CONCURRENCY]}{{{own}}}[5m])"
            found[LOADS[RATE]] = f"{_each(measured, ended, '5m')} + {grows}"
    if "kv_usage" in names:
        found[USAGE] = f"max by (job, instance) ({_own(measured, names['kv_usage'])})"
    if {"prefix_hits", "prefix_queries"} <= names.keys():
        found[HITS] = _share(measured, names["prefix_hits"], names["prefix_queries"])
    yield from ({"record": name, "expr": expr} for name, expr in found.items())
    for metric, (name, _) in measured.histograms.items():
        buckets = f"sum by (job, le) ({_own(measured, f'{name}_bucket', '5m')})"
        for quantile in ("0.5", "0.9", "0.99"):
            expr = f"histogram_quantile({quantile}, {buckets})"
            yield {"record": f"saturate:{metric}_seconds:quantile5m", "expr": expr, "labels": {"quantile": quantile}}


def alerts(measured: Measured, there: Collection[str]) -> Iterator[_Rule | str]:
    """Alerts on what is recorded, `there`; and a line on each that cannot be made."""
    yield from _on_load(measured, there)
    yield from _on_runs(measured, there)
    yield from _on_slos(measured)


def _alert(
    measured: Measured, name: str, expr: str, stands: str, severity: str, summary: str, shown: str = "", **more: str
) -> _Rule:
    """Args: stands: for how long, before it fires. shown: what was measured. more: labels."""
    labels = {"severity": severity, "workload": measured.point["workload"], **more}
    return {"alert": name, "expr": expr, "stands": stands, "labels": labels, "summary": summary, "shown": shown}


def _on_load(measured: Measured, there: Collection[str]) -> Iterator[_Rule | str]:
    point, low, series = measured.point, measured.low, LOADS.get(measured.axis or "")
    unit = point["unit"]
    if not measured.found:
        yield f"No alert on the load: its limit is not known; C_max is {point['c_max']:g} or more."
        return
    if series not in there:
        yield f"No alert on the load: the metrics of {measured.catalogue.engine} do not show {unit}."
        return
    if low is None:
        yield f"No alert on the load: {measured.no_low}."
        return
    limit, chosen = max(point["c_max"], low), f"{series}{{{job(measured)}}}"  # the limit may lie between two loads
    # Requests in flight have to be above it in the mean, and still in the last minute.
    means = [chosen] if measured.axis == RATE else [f"avg_over_time({chosen}[{window}])" for window in ("5m", "1m")]

    def above(load: float) -> str:
        return " and ".join(f"{mean} > {load:.4g}" for mean in means)

    here = f"{_HERE} {unit}"
    if low < limit:
        near = f"{here}, more than the {low:.4g} that are established to be within the SLOs"
        yield _alert(measured, "LoadNearLimit", above(low), "2m", "warning", near)
    else:
        yield "No warning ahead of C_max: its interval begins no lower."
    yield _alert(measured, "LoadAboveLimit", above(limit), "2m", "critical", f"{here}, above the limit of {limit:.4g}")


def _on_runs(measured: Measured, there: Collection[str]) -> Iterator[_Rule | str]:
    """Where the queue, KV usage, preemptions or prefix-cache hits are not as in any sustained run."""
    text, most, rate = measured.sustained_text, measured.waiting or 0.0, measured.hit_rate or 0.0
    usage = 1.0 if measured.kv_usage is None else math.ceil(round(100 * measured.kv_usage, 6)) / 100

    def alert(name: str, series: str, beyond: str, stands: str, summary: str, shown: str, *, known: bool) -> _Rule | str:
        if known and series in there:
            return _alert(measured, name, f"{series}{{{job(measured)}}} {beyond}", stands, "warning", summary, shown)
        return f"No alert Saturate{name}: the sustained runs do not show what it watches, or had all that it warns of."

    shown = f"At most {most:g} waited at once in the steady windows of {text}."
    said = f"{_HERE} requests wait, and have for 5m"
    yield alert("Queue", WAITS, f"> {most:g}", "5m", said, shown, known=measured.waiting is not None)
    shown = f"At most {shown_share(usage)} was in use in the steady windows of {text}."
    said = f"{{{{ $labels.instance }}}}: {_SHARE} of the KV cache is in use, and has been for 5m"
    yield alert("KvUsage", USAGE, f"> {usage:g}", "5m", said, shown, known=usage < 1)
    shown = f"There was none in {text}."
    yield alert("Preemptions", PREEMPTIONS, "> 0", "2m", f"{_HERE} preemptions/s", shown, known=measured.preemptions == 0)
    least = _HITS_KEPT * rate
    shown = f"At least {shown_share(rate)} did in {text}; the alert is at {shown_share(least)}."
    said = f"{_JOB}: {_SHARE} of prompt tokens come from the prefix cache"
    yield alert("PrefixHits", HITS, f"< {least:.3g}", "15m", said, shown, known=rate > 0)


def _on_slos(measured: Measured) -> Iterator[_Rule | str]:
    """Where more requests than an SLO allows are beyond its limit, or the server's next bucket: no fast one counts as slow."""
    if not measured.slos:
        yield "No alert on an SLO: the study has none of all requests."
    for slo in measured.slos:
        name, bounds = measured.histograms.get(slo.metric, ("", {}))
        le = next((text for text, bound in bounds.items() if slo.limit_s <= bound < math.inf), None)
        if le is None:
            yield f"{slo}: no alert: the results show no histogram of that latency with a bucket beyond it."
            continue
        # Prometheus 3 writes whole numbers with a fraction, others keep what the server writes.
        mark = f'le=~"{le.removesuffix(".0")}([.]0)?"' if float(le).is_integer() else f'le="{le}"'
        good = _share(measured, f"{name}_bucket", f"{name}_count", mark)
        said = f"{_JOB}: {_SHARE} of requests miss {slo}, in 30m"
        shown = f"{slo} allows {shown_share(1 - slo.share)}. Counted are requests over {bounds[le]:g} s."
        yield _alert(measured, "Slow", f"1 - {good} > {1 - slo.share:.3g}", "5m", "critical", said, shown, slo=str(slo))
