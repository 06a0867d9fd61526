"""A small study whose deployment has a sweep."""

import copy
from typing import Any

STUDY: dict[str, Any] = {
    "study": {"title": "t", "ladders": [{"deployment": "one", "workload": "closed", "concurrency": [2, 4]}]},
    "models": {
        name: {
            "config": {
                "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 512, "num_attention_heads": 4,
                "num_key_value_heads": heads, "head_dim": 128, "intermediate_size": 1408, "vocab_size": 1024,
                "max_position_embeddings": 1024,
            }
        }
        for name, heads in (("mha", 4), ("mqa", 1))
    },
    "engines": {"none": {"source": "command", "command": ["true"]}},
    "deployments": {"one": {"model": "mha", "engine": "none", "kv_cache_memory": "96MiB"}},
    "workloads": {"closed": {"arrival": "closed", "num_requests": 30, "prompt_tokens": 64, "output_tokens": 16}},
}  # fmt: skip


def study(sweep: Any, **more: Any) -> dict[str, Any]:
    """The study with this sweep, and with more of its deployment."""
    content = copy.deepcopy(STUDY)
    content["deployments"]["one"] |= {"sweep": sweep, **more}
    return content
