"""Measure one run: the load, the scrapes beside it, and a record of how it went."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import quantiles
from typing import Any

import psutil
import requests

import bench
from bench.http import get
from bench.telemetry import GAUGES, scraping
from bench.workload import Load, LoadResult, RequestRecord, Target, run_load, write_requests

__all__ = ["RECORD_FILES", "Recording", "record_run"]

RECORD_FILES = ("requests.jsonl", "telemetry.jsonl.gz")
_DRAIN_LIMIT_S = 60.0


@dataclass(frozen=True)
class Recording:
    """What a run left: its requests, the share of them that failed, and its output tokens a second."""

    requests: list[RequestRecord]
    tokens_per_s: float
    duration_s: float

    @property
    def failed(self) -> int:
        """Requests whose outcome is not `ok`."""
        return sum(r.outcome != "ok" for r in self.requests)


def record_run(
    target: Target, load: Load, folder: Path, *, header: Mapping[str, Any], scrape_interval_s: float | None
) -> Recording:
    """Send `load`, scrape the server meanwhile, and write `requests.jsonl`, `telemetry.jsonl.gz` and, last, `run.json`.

    Args:
        folder: an existing folder.
        header: what `run.json` says first: digest, protocol and definition of the run.
        scrape_interval_s: None leaves the telemetry out (a server without /metrics).

    Raises:
        BenchError: the server does not accept connections.
    """
    started = datetime.now(UTC)
    before = psutil.cpu_times()
    if scrape_interval_s is None:
        result, drain_s = run_load(target, load), 0.0
    else:
        metrics = f"{target.base_url}/metrics"
        with scraping([metrics], scrape_interval_s, folder / "telemetry.jsonl.gz"):
            result = run_load(target, load)
            drain_s = _drain(metrics)
    records = [RequestRecord.of(exchange, result.start) for exchange in result.exchanges]
    write_requests(records, folder / "requests.jsonl")
    content = {
        **header,
        "started": started.isoformat(timespec="milliseconds"),
        "clock_start_s": result.start,
        "duration_s": round(result.end - result.start, 6),
        "drain_s": round(drain_s, 3),
        "scrape_interval_s": scrape_interval_s,
        "client": _client(result),
        "host": _host(before),
        "versions": _versions(),
        "files": {
            name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in RECORD_FILES if (folder / name).exists()
        },
    }
    unfinished = folder / ".run.json"
    unfinished.write_text(json.dumps(content, indent=2) + "\n")
    unfinished.rename(folder / "run.json")
    tokens = sum(r.completion_tokens or 0 for r in records)
    duration = result.end - result.start
    return Recording(records, tokens / duration if duration else 0.0, duration)


def _drain(metrics_url: str) -> float:
    """Wait until the server says that nothing runs or waits; the seconds that it took.

    Gauges may go stale after many cancellations, so the wait has a limit.
    """
    begin = time.monotonic()
    while time.monotonic() - begin < _DRAIN_LIMIT_S:
        try:
            text = get(metrics_url).text
        except requests.RequestException:
            break  # the session finds out whether the server lives
        names = (GAUGES["running"], GAUGES["waiting"])
        values = [line.rsplit(" ", 1)[1] for line in text.splitlines() if line.split("{")[0].split(" ")[0] in names]
        if all(float(value) == 0 for value in values):
            break
        time.sleep(0.1)
    return time.monotonic() - begin


def _client(result: LoadResult) -> dict[str, Any]:
    """How the client fared: its own delays are part of every latency that it tells."""
    lags = result.loop_lag_s
    centiles = quantiles(lags, n=100, method="inclusive") if len(lags) > 1 else None
    sent = [e.sent for e in result.exchanges if e.sent is not None]
    return {
        "processes": 1,
        "cpu_s": round(result.cpu_s, 4),
        "loop_lag_p50_s": round(centiles[49], 6) if centiles else None,
        "loop_lag_p99_s": round(centiles[98], 6) if centiles else None,
        "loop_lag_max_s": round(max(lags), 6) if lags else None,
        "send_spread_s": round(max(sent) - min(sent), 6) if sent else None,
    }


def _host(before: Any) -> dict[str, Any]:
    """Shares of all cores' time since `before`: how busy the machine was, and how much another tenant took (steal)."""
    after = psutil.cpu_times()
    spent = {key: getattr(after, key) - getattr(before, key) for key in after._fields}
    total = sum(v for k, v in spent.items() if k not in ("guest", "guest_nice")) or 1.0
    return {
        "busy_share": round(1 - (spent["idle"] + spent.get("iowait", 0.0)) / total, 4),
        "steal_share": round(spent.get("steal", 0.0) / total, 4),
    }


def _versions() -> dict[str, str | None]:
    return {
        "saturate": bench.__version__,
        "commit": os.environ.get("SATURATE_COMMIT") or _commit(),
        "python": platform.python_version(),
        "openai": version("openai"),
        "uvloop": version("uvloop"),
        "httptools": version("httptools"),
    }


def _commit() -> str | None:
    """Commit of the working directory, with `+` where tracked files differ from it."""
    try:
        told = subprocess.run(
            ["git", "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"], capture_output=True, text=True
        )
    except OSError:
        return None
    return told.stdout.strip() or None
