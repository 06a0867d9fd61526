"""Reports of inference-perf: the requests of all stages in one file, and each stage's load and aggregates in another beside it.

They do not name the version that wrote them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.imported.kind import Definition, Format, PeerRun, all_there, failure, held, request, seconds
from bench.runs.files import UNREADABLE, typed
from bench.runs.request import RequestRecord
from bench.yaml_file import read_yaml

_REPORT, _CLIENT = "inference_perf/reportgen/base.py", "inference_perf/client/modelserver/openai_client.py"
_PER_REQUEST, _STAGE, _CONFIG = (
    "per_request_lifecycle_metrics.json",
    "stage_{}_lifecycle_metrics.json",
    "config.yaml",
)  # behind a prefix
_DEFINITIONS = (
    Definition(
        "TTFT", "to the first event with text; from before a connection is found; none of an answer of one token", _CLIENT
    ),
    Definition(
        "TPOT",
        "(last − first event with text) ÷ (n − 1), n from the client's tokenizer, unless use_server_output_tokens has it take usage",
        _REPORT,
    ),
    Definition("ITL", "gaps between tokens by its tokenizer: 0 within one event", _REPORT),
    Definition("E2E", "to the end of the body", _CLIENT),
    Definition("throughput", "over the time from the first request to the end of the last", _REPORT),
    Definition("percentiles", "interpolated between requests (numpy.percentile)", _REPORT),
)
_KEYS = {"mean": "mean", "median": "p50"} | {f"p{p}": f"p{p}" for p in (90, 95, 99)}


@dataclass(frozen=True)
class _Text:
    input_tokens: int


@dataclass(frozen=True)
class _Asked:
    text: _Text


@dataclass(frozen=True)
class _Answer:
    output_tokens: int | None = None
    server_usage: Mapping[str, Any] | None = None
    output_token_times: tuple[float, ...] = ()


@dataclass(frozen=True)
class _Info:
    request_metrics: _Asked
    response_metrics: _Answer | None = None


@dataclass(frozen=True)
class _Error:
    error_type: str = ""
    error_msg: str = ""


@dataclass(frozen=True)
class _Request:
    """A request; moments in seconds on a clock of the client."""

    start_time: float
    end_time: float
    info: _Info
    error: _Error | None = None


@dataclass(frozen=True)
class _Load:
    count: int
    requested_rate: float | None = None
    concurrency: int | None = None


@dataclass(frozen=True)
class _Stage:
    load_summary: _Load
    successes: Mapping[str, Any]
    failures: Mapping[str, Any]
    benchmark_time_seconds: float


@dataclass(frozen=True)
class _Configuration:
    load: Mapping[str, Any] = field(default_factory=dict)
    server: Mapping[str, Any] = field(default_factory=dict)
    api: Mapping[str, Any] = field(default_factory=dict)


def _read(path: Path, content: Any) -> list[PeerRun]:
    requests = list(typed(tuple[_Request, ...], content))
    requests.sort(key=lambda each: each.start_time)
    stages = _stages(path)
    all_there("it", len(requests), "the stages beside it", sum(stage.load_summary.count for stage in stages))
    config = _beside(path, _CONFIG)
    known = typed(_Configuration, read_yaml(config)) if config.exists() else None
    runs, at = [], 0
    for stage in stages:  # which follow one another
        runs.append(_run(known, config, stage, requests[at : at + stage.load_summary.count]))
        at += stage.load_summary.count
    return runs


def _beside(path: Path, name: str) -> Path:
    return path.with_name(path.name.removesuffix(_PER_REQUEST) + name)


def _stages(path: Path) -> list[_Stage]:
    stages: list[_Stage] = []
    while (file := _beside(path, _STAGE.format(len(stages)))).exists():
        try:
            stages.append(typed(_Stage, json.loads(file.read_text(encoding="utf-8"))))
        except UNREADABLE as error:
            raise BenchError(
                f"{file}: no aggregates of an inference-perf stage: {error}. Copy it again from where it was written."
            ) from None
    if not stages:
        raise BenchError(
            f"{file}: no such file. It says what load inference-perf sent: copy it, and those of further stages, "
            f"beside {_PER_REQUEST}."
        )
    return stages


def _load(known: _Configuration | None, config: Path, load: _Load) -> tuple[str, str, float]:
    """Arrival, axis and level; of a rate, the configuration alone says how requests arrive."""
    kind = None if known is None else known.load.get("type")
    if load.concurrency and (known is None or kind == "concurrent"):
        return held(load.concurrency, load.count)
    if known is None and load.requested_rate:
        raise BenchError(f"{config}: no such file. It says how requests arrive: copy it beside {_PER_REQUEST}.")
    if kind not in ("constant", "poisson"):
        raise ValueError(f"load.type of {config.name} is {kind!r}, which is no load that is read")
    if not load.requested_rate:
        raise ValueError("load_summary has neither concurrency nor requested_rate")
    return str(kind), "request_rate", load.requested_rate


def _run(known: _Configuration | None, config: Path, stage: _Stage, requests: Sequence[_Request]) -> PeerRun:
    arrival, axis, level = _load(known, config, stage.load_summary)
    known = known or _Configuration()
    return PeerRun(
        version=None,
        model=str(known.server.get("model_name") or "model"),
        endpoint="chat" if known.api.get("type") == "chat" else "completions",
        stream=bool(known.api.get("streaming", True)),
        arrival=arrival,
        axis=axis,
        level=level,
        requests=_requests(requests),
        reported=_reported(stage),
    )


def _requests(requests: Sequence[_Request]) -> list[RequestRecord]:
    first, found = requests[0].start_time if requests else 0.0, []
    for i, each in enumerate(requests):
        sent, end = each.start_time - first, each.end_time - first
        prompt = each.info.request_metrics.text.input_tokens
        if each.error is not None:
            code = each.error.error_type.removeprefix("HTTP Error ")
            said = each.error.error_msg or each.error.error_type
            outcome, status = failure(said, int(code) if code.isdigit() else None)
            found.append(request(i, sent_s=sent, end_s=end, outcome=outcome, error=said, status=status))
            continue
        answer = each.info.response_metrics or _Answer()
        usage = answer.server_usage or {}
        # The tool repeats the moment of an event for each token of it, by its own tokenizer.
        times = [moment - first for moment, _ in itertools.groupby(answer.output_token_times)]
        found.append(
            request(
                i,
                sent_s=sent,
                first_token_s=times[0] if times else None,
                last_token_s=times[-1] if times else end,
                end_s=end,
                token_times_s=times,
                prompt_tokens=usage.get("prompt_tokens") or prompt,
                completion_tokens=usage.get("completion_tokens") or answer.output_tokens,
                cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
            )
        )
    return found


def _reported(stage: _Stage) -> dict[str, float]:
    done, throughput = stage.successes, stage.successes.get("throughput") or {}
    reported = {
        "duration_s": stage.benchmark_time_seconds,
        "requests": float(stage.load_summary.count),
        "ok": float(done.get("count") or 0),
        **seconds(
            throughput,
            1.0,
            {"requests_per_sec": "throughput_requests_per_s", "output_tokens_per_sec": "throughput_tokens_per_s"},
        ),
        **seconds(done.get("prompt_tokens") or {}, 1.0, {"mean": "counted_prompt_tokens"}),
        **seconds(done.get("output_tokens") or {}, 1.0, {"mean": "counted_output_tokens"}),
    }
    for ours, its in (
        ("ttft", "time_to_first_token"),
        ("tpot", "time_per_output_token"),
        ("itl", "inter_token_latency"),
        ("e2e", "request_latency"),
    ):
        values = (done.get("latency") or {}).get(its) or {}
        reported |= seconds(values, 1.0, {key: f"{ours}_{name}_s" for key, name in _KEYS.items()})
    return reported


def _is_requests(content: Any) -> bool:
    first = content[0] if isinstance(content, list) and content else None
    return isinstance(first, dict) and {"start_time", "end_time", "info"} <= first.keys()


INFERENCE_PERF = Format(
    name="inference-perf",
    title="inference-perf",
    file=f"{_PER_REQUEST}, beside {_STAGE.format(0)}, {_CONFIG} (`report: request_lifecycle: {{per_stage: true, per_request: true}}`)",
    versions="0.7",
    definitions=_DEFINITIONS,
    is_result=_is_requests,
    is_part=lambda content: isinstance(content, dict) and {"load_summary", "successes", "failures"} <= content.keys(),
    read=_read,
)
