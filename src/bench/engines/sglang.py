"""SGLang, measured where it runs.

Its metrics' names, 0.4.0 to 0.5.23: python/sglang/srt/metrics/collector.py, from 0.5.10 srt/observability/metrics_collector.py. Without
prefill and decode times. It retracts a request where vLLM preempts it; every prompt token is looked up in its prefix cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.engines.kind import Ask, Exposed, Kind, Labelled, common, ray_spellings, total, whole
from bench.records.deployment import KvFacts


class SGLang(Kind):
    """SGLang."""

    name = "sglang"
    title = "SGLang"
    prefix = "sglang:"
    metrics = {
        "kv_usage": [Exposed("sglang:token_usage", since="0.4.0")],
        "running": [Exposed("sglang:num_running_reqs", since="0.4.0")],
        "waiting": [Exposed("sglang:num_queue_reqs", since="0.4.0")],
        "preemptions": [Exposed("sglang:num_retracted_requests_total", since="0.5.7", absent="zero")],
        "server_prompt_tokens": [Exposed("sglang:prompt_tokens_total", since="0.4.0")],
        "server_generation_tokens": [Exposed("sglang:generation_tokens_total", since="0.4.0")],
        "prefix_queries": [Exposed("sglang:prompt_tokens_total", since="0.4.4")],
        "prefix_hits": [Exposed("sglang:cached_tokens_total", since="0.4.4", absent="zero")],
        # The mean of its latest steps. Of draft tokens it counts none, and the divisor of its acceptance rate changed with versions.
        "spec_accepted_length": [Exposed("sglang:spec_accept_length", since="0.4.0", absent="unknown")],
        "server_ttft": [Exposed("sglang:time_to_first_token_seconds", since="0.4.0")],
        "server_itl": [
            Exposed("sglang:inter_token_latency_seconds", since="0.4.4", absent="unknown"),
            Exposed("sglang:time_per_output_token_seconds", since="0.4.0", until="0.4.5", absent="unknown"),
        ],
        "server_queue_time": [Exposed("sglang:queue_time_seconds", since="0.5.3")],
        "server_e2e": [Exposed("sglang:e2e_request_latency_seconds", since="0.4.0")],
    }
    others = ray_spellings("sglang")
    # Each rank of a tensor, pipeline, expert or context group schedules all of its requests; dp_rank divides them.
    repeats = ("tp_rank", "pp_rank", "moe_ep_rank")
    totals = {"priority": ""}  # with --enable-priority-scheduling
    facts = {
        "kv_tokens": "sglang:max_total_num_tokens",  # from 0.5.6
        "kv_blocks": "sglang:num_pages",  # from 0.5.11
        "block_size": "sglang:page_size",  # from 0.5.11
    }

    def info(self, ask: Ask) -> dict[str, Any] | None:
        """/server_info, which was /get_server_info before 0.5.6."""
        for path in ("server_info", "get_server_info"):
            content = ask(path)
            if isinstance(content, dict) and isinstance(content.get("version"), str):
                return content
        return None

    def kv_facts(self, samples: Mapping[str, Sequence[Labelled]], info: Mapping[str, Any]) -> KvFacts:
        """Each engine exposes its own tokens and pages."""
        tokens, blocks = (
            total([whole(value) for _, value in samples[fact]]) if fact in samples else None
            for fact in ("kv_tokens", "kv_blocks")
        )
        size = common([whole(value) for _, value in samples.get("block_size", ())])
        return KvFacts(
            engines=max(map(len, samples.values()), default=None),
            kv_blocks=blocks,
            block_size=size,
            kv_tokens=blocks * size if tokens is None and blocks and size else tokens,
            prefix_caching=not info["disable_radix_cache"] if "disable_radix_cache" in info else None,
        )
