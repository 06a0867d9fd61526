"""From a trial's raw stamps to its numbers."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import quantiles
from typing import Any

__all__ = ["server_figures", "stamp_delays_ms", "summary"]


def summary(values: Iterable[float]) -> dict[str, float]:
    """`mean`, `p50`, `p99` and `max`; empty where there is nothing."""
    ordered = sorted(values)
    if not ordered:
        return {}
    centiles = quantiles(ordered, n=100, method="inclusive") if len(ordered) > 1 else ordered * 99
    return {"mean": sum(ordered) / len(ordered), "p50": centiles[49], "p99": centiles[98], "max": ordered[-1]}


def server_figures(dump: dict[str, Any], rate: float | None) -> dict[str, Any]:
    """What the server saw. Durations are milliseconds.

    Returns:
        `arrivals`, `completed` (streams written to their end), `chunks`, `stalls`, `connections`;
        `wall_ms`: first arrival to last write; `leaves_in_ms`: first to last arrival; `in_flight`: the most at any moment;
        `ttft_ms`, `e2e_ms`: arrival to first and last write; `late_ms`: write − due, the server's own fault;
        with a rate also `achieved_rate` and `delay_ms`: each arrival after a constant schedule, which is laid so early that no
        request is before its time.
    """
    requests = [request for request in dump["requests"] if request["writes"]]
    arrivals = sorted(request["arrived"] for request in dump["requests"])
    if not requests:
        return {"arrivals": len(arrivals), "completed": 0, "chunks": 0}
    first, period = dump["first_s"], dump["period_s"]
    late = [
        1e3 * (write - (request["arrived"] + first + number * period))
        for request in requests
        for number, write in enumerate(request["writes"])
    ]
    edges = sorted([(at, 1) for at in arrivals] + [(request["writes"][-1], -1) for request in requests])
    in_flight = most = 0
    for _, step in edges:
        in_flight += step
        most = max(most, in_flight)
    seen = {
        "arrivals": len(arrivals),
        "completed": sum(len(request["writes"]) == request["chunks"] for request in requests),
        "chunks": len(late),
        "stalls": dump["stalls"],
        "connections": len({request["connection"] for request in requests}),
        "wall_ms": 1e3 * (max(request["writes"][-1] for request in requests) - arrivals[0]),
        "leaves_in_ms": 1e3 * (arrivals[-1] - arrivals[0]),
        "in_flight": most,
        "ttft_ms": summary(1e3 * (request["writes"][0] - request["arrived"]) for request in requests),
        "e2e_ms": summary(1e3 * (request["writes"][-1] - request["arrived"]) for request in requests),
        "late_ms": summary(late),
    }
    if rate and len(arrivals) > 1:
        offsets = [at - number / rate for number, at in enumerate(arrivals)]
        seen["achieved_rate"] = (len(arrivals) - 1) / (arrivals[-1] - arrivals[0])
        seen["delay_ms"] = summary(1e3 * (offset - min(offsets)) for offset in offsets)
    return seen


def stamp_delays_ms(dump: dict[str, Any], token_times_s: dict[str, list[float]]) -> dict[str, float]:
    """Each chunk's stamp at the client after the server's write of it; requests are matched by their prompt."""
    delays = []
    for request in dump["requests"]:
        stamps = token_times_s.get(request["prompt"], [])
        if len(stamps) == len(request["writes"]):
            delays += [1e3 * (stamp - write) for stamp, write in zip(stamps, request["writes"], strict=True)]
    return summary(delays)
