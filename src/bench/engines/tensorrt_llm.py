"""TensorRT-LLM's `trtllm-serve`, measured where it runs.

Its metrics' names, 1.1 and 1.3: tensorrt_llm/metrics/collector.py. They are at /prometheus/metrics; its /metrics answers with JSON.
What is of single steps is exposed with `enable_iter_perf_stats`, and what is of requests with `return_perf_metrics`. Tokens count when
their request is done. Its time a token is a mean of each request, no gap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.engines.kind import Ask, Exposed, Kind, Labelled, Spelling, common, total, whole
from bench.records.deployment import KvFacts


def _shown(name: str, since: str = "1.3.0") -> list[Exposed]:
    """Settings decide which of its metrics are there."""
    return [Exposed(f"trtllm_{name}", since=since, absent="unknown")]


class TensorRTLLM(Kind):
    """TensorRT-LLM."""

    name = "tensorrt-llm"
    title = "TensorRT-LLM"
    prefix = "trtllm_"
    others = (Spelling("trtllm:"),)  # Dynamo, up to 0.7
    metrics = {
        "kv_usage": _shown("kv_cache_utilization"),
        "running": _shown("num_requests_running"),
        "waiting": _shown("num_requests_waiting"),
        "server_prompt_tokens": _shown("prompt_tokens_total"),
        "server_generation_tokens": _shown("generation_tokens_total"),
        "prefix_queries": _shown("prompt_tokens_total"),
        "prefix_hits": _shown("prompt_cached_tokens_total"),
        "server_ttft": _shown("time_to_first_token_seconds", since="1.1.0"),
        "server_queue_time": _shown("request_queue_time_seconds", since="1.1.0"),
        "server_prefill_time": _shown("request_prefill_time_seconds"),
        "server_decode_time": _shown("request_decode_time_seconds"),
        "server_e2e": _shown("e2e_request_latency_seconds", since="1.1.0"),
    }
    facts = {"kv_blocks": "trtllm_kv_cache_max_blocks", "block_size": "trtllm_kv_cache_tokens_per_block"}

    def info(self, ask: Ask) -> dict[str, Any] | None:
        """Its /version is like vLLM's, which is asked before."""
        return None

    def kv_facts(self, samples: Mapping[str, Sequence[Labelled]], info: Mapping[str, Any]) -> KvFacts:
        """Blocks and tokens of a block. What they hold together is not known, since layers with windows have blocks of their own."""
        blocks = total([whole(value) for _, value in samples["kv_blocks"]]) if "kv_blocks" in samples else None
        size = common([whole(value) for _, value in samples.get("block_size", ())])
        return KvFacts(engines=max(map(len, samples.values()), default=None), kv_blocks=blocks, block_size=size, kv_tokens=None)
