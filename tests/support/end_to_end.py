"""The studies of the real engines."""

from tests.support.project import LENIENT

ARCHITECTURE = {
    "layers": 2, "hidden_size": 256, "heads": 4, "kv_heads": 4, "head_dim": 64, "intermediate_size": 512,
    "vocabulary": 512, "context": 512,
}  # fmt: skip


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
    "models": {"one": {"architecture": ARCHITECTURE}},
    "engines": {"llama-cpp": {"kind": "llama.cpp", "source": "lock", "locks": ["workflow/envs/llama-cpp-2026.10.11549.lock"]}},
    "deployments": {"one": {"model": "one", "engine": "llama-cpp", "kv_cache_memory": "4MiB", "max_num_seqs": 4}},
    "workloads": {
        "burst": {"arrival": "burst", "prompt_tokens": 32, "output_tokens": 64},
        "closed": {"arrival": "closed", "prompt_tokens": 32, "output_tokens": 32, "num_requests": 6},
    },
    "thresholds": LENIENT,
}
