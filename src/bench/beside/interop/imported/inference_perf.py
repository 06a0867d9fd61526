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
from bench.errors import BenchError
from bench.runs.files import UNREADABLE
from bench.runs.request import RequestRecord
from bench.yaml_file import read_yaml

# Behind a prefix.
_PER_REQUEST, _STAGE, _CONFIG = "per_request_lifecycle_metrics.json", "stage_{}_lifecycle_metrics.json", "config.yaml"
_LATENCIES = {
    "ttft": "time_to_first_token",
    "tpot": "time_per_output_token",
    "itl": "inter_token_latency",
    "e2e": "request_latency",
}


def _read(path: Path, content: Any) -> list[PeerRun]:
    requests = sorted((Part(each, f"[{i}]") for i, each in enumerate(content)), key=lambda each: _moment(each, "start_time"))
    stages = _stages(path)
    counts = [int(of.need("count", of.count("count"))) for of in (stage.part("load_summary") for stage in stages)]
    all_there("it", len(requests), "the stages beside it", sum(counts))
    config = _beside(path, _CONFIG)
    known = Part(read_yaml(config)) if config.exists() else None
    runs, at = [], 0
    for stage, count in zip(stages, counts, strict=True):  # which follow one another
        load, settings = _load(known, config, stage.part("load_summary"), count), known or Part({})
        streaming = settings.part("api").content.get("streaming", True)
        runs.append(
            PeerRun(
                model=settings.part("server").text("model_name") or "model",
                endpoint="chat" if settings.part("api").text("type") == "chat" else "completions",
                stream=bool(streaming),
                load=load,
                requests=_requests(requests[at : at + count]),
                reported=_reported(stage, count),
            )
        )
        at += count
    return runs


def _moment(of: Part, key: str) -> float:
    found: float = of.need(key, of.number(key))
    return found


def _beside(path: Path, name: str) -> Path:
    return path.with_name(path.name.removesuffix(_PER_REQUEST) + name)


def _stages(path: Path) -> list[Part]:
    stages: list[Part] = []
    while (file := _beside(path, _STAGE.format(len(stages)))).exists():
        try:
            stages.append(Part(json.loads(file.read_text(encoding="utf-8"))))
        except UNREADABLE as error:
            raise BenchError(
                f"{file}: no aggregates of an inference-perf stage: {error}. Copy it again from where it was written."
            ) from None
    if not stages:
        raise BenchError(
            f"{file}: no such file. It says what load inference-perf sent: copy it, and those of further stages, beside {_PER_REQUEST}."
        )
    return stages


def _load(known: Part | None, config: Path, of: Part, count: int) -> Load:
    """Of a rate, the configuration alone says how requests arrive."""
    kind, rate, concurrency = known and known.part("load").text("type"), of.number("requested_rate"), of.count("concurrency")
    if concurrency and (known is None or kind == "concurrent"):
        return held(concurrency, count)
    if known is None and rate:
        raise BenchError(f"{config}: no such file. It says how requests arrive: copy it beside {_PER_REQUEST}.")
    if kind not in ("constant", "poisson"):
        raise no_load(f"load.type of {config.name}", kind)
    if not rate:
        raise ValueError("load_summary has neither concurrency nor requested_rate")
    return str(kind), "request_rate", rate


def _requests(requests: Sequence[Part]) -> list[RequestRecord]:
    found = []
    for i, each in enumerate(requests):
        first = _moment(requests[0], "start_time")
        sent, end = (_moment(each, key) - first for key in ("start_time", "end_time"))
        asked, error, answer = (
            each.part("info").part("request_metrics"),
            each.part("error"),
            each.part("info").part("response_metrics"),
        )
        prompt = asked.part("text").need("input_tokens", asked.part("text").count("input_tokens"))
        if error.content:
            kind = error.text("error_type") or ""
            code = kind.removeprefix("HTTP Error ")
            found.append(
                request(i, sent, end, **failure(error.text("error_msg") or kind, int(code) if code.isdigit() else None))
            )
            continue
        usage = answer.part("server_usage")
        # The tool repeats the moment of an event for each token of it, by its own tokenizer.
        times = [moment - first for moment, _ in itertools.groupby(answer.values("output_token_times") or ())]
        found.append(
            request(
                i,
                sent,
                end,
                times=times,
                ends=(None, times[-1] if times else end),
                prompt_tokens=usage.count("prompt_tokens") or prompt,
                completion_tokens=usage.count("completion_tokens") or answer.count("output_tokens"),
                cached_tokens=usage.part("prompt_tokens_details").count("cached_tokens"),
            )
        )
    return found


def _reported(stage: Part, count: int) -> dict[str, float]:
    done, seconds = stage.part("successes"), stage.number("benchmark_time_seconds")
    reported = {
        "duration_s": stage.need("benchmark_time_seconds", seconds),
        "requests": float(count),
        "ok": float(done.count("count") or 0),
        **dict(
            done.part("throughput").known(
                {"requests_per_sec": "throughput_requests_per_s", "output_tokens_per_sec": "throughput_tokens_per_s"}
            )
        ),
        **dict(done.part("prompt_tokens").known({"mean": "counted_prompt_tokens"})),
        **dict(done.part("output_tokens").known({"mean": "counted_output_tokens"})),
    }
    for ours, its in _LATENCIES.items():
        reported |= dict(done.part("latency").part(its).times(ours))
    return reported


def _is_requests(content: Any) -> bool:
    first = content[0] if isinstance(content, list) and content else None
    return isinstance(first, dict) and {"start_time", "end_time", "info"} <= first.keys()


INFERENCE_PERF = Format(
    name="inference-perf",
    title="inference-perf",
    file=f"{_PER_REQUEST}, beside {_STAGE.format(0)}, {_CONFIG} (`report: request_lifecycle: {{per_stage: true, per_request: true}}`)",
    versions="0.7",
    is_result=_is_requests,
    is_part=lambda content: isinstance(content, dict) and {"load_summary", "successes", "failures"} <= content.keys(),
    read=_read,
)
