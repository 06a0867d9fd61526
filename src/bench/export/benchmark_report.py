"""A run's numbers as a benchmark report 0.2 of llm-d-benchmark, which inference-perf writes too.

Source: schema_v0_2.py of llm-d-benchmark (llmdbenchmark/analysis/benchmark_report); inference-perf 0.7 has a copy of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from bench import __version__
from bench.errors import BenchError
from bench.runs.files import digest

_DESCRIPTION = (
    "Measured by Saturate. Times begin when the bytes of a request are sent, and end with its last token. TPOT is "
    "(E2E - TTFT) / (n - 1); percentiles are nearest ranks. Throughput is that of answered requests from the first one sent to "
    "the last token."
)
_STATISTICS = ("mean", "p50", "p90", "p95", "p99")
_LATENCIES = {
    "time_to_first_token": ("ttft", "s"),
    "time_per_output_token": ("tpot", "s/token"),
    "inter_token_latency": ("itl", "s/token"),
    "request_latency": ("e2e", "s"),
}
# Of the server: their means over the steady window or the run, and their peaks.
_OBSERVED = {
    "kv_cache_usage": ("fraction", "steady_kv_usage", "kv_usage_peak"),
    "running_requests": ("count", "steady_running", "running_peak"),
    "waiting_requests": ("count", "steady_waiting", "waiting_peak"),
    "cache_hit_rate": ("fraction", "prefix_hit_rate", None),
    "gpu_utilization": ("fraction", "gpu_utilisation_mean", None),
    "power_consumption": ("Watts", "gpu_power_mean_w", None),
}
_GPU = re.compile(r"\d+ × (.+)")  # as `Hardware.in_short` has it
_SOURCES = {"random": "random", "file": "sampled", "dataset": "sampled"}
# What a deployment is, for the hash of its configuration.
_CONFIGURED = (
    "model",
    "engine",
    "engine_version",
    "hardware",
    "dtype",
    "kv_cache_dtype",
    "max_model_len",
    "max_num_seqs",
    "environment",
)


def benchmark_report(row: Mapping[str, Any]) -> dict[str, Any]:
    """The report of one run, as plain data. What is not known is left out.

    Args:
        row: of the summary table.

    Raises:
        BenchError: another tool measured it, or it is a fleet's.
    """
    if row.get("prompts") == "imported":
        raise BenchError(
            f"{row['run']}: another tool measured it, and by definitions of its own. Give its result file to llm-d-benchmark, "
            "which makes the report."
        )
    if row.get("workers"):
        raise BenchError(
            f"{row['run']}: a fleet answered it, and of its engines the report would name one. Name a run of one server."
        )
    stack = _component(row)
    observed = _present({name: _observed(row, *of) for name, of in _OBSERVED.items()})
    components = [{"component_label": row["deployment"], "aggregate": observed}] if stack and observed else None
    return _present(
        {
            "version": "0.2",
            "run": _present(
                {
                    "uid": row.get("digest") or digest([row["deployment"], row["run"]]),
                    "eid": row["deployment"],
                    "time": _present({"start": row.get("started"), "duration": _duration(row.get("duration_s"))}),
                    "description": _DESCRIPTION,
                }
            ),
            "scenario": _present({"stack": [stack] if stack else None, "load": _load(row)}),
            "results": _present(
                {
                    "request_performance": {"aggregate": _performance(row)},
                    "observability": {"components": components} if components else None,
                }
            ),
        }
    )


def _present(content: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in content.items() if value not in (None, {}, [])}


def _duration(seconds: float | None) -> str | None:
    return None if seconds is None else f"PT{seconds:.6f}S"


def _component(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """The server; None where its engine is not known. Without one known kind of GPU it is generic: others need an accelerator."""
    if not row.get("engine"):
        return None
    standardized: dict[str, Any] = {
        "kind": "generic",
        "tool": row["engine"],
        "tool_version": row.get("engine_version") or "unknown",
    }
    gpus = {found[1] for part in str(row.get("hardware")).split(", ") if (found := _GPU.fullmatch(part))}
    if row.get("gpus") and len(gpus) == 1:
        sharing = {short: row.get(f"{name}_parallel") for short, name in (("tp", "tensor"), ("pp", "pipeline"), ("dp", "data"))}
        standardized |= {
            "kind": "inference_engine",
            "role": "replica",
            "replicas": 1,
            "model": {"name": row.get("model") or row["deployment"]},
            "accelerator": {"model": gpus.pop(), "count": row["gpus"], "parallelism": _present(sharing)},
        }
    else:
        standardized |= _present({"model": row.get("model"), "hardware": row.get("hardware")})
    return {
        "metadata": {"label": row["deployment"], "cfg_id": digest({name: row.get(name) for name in _CONFIGURED})},
        "standardized": standardized,
        "native": {},
    }


def _load(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """What was sent; None where the lengths of prompts are not known, which the schema asks for."""
    prompt = _length(row, "prompt")
    if prompt is None:
        return None
    held = row["axis"] == "concurrency"
    standardized = {
        "tool": "saturate",
        "tool_version": __version__,
        "parallelism": row.get("client_processes"),
        "source": _SOURCES.get(str(row.get("prompts")), "unknown"),
        "input_seq_len": prompt,
        "output_seq_len": _length(row, "output") if row.get("answers") == "exact" else None,
        "multi_turn": {"enabled": True} if (row.get("turns") or 1) > 1 else None,
        "rate_qps": row["level"] if row["axis"] == "request_rate" else None,
        "concurrency": int(row["level"]) if held else None,
    }
    named = {name: row.get(name) for name in ("workload", "arrival", "axis", "level", "repeat", "seed", "endpoint", "stream")}
    return {"metadata": {}, "standardized": _present(standardized), "native": {"config": _present(named)}}


def _length(row: Mapping[str, Any], part: str) -> dict[str, Any] | None:
    if (fixed := row.get(f"{part}_fixed")) is not None:
        return {"distribution": "fixed", "value": fixed}
    mean = row.get(f"{part}_tokens")
    return None if mean is None else {"distribution": "other", "value": mean}


def _performance(row: Mapping[str, Any]) -> dict[str, Any]:
    prompt, output = row.get("counted_prompt_tokens"), row.get("counted_output_tokens")
    rate, made = row.get("throughput_requests_per_s"), row.get("throughput_tokens_per_s")
    read = None if rate is None or prompt is None else rate * prompt
    rates = {
        "input_token_rate": (read, "tokens/s"),
        "output_token_rate": (made, "tokens/s"),
        "total_token_rate": (None if read is None or made is None else read + made, "tokens/s"),
        "request_rate": (rate, "queries/s"),
    }
    return _present(
        {
            "requests": _present(
                {
                    "total": row["requests"],
                    "failures": row["failed"],
                    "input_length": _mean(prompt, "count"),
                    "output_length": _mean(output, "count"),
                }
            ),
            "latency": _present({name: _statistics(row, *of) for name, of in _LATENCIES.items()}),
            "throughput": _present({name: _mean(*of) for name, of in rates.items()}),
        }
    )


def _mean(value: float | None, units: str) -> dict[str, Any] | None:
    return None if value is None else {"units": units, "mean": value}


def _statistics(row: Mapping[str, Any], name: str, units: str) -> dict[str, Any] | None:
    known = _present({key: row.get(f"{name}_{key}_s") for key in _STATISTICS})
    return {"units": units, **known} if "mean" in known else None


def _observed(row: Mapping[str, Any], units: str, mean: str, peak: str | None) -> dict[str, Any] | None:
    found = _mean(row.get(mean), units)
    return found and found | _present({"max": row.get(peak) if peak else None})
