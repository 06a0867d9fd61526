"""Prometheus rules: what is recorded of a server under names of our own, and alerts where that leaves what was measured."""

from __future__ import annotations

import json
import math
from typing import Any

from bench.axes import CONCURRENCY, RATE
from bench.beside.production.guard.measured import Measured
from bench.errors import shown_share

#: The recorded series that counts a load, by its axis; and those of waiting requests and KV usage.
LOADS = {CONCURRENCY: "saturate:requests_in_flight", RATE: "saturate:requests:rate5m"}
WAITS, _USAGE, _RUNNING = "saturate:requests_waiting", "saturate:kv_usage", "saturate:requests_running"
_PREEMPTIONS, _HITS = "saturate:preemptions:rate5m", "saturate:prefix_hit_ratio:rate30m"
_HITS_KEPT = 0.95  # share of the study's prefix-cache hits below which something was evicted, or routed elsewhere; convention

_HERE = "{{ $labels.instance }}: {{ $value | humanize }}"
_JOB = "{{ $labels.job }}"
_SHARE = "{{ $value | humanizePercentage }}"


class Rules:
    """The rules of a curve's server.

    Attributes:
        records: what is recorded, the only place where the engine's own names stand. alerts: on these. left: a line on each alert that
            cannot be made.
    """

    def __init__(self, measured: Measured) -> None:
        self.measured, self._job = measured, f"job={json.dumps(measured.deployment)}"
        self.records: list[dict[str, Any]] = []
        self.alerts: list[dict[str, Any]] = []
        self.left: list[str] = []
        if measured.kind is None:
            self.left.append(
                f"No rules and no dashboard: no sustained run of {measured.deployment} has telemetry of a known engine."
            )
            return
        self._record_server()
        self._record_latencies()
        self._alert_on_load()
        self._alert_on_runs()
        self._alert_on_hits()
        self._alert_on_slos()

    @property
    def there(self) -> set[str]:
        """Names of what is recorded."""
        return {rule["record"] for rule in self.records}

    # Recording

    def _record(self, name: str, expr: str, **labels: str) -> None:
        self.records.append({"record": name, "expr": expr, "labels": labels})

    def _own(self, name: str, *marks: str, window: str = "") -> str:
        """A series of the engine, each request once; with a window its rate. Args: marks: further matchers of labels."""
        kind = self.measured.kind
        assert kind
        matchers = [self._job, *(f'{label}="{value}"' for label, value in kind.totals.items()), *marks]
        found = f"{name}{{{','.join(matchers)}}}"
        found = f"rate({found}[{window}])" if window else found
        return f"max without ({', '.join(kind.repeats)}) ({found})" if kind.repeats else found

    def _each(self, name: str, window: str = "") -> str:
        """Of each instance, all engines in it together."""
        return f"sum by (job, instance) ({self._own(name, window=window)})"

    def _share(self, part: str, whole: str, window: str, *marks: str) -> str:
        """How one rate of the whole job is to another."""
        above, below = self._own(part, *marks, window=window), self._own(whole, window=window)
        return f"sum by (job) ({above}) / sum by (job) ({below})"

    def _record_server(self) -> None:
        names, job = self.measured.names, self._job
        for ours in ("running", "waiting"):
            if ours in names:
                self._record(f"saturate:requests_{ours}", self._each(names[ours]))
        if {"running", "waiting"} <= names.keys():
            self._record(LOADS[CONCURRENCY], f"{_RUNNING}{{{job}}} + {WAITS}{{{job}}}")
            if ended := self.measured.histograms.get("e2e"):
                # Requests that come are those that end and those by which more are in flight.
                grows = f"deriv({LOADS[CONCURRENCY]}{{{job}}}[5m])"
                self._record(LOADS[RATE], f"{self._each(f'{ended.name}_count', '5m')} + {grows}")
        if "kv_usage" in names:
            self._record(_USAGE, f"max by (job, instance) ({self._own(names['kv_usage'])})")
        for ours, name in (("server_generation_tokens", "output_tokens"), ("preemptions", "preemptions")):
            if ours in names:
                self._record(f"saturate:{name}:rate5m", self._each(names[ours], "5m"))
        if {"prefix_hits", "prefix_queries"} <= names.keys():
            self._record(_HITS, self._share(names["prefix_hits"], names["prefix_queries"], "30m"))

    def _record_latencies(self) -> None:
        for metric, histogram in self.measured.histograms.items():
            buckets = f"sum by (job, le) ({self._own(f'{histogram.name}_bucket', window='5m')})"
            for quantile in ("0.5", "0.9", "0.99"):
                expr = f"histogram_quantile({quantile}, {buckets})"
                self._record(f"saturate:{metric}_seconds:quantile5m", expr, quantile=quantile)

    # Alerting

    def _alert(self, name: str, expr: str, stands: str, severity: str, summary: str, shown: str = "", **labels: str) -> None:
        """Args: stands: for how long, before it fires. shown: what was measured."""
        labels = {"severity": severity, "workload": self.measured.point["workload"], **labels}
        self.alerts.append(
            {"alert": name, "expr": expr, "stands": stands, "labels": labels, "summary": summary, "shown": shown}
        )

    def _alert_on_load(self) -> None:
        measured, point, low, axis = self.measured, self.measured.point, self.measured.low, self.measured.axis
        series, unit = LOADS.get(axis or ""), point["unit"]
        why = (
            f"its limit is not known; C_max is {point['c_max']:g} or more" if not measured.found
            else f"the metrics of {measured.engine} do not show {unit}" if series not in self.there
            else measured.no_low if low is None
            else None
        )  # fmt: skip
        if why or low is None:
            self.left.append(f"No alert on the load: {why}.")
            return
        limit, chosen = max(point["c_max"], low), f"{series}{{{self._job}}}"  # the limit may lie between two loads
        # Requests in flight have to be above it in the mean, and still in the last minute.
        means = [chosen] if axis == RATE else [f"avg_over_time({chosen}[{window}])" for window in ("5m", "1m")]

        def above(load: float) -> str:
            return " and ".join(f"{mean} > {load:.4g}" for mean in means)

        here = f"{_HERE} {unit}"
        if low < limit:
            near = f"{here}, more than the {low:.4g} that are established to be within the SLOs"
            self._alert("LoadNearLimit", above(low), "2m", "warning", near)
        else:
            self.left.append("No warning ahead of C_max: its interval begins no lower.")
        self._alert("LoadAboveLimit", above(limit), "2m", "critical", f"{here}, above the limit of {limit:.4g}")

    def _alert_on_runs(self) -> None:
        """Where the queue, KV usage or preemptions are more than in any sustained run."""
        seen, text = self.measured.sustained, self.measured.sustained_text
        usage = None if seen.kv_usage is None else math.ceil(round(100 * seen.kv_usage, 6)) / 100
        most = None if seen.waiting is None else f"At most {seen.waiting:g} waited at once in the steady windows of {text}."
        self._alert_above("Queue", WAITS, seen.waiting, "5m", f"{_HERE} requests wait, and have for 5m", most)
        said = f"{{{{ $labels.instance }}}}: {_SHARE} of the KV cache is in use, and has been for 5m"
        most = (
            None if usage is None or usage >= 1 else f"At most {shown_share(usage)} was in use in the steady windows of {text}."
        )
        self._alert_above("KvUsage", _USAGE, usage, "5m", said, most)
        most = None if seen.preemptions != 0 else f"There was none in {text}."
        self._alert_above("Preemptions", _PREEMPTIONS, seen.preemptions, "2m", f"{_HERE} preemptions/s", most)

    def _alert_above(self, name: str, series: str, value: float | None, stands: str, summary: str, shown: str | None) -> None:
        """Where a series is above a value that sustained runs had. Args: shown: what was measured; None where that is no limit."""
        if series not in self.there or shown is None:
            self.left.append(
                f"No alert Saturate{name}: the sustained runs do not show what it watches, or had all that it warns of."
            )
        else:
            self._alert(name, f"{series}{{{self._job}}} > {value:g}", stands, "warning", summary, shown)

    def _alert_on_hits(self) -> None:
        measured, rate = self.measured, self.measured.sustained.hit_rate
        if not rate or not measured.sustained.shared or _HITS not in self.there:
            self.left.append("No alert on prefix-cache hits: some sustained run shares no prefixes, or shows no hits.")
            return
        least = _HITS_KEPT * rate
        said = f"{_JOB}: {_SHARE} of prompt tokens come from the prefix cache"
        shown = f"At least {shown_share(rate)} did in {measured.sustained_text}; the alert is at {shown_share(least)}."
        self._alert("PrefixHits", f"{_HITS}{{{self._job}}} < {least:.3g}", "15m", "warning", said, shown)

    def _alert_on_slos(self) -> None:
        """Where more requests than an SLO allows are beyond its limit, or the server's next bucket: no fast one counts as slow."""
        measured = self.measured
        if not measured.slos:
            self.left.append("No alert on an SLO: the study has none of all requests.")
        for slo in measured.slos:
            found = measured.histograms.get(slo.metric)
            bounds = found.bounds.items() if found else ()
            le, bound = next(((text, bound) for text, bound in bounds if slo.limit_s <= bound < math.inf), ("", 0.0))
            if found is None or not le:
                self.left.append(f"{slo}: no alert: the results show no histogram of that latency with a bucket beyond it.")
                continue
            # Prometheus 3 writes whole numbers with a fraction, others keep what the server writes.
            mark = f'le=~"{le.removesuffix(".0")}([.]0)?"' if float(le).is_integer() else f'le="{le}"'
            good = self._share(f"{found.name}_bucket", f"{found.name}_count", "30m", mark)
            said = f"{_JOB}: {_SHARE} of requests miss {slo}, in 30m"
            shown = f"{slo} allows {shown_share(1 - slo.share)}. Counted are requests over {bound:g} s."
            self._alert("Slow", f"1 - {good} > {1 - slo.share:.3g}", "5m", "critical", said, shown, slo=str(slo))
