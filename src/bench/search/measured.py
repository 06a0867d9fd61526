"""What a search measures: the steps of its probe, sent to a server, and runs as it judges them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count as numbers
from pathlib import Path
from typing import Any

import polars as pl

from bench.errors import BenchError
from bench.load.client import Load, PreparedLoad
from bench.load.target import Target
from bench.parse.drift import place_of_run
from bench.parse.run import parse_run
from bench.parse.slo import goodput, judged_requests
from bench.parse.validity import TIMES, reason_text, verdict
from bench.runs.latencies import LATENCIES
from bench.runs.request import RequestRecord
from bench.runs.run import RunRecord
from bench.search.probe import Reply, Send
from bench.study.config import Thresholds
from bench.study.slo import Slo
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
            load, workload=workload, level=in_flight, seed=seed, schedule_seed=seed, timeout_s=min(timeout_s, load.timeout_s)
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


def judged_run(
    folder: Path, slos: Sequence[Slo], thresholds: Thresholds, tables: Path
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The summary of the run in `folder` with `judged`, and why it cannot be trusted, if it cannot.

    Args:
        tables: a folder for what is parsed.

    Raises:
        BenchError: a file is missing, or differs from what was measured.
    """
    names = {name: tables / f"{name}.parquet" for name in ("requests", "telemetry")}
    row = parse_run(folder, **names, wide=tables / "metrics.csv", summary=tables / "summary.json")
    row = {**row, **goodput(row, judged_requests(row, pl.read_parquet(names["requests"])), slos)}
    found = verdict(row, thresholds)
    return row, () if found.valid else tuple(reason_text(reason) for reason in found.found if reason.part in TIMES)


def speed(record: RunRecord) -> tuple[float, str, str] | tuple[None, None, None]:
    """How fast the machine was before the run, in reference loads a second, what load that was, and when its round began."""
    place = place_of_run(record)
    if place["reference_s"] is None:
        return None, None, None
    return 1 / place["reference_s"], place["reference_load"], place["reference_since"]
