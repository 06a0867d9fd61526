"""Reports of GuideLLM, which hold a benchmark for each load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.imported.kind import Definition, Format, PeerRun, failure, held, request, seconds
from bench.runs.files import typed
from bench.runs.request import RequestRecord

_STATS, _METRICS = "guidellm/schemas/base/request_stats.py", "guidellm/benchmark/schemas/metrics.py"
_HTTP = "guidellm/backends/openai/http.py"
_DEFINITIONS = (
    Definition("TTFT", "to the first event with text; from when the request's first bytes leave", _HTTP),
    Definition("TPOT", "(last event with text − start) ÷ n: the first token's time is in it; weighted by tokens", _STATS),
    Definition("ITL", "its name for TPOT as here, weighted by tokens; single gaps are not kept", _STATS),
    Definition("E2E", "to the end of the body", _HTTP),
    Definition("throughput", "over the time between the first request and the end of the last, without its warm-up", _METRICS),
    Definition("failures", "requests that a limit cut off are left out, beside those that failed", _METRICS),
)
_KEYS = {"mean": "mean", "median": "p50"} | {f"p{p}": f"p{p}" for p in (90, 95, 99)}


@dataclass(frozen=True)
class _Timings:
    """Moments of a request (s since the epoch)."""

    targeted_start: float | None = None
    request_start: float | None = None
    first_token_iteration: float | None = None
    last_token_iteration: float | None = None
    token_iterations: int = 0
    request_end: float | None = None
    resolve_end: float | None = None


@dataclass(frozen=True)
class _Info:
    timings: _Timings
    error: str | None = None


@dataclass(frozen=True)
class _Request:
    info: _Info
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True)
class _Totals:
    successful: int = 0
    errored: int = 0
    total: int = 0


@dataclass(frozen=True)
class _Requests:
    successful: tuple[_Request, ...]
    incomplete: tuple[_Request, ...] = ()
    errored: tuple[_Request, ...] = ()


@dataclass(frozen=True)
class _Strategy:
    type_: str
    streams: int | None = None
    rate: float | None = None
    time_scale: float | None = None
    max_concurrency: int | None = None
    rampup_duration: float | None = None


@dataclass(frozen=True)
class _Config:
    strategy: _Strategy
    backend: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Benchmark:
    config: _Config
    metrics: Mapping[str, Any]
    requests: _Requests
    start_time: float
    duration: float


@dataclass(frozen=True)
class _Metadata:
    guidellm_version: str | None = None


@dataclass(frozen=True)
class _Report:
    metadata: _Metadata
    benchmarks: tuple[_Benchmark, ...]


def _read(_: Path, content: Any) -> list[PeerRun]:
    report = typed(_Report, content)
    if not report.benchmarks:
        raise ValueError("benchmarks is empty: no load was measured")
    return [_run(report, benchmark) for benchmark in report.benchmarks]


def _run(report: _Report, benchmark: _Benchmark) -> PeerRun:
    totals = _totals(benchmark)
    kept = len(benchmark.requests.successful), len(benchmark.requests.errored)
    whole = kept == (totals.successful, totals.errored)
    arrival, axis, level = _load(benchmark.config.strategy, totals.total)
    form = str(benchmark.config.backend.get("request_format") or "")
    return PeerRun(
        version=report.metadata.guidellm_version,
        model=str(benchmark.config.backend.get("model") or "model"),
        started=datetime.fromtimestamp(benchmark.start_time, UTC).isoformat(timespec="milliseconds"),
        endpoint="chat" if "chat" in form else "completions",
        arrival=arrival,
        axis=axis,
        level=level,
        requests=_requests(benchmark.requests) if whole else (),
        reported=_reported(benchmark),
        lacks="GuideLLM keeps the first and the last moment of an answer alone"
        if whole
        else f"it holds {sum(kept)} of the {totals.successful + totals.errored} requests that it counts",
    )


def _totals(benchmark: _Benchmark) -> _Totals:
    return typed(_Totals, benchmark.metrics.get("request_totals") or {})


def _load(strategy: _Strategy, requests: int) -> tuple[str, str, float]:
    if strategy.rampup_duration:
        raise ValueError(
            f"config.strategy.rampup_duration is {strategy.rampup_duration:g}: such a ramp is no load that is read"
        )
    most = strategy.max_concurrency
    streams = {"synchronous": 1, "concurrent": strategy.streams, "throughput": most or requests}.get(strategy.type_)
    if streams is not None:
        return held(streams, requests)
    if most is not None:
        raise ValueError(f"config.strategy.max_concurrency is {most}: {strategy.type_} with such a cap is no load that is read")
    known = {"constant": "constant", "poisson": "poisson"}.get(strategy.type_)
    if known and strategy.rate:
        return known, "request_rate", strategy.rate
    if strategy.type_ == "trace":
        return "trace", "time_scale", strategy.time_scale or 1.0
    raise ValueError(f"config.strategy.type_ is {strategy.type_!r}, which is no load that is read")


def _requests(of: _Requests) -> list[RequestRecord]:
    """Those that were answered and those that failed, in the order of sending; without those that were cut off."""
    both = [*((each, True) for each in of.successful), *((each, False) for each in of.errored)]
    both = [(each, ok) for each, ok in both if each.info.timings.request_start is not None]
    both.sort(key=lambda pair: pair[0].info.timings.request_start or 0.0)
    first = both[0][0].info.timings.request_start if both else 0.0
    return [_request(i, each, first or 0.0, ok=ok) for i, (each, ok) in enumerate(both)]


def _request(index: int, each: _Request, first: float, *, ok: bool) -> RequestRecord:
    def since(moment: float | None) -> float | None:
        return None if moment is None else moment - first

    at = each.info.timings
    outcome, status = ("ok", None) if ok else failure(each.info.error or "")
    return request(
        index,
        sent_s=since(at.request_start),
        first_token_s=since(at.first_token_iteration),
        last_token_s=since(at.last_token_iteration),
        end_s=since(at.request_end or at.resolve_end),
        chunks=at.token_iterations or None,
        prompt_tokens=each.prompt_tokens,
        completion_tokens=each.output_tokens,
        cached_tokens=each.cached_tokens,
        scheduled_s=since(at.targeted_start),
        outcome=outcome,
        error=each.info.error,
        status=status,
    )


def _reported(benchmark: _Benchmark) -> dict[str, float]:
    def summary(metric: str) -> Mapping[str, Any]:
        successful: Mapping[str, Any] = (benchmark.metrics.get(metric) or {}).get("successful") or {}
        return {**successful, **(successful.get("percentiles") or {})}

    def means() -> Iterator[tuple[str, float]]:
        for metric, ours in (
            ("requests_per_second", "throughput_requests_per_s"),
            ("output_tokens_per_second", "throughput_tokens_per_s"),
            ("prompt_token_count", "counted_prompt_tokens"),
            ("output_token_count", "counted_output_tokens"),
        ):
            if (mean := summary(metric).get("mean")) is not None:
                yield ours, mean

    reported = {"duration_s": benchmark.duration, **dict(means())}
    if benchmark.metrics.get("request_totals"):
        totals = _totals(benchmark)
        reported |= {"requests": float(totals.successful + totals.errored), "ok": float(totals.successful)}
    for ours, metric, scale in (
        ("ttft", "time_to_first_token_ms", 1e-3),
        ("tpot", "time_per_output_token_ms", 1e-3),
        ("itl", "inter_token_latency_ms", 1e-3),
        ("e2e", "request_latency", 1.0),
    ):
        reported |= seconds(summary(metric), scale, {key: f"{ours}_{name}_s" for key, name in _KEYS.items()})
    return reported


def _is_report(content: Any) -> bool:
    """Whether GuideLLM wrote it; until 0.4 without metadata."""
    found = content.get("benchmarks") if isinstance(content, dict) else None
    return isinstance(found, list) and (
        "metadata" in content or any(isinstance(each, dict) and "metrics" in each for each in found)
    )


def _version(content: Any) -> str | None:
    metadata = content.get("metadata")
    return str(metadata["guidellm_version"]) if isinstance(metadata, dict) and "guidellm_version" in metadata else None


GUIDELLM = Format(
    name="guidellm",
    title="GuideLLM",
    file="the JSON of `guidellm run --output kind=json,path=FILE`",
    versions="0.8.1",
    definitions=_DEFINITIONS,
    is_result=_is_report,
    version=_version,
    read=_read,
)
