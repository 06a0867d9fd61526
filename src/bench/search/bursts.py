"""The steps of a probe, sent to a server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count as numbers

from bench.errors import BenchError
from bench.load.client import Load, PreparedLoad
from bench.load.target import Target
from bench.runs.latencies import LATENCIES
from bench.runs.request import RequestRecord
from bench.search.probe import Reply, Send
from bench.workloads.workload import Workload

_OPEN_KEYS = ("burstiness", "duration_s", "step", "stop_overloaded", "turns", "num_requests", "archetype")


def sender(target: Target, load: Load, alive: Callable[[], None] = lambda: None) -> Send:
    """What sends a probe's steps: single requests with the lengths of `load`.

    Args:
        alive: called every second; it raises where the server is dead.
    """
    given = load.workload.model_dump(exclude_defaults=True, exclude=set(_OPEN_KEYS))
    number = numbers()

    def send(in_flight: int, count: int, timeout_s: float) -> Sequence[Reply]:
        seed = f"probe/{next(number)}/{load.seed}"  # other prompts each time, or a prefix cache would know them
        workload = Workload.model_validate({**given, "arrival": "closed", "num_requests": count})
        sent = replace(
            load,
            workload=workload,
            level=in_flight,
            seed=seed,
            schedule_seed=seed,
            timeout_s=min(timeout_s, load.timeout_s),
        )
        try:
            with PreparedLoad(target, sent).waiting(alive) as now:
                records = now().records
        except BenchError:
            alive()
            return []
        return [_reply(record, cut=timeout_s < load.timeout_s) for record in records if record.sent_s is not None]

    return send


def _reply(record: RequestRecord, *, cut: bool) -> Reply:
    """Args: cut: whether a request that takes too long was cut by the probe, and did not fail."""
    outcome = "cut" if record.outcome == "timeout" and cut else record.outcome
    assert record.sent_s is not None
    end_s = record.sent_s if record.end_s is None else record.end_s
    latencies = {name: _latency(record, name) for name in LATENCIES}
    return Reply(record.sent_s, end_s, outcome, latencies, record.token_times_s, record.request_class)


def _latency(record: RequestRecord, name: str) -> float | None:
    if record.outcome != "ok" and name != "ttft":
        return None
    of, fewest = LATENCIES[name].of, LATENCIES[name].fewest_tokens
    if of is None:
        known: float | None = getattr(record, f"{name}_s")
        return known
    try:
        return None if (record.streamed_tokens or 0) < fewest else float(of(lambda column: getattr(record, column)))
    except (TypeError, ZeroDivisionError):  # a number that it follows from is not known
        return None
