"""Results of AIPerf: aggregates and the load in one file, and a line a request in another beside it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.beside.interop.imported.kind import Format, Load, Part, PeerRun, Sent, all_there, held, no_load

_CANCELLED = 499  # of a request that the client itself ended; source: aiperf/transports/aiohttp_client.py
_NS, _MS = 1e-9, 1e-3


def _read(path: Path, content: Any) -> Iterator[PeerRun]:
    of = Part(content)
    phases = [each for each in of.parts("input_config.phases") if each.get("kind", str) != "warmup"]
    if len(phases) != 1:
        raise ValueError(f"input_config.phases: {len(phases)} phases after warm-up cannot be read; give one")
    file = path.with_name(path.stem.removesuffix("_aiperf") + ".jsonl")
    lines = file.read_text(encoding="utf-8").splitlines()
    records = [Part(json.loads(line), f"{file.name}:{number}") for number, line in enumerate(lines, 1)]
    records = [each for each in records if each.get("metadata.benchmark_phase", str) != "warmup"]
    all_there(len(records), of.get("request_count.avg", need=True) + (of.get("error_request_count.avg") or 0))
    sent = [_sent(each) for each in records]
    sent = [each for each in sent if each.status != _CANCELLED]
    models = of.content["input_config"].get("models")
    items = models.get("items") if isinstance(models, Mapping) else models
    first = items[0] if isinstance(items, list) and items else items
    yield PeerRun(
        version=of.get("aiperf_version", str),
        model=str(first.get("name") if isinstance(first, Mapping) else first or "model"),
        started=min(each.start for each in sent),
        endpoint="chat" if of.get("input_config.endpoint.type", str) == "chat" else "completions",
        stream=of.part("input_config.endpoint").content.get("streaming", True) is not False,
        load=_load(phases[0], len(sent)),
        sent=sent,
    )


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


def _sent(of: Part) -> Sent:
    start, end = (_NS * of.get(f"metadata.request_{which}_ns", int, need=True) for which in ("start", "end"))
    if of.get("error", Mapping):
        code = of.content["error"].get("code")
        said = of.get("error.message", str) or of.get("error.type", str) or ""
        return Sent(start=start, end=end, failed=said, status=code if isinstance(code, int) and 300 <= code < 600 else None)
    names = ("time_to_first_token", "request_latency", "input_sequence_length", "output_sequence_length")
    ttft, lasts, prompt, output = (of.get(f"metrics.{name}.value") for name in names)
    gaps = of.values("metrics.inter_chunk_latency.value")
    times = [] if ttft is None else list(itertools.accumulate((_MS * gap for gap in gaps), initial=start + _MS * ttft))
    return Sent(
        start=start,
        end=end,
        times=times,
        last=None if lasts is None else start + _MS * lasts,
        prompt=None if prompt is None else int(prompt),
        output=None if output is None else int(output),
    )


AIPERF = Format(
    name="aiperf",
    title="AIPerf",
    file="profile_export_aiperf.json of its artifacts, beside profile_export.jsonl",
    versions="0.13",
    keys=frozenset({"input_config", "aiperf_version"}),
    read=_read,
)
