"""Text Generation Inference, measured where it runs.

Its metrics' names, 1.0.0 to 3.3.7: router/src/server.rs, backends/v3/src (before 2.3 router/src/infer). Nothing of the KV cache or of
single tokens; its mean time a token counts the prefill in.
"""

from __future__ import annotations

from typing import Any

from bench.engines.kind import Ask, Exposed, Kind


class TGI(Kind):
    """Text Generation Inference."""

    name = "tgi"
    title = "TGI"
    prefix = "tgi_"
    metrics = {
        "running": [Exposed("tgi_batch_current_size", since="1.0.0")],
        "waiting": [Exposed("tgi_queue_size", since="1.0.0")],
        "server_prompt_tokens": [Exposed("tgi_request_input_length_sum", since="1.0.0")],
        "server_generation_tokens": [Exposed("tgi_request_generated_tokens_sum", since="1.0.0")],
        "server_queue_time": [Exposed("tgi_request_queue_duration", since="1.0.0")],
        "server_e2e": [Exposed("tgi_request_duration", since="1.0.0")],
    }

    def info(self, ask: Ask) -> dict[str, Any] | None:
        """/info."""
        content = ask("info")
        return content if isinstance(content, dict) and isinstance(content.get("version"), str) else None
