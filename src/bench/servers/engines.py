"""The engines: what each one calls its metrics (`metrics.toml`) and, of those that are started here, what it needs and how it admits
requests.

To add one that is only measured, write a row in `measured.py`; of another one its file. Name it in `ENGINES`; another
package names its class in its entry points (`bench.plugins`). Plans for GPUs that
nobody has started (`bench plan`) are vLLM's.
"""

from __future__ import annotations

from bench.plugins import plugged
from bench.servers.kind import Exposed, Kind, Managed, Spelling
from bench.servers.llamacpp import LlamaCpp
from bench.servers.measured import APHRODITE, LMDEPLOY, SGLANG, TENSORRT_LLM, TGI
from bench.servers.vllm import VLLM

__all__ = ["ENGINES", "MANAGED", "Exposed", "Kind", "Managed", "Spelling", "managed"]

_OWN = (VLLM(), SGLANG, TGI, LlamaCpp(), TENSORRT_LLM, LMDEPLOY, APHRODITE)
ENGINES: tuple[Kind, ...] = (*_OWN, *(kind() for kind in plugged("engine", [kind.name for kind in _OWN]).values()))
MANAGED: dict[str, Managed] = {kind.name: kind for kind in ENGINES if isinstance(kind, Managed)}  # those that are started here


def managed(name: str) -> Managed:
    """The engine that a configuration calls `name`."""
    return MANAGED[name]
