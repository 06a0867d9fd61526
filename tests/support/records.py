"""Records to alter: each as a session writes it, with what a test says instead."""

from typing import Any

from bench.models.checkpoint_record import Checkpoint
from bench.runs.deployment import DeploymentFacts, Hardware
from bench.runs.launch import EngineRecord, Launch, MemoryPlan, Settings
from bench.runs.request import RequestRecord
from bench.runs.run import Client, Host, Prefix, RunHeader, RunRecord

DEFINITION = {
    "deployment": "a", "run": "r", "workload": "w", "arrival": "burst", "prompt_tokens": 4, "output_tokens": 3, "num_requests": 2,
    "axis": "concurrency", "level": 2, "repeat": 1, "seed": 0,
}  # fmt: skip
MACHINE = Hardware(cpu="Xeon", cores=2, cores_allowed=2, memory_bytes=2**34, gpus=(), system="Linux 6", python="3.12")
CLIENT = Client(loop_lag_p99_s=0.001, loop_lag_max_s=0.001, send_spread_s=0.0, schedule_delay_p99_s=0.0)


def engine(**fields: Any) -> EngineRecord:
    """An engine that a command starts."""
    return EngineRecord(**{"engine": "e", "source": "command", "device": "cpu", "command": ("x",), **fields})


def checkpoint(**fields: Any) -> Checkpoint:
    """A synthetic one; a test says of what config."""
    return Checkpoint(**{"model": "m", "source": "synthetic", "path": "ck/model", "parameters": None, **fields})


def plan(**fields: Any) -> MemoryPlan:
    """The memory of a small model."""
    none = dict.fromkeys(("device_memory_bytes", "kv_cache_bytes", "kv_tokens"))
    sizes = {"parameters": 1000, "weight_bytes": 2000, "overhead_bytes": 0, "block_size": 1}
    return MemoryPlan(**{**none, **sizes, "kv_bytes_per_token": 64, "kv_bytes_per_token_per_device": 64, **fields})


def launch(**fields: Any) -> Launch:
    """A server on one GPU. Fields of `Settings` go into its settings; `plan` has fields of its memory plan, and there is none without."""
    settings = Settings(**{name: fields.pop(name) for name in list(fields) if name in Settings.__dataclass_fields__})
    memory = plan(**told) if (told := fields.pop("plan", None)) else None
    names = {"deployment": "a", "model": "m", "engine": "e", "device": "cuda", "argv": ("serve",)}
    return Launch(**{**names, "gpus": 1, "settings": settings, "plan": memory, **fields})


def facts(**fields: Any) -> DeploymentFacts:
    """A server that was started here and says nothing of its KV cache."""
    none = dict.fromkeys(("kv_blocks", "block_size", "kv_tokens"))
    started = {"managed": True, "command": ("serve",), "environment": {}, "ready_s": 1.0, "hardware": MACHINE}
    return DeploymentFacts(**{"deployment": "a", "digest": "d", "engine_version": "0.32.0", **started, **none, **fields})


def header(**fields: Any) -> RunHeader:
    """A run before it is measured."""
    return RunHeader(**{"digest": "d", "round": 1, "definition": DEFINITION, **fields})


def run(**fields: Any) -> RunRecord:
    """A run of which nothing was scraped, beyond reproach."""
    begun = {"digest": "d", "round": 1, "definition": DEFINITION, "started": "2026-01-01T00:00:00+00:00", "clock_start_s": 0.0}
    seen = {
        "client": CLIENT,
        "prefix": Prefix(primed_tokens=0, expected_tokens=0),
        "host": Host(busy_share=0.3, steal_share=0.0),
    }
    return RunRecord(
        **{**begun, **seen, "drain_s": 0.0, "scrape_interval_s": None, "scrape_endpoint": None, "files": {}, **fields}
    )


def request(**fields: Any) -> RequestRecord:
    """A request of four tokens that got three."""
    known = {
        "index": 0, "after": None, "outcome": "ok", "error": None, "status": 200, "cached_tokens": None, "prompt_asked": 4,
        "prompt_tokens": 4, "output_asked": 3, "completion_tokens": 3, "scheduled_s": 0.0, "sent_s": 0.0, "headers_s": 0.05,
        "first_byte_s": 0.1, "first_token_s": 0.1, "first_output_s": 0.1, "last_token_s": 0.5, "end_s": 0.6, "ttft_s": 0.1,
        "e2e_s": 0.5, "token_times_s": [0.1, 0.3, 0.5],
    }  # fmt: skip
    return RequestRecord(**{**known, **fields})


def answered(times: list[float], *, sent_s: float, prompt: int, **fields: Any) -> RequestRecord:
    """A request that was sent when it was due, and got a token at each of these moments; `fields` are what is otherwise."""
    first, last, count = round(times[0], 6), round(times[-1], 6), len(times)
    known = {
        "prompt_asked": prompt, "prompt_tokens": prompt, "output_asked": count, "completion_tokens": count, "token_times_s": times,
        "scheduled_s": sent_s, "sent_s": sent_s, "headers_s": first, "first_byte_s": first, "first_token_s": first, "first_output_s": first,
        "last_token_s": last, "end_s": last, "ttft_s": round(first - sent_s, 6), "e2e_s": round(last - sent_s, 6),
    }  # fmt: skip
    return request(**{**known, **fields})
