"""Result files as other tools write them, of requests whose times are known."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

EPOCH = 1_790_000_000.0


@dataclass(frozen=True)
class Sent:
    """A request that is planted: when it leaves (s), how long its first token takes and the gaps after it (s), lengths, or its failure.

    Attributes:
        tail: from the last token to the end of the body (s). code: of a failure, as AIPerf has it.
    """

    at: float
    ttft: float = 0.0
    gaps: Sequence[float] = ()
    prompt: int = 64
    error: str = ""
    tail: float = 0.001
    code: int = 503

    @property
    def tokens(self) -> list[float]:
        return [] if self.error else list(accumulate(self.gaps, initial=self.at + self.ttft))

    @property
    def end(self) -> float:
        return self.at + 0.5 if self.error else self.tokens[-1] + self.tail


# Four requests of five, four, three and two tokens, and one that was refused.
TRUTH = (
    Sent(0.0, 0.050, (0.010, 0.011, 0.012, 0.013)),
    Sent(0.1, 0.060, (0.020, 0.021, 0.022), prompt=65),
    Sent(0.2, 0.070, (0.030, 0.031)),
    Sent(0.3, 0.080, (0.040,)),
    Sent(0.4, error="Service Unavailable"),
)


def vllm(folder: Path, sent: Sequence[Sent] = TRUTH, **changes: Any) -> Path:
    """A result of `vllm bench serve --save-detailed`; clocks begin anywhere."""
    ok = [each for each in sent if not each.error]
    content = {
        "backend": "openai",
        "model_id": "m",
        "num_prompts": len(sent),
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": 2,
        "duration": 1.0,
        "completed": len(ok),
        "failed": len(sent) - len(ok),
        "total_input_tokens": sum(each.prompt for each in ok),
        "total_output_tokens": sum(len(each.tokens) for each in ok),
        "request_throughput": len(ok) / 1.0,
        "output_throughput": sum(len(each.tokens) for each in ok) / 1.0,
        "mean_ttft_ms": 65.0,
        "median_ttft_ms": 65.0,
        "p99_ttft_ms": 79.7,
        "start_times": [77.0 + each.at for each in sent],
        "ttfts": [each.ttft for each in sent],
        "itls": [list(each.gaps) for each in sent],
        "input_lens": [each.prompt for each in sent],
        "output_lens": [len(each.tokens) for each in sent],
        "errors": [each.error for each in sent],
    }
    file = folder / "vllm.json"
    file.write_text(json.dumps(content | changes))
    return file


def guidellm(folder: Path, sent: Sequence[Sent] = TRUTH, strategy: Mapping[str, Any] | None = None, **changes: Any) -> Path:
    """A report of GuideLLM with one benchmark."""

    def request(each: Sent) -> dict[str, Any]:
        tokens = [EPOCH + token for token in each.tokens]
        timings = {"request_start": EPOCH + each.at, "request_end": EPOCH + each.end, "token_iterations": len(tokens)}
        if tokens:
            timings |= {"first_token_iteration": tokens[0], "last_token_iteration": tokens[-1]}
        return {
            "info": {"timings": timings, "error": each.error or None},
            "prompt_tokens": each.prompt,
            "output_tokens": len(tokens),
        }

    ok, failed = ([request(each) for each in sent if bool(each.error) == wrong] for wrong in (False, True))
    benchmark = {
        "config": {
            "strategy": strategy or {"type_": "concurrent", "streams": 2, "max_concurrency": 2, "rampup_duration": 0.0},
            "backend": {"model": "m", "request_format": "/v1/completions"},
        },
        "metrics": {
            "request_totals": {"successful": len(ok), "errored": len(failed), "incomplete": 0, "total": len(sent)},
            "time_to_first_token_ms": {"successful": {"mean": 65.0, "median": 60.0, "percentiles": {"p99": 80.0}}},
        },
        "requests": {"successful": ok, "errored": failed, "incomplete": []},
        "start_time": EPOCH,
        "duration": 1.0,
    }
    file = folder / "guidellm.json"
    file.write_text(json.dumps({"metadata": {"guidellm_version": "0.8.1"}, "benchmarks": [benchmark]} | changes))
    return file


def aiperf(
    folder: Path, sent: Sequence[Sent] = TRUTH, phases: Sequence[Mapping[str, Any]] | None = None, **changes: Any
) -> Path:
    """AIPerf's aggregates, with its records beside them and a request of the warm-up among these."""

    def record(each: Sent, phase: str = "profiling") -> dict[str, Any]:
        start, end = (round(1e9 * (EPOCH + moment)) for moment in (each.at, each.end))
        metadata = {"request_start_ns": start, "request_end_ns": end, "benchmark_phase": phase}
        if each.error:
            return {
                "metadata": metadata,
                "metrics": {},
                "error": {"code": each.code, "type": each.error, "message": each.error},
            }
        metrics = {
            "time_to_first_token": {"value": 1e3 * each.ttft, "unit": "ms"},
            "request_latency": {"value": 1e3 * (each.tokens[-1] - each.at), "unit": "ms"},
            "inter_chunk_latency": {"value": [1e3 * gap for gap in each.gaps], "unit": "ms"},
            "input_sequence_length": {"value": each.prompt, "unit": "tokens"},
            "output_sequence_length": {"value": len(each.tokens), "unit": "tokens"},
        }
        return {"metadata": metadata, "metrics": metrics, "error": None}

    ok = [each for each in sent if not each.error]
    content = {
        "aiperf_version": "0.13.0",
        "input_config": {
            "phases": [
                {"kind": "warmup", "type": "concurrency"},
                *(phases or [{"kind": "profiling", "type": "concurrency", "concurrency": 2}]),
            ],
            "models": {"items": [{"name": "m"}]},
            "endpoint": {"type": "completions", "streaming": True},
        },
        "request_count": {"unit": "requests", "avg": len(ok)},
        "error_request_count": {"unit": "requests", "avg": len(sent) - len(ok)},
        "time_to_first_token": {"unit": "ms", "avg": 65.0, "p50": 65.0, "p99": 79.7},
    }
    lines = [record(Sent(-1.0, 0.5, (0.1,)), "warmup"), *map(record, reversed(sent))]
    (folder / "profile_export.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    file = folder / "profile_export_aiperf.json"
    file.write_text(json.dumps(content | changes))
    return file


def inference_perf(
    folder: Path, sent: Sequence[Sent] = TRUTH, stage: Mapping[str, Any] | None = None, load: str | None = "concurrent"
) -> Path:
    """inference-perf's requests, the one stage that sent them, and its configuration. Args: load: its type; None: no configuration."""

    def request(each: Sent) -> dict[str, Any]:
        info: dict[str, Any] = {"request_metrics": {"text": {"input_tokens": each.prompt}}, "response_metrics": None}
        if not each.error:
            tokens = [1000.0 + token for token in each.tokens]
            usage = {"prompt_tokens": each.prompt, "completion_tokens": len(tokens)}
            info["response_metrics"] = {"output_tokens": 99, "server_usage": usage, "output_token_times": tokens}
        error = {"error_type": "HTTP Error 503", "error_msg": each.error} if each.error else None
        return {"start_time": 1000.0 + each.at, "end_time": 1000.0 + each.end, "info": info, "error": error}

    ok = [each for each in sent if not each.error]
    (folder / "stage_0_lifecycle_metrics.json").write_text(
        json.dumps(
            {
                "benchmark_time_seconds": 1.0,
                "load_summary": {"count": len(sent), "requested_rate": 9.0, "concurrency": 2},
                "successes": {
                    "count": len(ok),
                    "latency": {"time_to_first_token": {"mean": 0.065, "median": 0.065, "p99": 0.0797}},
                },
                "failures": {"count": len(sent) - len(ok)},
            }
            | dict(stage or {})
        )
    )
    if load:
        (folder / "config.yaml").write_text(
            f"load: {{type: {load}}}\nserver: {{model_name: m}}\napi: {{type: completion, streaming: true}}\n"
        )
    file = folder / "per_request_lifecycle_metrics.json"
    file.write_text(json.dumps([request(each) for each in reversed(sent)]))
    return file


FILES = {"vllm": vllm, "guidellm": guidellm, "aiperf": aiperf, "inference-perf": inference_perf}
