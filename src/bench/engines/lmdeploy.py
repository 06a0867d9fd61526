"""LMDeploy, measured where it runs.

Its metrics' names, 0.9.1 to 0.16.0: lmdeploy/metrics/loggers.py. `engine` is a rank of data parallelism. It reports no size of its KV
cache and no version, and observes a gap between tokens once a step of a request.
"""

from __future__ import annotations

from typing import Any

from bench.engines.kind import Ask, Exposed, Kind


class LMDeploy(Kind):
    """LMDeploy."""

    name = "lmdeploy"
    title = "LMDeploy"
    prefix = "lmdeploy:"
    metrics = {
        "kv_usage": [Exposed("lmdeploy:gpu_cache_usage_perc", since="0.9.1")],
        "running": [Exposed("lmdeploy:num_requests_running", since="0.9.1")],
        "waiting": [Exposed("lmdeploy:num_requests_waiting", since="0.9.1")],
        "server_prompt_tokens": [Exposed("lmdeploy:prompt_tokens_total", since="0.9.1")],
        "server_generation_tokens": [Exposed("lmdeploy:generation_tokens_total", since="0.9.1")],
        "prefix_queries": [Exposed("lmdeploy:request_prompt_tokens_sum", since="0.9.1", absent="unknown")],
        "prefix_hits": [Exposed("lmdeploy:cached_tokens_total", since="0.14.0", absent="unknown")],
        "server_ttft": [Exposed("lmdeploy:time_to_first_token_seconds", since="0.9.1")],
        "server_itl": [Exposed("lmdeploy:iter_token_latency", since="0.9.1", absent="unknown")],
        "server_queue_time": [Exposed("lmdeploy:request_queue_time_seconds", since="0.9.1")],
        "server_prefill_time": [Exposed("lmdeploy:request_prefill_time_seconds", since="0.9.1")],
        "server_decode_time": [Exposed("lmdeploy:request_decode_time_seconds", since="0.9.1")],
        "server_e2e": [Exposed("lmdeploy:e2e_request_latency_seconds", since="0.9.1")],
    }

    def info(self, ask: Ask) -> dict[str, Any] | None:
        """Nothing."""
        return None
