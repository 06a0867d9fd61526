"""Exactly specified load on an OpenAI-compatible server."""

from bench.workload.client import Load, LoadResult, PreparedLoad, run_load
from bench.workload.prompts import prompt_ids
from bench.workload.schedule import PlannedRequest, expected_cached_tokens, schedule
from bench.workload.target import Target

__all__ = [
    "Load",
    "LoadResult",
    "PlannedRequest",
    "PreparedLoad",
    "Target",
    "expected_cached_tokens",
    "prompt_ids",
    "run_load",
    "schedule",
]
