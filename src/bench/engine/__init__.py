"""The server's side: its environment, its launch, its process, and the facts about it."""

from bench.engine.environment import prepare_engine, refuse_unready
from bench.engine.external import refuse_unlike
from bench.engine.facts import gather_facts, hardware, server_info
from bench.engine.fleet import Fleet, router_program, server_of
from bench.engine.gpus import gpu_names
from bench.engine.inherited import inherited
from bench.engine.launch import refuse_unfit, resolve_launch, write_launch
from bench.engine.server import Server, ServerDied, core_groups

__all__ = [
    "Fleet",
    "Server",
    "ServerDied",
    "core_groups",
    "gather_facts",
    "gpu_names",
    "hardware",
    "inherited",
    "prepare_engine",
    "refuse_unfit",
    "refuse_unlike",
    "refuse_unready",
    "resolve_launch",
    "router_program",
    "server_info",
    "server_of",
    "write_launch",
]
