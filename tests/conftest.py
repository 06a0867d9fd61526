"""Shared parts: a small configuration, and summaries to alter."""

import copy
import functools
from pathlib import Path

import pytest
import scipy.linalg  # noqa: F401 - numpy's and scipy's own libraries, before they are limited
import vl_convert
from hypothesis import settings
from threadpoolctl import threadpool_limits

from bench.measure.metrics import metric_names
from bench.study import load_config
from bench.telemetry import find_catalogue

pytest_plugins = ["tests.support.cost"]
ROOT = Path(__file__).parent.parent
# In `make test` the same examples each time; `make test-all` looks for others (--hypothesis-profile=random).
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("random", deadline=None, print_blob=True)
settings.load_profile("same")
# As in a search and in a job: matrices are small, and threads that wait for one another take ten times as long on busy cores.
threadpool_limits(limits=1, user_api="blas")
# Each report in a new folder bundles the libraries that it draws with, which takes a second.
vl_convert.javascript_bundle = functools.cache(vl_convert.javascript_bundle)

# What vLLM calls our metrics: its sample's name by ours, a histogram's as `…_sum` and `…_count`.
METRICS = find_catalogue(metric_names((ROOT / "tests/data/vllm-0.32.0.prom").read_text()), "0.32.0").sample_names()

ARCHITECTURE = {
    "layers": 2,
    "hidden_size": 64,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 16,
    "intermediate_size": 128,
    "vocabulary": 512,
    "context": 256,
}
CONTENT = {
    "study": {
        "title": "A small study",
        "ladders": [{"deployment": "a", "workload": "short", "concurrency": [1, 2, 4]}],
    },
    "models": {"m": {"architecture": ARCHITECTURE}},
    "engines": {"e": {"source": "command", "command": ["true"]}},
    "deployments": {"a": {"model": "m", "engine": "e", "kv_cache_memory": "1MiB"}},
    "workloads": {"short": {"arrival": "burst", "prompt_tokens": 32, "output_tokens": 32}},
}


@pytest.fixture
def content():
    """A configuration to alter, as plain data."""
    return copy.deepcopy(CONTENT)


@pytest.fixture
def config():
    """A checked configuration."""
    return load_config(CONTENT, source="test")


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


@pytest.fixture
def summary():
    """One run's summary, to alter."""
    return bare_summary()
