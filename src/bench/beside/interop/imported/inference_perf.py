"""Reports of inference-perf: the requests of all stages in one file, and each stage's load and aggregates in another beside it.

They do not name the version that wrote them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.beside.interop.imported.kind import Format, Load, Part, PeerRun, all_there, failure, held, no_load, request
from bench.runs.request import RequestRecord
from bench.yaml_file import read_yaml

# Behind a prefix.
_PER_REQUEST, _STAGE, _CONFIG = "per_request_lifecycle_metrics.json", "stage_{}_lifecycle_metrics.json", "config.yaml"


def _read(path: Path, content: Any) -> list[PeerRun]:
    parts = (Part(each, f"[{i}]") for i, each in enumerate(content))
    requests = sorted(parts, key=lambda each: float(each.get("start_time", need=True)))
    settings = Part(read_yaml(_beside(path, _CONFIG)), _CONFIG)
    runs: list[PeerRun] = []
    at = 0
    while (file := _beside(path, _STAGE.format(len(runs)))).exists():  # stages follow one another
        stage = Part(json.loads(file.read_text(encoding="utf-8")), file.name)
        count = stage.get("load_summary.count", int, need=True)
        of_stage = requests[at : at + count]
        at += count
        runs.append(
            PeerRun(
                model=settings.get("server.model_name", str) or "model",
                endpoint="chat" if settings.get("api.type", str) == "chat" else "completions",
                stream=bool(settings.part("api").content.get("streaming", True)),
                load=_load(settings, stage, count),
                requests=_requests(of_stage),
            )
        )
    all_there(len(requests), at)
    return runs


def _beside(path: Path, name: str) -> Path:
    return path.with_name(path.name.removesuffix(_PER_REQUEST) + name)


def _load(settings: Part, stage: Part, count: int) -> Load:
    kind, rate = settings.get("load.type", str), stage.get("load_summary.requested_rate")
    concurrency = stage.get("load_summary.concurrency", int)
    if concurrency and kind == "concurrent":
        return held(concurrency, count)
    if kind not in ("constant", "poisson") or not rate:
        raise no_load(f"load.type of {settings.where}", kind)
    return kind, "request_rate", rate


def _requests(requests: Sequence[Part]) -> list[RequestRecord]:
    found = []
    for i, each in enumerate(requests):
        first = requests[0].get("start_time", need=True)
        sent, end = (each.get(key, need=True) - first for key in ("start_time", "end_time"))
        prompt = each.get("info.request_metrics.text.input_tokens", int, need=True)
        if each.part("error").content:
            kind = each.get("error.error_type", str) or ""
            code = kind.removeprefix("HTTP Error ")
            said = each.get("error.error_msg", str) or kind
            found.append(request(i, sent, end, **failure(said, int(code) if code.isdigit() else None)))
            continue
        answer = each.part("info.response_metrics")
        # The tool repeats the moment of an event for each token of it, by its own tokenizer.
        times = [moment - first for moment, _ in itertools.groupby(answer.values("output_token_times"))]
        found.append(
            request(
                i,
                sent,
                end,
                times=times,
                ends=(None, times[-1] if times else end),
                prompt_tokens=answer.get("server_usage.prompt_tokens", int) or prompt,
                completion_tokens=answer.get("server_usage.completion_tokens", int) or answer.get("output_tokens", int),
                cached_tokens=answer.get("server_usage.prompt_tokens_details.cached_tokens", int),
            )
        )
    return found


def _is_requests(content: Any) -> bool:
    first = content[0] if isinstance(content, list) and content else None
    return isinstance(first, dict) and {"start_time", "end_time", "info"} <= first.keys()


INFERENCE_PERF = Format(
    name="inference-perf",
    title="inference-perf",
    file=f"{_PER_REQUEST}, beside {_STAGE.format(0)}, {_CONFIG} (`report: request_lifecycle: {{per_stage: true, per_request: true}}`)",
    versions="0.7",
    is_result=_is_requests,
    read=_read,
)
