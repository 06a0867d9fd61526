"""Exactly specified load: prompts, the client that sends them, and one record a request."""

from bench.workload.client import Arrival, Load, LoadResult, Target, run_load
from bench.workload.prompts import prompt_ids
from bench.workload.records import RequestRecord, read_requests, write_requests

__all__ = [
    "Arrival",
    "Load",
    "LoadResult",
    "RequestRecord",
    "Target",
    "prompt_ids",
    "read_requests",
    "run_load",
    "write_requests",
]
