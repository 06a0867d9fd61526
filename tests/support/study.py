"""A small configuration, a run's summary beyond reproach, and where the project lies."""

from pathlib import Path

from bench.measure.exposition import metric_names
from bench.servers.metrics import find_catalogue

ROOT = Path(__file__).parents[2]


# What vLLM calls our metrics: its sample's name by ours, a histogram's as `…_sum` and `…_count`.
METRICS = find_catalogue(metric_names((ROOT / "tests/data/vllm-0.32.0.prom").read_text()), "0.32.0").sample_names()


TINY = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 128,
    "vocab_size": 512,
    "max_position_embeddings": 256,
}


CONTENT = {
    "study": {
        "title": "A small study",
        "ladders": [{"deployment": "a", "workload": "short", "concurrency": [1, 2, 4]}],
    },
    "models": {"m": {"config": TINY}},
    "engines": {"e": {"source": "command", "command": ["true"]}},
    "deployments": {"a": {"model": "m", "engine": "e", "kv_cache_memory": "1MiB"}},
    "workloads": {"short": {"arrival": "burst", "prompt_tokens": 32, "output_tokens": 32}},
}


def bare_summary():
    """One run's summary, beyond reproach."""
    return {
        "deployment": "a",
        "run": "short_burst_p32_o32_c0004_r1_x",
        "workload": "short",
        "family": "short",
        "stream": True,
        "prompt_fixed": 32,
        "output_fixed": 32,
        "arrival": "burst",
        "prompt_tokens": 32,
        "output_tokens": 32,
        "num_requests": 4,
        "axis": "concurrency",
        "level": 4.0,
        "concurrency": 4,
        "repeat": 1,
        "seed": 0,
        "digest": "d",
        "requests": 4,
        "ok": 4,
        "failed": 0,
        "wrong_prompt_tokens": 0,
        "wrong_output_tokens": 0,
        "throughput_tokens_per_s": 100.0,
        "client_loop_lag_p99_s": 0.001,
        "client_send_spread_s": 0.001,
        "scrape_gap_max_s": 0.3,
        "kv_usage_peak": 0.5,
        "waiting_peak": 0.0,
        "waiting_standing": 0.0,
        "running_peak": 4.0,
        "preemptions": 0.0,
        "prefix_hits": 0.0,
        "metrics_missing": [],
    }
