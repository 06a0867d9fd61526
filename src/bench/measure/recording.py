"""Measure one run: the load, the scrapes beside it, and a record of how it went."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import quantiles
from typing import Any

import requests

import bench
from bench.bounds import PATIENCE_S, SOON_S
from bench.headers import own_headers
from bench.http import get
from bench.load.client import Load, LoadResult, PreparedLoad
from bench.load.target import Target
from bench.measure.exposition import metric_values
from bench.measure.host import HostWatch, wall_ahead_s
from bench.measure.scraper import scraping
from bench.runs.files import checksums, write_record
from bench.runs.request import RequestRecord, write_requests
from bench.runs.run import RECORD, REQUESTS, TELEMETRY, Client, Prefix, RunHeader, RunRecord, Stopped
from bench.servers.metrics import exposition_names
from bench.shipped import commit_of
from bench.workloads.endpoints import ENDPOINTS
from bench.workloads.prefix_cache import Room, served_tokens
from bench.workloads.schedule import expected_cached_tokens
from bench.workloads.workload import Workload

# shortest load whose CPU share counts (s): in less, what a process spends on its start is a large share; convention
_LONG_S = 0.5


@dataclass(frozen=True)
class Recording:
    """What a run left: its requests, the tokens a second that its work counts (None where the server did not count those of each
    answer), how long it took (s), the share of the cores' time (0–1) that other processes took meanwhile, where that is known, and
    whether it ended early.
    """

    requests: list[RequestRecord]
    tokens_per_s: float | None
    duration_s: float
    other_share: float | None
    stopped: Stopped | None = None

    @property
    def failed(self) -> int:
        """Requests whose outcome is not `ok`."""
        return sum(r.outcome != "ok" for r in self.requests)


def record_run(
    target: Target,
    load: Load,
    folder: Path,
    *,
    header: RunHeader,
    scrape_interval_s: float | None,
    metrics: str | None = None,
    metrics_headers: Mapping[str, str] | None = None,
    endpoints: Sequence[str] = (),
    prefix_block_size: int | None = None,
    engines: int = 1,
    room: Room | None = None,
    descends: bool = False,
    alive: Callable[[], None] = lambda: None,
    say: Callable[[str], None] = lambda _: None,
) -> Recording:
    """Send `load`, scrape the server meanwhile, and write `requests.jsonl`, `telemetry.jsonl.gz` and, last, `run.json`.

    Args:
        folder: an existing folder.
        header: what is known of the run beforehand; where it names workers, theirs are the metrics that are scraped.
        scrape_interval_s: None: nothing is scraped. metrics: address of the engine's metrics; None: `/metrics` at the target; `none`:
            they are not scraped. metrics_headers: sent there. endpoints: scraped as well.
        prefix_block_size: tokens in a block of the server's prefix cache; 0 where it is off, None where that is not known.
        engines: behind the endpoint, each with a prefix cache of its own. room: of the one prefix cache; None where it is not known.
        descends: whether the server's processes descend from this one. alive: called every second of the load; it raises where the
            server has ended. say: takes a line if the server does not come to rest soon.

    Raises:
        BenchError: the server does not accept connections, or a load process ended.
    """
    prepared = PreparedLoad(target, load)
    if prepared.longer:
        say(f"{prepared.longer}.")
    primers = prepared.prime()
    ahead_s = wall_ahead_s()
    host = HostWatch(whole=descends, address=None if header.workers else target.base_url)
    one = None if header.workers or metrics == "none" else metrics or f"{target.base_url}/metrics"
    engines_metrics = (
        [] if scrape_interval_s is None else [worker.endpoint for worker in header.workers] or ([one] if one else [])
    )
    scraped = [*engines_metrics, *endpoints]
    drain_s = 0.0
    with ExitStack() as stack:
        send = stack.enter_context(prepared.waiting(alive))  # its processes start while the scraper does
        if scraped and scrape_interval_s is not None:
            own = {
                url: own_headers(url, target.base_url, target.headers) if header.workers else dict(metrics_headers or {})
                for url in engines_metrics
            }
            stack.enter_context(scraping(scraped, scrape_interval_s, folder / TELEMETRY, headers=own))
        result = send()
        records = result.records
        write_requests(records, folder / REQUESTS)  # before anything else can fail
        if engines_metrics:
            drain_s = _drain({url: own[url] for url in engines_metrics}, result.end, say)
    record = RunRecord(
        **vars(header),
        started=datetime.fromtimestamp(ahead_s + result.start, UTC).isoformat(timespec="milliseconds"),
        clock_start_s=result.start,
        duration_s=round(result.end - result.start, 6),
        drain_s=round(drain_s, 3),
        scrape_interval_s=scrape_interval_s,
        scrape_endpoint=engines_metrics[0] if engines_metrics and not header.workers else None,
        client=_client(result),
        prefix=_prefix(load.workload, primers, result, prefix_block_size, engines, room),
        host=host.seen(),
        form=target.form(load.workload.endpoint),
        stopped=result.stopped,
        versions={
            "saturate": bench.__version__,
            "commit": commit_of(),
            "python": platform.python_version(),
            **{package: version(package) for package in ("openai", "httptools")},
        },
        files=checksums(folder, (REQUESTS, TELEMETRY)),
    )
    write_record(record, folder / RECORD)
    duration, work = result.end - result.start, ENDPOINTS[load.workload.endpoint].work
    counts = [getattr(each, work.counts) for each in records if each.outcome == "ok"]
    per_s = None if None in counts else sum(counts) / duration if duration else 0.0
    return Recording(records, per_s, duration, record.host.other_share, result.stopped)


def _prefix(
    workload: Workload,
    primers: Sequence[RequestRecord],
    result: LoadResult,
    block_size: int | None,
    engines: int,
    room: Room | None,
) -> Prefix:
    """What the prefix cache should serve.

    Not known where it depends on which of several engines a request comes to, on what the prompts of a file have in common, on what the
    server answers, or where nothing says whether the server has a cache, and prompts share something. Slots are engines in that
    sense, but for a trace whose prompts share blocks: there they are replayed. A replay has one beginning that prompts share, so of
    several classes that share one each the cache's size is not taken into account.
    """
    blocks = any(plan.blocks for plan in result.planned)
    answers = workload.turns is not None and not workload.lengths_known
    share = any(plan.reusable_tokens for plan in result.planned)
    caches = {part.cache for part in workload.parts.values()}
    known = not caches & {"natural", "as_is"} and not answers and (block_size is not None or not share)
    expected = expected_cached_tokens(result.planned, block_size) if block_size and known else 0
    several = engines > 1 and not (blocks and room)
    # The replay's prompts all begin with the same tokens, as far as they share any.
    beginnings = {plan.request_class for plan in result.planned if plan.shared_tokens}
    lru = (
        served_tokens(result.planned, result.records, room)
        if expected and room and not several and len(beginnings) < 2
        else None
    )
    return Prefix(
        primed_tokens=sum(primer.prompt_asked or 0 for primer in primers),
        expected_tokens=None if not known or (expected and several) else expected,
        lru_tokens=lru,
    )


def _drain(metrics: Mapping[str, Mapping[str, str]], end: float, say: Callable[[str], None]) -> float:
    """Wait until no engine reports anything running or waiting; returns the seconds since the load's `end`.

    Gauges may go stale after many cancellations, so the wait has a limit.

    Args:
        metrics: the headers of a request to each engine's metrics, by their address.
    """
    begin, said = time.monotonic(), False
    for url, headers in metrics.items():
        while (waited := time.monotonic() - begin) < PATIENCE_S:
            try:
                text = get(url, headers=headers).text
            except requests.RequestException:
                break  # the session finds out whether the server lives
            values = metric_values(text, exposition_names(["running", "waiting"]))
            if values is None or not any(values):
                break
            if not said and waited > SOON_S:
                said = True
                say(
                    f"all answers are in, and {url} still reports requests as running or waiting ({sum(values):g}): others', or a "
                    f"count that is stale, as behind a router. Waiting for 0, at most {PATIENCE_S:g} s"
                )
            time.sleep(0.1)
    return time.monotonic() - end


def _client(result: LoadResult) -> Client:
    """How the client fared; of several processes, the worst."""
    duration = result.end - result.start
    once = [r for r in result.records if not r.resent]  # that a server hung up on a request makes no client late
    sent = [r.sent_s for r in once if r.sent_s is not None and r.after is None]  # a later turn leaves when it may
    delays = [r.sent_s - r.scheduled_s for r in once if r.sent_s is not None and r.scheduled_s is not None]
    lags = [_centiles(process.lags, "loop_lag") for process in result.processes if process.lags]
    worst = {name: max(lag[name] for lag in lags) for name in lags[0]} if lags else {}
    return Client(
        processes=len(result.processes),
        cpu_s=round(sum(process.cpu_s for process in result.processes), 4),
        cpu_share=round(max(process.cpu_s for process in result.processes) / duration, 4) if duration >= _LONG_S else None,
        reads=sum(process.reads for process in result.processes),
        resent=sum(record.resent for record in result.records),
        send_spread_s=round(max(sent) - min(sent), 6) if sent else None,
        realtime=all(process.realtime for process in result.processes),
        clock_skew_s=round(max(process.clock_skew_s for process in result.processes), 6),
        **worst,
        **_centiles(delays, "schedule_delay"),
    )


def _centiles(values: Sequence[float], name: str) -> dict[str, Any]:
    """Columns of two percentiles and the longest (s); none without a value."""
    if not values:
        return {}
    centiles = quantiles(values, n=100, method="inclusive") if len(values) > 1 else [*values] * 99
    found = {"p50": centiles[49], "p99": centiles[98], "max": max(values)}
    return {f"{name}_{key}_s": round(value, 6) for key, value in found.items()}
