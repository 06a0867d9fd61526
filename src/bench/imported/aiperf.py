"""Results of AIPerf: aggregates and the load in one file, and a line a request in another beside it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.imported.kind import Definition, Format, PeerRun, all_there, failure, held, number, request, seconds
from bench.runs.files import UNREADABLE, typed
from bench.runs.request import RequestRecord

_METRICS = "aiperf/metrics/types"
_DEFINITIONS = (
    Definition("TTFT", "to the first event with text; from before a connection is found", f"{_METRICS}/ttft_metric.py"),
    Definition("ITL", "its name for TPOT as here: (E2E − TTFT) ÷ (n − 1)", f"{_METRICS}/inter_token_latency_metric.py"),
    Definition("E2E", "to the last event with text", f"{_METRICS}/request_latency_metric.py"),
    Definition(
        "tokens", "by the client's tokenizer, unless --use-server-token-count", f"{_METRICS}/output_sequence_length_metric.py"
    ),
    Definition(
        "throughput", "over the time from the first request to the last event", f"{_METRICS}/benchmark_duration_metric.py"
    ),
    Definition(
        "percentiles",
        "interpolated between requests (numpy.percentile); those with failures counted stand apart, as adj_…",
        "aiperf/metrics/derived_latency.py",
    ),
    Definition(
        "failures",
        "requests that its client cancelled (code 499) are errors; here they are left out",
        "aiperf/transports/aiohttp_client.py",
    ),
)
_KEYS = {"avg": "mean", "p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
_AGGREGATES, _RECORDS = "profile_export_aiperf.json", "profile_export.jsonl"
_ANY = {"aiperf_version", "request_latency", "request_throughput", "records"}  # the first, or what its first versions had
_ARRIVALS = {"poisson": "poisson", "gamma": "gamma", "constant": "constant"}
_OTHER = ("concurrency_ramp", "rate_ramp", "prefill_concurrency")
_CANCELLED = 499  # of a request that the client itself ended; source: aiperf/transports/aiohttp_client.py
_NS = 1e-9


@dataclass(frozen=True)
class _Phase:
    type: str
    kind: str | None = None
    requests: int | None = None
    concurrency: int | None = None
    rate: float | None = None
    concurrency_ramp: Any = None
    rate_ramp: Any = None
    prefill_concurrency: Any = None


@dataclass(frozen=True)
class _Config:
    phases: tuple[_Phase, ...]
    models: Any = None
    endpoint: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Result:
    input_config: _Config
    aiperf_version: str | None = None


@dataclass(frozen=True)
class _Metadata:
    request_start_ns: int
    request_end_ns: int
    benchmark_phase: str | None = None


@dataclass(frozen=True)
class _Record:
    metadata: _Metadata
    metrics: Mapping[str, Any] = field(default_factory=dict)
    error: Mapping[str, Any] | None = None


def _read(path: Path, content: Any) -> list[PeerRun]:
    result = typed(_Result, content)
    phases = [each for each in result.input_config.phases if each.kind != "warmup"]
    if not phases:
        raise ValueError("input_config.phases has no phase but warm-up")
    if len(phases) > 1:
        raise ValueError(f"input_config.phases: {len(phases)} phases after warm-up are no load that is read")
    (phase,) = phases
    file = path.with_name(path.stem.removesuffix("_aiperf") + ".jsonl")
    sent = _records(file)
    if sent and "request_count" in content:
        counted = sum(int(_average(content, name) or 0) for name in ("request_count", "error_request_count"))
        all_there(file.name, len(sent), "request_count and error_request_count come to", counted)
    records = [each for each in sent if each.error is None or each.error.get("code") != _CANCELLED]
    begun = min((each.metadata.request_start_ns for each in records), default=None)
    count = len(records) or int(_average(content, "request_count") or phase.requests or 0)
    arrival, axis, level = _load(phase, count)
    return [
        PeerRun(
            version=result.aiperf_version,
            model=_model(result.input_config.models),
            started=None if begun is None else datetime.fromtimestamp(_NS * begun, UTC).isoformat(timespec="milliseconds"),
            endpoint="chat" if result.input_config.endpoint.get("type") == "chat" else "completions",
            stream=bool(result.input_config.endpoint.get("streaming", True)),
            arrival=arrival,
            axis=axis,
            level=level,
            requests=list(_requests(records)),
            reported=_reported(content),
        )
    ]


def _model(models: Any) -> str:
    """The name of the first model, however the configuration has them."""
    items = models.get("items") if isinstance(models, Mapping) else models
    first = items[0] if isinstance(items, Sequence) and not isinstance(items, str) and items else items
    return str(first.get("name") if isinstance(first, Mapping) else first or "model")


def _load(phase: _Phase, requests: int) -> tuple[str, str, float]:
    if other := next((name for name in _OTHER if getattr(phase, name) is not None), None):
        raise ValueError(
            f"input_config.phases: {other} is {getattr(phase, other)!r}: such a ramp or cap is no load that is read"
        )
    if phase.type in _ARRIVALS and phase.rate:
        if phase.concurrency is not None:
            raise ValueError(
                f"input_config.phases: concurrency is {phase.concurrency}: {phase.type} with such a cap is no load that is read"
            )
        return _ARRIVALS[phase.type], "request_rate", phase.rate
    if phase.type != "concurrency":
        raise ValueError(f"input_config.phases: type is {phase.type!r}, which is no load that is read")
    return held(phase.concurrency or 1, requests)


def _records(file: Path) -> list[_Record]:
    """Those of the measured phase, in the order of sending; none where the file is missing."""
    if not file.exists():
        return []
    found = []
    try:
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):  # noqa: B007 - named where reading stops
            found.append(typed(_Record, json.loads(line)))
    except UNREADABLE as error:
        raise BenchError(
            f"{file}: line {number} is no record of a request of AIPerf: {error}. Copy the file again from where it was written."
        ) from None
    measured = (each for each in found if each.metadata.benchmark_phase != "warmup")
    return sorted(measured, key=lambda each: each.metadata.request_start_ns)


def _requests(records: Sequence[_Record]) -> Iterator[RequestRecord]:
    first = records[0].metadata.request_start_ns if records else 0
    for i, each in enumerate(records):
        sent, end = (_NS * (moment - first) for moment in (each.metadata.request_start_ns, each.metadata.request_end_ns))
        if each.error is not None:
            said, code = str(each.error.get("message") or each.error.get("type") or ""), each.error.get("code")
            outcome, status = failure(said, code if isinstance(code, int) and 300 <= code < 600 else None)
            yield request(i, sent_s=sent, end_s=end, outcome=outcome, error=said or None, status=status)
            continue
        ttft, lasts = (_value(each, name, 1e-3) for name in ("time_to_first_token", "request_latency"))
        times: list[float] = []
        if ttft is not None:
            gaps = each.metrics.get("inter_chunk_latency") or {}
            times = list(itertools.accumulate((1e-3 * gap for gap in gaps.get("value") or ()), initial=sent + ttft))
        last = sent + lasts if lasts is not None else times[-1] if times else end
        prompt, output = (_value(each, name) for name in ("input_sequence_length", "output_sequence_length"))
        yield request(
            i,
            sent_s=sent,
            first_token_s=times[0] if times else None,
            last_token_s=last,
            end_s=end,
            token_times_s=times,
            prompt_tokens=None if prompt is None else int(prompt),
            completion_tokens=None if output is None else int(output),
        )


def _value(record: _Record, metric: str, scale: float = 1.0) -> float | None:
    value = (record.metrics.get(metric) or {}).get("value")
    return None if value is None else scale * number(value, metric)


def _average(content: Mapping[str, Any], metric: str) -> float | None:
    value = (content.get(metric) or {}).get("avg")
    return None if value is None else number(value, metric)


def _reported(content: Mapping[str, Any]) -> dict[str, float]:
    def mean(metric: str, ours: str) -> dict[str, float]:
        return seconds(content.get(metric) or {}, 1.0, {"avg": ours})

    reported = {
        **mean("benchmark_duration", "duration_s"),
        **mean("request_count", "ok"),
        **mean("request_throughput", "throughput_requests_per_s"),
        **mean("output_token_throughput", "throughput_tokens_per_s"),
        **mean("input_sequence_length", "counted_prompt_tokens"),
        **mean("output_sequence_length", "counted_output_tokens"),
    }
    if "ok" in reported:
        reported["requests"] = reported["ok"] + (_average(content, "error_request_count") or 0.0)
    for ours, its in (("ttft", "time_to_first_token"), ("itl", "inter_token_latency"), ("e2e", "request_latency")):
        reported |= seconds(content.get(its) or {}, 1e-3, {key: f"{ours}_{name}_s" for key, name in _KEYS.items()})
    return reported


AIPERF = Format(
    name="aiperf",
    title="AIPerf",
    file=f"{_AGGREGATES} of its artifacts, beside {_RECORDS}",
    versions="0.13",
    definitions=_DEFINITIONS,
    is_result=lambda content: isinstance(content, dict) and "input_config" in content and not _ANY.isdisjoint(content),
    is_part=lambda content: (
        isinstance(content, dict) and {"metadata", "metrics"} <= content.keys() and "benchmarks" not in content
    ),
    version=lambda content: None if content.get("aiperf_version") is None else str(content["aiperf_version"]),
    read=_read,
)
