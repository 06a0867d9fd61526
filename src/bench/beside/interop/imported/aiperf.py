"""Results of AIPerf: aggregates and the load in one file, and a line a request in another beside it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.beside.interop.imported.kind import Format, Load, Part, PeerRun, all_there, failure, held, iso, no_load, request
from bench.runs.request import RequestRecord

_CANCELLED = 499  # of a request that the client itself ended; source: aiperf/transports/aiohttp_client.py
_NS = 1e-9


def _read(path: Path, content: Any) -> list[PeerRun]:
    of = Part(content)
    phases = [each for each in of.parts("input_config.phases") if each.get("kind", str) != "warmup"]
    if len(phases) != 1:
        raise ValueError(f"input_config.phases: {len(phases)} phases after warm-up cannot be read; give one")
    file = path.with_name(path.stem.removesuffix("_aiperf") + ".jsonl")
    sent = _records(file)
    all_there(len(sent), of.get("request_count.avg", need=True) + (of.get("error_request_count.avg") or 0))
    records = [each for each in sent if each.part("error").content.get("code") != _CANCELLED]
    endpoint = of.part("input_config.endpoint")
    return [
        PeerRun(
            version=of.get("aiperf_version", str),
            model=_model(of.content["input_config"].get("models")),
            started=iso(_NS * _start(records[0])),
            endpoint="chat" if endpoint.get("type", str) == "chat" else "completions",
            stream=endpoint.content.get("streaming", True) is not False,
            load=_load(phases[0], len(records)),
            requests=list(_requests(records)),
        )
    ]


def _model(models: Any) -> str:
    """The name of the first model, however the configuration has them."""
    items = models.get("items") if isinstance(models, Mapping) else models
    first = items[0] if isinstance(items, list) and items else items
    return str(first.get("name") if isinstance(first, Mapping) else first or "model")


def _load(of: Part, requests: float) -> Load:
    kind, rate, concurrency = of.get("type", str), of.get("rate"), of.get("concurrency", int)
    for other in ("concurrency_ramp", "rate_ramp", "prefill_concurrency"):
        if (value := of.content.get(other)) is not None:
            raise no_load(other, value)
    if kind in ("poisson", "gamma", "constant") and rate:
        if concurrency is not None:
            raise no_load("concurrency", concurrency)
        return kind, "request_rate", rate
    if kind != "concurrency":
        raise no_load("type", kind)
    return held(concurrency or 1, requests)


def _start(record: Part) -> int:
    found: int = record.get("metadata.request_start_ns", int, need=True)
    return found


def _records(file: Path) -> list[Part]:
    """Those of the measured phase, in the order of sending."""
    lines = file.read_text(encoding="utf-8").splitlines()
    found = [Part(json.loads(line), f"{file.name}:{number}") for number, line in enumerate(lines, 1)]
    return sorted((each for each in found if each.get("metadata.benchmark_phase", str) != "warmup"), key=_start)


def _requests(records: Sequence[Part]) -> Iterator[RequestRecord]:
    for i, each in enumerate(records):
        sent, end = (
            _NS * (each.get(f"metadata.request_{which}_ns", int, need=True) - _start(records[0])) for which in ("start", "end")
        )
        if error := each.part("error").content:
            code, said = error.get("code"), str(error.get("message") or error.get("type") or "")
            yield request(i, sent, end, **failure(said, code if isinstance(code, int) and 300 <= code < 600 else None))
            continue
        ttft, lasts, prompt, output = (
            each.get(f"metrics.{name}.value")
            for name in ("time_to_first_token", "request_latency", "input_sequence_length", "output_sequence_length")
        )
        gaps = each.values("metrics.inter_chunk_latency.value")
        times = [] if ttft is None else list(itertools.accumulate((1e-3 * gap for gap in gaps), initial=sent + 1e-3 * ttft))
        yield request(
            i,
            sent,
            end,
            times=times,
            ends=(None, sent + 1e-3 * lasts if lasts is not None else times[-1] if times else end),
            prompt_tokens=None if prompt is None else int(prompt),
            completion_tokens=None if output is None else int(output),
        )


AIPERF = Format(
    name="aiperf",
    title="AIPerf",
    file="profile_export_aiperf.json of its artifacts, beside profile_export.jsonl",
    versions="0.13",
    is_result=lambda content: isinstance(content, dict) and {"input_config", "aiperf_version"} <= content.keys(),
    read=_read,
)
