"""Reports of inference-perf: the requests of all stages in one file, and each stage's load and aggregates in another beside it.

They do not name the version that wrote them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.beside.interop.imported.kind import Format, Load, Part, PeerRun, Sent, all_there, held, no_load
from bench.yaml_file import read_yaml

# Behind a prefix.
_PER_REQUEST, _STAGE, _CONFIG = "per_request_lifecycle_metrics.json", "stage_{}_lifecycle_metrics.json", "config.yaml"


def _read(path: Path, content: Any) -> Iterator[PeerRun]:
    def beside(name: str) -> Path:
        return path.with_name(path.name.removesuffix(_PER_REQUEST) + name)

    sent = sorted((_sent(Part(each, f"[{i}]")) for i, each in enumerate(content)), key=lambda each: each.start)
    settings = Part(read_yaml(beside(_CONFIG)), _CONFIG)
    at = 0
    for file in itertools.takewhile(Path.exists, (beside(_STAGE.format(i)) for i in itertools.count())):
        stage = Part(json.loads(file.read_text(encoding="utf-8")), file.name)
        count = stage.get("load_summary.count", int, need=True)
        yield PeerRun(
            model=settings.get("server.model_name", str) or "model",
            endpoint="chat" if settings.get("api.type", str) == "chat" else "completions",
            stream=bool(settings.part("api").content.get("streaming", True)),
            load=_load(settings, stage, count),
            sent=sent[at : at + count],  # stages follow one another
        )
        at += count
    all_there(len(sent), at)


def _load(settings: Part, stage: Part, count: int) -> Load:
    kind, rate = settings.get("load.type", str), stage.get("load_summary.requested_rate")
    concurrency = stage.get("load_summary.concurrency", int)
    if concurrency and kind == "concurrent":
        return held(concurrency, count)
    if kind not in ("constant", "poisson") or not rate:
        raise no_load(f"load.type of {settings.where}", kind)
    return kind, "request_rate", rate


def _sent(of: Part) -> Sent:
    start, end = (of.get(key, need=True) for key in ("start_time", "end_time"))
    if of.get("error", Mapping):
        kind = of.get("error.error_type", str) or ""
        code = kind.removeprefix("HTTP Error ")
        said = of.get("error.error_msg", str) or kind
        return Sent(start=start, end=end, failed=said, status=int(code) if code.isdigit() else None)
    answer = of.part("info.response_metrics")
    # The tool repeats the moment of an event for each token of it, by its own tokenizer.
    times = [moment for moment, _ in itertools.groupby(answer.values("output_token_times"))]
    return Sent(
        start=start,
        end=end,
        times=times,
        last=times[-1] if times else end,
        prompt=answer.get("server_usage.prompt_tokens", int)
        or of.get("info.request_metrics.text.input_tokens", int, need=True),
        output=answer.get("server_usage.completion_tokens", int) or answer.get("output_tokens", int),
        cached=answer.get("server_usage.prompt_tokens_details.cached_tokens", int),
    )


INFERENCE_PERF = Format(
    name="inference-perf",
    title="inference-perf",
    file=f"{_PER_REQUEST}, beside {_STAGE.format(0)}, {_CONFIG} (`report: request_lifecycle: {{per_stage: true, per_request: true}}`)",
    versions="0.7",
    keys=frozenset({"start_time", "end_time", "info"}),
    listed=True,
    read=_read,
)
