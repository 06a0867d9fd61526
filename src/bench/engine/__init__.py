"""The server's side: its environment, its launch, its process, and the facts about it."""

from bench.engine.environment import prepare_engine
from bench.engine.facts import gather_facts, hardware, server_info
from bench.engine.gpus import gpus_of
from bench.engine.launch import resolve_launch, write_launch
from bench.engine.server import Server, ServerDied

__all__ = [
    "Server",
    "ServerDied",
    "gather_facts",
    "gpus_of",
    "hardware",
    "prepare_engine",
    "resolve_launch",
    "server_info",
    "write_launch",
]
