"""Exactly specified load on an OpenAI-compatible server, and one record a request."""

from bench.wire import Outcome, RequestRecord, read_requests, write_requests
from bench.workload.client import Load, LoadResult, PreparedLoad, run_load
from bench.workload.prompts import prompt_ids
from bench.workload.schedule import PlannedRequest, expected_cached_tokens, schedule
from bench.workload.target import Target

__all__ = [
    "Load",
    "LoadResult",
    "Outcome",
    "PlannedRequest",
    "PreparedLoad",
    "RequestRecord",
    "Target",
    "expected_cached_tokens",
    "prompt_ids",
    "read_requests",
    "run_load",
    "schedule",
    "write_requests",
]
