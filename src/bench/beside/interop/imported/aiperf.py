"""Results of AIPerf: aggregates and the load in one file, and a line a request in another beside it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.beside.interop.imported.kind import Format, Load, Part, PeerRun, all_there, failure, held, no_load, request
from bench.errors import BenchError
from bench.runs.files import UNREADABLE
from bench.runs.request import RequestRecord

_AGGREGATES, _RECORDS = "profile_export_aiperf.json", "profile_export.jsonl"
_ANY = {"aiperf_version", "request_latency", "request_throughput", "records"}  # the first, or what its first versions had
_CANCELLED = 499  # of a request that the client itself ended; source: aiperf/transports/aiohttp_client.py
_NS = 1e-9
_MEANS = {
    "benchmark_duration": "duration_s",
    "request_count": "ok",
    "request_throughput": "throughput_requests_per_s",
    "output_token_throughput": "throughput_tokens_per_s",
    "input_sequence_length": "counted_prompt_tokens",
    "output_sequence_length": "counted_output_tokens",
}


def _read(path: Path, content: Any) -> list[PeerRun]:
    of = Part(content)
    config = of.part("input_config")
    config.need("phases", config.get("phases", list, "list"))
    phases = [each for each in config.parts("phases") if each.text("kind") != "warmup"]
    if len(phases) != 1:
        raise ValueError(f"input_config.phases: {len(phases)} phases after warm-up are no load that is read")
    file = path.with_name(path.stem.removesuffix("_aiperf") + ".jsonl")
    sent, failed = _records(file), of.part("error_request_count").number("avg") or 0
    reported = dict(pair for metric, ours in _MEANS.items() for pair in of.part(metric).known({"avg": ours}))
    if "ok" in reported:
        reported["requests"] = reported["ok"] + failed
        if sent:
            all_there(file.name, len(sent), "request_count and error_request_count come to", reported["requests"])
    for ours, its in (("ttft", "time_to_first_token"), ("itl", "inter_token_latency"), ("e2e", "request_latency")):
        reported |= dict(of.part(its).times(ours, 1e-3, mean="avg"))
    records = [each for each in sent if each.part("error").content.get("code") != _CANCELLED]
    begun = _start(records[0]) if records else None
    return [
        PeerRun(
            version=of.text("aiperf_version"),
            model=_model(config.content.get("models")),
            started=None if begun is None else datetime.fromtimestamp(_NS * begun, UTC).isoformat(timespec="milliseconds"),
            endpoint="chat" if config.part("endpoint").text("type") == "chat" else "completions",
            stream=config.part("endpoint").content.get("streaming", True) is not False,
            load=_load(phases[0], len(records) or reported.get("ok") or phases[0].count("requests") or 0),
            requests=list(_requests(records)),
            reported=reported,
        )
    ]


def _model(models: Any) -> str:
    """The name of the first model, however the configuration has them."""
    items = models.get("items") if isinstance(models, Mapping) else models
    first = items[0] if isinstance(items, Sequence) and not isinstance(items, str) and items else items
    return str(first.get("name") if isinstance(first, Mapping) else first or "model")


def _load(of: Part, requests: float) -> Load:
    kind, rate, concurrency = of.text("type"), of.number("rate"), of.count("concurrency")
    for other in ("concurrency_ramp", "rate_ramp", "prefill_concurrency"):
        if (value := of.content.get(other)) is not None:
            raise no_load(f"{of.where}.{other}", value)
    if kind in ("poisson", "gamma", "constant") and rate:
        if concurrency is not None:
            raise no_load(f"{of.where}.concurrency", concurrency)
        return kind, "request_rate", rate
    if kind != "concurrency":
        raise no_load(f"{of.where}.type", kind)
    return held(concurrency or 1, requests)


def _start(record: Part) -> int:
    at = record.part("metadata")
    found: int = at.need("request_start_ns", at.count("request_start_ns"))
    return found


def _records(file: Path) -> list[Part]:
    """Those of the measured phase, in the order of sending; none where the file is missing."""
    if not file.exists():
        return []
    found: list[Part] = []
    try:
        for line in file.read_text(encoding="utf-8").splitlines():
            each = Part(json.loads(line))
            metadata = each.part("metadata")
            metadata.need("request_end_ns", metadata.count("request_end_ns"))
            _start(each)
            found.append(each)
    except UNREADABLE as error:
        raise BenchError(
            f"{file}: line {len(found) + 1} is no record of a request of AIPerf: {error}. Copy the file again from where it lies."
        ) from None
    return sorted((each for each in found if each.part("metadata").text("benchmark_phase") != "warmup"), key=_start)


def _requests(records: Sequence[Part]) -> Iterator[RequestRecord]:
    for i, each in enumerate(records):
        metrics, error, first = each.part("metrics"), each.part("error"), _start(records[0])
        sent, end = _NS * (_start(each) - first), _NS * ((each.part("metadata").count("request_end_ns") or 0) - first)
        if error.content:
            code = error.content.get("code")
            said = str(error.content.get("message") or error.content.get("type") or "")
            yield request(i, sent, end, **failure(said, code if isinstance(code, int) and 300 <= code < 600 else None))
            continue
        ttft, lasts = (metrics.part(name).number("value") for name in ("time_to_first_token", "request_latency"))
        times: list[float] = []
        if ttft is not None:
            gaps = metrics.part("inter_chunk_latency").values("value") or []
            times = list(itertools.accumulate((1e-3 * gap for gap in gaps), initial=sent + 1e-3 * ttft))
        yield request(
            i,
            sent,
            end,
            times=times,
            ends=(None, sent + 1e-3 * lasts if lasts is not None else times[-1] if times else end),
            prompt_tokens=_whole(metrics.part("input_sequence_length")),
            completion_tokens=_whole(metrics.part("output_sequence_length")),
        )


def _whole(metric: Part) -> int | None:
    value = metric.number("value")
    return None if value is None else int(value)


AIPERF = Format(
    name="aiperf",
    title="AIPerf",
    file=f"{_AGGREGATES} of its artifacts, beside {_RECORDS}",
    versions="0.13",
    is_result=lambda content: isinstance(content, dict) and "input_config" in content and not _ANY.isdisjoint(content),
    is_part=lambda content: (
        isinstance(content, dict) and {"metadata", "metrics"} <= content.keys() and "benchmarks" not in content
    ),
    version=lambda content: None if content.get("aiperf_version") is None else str(content["aiperf_version"]),
    read=_read,
)
