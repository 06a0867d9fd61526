"""Prometheus rules: what is recorded of a server under names of our own, and alerts where that leaves what was measured."""

from __future__ import annotations

import json
import math
from typing import Any

from bench.axes import CONCURRENCY, RATE
from bench.beside.production.guard.measured import Measured
from bench.errors import count_text, shown_share
from bench.study.slo import Slo

#: The recorded series that counts a load, by its axis; and those of waiting requests and KV usage.
LOADS = {CONCURRENCY: "saturate:requests_in_flight", RATE: "saturate:requests:rate5m"}
WAITS, _USAGE, _RUNNING = "saturate:requests_waiting", "saturate:kv_usage", "saturate:requests_running"
_PREEMPTIONS, _HITS = "saturate:preemptions:rate5m", "saturate:prefix_hit_ratio:rate30m"
_HITS_KEPT = 0.95  # share of the study's prefix-cache hits below which something was evicted, or routed elsewhere; convention
_FAR_MORE = 1.5  # load of a worker ÷ mean of all that is far more than its share; convention

# Alerts on the budget of an SLO: windows, and times as fast as the budget allows.
_FAST, _SLOW = 14.4, 6.0  # source: Beyer et al., The Site Reliability Workbook (2018), chapter 5, table 5-8
_BURNS = (("Fast", "critical", "1h", "5m", _FAST), ("Slow", "warning", "6h", "30m", _SLOW))
_HERE = "{{ $labels.instance }}: {{ $value | humanize }}"
_JOB = "{{ $labels.job }}"
_SHARE = "{{ $value | humanizePercentage }}"


class Rules:
    """The rules of a curve's server or fleet.

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
        self._record_gauges()
        self._record_latencies()
        self._alert_on_load()
        self._alert_on_queue()
        self._alert_on_memory()
        if measured.workers:
            self._alert_on_workers()
        self._alert_on_hits()
        self._alert_on_budgets()

    @property
    def there(self) -> set[str]:
        """Names of what is recorded."""
        return {rule["record"] for rule in self.records}

    def whole(self, series: str) -> str:
        """The recorded series that a limit on `series` is held against: that of a server, or the sum over the workers of a fleet."""
        return series.replace("saturate:", "saturate:fleet_", 1) if self.measured.workers else series

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

    def _all(self, name: str, *marks: str, window: str) -> str:
        return f"sum by (job) ({self._own(name, *marks, window=window)})"

    def _record_gauges(self) -> None:
        names = self.measured.names
        for ours in ("running", "waiting"):
            if ours in names:
                self._record(f"saturate:requests_{ours}", self._each(names[ours]))
        if {"running", "waiting"} <= names.keys():
            self._record(LOADS[CONCURRENCY], f"{_RUNNING}{{{self._job}}} + {WAITS}{{{self._job}}}")
            if ended := self.measured.histograms.get("e2e"):
                # Requests that come are those that end and those by which more are in flight.
                grows = f"deriv({LOADS[CONCURRENCY]}{{{self._job}}}[5m])"
                self._record(LOADS[RATE], f"{self._each(f'{ended.name}_count', '5m')} + {grows}")
        if "kv_usage" in names:
            self._record(_USAGE, f"max by (job, instance) ({self._own(names['kv_usage'])})")
        for ours, name in (("server_generation_tokens", "output_tokens"), ("preemptions", "preemptions")):
            if ours in names:
                self._record(f"saturate:{name}:rate5m", self._each(names[ours], "5m"))
        if {"prefix_hits", "prefix_queries"} <= names.keys():
            self._record(_HITS, " / ".join(self._all(names[each], window="30m") for each in ("prefix_hits", "prefix_queries")))

    def _record_latencies(self) -> None:
        measured = self.measured
        for metric, histogram in measured.histograms.items():
            buckets = f"sum by (job, le) ({self._own(f'{histogram.name}_bucket', window='5m')})"
            for quantile in ("0.5", "0.9", "0.99"):
                self._record(
                    f"saturate:{metric}_seconds:quantile5m", f"histogram_quantile({quantile}, {buckets})", quantile=quantile
                )
        if measured.workers:
            for series in [each for each in (*LOADS.values(), WAITS) if each in self.there]:
                self._record(self.whole(series), f"sum by (job) ({series}{{{self._job}}})")
        for slo in measured.slos:
            found, below = measured.histograms.get(slo.metric), bucket(measured, slo)
            if found is None or below is None:
                why = f"{found.name} has no bucket of {slo.limit_s:g} s or more" if found else (
                    "the results show no histogram of that latency of each request"
                )  # fmt: skip
                self.left.append(f"{slo}: no alert on its budget: {why}.")
                continue
            # Prometheus 3 writes whole numbers with a fraction, others keep what the server writes.
            le = f'le=~"{below.removesuffix(".0")}([.]0)?"' if float(below).is_integer() else f'le="{below}"'
            for window in dict.fromkeys(window for _, _, *windows, _ in _BURNS for window in windows):
                good, every = (
                    self._all(f"{found.name}_bucket", le, window=window),
                    self._all(f"{found.name}_count", window=window),
                )
                self._record(f"saturate:slow_requests:ratio_rate{window}", f"1 - {good} / {every}", slo=str(slo))

    # Alerting

    def _alert(self, name: str, expr: str, stands: str, severity: str, summary: str, shown: str = "", **labels: str) -> None:
        """Args: stands: for how long, before it fires. shown: what was measured."""
        labels = {"severity": severity, "workload": self.measured.point["workload"], **labels}
        self.alerts.append(
            {"alert": name, "expr": expr, "stands": stands, "labels": labels, "summary": summary, "shown": shown}
        )

    def _unseen(self, what: str, shown: str, series: str) -> None:
        lacks = f"{self.measured.engine} does not show {shown}"
        why = f"no sustained run has a steady window that shows {shown}" if series in self.there else lacks
        self.left.append(f"No alert on {what}: {why}.")

    def _as_measured(self, expr: str) -> str:
        """A condition on `whole`, of a fleet only while it has as many workers as were measured: others have other limits."""
        return f"{expr} and {self._size} == {self.measured.workers}" if self.measured.workers else expr

    @property
    def _size(self) -> str:
        return f"count by (job) (up{{{self._job}}})"  # those that do not answer included

    def _place(self) -> str:
        return f"{_JOB}, all workers: {{{{ $value | humanize }}}}" if self.measured.workers else _HERE

    def _alert_on_load(self) -> None:
        point, low, axis = self.measured.point, self.measured.low, self.measured.axis
        series, unit = self.whole(LOADS.get(axis or "", "")), point["unit"]
        why = (
            f"its limit is not known; C_max is {point['c_max']:g} or more" if not self.measured.found
            else f"no server counts {unit}" if axis is None
            else f"{self.measured.engine} does not show {unit}" if series not in self.there
            else self.measured.no_low if low is None
            else None
        )  # fmt: skip
        if why or low is None:
            self.left.append(f"No alert on the load: {why}.")
            return
        limit, chosen = max(point["c_max"], low), f"{series}{{{self._job}}}"  # the limit may lie between two loads
        # Requests in flight have to be above it in the mean, and still in the last minute.
        each = [chosen] if axis == RATE else [f"avg_over_time({chosen}[{window}])" for window in ("5m", "1m")]
        here = f"{self._place()} {unit}"
        near = f"{here}, more than the {low:.4g} that are established to be within the SLOs"
        for name, severity, load, said in (
            ("LoadNearLimit", "warning", low, near),
            ("LoadAboveLimit", "critical", limit, f"{here}, above the limit of {limit:.4g}"),
        ):
            if severity == "warning" and low >= limit:
                self.left.append("No warning ahead of C_max: its interval begins no lower.")
                continue
            above = self._as_measured(" and ".join(f"{mean} > {load:.4g}" for mean in each))
            self._alert(name, above, "2m", severity, said)

    def _alert_on_queue(self) -> None:
        waiting = self.measured.sustained.waiting
        if WAITS not in self.there or waiting is None:
            self._unseen("the queue", "requests that wait", WAITS)
            return
        shown = f"At most {waiting:g} waited at once in the steady windows of {self.measured.sustained_text}."
        above = self._as_measured(f"{self.whole(WAITS)}{{{self._job}}} > {waiting:g}")
        self._alert("Queue", above, "5m", "warning", f"{self._place()} requests wait, and have for 5m", shown)

    def _alert_on_memory(self) -> None:
        """Where KV usage or preemptions are more than in any sustained run."""
        sustained, text = self.measured.sustained, self.measured.sustained_text
        usage = None if sustained.kv_usage is None else math.ceil(round(100 * sustained.kv_usage, 6)) / 100
        if _USAGE not in self.there or usage is None:
            self._unseen("KV usage", "its KV usage", _USAGE)
        elif usage >= 1:
            self.left.append("No alert on KV usage: sustained runs filled the cache.")
        else:
            said = f"{{{{ $labels.instance }}}}: {_SHARE} of the KV cache is in use, and has been for 5m"
            most = f"At most {shown_share(usage)}{' of any worker' * bool(self.measured.workers)}"
            shown = f"{most} was in use in the steady windows of {text}."
            self._alert("KvUsage", f"{_USAGE}{{{self._job}}} > {usage:g}", "5m", "warning", said, shown)
        if _PREEMPTIONS not in self.there or sustained.preemptions is None:
            self._unseen("preemptions", "preemptions", _PREEMPTIONS)
        elif sustained.preemptions > 0:
            had = count_text(round(sustained.preemptions), "preemption")
            self.left.append(f"No alert on preemptions: sustained runs had {had}.")
        else:
            above = f"{_PREEMPTIONS}{{{self._job}}} > 0"
            self._alert("Preemptions", above, "2m", "warning", f"{_HERE} preemptions/s", f"There was none in {text}.")

    def _alert_on_workers(self) -> None:
        """A worker is silent where Prometheus scrapes it in vain, or finds no engine there: `up` is of every address of the job."""
        number, job = self.measured.workers, self._job
        if self.measured.passed_on:
            self.left.append(
                "No alert on silent workers: Ray passes their metrics on, and drops those of a worker that has nothing to do."
            )
        else:
            silent = f"up{{{job}}} unless on (job, instance) {_RUNNING}{{{job}}}"
            said = f"{{{{ $labels.instance }}}} of {_JOB} shows no metrics of its engine"
            self._alert("WorkerSilent", silent, "2m", "critical", said, f"All {number} workers served.")
        said = f"{_JOB} has {{{{ $value }}}} workers, not the {number} whose limits were measured: meanwhile no alert is on the load "
        self._alert("FleetSize", f"{self._size} != {number}", "15m", "info", f"{said}and the queue of all of them")
        self._alert_on_balance()

    def _alert_on_balance(self) -> None:
        """A worker with more in flight than its part of what the fleet is established to sustain, and far more than the others have.

        The first is why an idle fleet may be uneven, the second why an overloaded one that is even raises nothing here. Where the
        limit is a rate, the part is that of the requests that were in flight at it.
        """
        measured, series, number = self.measured, LOADS[CONCURRENCY], self.measured.workers
        held = measured.low if measured.axis == CONCURRENCY else measured.point["in_flight"]
        uneven = measured.sustained.uneven
        most = max(_FAR_MORE, uneven or 0.0)
        why = (
            "that takes a limit with a lower end, and requests in flight that workers show"
            if series not in self.there or not measured.found or measured.low is None
            else "how many requests were in flight at the limit is not known" if held is None
            else "no run at C_max shows what each of them had in flight" if uneven is None
            else "at C_max one of them had all requests" if most >= number
            else None
        )  # fmt: skip
        if why or held is None or uneven is None:
            self.left.append(f"No alert on the balance of workers: {why}.")
            return
        mean = f"avg_over_time({series}{{{self._job}}}[15m])"
        expr = f"{mean} > {held / number:.4g} and {mean} / on (job) group_left () avg by (job) ({mean}) > {most:.3g}"
        has = f"{{{{ $labels.instance }}}} of {_JOB} has had {{{{ $value | humanize }}}} requests in flight over 15m"
        shown = f"At C_max none had more than {uneven:.3g} times the mean, which is {shown_share(1 / number)}."
        self._alert("WorkerUneven", expr, "5m", "warning", f"{has}, more than {most:.3g} times the mean of all workers", shown)

    def _alert_on_hits(self) -> None:
        measured, rate = self.measured, self.measured.sustained.hit_rate
        if not measured.sustained.shared or not rate:
            self.left.append("No alert on prefix-cache hits: the study's prompts share no prefixes, or no run shows the hits.")
        elif _HITS not in self.there:
            self.left.append(f"No alert on prefix-cache hits: {measured.engine} does not show both hits and lookups.")
        else:
            least = _HITS_KEPT * rate
            said = f"{_JOB}: {_SHARE} of prompt tokens come from the prefix cache"
            shown = f"At least {shown_share(rate)} did in {measured.sustained_text}; the alert is at {shown_share(least)}."
            self._alert("PrefixHits", f"{_HITS}{{{self._job}}} < {least:.3g}", "15m", "warning", said, shown)

    def _alert_on_budgets(self) -> None:
        """SLOs whose budget of slow requests burns too fast, in a long and in a short window.

        The budget of a P90 is 10 % slow requests, so it burns 10 times as fast at most. Where the workbook's 14.4 is more than midway
        to the most that is possible, all factors are moved toward 1 alike, until the fast alert stands midway.
        """
        measured = self.measured
        if measured.of_classes:
            names = ", ".join(measured.of_classes)
            self.left.append(f"{names}: no alert on its budget: the server does not tell classes of requests apart.")
        if not measured.slos and not measured.of_classes:
            self.left.append("No alert on a budget: the study has no SLO.")
        for slo in measured.slos:
            below, budget = bucket(measured, slo), 1 - slo.share
            if below is None:
                continue
            moved = min(1.0, (1 / budget - 1) / 2 / (_FAST - 1))
            bound = measured.histograms[slo.metric].bounds[below]
            next_one = f" Counted are requests over {bound:g} s, the next bucket of the server's histogram."
            for name, severity, long, short, factor in _BURNS:
                share = budget * (1 + moved * (factor - 1))
                where = f"{{{self._job},slo={json.dumps(str(slo), ensure_ascii=False)}}} > {share:.3g}"
                expr = " and ".join(f"saturate:slow_requests:ratio_rate{window}{where}" for window in (long, short))
                said = f"{_JOB}: {_SHARE} of requests miss {slo} over {long}"
                shown = f"{slo} allows {shown_share(budget)}; the alert is at {shown_share(share, 1)}."
                shown += next_one * (bound != slo.limit_s)
                self._alert(f"Burn{name}", expr, "2m", severity, said, shown, slo=str(slo))


def bucket(measured: Measured, slo: Slo) -> str | None:
    """The label `le` of the least bucket that holds every request within an SLO's limit; None where there is no such.

    Where no bucket ends at the limit, some slow requests count as fast, and no fast one as slow.
    """
    histogram = measured.histograms.get(slo.metric)
    bounds = histogram.bounds if histogram else {}
    return next((text for text, bound in bounds.items() if slo.limit_s <= bound < math.inf), None)
