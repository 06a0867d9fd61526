"""Metric names live here and nowhere else: from ours to the exposition's.

Source: the expositions of vLLM 0.13 to 0.32 (`vllm/v1/metrics/loggers.py`), prefix `vllm:`. Older names were renamed:
gpu_cache_usage_perc to kv_cache_usage_perc in 0.9.2, time_per_output_token_seconds to inter_token_latency_seconds in 0.11.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["COUNTERS", "GAUGES", "HISTOGRAMS", "METRICS", "SHARES", "missing_metrics"]

GAUGES = {
    "kv_usage": "vllm:kv_cache_usage_perc",  # share of blocks in use, 0 to 1
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
}
SHARES = ("kv_usage",)  # of several engines behind one endpoint the fullest counts; other gauges add up
COUNTERS = {
    "preemptions": "vllm:num_preemptions_total",
    "server_prompt_tokens": "vllm:prompt_tokens_total",
    "server_generation_tokens": "vllm:generation_tokens_total",
    "prefix_queries": "vllm:prefix_cache_queries_total",
    "prefix_hits": "vllm:prefix_cache_hits_total",
}
# Observed when a request finishes; read as the difference of sum and count between the run's first and last scrape.
HISTOGRAMS = {
    "server_ttft": "vllm:time_to_first_token_seconds",
    "server_queue_time": "vllm:request_queue_time_seconds",
    "server_prefill_time": "vllm:request_prefill_time_seconds",
    "server_decode_time": "vllm:request_decode_time_seconds",
    "server_e2e": "vllm:e2e_request_latency_seconds",
}
METRICS = {**GAUGES, **COUNTERS, **{f"{k}_sum": f"{v}_sum" for k, v in HISTOGRAMS.items()}}


def missing_metrics(present: Iterable[str]) -> list[str]:
    """Exposition names of the catalogue that `present` lacks: a renamed metric must never become an empty plot."""
    return sorted(set(METRICS.values()) - set(present))
