"""What a proxy in front of a server admits, queues and refuses: by `bench.analysis.limits`, as `bench fleet` prints them."""

from __future__ import annotations

import re

import yaml

from bench.analysis import Limits
from bench.export.comments import comment
from bench.guard.measured import Measured
from bench.servers.routers import haproxys

_ADMITS = "It admits as many in flight as `bench fleet` says of these results, and queues as many."
_NO_QUEUE = "No SLO on TTFT, so how many requests may wait is not known: the proxy's own default stands."


def haproxy(measured: Measured) -> tuple[str | None, list[str]]:
    """A backend of HAProxy, 2.2 or later.

    `maxconn` of a server counts its requests, not its connections, in mode http; what exceeds it waits in HAProxy, at most as long as
    the SLO on TTFT, prefill not counted.
    """
    limits, left = _limits(measured, "haproxy.cfg")
    if limits is None or limits.admission is None:
        return None, left
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", measured.deployment)
    ttft = min((slo.limit_s for slo in measured.slos if slo.metric == "ttft"), default=None)
    instances = max(1, measured.workers)
    if limits.admission < instances:
        why = f"{instances} workers admit {limits.admission} together, and HAProxy's maxconn is at least 1 of each"
        return None, [f"No haproxy.cfg: {why}."]
    each, queue = limits.admission // instances, None if limits.queue is None else max(1, limits.queue // instances)
    lines = [
        f"backend {name}",
        "    mode http",
        f"    balance {haproxys(measured.balance or 'leastconn')}",
        *(["    hash-type consistent"] if (measured.balance or "").startswith("header:") else []),
        "    option http-no-delay  # or the first token waits for up to 0.2 s",
        "    timeout connect 5s",
        "    timeout server 10m  # longer than the longest answer takes",
    ]
    if ttft is not None and queue is not None:
        # avg_queue is what waits, by the number of servers.
        lines += [
            f"    timeout queue {round(1000 * ttft)}ms  # at most as long as the SLO on TTFT, prefill not counted",
            f"    http-request deny deny_status 429 hdr Retry-After 1 if {{ avg_queue({name}) ge {queue} }}",
        ]
    first = _port(measured)
    lines += [f"    server instance-{i + 1} 127.0.0.1:{first + i} maxconn {each}" for i in range(instances)]
    front = None if limits.queue is None else limits.admission + limits.queue
    notes = [
        f"A backend of HAProxy. {measured.limit_text}.",
        _ADMITS,
        "Write one line `server` for each instance, with its address."
        if not measured.workers
        else f"Each of the {instances} workers gets an equal part of it: give every line `server` its address.",
        *([_NO_QUEUE] if limits.queue is None else []),
        *(
            [
                f"Give your frontend more than `maxconn {front}`, what is served and what may wait: beyond its own nothing is refused."
            ]
            if measured.workers and front
            else []
        ),
    ]
    return comment(notes) + "\n".join(lines) + "\n", left


def vllm_router(measured: Measured) -> tuple[str | None, list[str]]:
    """A command line of vLLM's router, which counts the requests of all its workers together."""
    limits, left = _limits(measured, "vllm-router.sh")
    if limits is None:
        return None, left
    addresses = " ".join(f"http://CHANGE-ME-{i + 1}:{_port(measured)}" for i in range(max(1, measured.workers)))
    notes = [
        f"vLLM's router. {measured.limit_text}.",
        "It refuses with 408, at once, what exceeds --max-concurrent-requests; its --queue-size changes nothing in 0.1.17. "
        "Clients have to wait and ask again.",
        _together(measured, "The router counts all workers together"),
        "CHANGE-ME: the address of each worker.",
    ]
    command = f"vllm-router --max-concurrent-requests {limits.admission} --worker-urls {addresses}"
    return comment(notes) + command + "\n", left


def _together(measured: Measured, counts: str) -> str:
    """Whether a number has to be multiplied. Args: counts: what the program counts."""
    if measured.workers:
        return f"The numbers are of the {measured.workers} workers together."
    return f"The numbers are of one instance. {counts}: multiply each by the number of its instances."


def envoy(measured: Measured) -> tuple[str | None, list[str]]:
    """The circuit breakers of a cluster of Envoy, whose numbers are of all its instances together."""
    limits, left = _limits(measured, "envoy.yaml")
    if limits is None:
        return None, left
    threshold = {"priority": "DEFAULT", "max_connections": limits.admission, "max_requests": limits.admission}
    if limits.queue is not None:
        threshold["max_pending_requests"] = max(1, limits.queue)  # at 0 Envoy refuses what waits for its connection alone
    notes = [
        f"Keys of a cluster of Envoy. {measured.limit_text}.",
        _ADMITS,
        _together(measured, "Envoy counts a cluster"),
        *([_NO_QUEUE] if limits.queue is None else []),
    ]
    content = {"circuit_breakers": {"thresholds": [threshold]}}
    return comment(notes) + yaml.safe_dump(content, sort_keys=False), left


def _limits(measured: Measured, file: str) -> tuple[Limits | None, list[str]]:
    if measured.limits is None or measured.limits.admission is None:
        why = measured.no_low if measured.found else "no limit was found"
        return None, [f"No {file}: how many requests to admit is not known, as {why}."]
    return measured.limits, []


def _port(measured: Measured) -> int:
    production = getattr(measured.kind, "production", None)
    return production.port if production else 8000
