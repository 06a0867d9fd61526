"""Alerts on single workers of a fleet: one that shows nothing, and one that gets far more than its share; and on how many there are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from bench.axes import CONCURRENCY
from bench.errors import shown_share
from bench.guard.measured import Measured
from bench.guard.series import LOADS, alert, fleet_size

_RUNNING = "saturate:requests_running"
_SILENT_FOR = "2m"  # as of a load: scrapes fail for a moment, and a worker that has just started shows nothing yet
_WINDOW = "15m"  # over which a worker's load is averaged, longer than a fleet's, as chance deals requests out; convention
_UNEVEN_FOR = "5m"
_FAR_MORE = 1.5  # load of a worker ÷ mean of all that is far more than its share; convention


def workers(measured: Measured, recorded: set[str]) -> Iterator[dict[str, Any] | str]:
    """The alerts, and a line on each that is left out.

    A worker is silent where Prometheus scrapes it in vain, or finds no engine there: `up` is of every address of the scrape job.
    """
    job, number = json.dumps(measured.deployment), measured.workers
    if measured.passed_on:
        yield "No alert on silent workers: Ray passes their metrics on, and drops those of a worker that has nothing to do."
    else:
        silent = f"up{{job={job}}} unless on (job, instance) {_RUNNING}{{job={job}}}"
        summary = "{{ $labels.instance }} of {{ $labels.job }} shows no metrics of its engine"
        yield alert(measured, "WorkerSilent", silent, _SILENT_FOR, "critical", summary, f"All {number} workers served.")
    size = f"{fleet_size(measured)} != {number}"
    has = f"{{{{ $labels.job }}}} has {{{{ $value }}}} workers, not the {number} whose limits were measured"
    summary = f"{has}: meanwhile no alert is on the load and the queue of all of them"
    yield alert(measured, "FleetSize", size, _WINDOW, "info", summary, "")
    yield _uneven(measured, recorded)


def _uneven(measured: Measured, recorded: set[str]) -> dict[str, Any] | str:
    """A worker with more in flight than its part of what the fleet is established to sustain, and far more than the others have.

    The first of these is why an idle fleet may be uneven, the second why an overloaded one that is even raises nothing here. Where the
    limit is a rate, the part is that of the requests that were in flight at it.
    """
    series, number = LOADS[CONCURRENCY], measured.workers
    if series not in recorded or not measured.found or measured.low is None:
        return (
            "No alert on the balance of workers: that takes a limit with a lower end, and requests in flight that workers show."
        )
    held = measured.low if measured.axis == CONCURRENCY else measured.point["in_flight"]
    if held is None:
        return "No alert on the balance of workers: how many requests were in flight at the limit is not known."
    if measured.sustained.uneven is None:
        return "No alert on the balance of workers: no run at C_max shows what each of them had in flight."
    most = max(_FAR_MORE, measured.sustained.uneven)
    if most >= number:
        return "No alert on the balance of workers: at C_max one of them had all requests."
    mean = f"avg_over_time({series}{{job={json.dumps(measured.deployment)}}}[{_WINDOW}])"
    expr = f"{mean} > {held / number:.4g} and {mean} / on (job) group_left () avg by (job) ({mean}) > {most:.3g}"
    has = "{{ $labels.instance }} of {{ $labels.job }} has had {{ $value | humanize }} requests in flight"
    summary = f"{has} over {_WINDOW}, more than {most:.3g} times the mean of all workers"
    shown = f"At C_max none had more than {measured.sustained.uneven:.3g} times the mean, which is {shown_share(1 / number)}."
    return alert(measured, "WorkerUneven", expr, _UNEVEN_FOR, "warning", summary, shown)
