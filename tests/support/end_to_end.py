"""The studies of the real engines."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.support.project import LENIENT, Project
from tests.support.study import ROOT

TINY = {
    "model_type": "llama",
    "num_hidden_layers": 2, "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 64,
    "intermediate_size": 512, "vocab_size": 512, "max_position_embeddings": 512,
}  # fmt: skip


# The requests before each run show whether the machine's speed changed; here they only take time.
BRIEF = {"warmup_requests": 6, "reference_requests": 2}
LENGTHS = {"prompt_tokens": 96, "output_tokens": 16}


# 4 KiB a token: 4 MiB hold four slots of 256 tokens.
CONFIG = {
    "study": {
        "title": "A study grows",
        "ladders": [
            {"deployment": "one", "workload": "burst", "concurrency": [2, 12]},
            {"deployment": "one", "workload": "closed", "concurrency": [2]},
        ],
    },
    "models": {"one": {"config": TINY}},
    "engines": {"llama-cpp": {"kind": "llama.cpp", "source": "lock", "locks": ["workflow/envs/llama-cpp-2026.10.11549.lock"]}},
    "deployments": {"one": {"model": "one", "engine": "llama-cpp", "kv_cache_memory": "4MiB", "max_num_seqs": 4}},
    "workloads": {
        "burst": {"arrival": "burst", "prompt_tokens": 32, "output_tokens": 64},
        "closed": {"arrival": "closed", "prompt_tokens": 32, "output_tokens": 32, "num_requests": 6},
    },
    "thresholds": LENIENT,
}


# 4 KiB a token: 4 MiB hold 1,024 tokens, 10.7 requests of 96 tokens.
VLLM_CONFIG: dict[str, Any] = {
    "study": {
        "title": "End to end",
        "ladders": [
            {"deployment": "one", "workload": "burst", "concurrency": [2, 24]},
            *({"deployment": "one", "workload": name, "concurrency": [2]} for name in ("closed", "talk", "alike", "same")),
            {"deployment": "one", "workload": "turns", "users": [2]},
        ],
    },
    "models": {"one": {"config": TINY}},
    "engines": {"vllm-cpu": yaml.safe_load((ROOT / "config/config.yaml").read_text())["engines"]["vllm-cpu"]},
    "deployments": {"one": {"model": "one", "engine": "vllm-cpu", "kv_cache_memory": "4MiB", "prefix_caching": True}},
    "workloads": {
        "burst": {"arrival": "burst", "prompt_tokens": 32, "output_tokens": 64},
        "closed": {"arrival": "closed", "prompt_tokens": 32, "output_tokens": 32, "num_requests": 6},
        "talk": {"arrival": "burst", "endpoint": "chat", **LENGTHS},
        "alike": {"arrival": "burst", "cache": "shared", "shared_prefix": 0.7, **LENGTHS},
        "same": {"arrival": "closed", "num_requests": 6, "cache": "repeated", **LENGTHS},
        "turns": {"arrival": "closed", "num_requests": 4, "turns": {"count": 3, "new_tokens": 40}, **LENGTHS},
    },
    "thresholds": LENIENT,
    "measurement": BRIEF,
}


@pytest.fixture(scope="session")
def vllm_study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A study of a real vLLM, measured and drawn to its end: for tests to read."""
    project = Project(tmp_path_factory.mktemp("vllm").resolve(), VLLM_CONFIG)
    project.run()
    yield project
    for process in project.processes():
        process.kill()
