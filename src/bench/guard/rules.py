"""Prometheus rules: what is recorded of a server under names of our own, and alerts where that leaves what was measured."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from bench.axes import CONCURRENCY, RATE
from bench.errors import count_text, shown_share
from bench.export.comments import comment
from bench.guard.measured import Histogram, Measured
from bench.guard.series import LOADS, WAITS, alert, as_measured, quantile_name, slow_name, whole
from bench.guard.workers import workers
from bench.servers.engines import Kind
from bench.study.slo import Slo

_WINDOW = "5m"  # over which a load is averaged
_STILL = "1m"  # over which requests in flight show that it still lasts
_LOAD_FOR = "2m"
_STANDS_FOR = "5m"  # of a queue and of KV usage, which pass in a moment where the load is sustained
_HITS_WINDOW, _HITS_FOR = "30m", "15m"
_HITS_KEPT = 0.95  # share of the study's prefix-cache hits below which something was evicted, or routed elsewhere; convention

# Alerts on the budget of an SLO. Source: Beyer et al., The Site Reliability Workbook (2018), chapter 5, table 5-8.
_FAST = 14.4  # times as fast as the budget allows, of the fast alert; source: the same table
_SLOW = 6.0  # … of the slow one; source: the same table
_BURNS = (("Fast", "critical", "1h", "5m", _FAST), ("Slow", "warning", "6h", "30m", _SLOW))
_QUANTILES = (0.5, 0.9, 0.99)  # of latencies, for the dashboard; convention


def rules_file(measured: Measured) -> tuple[str | None, list[str]]:
    """The rules as YAML, and a line on each that is left out; without a file where nothing can be recorded."""
    recorded, left = records(measured)
    if not recorded:
        return None, left
    found, unknown = alerts(measured, {rule["record"] for rule in recorded})
    limit = "A limit is that of one server (`instance`)."
    if measured.workers:
        limit = (
            f"The limits of the load and of the queue are those of its {measured.workers} workers together, and Prometheus "
            "scrapes each (`instance`): with more or fewer, those alerts are silent."
        )
    head = [
        f"What a study measured of {measured.deployment}, as rules of Prometheus. {measured.limit_text}.",
        f'Every rule reads the job "{measured.deployment}": give that name to the scrape job of its servers (`job_name`), or put '
        f"yours in its place in all files of this folder. {limit}",
    ]
    content = {"groups": [{"name": f"saturate {measured.deployment}", "rules": [*recorded, *found]}]}
    return comment(head) + yaml.safe_dump(content, sort_keys=False, width=1000, allow_unicode=True), [*left, *unknown]


def records(measured: Measured) -> tuple[list[dict[str, Any]], list[str]]:
    """Recording rules: the only place where the engine's own names stand. And a line on what cannot be recorded."""
    if measured.kind is None:
        return [], [f"No rules and no dashboard: no sustained run of {measured.deployment} has telemetry of a known engine."]
    server = _Server(measured.kind, measured.deployment)
    budgets = list(_budget_records(measured, server))
    rules = [*_gauge_records(measured, server), *_latency_records(measured, server)]
    if measured.workers:
        recorded = {rule["record"] for rule in rules}
        summed = [series for series in (*LOADS.values(), WAITS) if series in recorded]
        rules += [_record(whole(measured, series), f"sum by (job) ({series}{{{server.chosen}}})") for series in summed]
    rules += [rule for rule in budgets if not isinstance(rule, str)]
    return rules, [line for line in budgets if isinstance(line, str)]


@dataclass(frozen=True)
class _Server:
    """How PromQL reads an engine's series, so that each request counts once."""

    kind: Kind
    job: str

    @property
    def chosen(self) -> str:
        return f"job={json.dumps(self.job)}"

    def series(self, name: str, *marks: str, window: str = "") -> str:
        """A series; with a window its rate. Args: marks: further matchers of labels."""
        totals = [f'{label}="{value}"' for label, value in self.kind.totals.items()]
        found = f"{name}{{{','.join([self.chosen, *totals, *marks])}}}"
        found = f"rate({found}[{window}])" if window else found
        return f"max without ({', '.join(self.kind.repeats)}) ({found})" if self.kind.repeats else found

    def instances(self, name: str, window: str = "") -> str:
        """`series` of each instance, all engines in it together."""
        return f"sum by (job, instance) ({self.series(name, window=window)})"

    def together(self, name: str, *marks: str, window: str) -> str:
        return f"sum by (job) ({self.series(name, *marks, window=window)})"


def _record(name: str, expr: str, **labels: str) -> dict[str, Any]:
    return {"record": name, "expr": expr, **({"labels": labels} if labels else {})}


def _gauge_records(measured: Measured, server: _Server) -> Iterator[dict[str, Any]]:
    names = measured.names
    for ours in ("running", "waiting"):
        if ours in names:
            yield _record(f"saturate:requests_{ours}", server.instances(names[ours]))
    if {"running", "waiting"} <= names.keys():
        both = (f"saturate:requests_{ours}{{{server.chosen}}}" for ours in ("running", "waiting"))
        yield _record(LOADS[CONCURRENCY], " + ".join(both))
        if ended := measured.histograms.get("e2e"):
            # Requests that come are those that end and those by which more are in flight.
            grows = f"deriv({LOADS[CONCURRENCY]}{{{server.chosen}}}[{_WINDOW}])"
            yield _record(LOADS[RATE], f"{server.instances(f'{ended.name}_count', _WINDOW)} + {grows}")
    if "kv_usage" in names:
        yield _record("saturate:kv_usage", f"max by (job, instance) ({server.series(names['kv_usage'])})")
    for ours, name in (("server_generation_tokens", "output_tokens"), ("preemptions", "preemptions")):
        if ours in names:
            yield _record(f"saturate:{name}:rate5m", server.instances(names[ours], _WINDOW))
    if {"prefix_hits", "prefix_queries"} <= names.keys():
        hits, looked_up = (server.together(names[each], window=_HITS_WINDOW) for each in ("prefix_hits", "prefix_queries"))
        yield _record("saturate:prefix_hit_ratio:rate30m", f"{hits} / {looked_up}")


def _latency_records(measured: Measured, server: _Server) -> Iterator[dict[str, Any]]:
    for metric, histogram in measured.histograms.items():
        buckets = f"sum by (job, le) ({server.series(f'{histogram.name}_bucket', window=_WINDOW)})"
        for quantile in _QUANTILES:
            yield _record(quantile_name(metric), f"histogram_quantile({quantile:g}, {buckets})", quantile=f"{quantile:g}")


def _budget_records(measured: Measured, server: _Server) -> Iterator[dict[str, Any] | str]:
    """The share of requests over each SLO's limit, in each window; a line on an SLO that no histogram shows."""
    for slo in measured.slos:
        histogram, below = measured.histograms.get(slo.metric), bucket(measured, slo)
        if histogram is None or below is None:
            yield f"{slo}: no alert on its budget: {_no_bucket(slo, histogram)}."
            continue
        for window in dict.fromkeys(window for _, _, *windows, _ in _BURNS for window in windows):
            good = server.together(f"{histogram.name}_bucket", _le(below), window=window)
            yield _record(
                slow_name(window), f"1 - {good} / {server.together(f'{histogram.name}_count', window=window)}", slo=str(slo)
            )


def alerts(measured: Measured, recorded: set[str]) -> tuple[list[dict[str, Any]], list[str]]:
    """The alerting rules, and a line on each that is left out."""
    made: list[dict[str, Any]] = []
    left: list[str] = []
    makers = (_load, _stand, workers, _hits, _burns) if measured.workers else (_load, _stand, _hits, _burns)
    for found in (make(measured, recorded) for make in makers):
        for each in found:
            if isinstance(each, str):
                left.append(each)
            else:
                made.append(each)
    return made, left


def bucket(measured: Measured, slo: Slo) -> str | None:
    """The label `le` of the least bucket that holds every request within an SLO's limit; None where there is no such.

    Where no bucket ends at the limit, some slow requests count as fast, and no fast one as slow.
    """
    histogram = measured.histograms.get(slo.metric)
    bounds = histogram.bounds if histogram else {}
    return next((text for text, bound in bounds.items() if slo.limit_s <= bound < math.inf), None)


def _no_bucket(slo: Slo, histogram: Histogram | None) -> str:
    if histogram is None:
        return "the results show no histogram of that latency of each request"
    return f"{histogram.name} has no bucket of {slo.limit_s:g} s or more"


def _le(text: str) -> str:
    """A matcher of a bucket. Prometheus 3 writes whole numbers with a fraction, others keep what the server writes."""
    return f'le=~"{text.removesuffix(".0")}([.]0)?"' if float(text).is_integer() else f'le="{text}"'


def _load(measured: Measured, recorded: set[str]) -> Iterator[dict[str, Any] | str]:
    """Alerts near C_max, and beyond it."""
    point, job = measured.point, json.dumps(measured.deployment)
    if not measured.found:
        yield f"No alert on the load: its limit is not known; C_max is {point['c_max']:g} or more."
        return
    if measured.axis is None:
        yield f"No alert on the load: no server counts {point['unit']}."
        return
    series, unit = whole(measured, LOADS[measured.axis]), point["unit"]
    if series not in recorded:
        yield f"No alert on the load: {measured.engine} does not show {unit}."
        return
    low = measured.low
    if low is None:
        yield f"No alert on the load: {measured.no_low}."
        return
    limit = max(point["c_max"], low)  # the limit may lie between two loads
    chosen = f"{series}{{job={job}}}"

    def above(load: float) -> str:
        means = [f"avg_over_time({chosen}[{window}])" for window in (_WINDOW, _STILL)]
        each = [chosen] if measured.axis == RATE else means
        return as_measured(measured, " and ".join(f"{mean} > {load:.4g}" for mean in each))

    here = f"{_place(measured)}: {{{{ $value | humanize }}}} {unit}"
    if low >= limit:
        yield "No warning ahead of C_max: its interval begins no lower."
    else:
        near = f"{here}, more than the {low:.4g} that are established to be within the SLOs"
        yield alert(measured, "LoadNearLimit", above(low), _LOAD_FOR, "warning", near, "")
    beyond = f"{here}, above the limit of {limit:.4g}"
    yield alert(measured, "LoadAboveLimit", above(limit), _LOAD_FOR, "critical", beyond, "")


def _stand(measured: Measured, recorded: set[str]) -> Iterator[dict[str, Any] | str]:
    """Alerts on a queue, KV usage and preemptions that no sustained run had."""
    sustained, job = measured.sustained, json.dumps(measured.deployment)
    text, here = measured.sustained_text, "{{ $labels.instance }}: {{ $value | humanize }}"
    if WAITS not in recorded or sustained.waiting is None:
        yield _unseen(measured, "the queue", "requests that wait", WAITS in recorded)
    else:
        most = f"{sustained.waiting:g}"
        summary = f"{_place(measured)}: {{{{ $value | humanize }}}} requests wait, and have for {_STANDS_FOR}"
        shown = f"At most {most} waited at once in the steady windows of {text}."
        waits = as_measured(measured, f"{whole(measured, WAITS)}{{job={job}}} > {most}")
        yield alert(measured, "Queue", waits, _STANDS_FOR, "warning", summary, shown)
    usage = None if sustained.kv_usage is None else math.ceil(round(100 * sustained.kv_usage, 6)) / 100
    if "saturate:kv_usage" not in recorded or usage is None:
        yield _unseen(measured, "KV usage", "its KV usage", "saturate:kv_usage" in recorded)
    elif usage >= 1:
        yield "No alert on KV usage: sustained runs filled the cache."
    else:
        share = "{{ $labels.instance }}: {{ $value | humanizePercentage }}"
        summary = f"{share} of the KV cache is in use, and has been for {_STANDS_FOR}"
        most_of = " of any worker" if measured.workers else ""
        shown = f"At most {shown_share(usage)}{most_of} was in use in the steady windows of {text}."
        yield alert(measured, "KvUsage", f"saturate:kv_usage{{job={job}}} > {usage:g}", _STANDS_FOR, "warning", summary, shown)
    if "saturate:preemptions:rate5m" not in recorded or sustained.preemptions is None:
        yield _unseen(measured, "preemptions", "preemptions", "saturate:preemptions:rate5m" in recorded)
    elif sustained.preemptions > 0:
        yield f"No alert on preemptions: sustained runs had {count_text(round(sustained.preemptions), 'preemption')}."
    else:
        summary, shown = f"{here} preemptions/s", f"There was none in {text}."
        rate = f"saturate:preemptions:rate5m{{job={job}}} > 0"
        yield alert(measured, "Preemptions", rate, _LOAD_FOR, "warning", summary, shown)


def _place(measured: Measured) -> str:
    return "{{ $labels.job }}, all workers" if measured.workers else "{{ $labels.instance }}"


def _unseen(measured: Measured, what: str, shown: str, exposed: bool) -> str:
    why = f"no sustained run has a steady window that shows {shown}" if exposed else f"{measured.engine} does not show {shown}"
    return f"No alert on {what}: {why}."


def _hits(measured: Measured, recorded: set[str]) -> Iterator[dict[str, Any] | str]:
    """An alert on fewer prefix-cache hits than in the study."""
    rate, series = measured.sustained.hit_rate, "saturate:prefix_hit_ratio:rate30m"
    if not measured.sustained.shared or not rate:
        yield "No alert on prefix-cache hits: the study's prompts share no prefixes, or no run shows the hits."
    elif series not in recorded:
        yield f"No alert on prefix-cache hits: {measured.engine} does not show both hits and lookups."
    else:
        least = _HITS_KEPT * rate
        summary = "{{ $labels.job }}: {{ $value | humanizePercentage }} of prompt tokens come from the prefix cache"
        shown = f"At least {shown_share(rate)} did in {measured.sustained_text}; the alert is at {shown_share(least)}."
        expr = f"{series}{{job={json.dumps(measured.deployment)}}} < {least:.3g}"
        yield alert(measured, "PrefixHits", expr, _HITS_FOR, "warning", summary, shown)


def _burns(measured: Measured, recorded: set[str]) -> Iterator[dict[str, Any] | str]:
    """SLOs whose budget of slow requests burns too fast, in a long and in a short window.

    The budget of a P90 is 10 % slow requests, so it burns 10 times as fast at most. Where the workbook's 14.4 is more than midway to
    the most that is possible, all factors are moved toward 1 alike, until the fast alert stands midway.
    """
    if measured.of_classes:
        yield f"{', '.join(measured.of_classes)}: no alert on its budget: the server does not tell classes of requests apart."
    if not measured.slos and not measured.of_classes:
        yield "No alert on a budget: the study has no SLO."
    for slo in measured.slos:
        below, budget = bucket(measured, slo), 1 - slo.share
        if below is None or slow_name(_BURNS[0][2]) not in recorded:
            continue
        moved = min(1.0, (1 / budget - 1) / 2 / (_FAST - 1))
        for name, severity, long, short, factor in _BURNS:
            share = budget * (1 + moved * (factor - 1))
            where = f"{{job={json.dumps(measured.deployment)},slo={json.dumps(str(slo), ensure_ascii=False)}}}"
            expr = " and ".join(f"{slow_name(window)}{where} > {share:.3g}" for window in (long, short))
            summary = f"{{{{ $labels.job }}}}: {{{{ $value | humanizePercentage }}}} of requests miss {slo} over {long}"
            bound = measured.histograms[slo.metric].bounds[below]
            next_one = f" Counted are requests over {bound:g} s, the next bucket of the server's histogram."
            exact = "" if bound == slo.limit_s else next_one
            shown = f"{slo} allows {shown_share(budget)}; the alert is at {shown_share(share, 1)}.{exact}"
            yield alert(measured, f"Burn{name}", expr, _LOAD_FOR, severity, summary, shown, slo=str(slo))
