"""The engines, one file each: what each one needs to be started, what it calls its metrics, and how it admits requests.

To add one, write its file and name it in `ENGINES`. Plans for GPUs that nobody has started (`bench plan`, `bench models`) are vLLM's.
"""

from __future__ import annotations

from bench.engines.aphrodite import Aphrodite
from bench.engines.kind import Exposed, Kind, Managed, Spelling
from bench.engines.llamacpp import LlamaCpp
from bench.engines.lmdeploy import LMDeploy
from bench.engines.sglang import SGLang
from bench.engines.tensorrt_llm import TensorRTLLM
from bench.engines.tgi import TGI
from bench.engines.vllm import VLLM

__all__ = ["ENGINES", "MANAGED", "Exposed", "Kind", "Managed", "Spelling", "managed"]

ENGINES: tuple[Kind, ...] = (VLLM(), SGLang(), TGI(), LlamaCpp(), TensorRTLLM(), LMDeploy(), Aphrodite())
MANAGED: dict[str, Managed] = {kind.name: kind for kind in ENGINES if isinstance(kind, Managed)}  # those that are started here


def managed(name: str) -> Managed:
    """The engine that a configuration calls so."""
    return MANAGED[name]
