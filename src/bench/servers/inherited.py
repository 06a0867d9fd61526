"""Which of the user's exported variables reach a server that is started here."""

from __future__ import annotations

from collections.abc import Mapping

from bench.runs.environment import recorded
from bench.servers.engines import MANAGED
from bench.servers.launch import passed_to_containers
from bench.servers.spec import DeploymentSpec
from bench.servers.variables import for_a_server

# Of every engine, CUDA, PyTorch and what they build on.
_PREFIXES = (
    *(prefix for kind in MANAGED.values() for prefix in kind.variables),
    *("HF_", "TORCH_", "PYTORCH_", "TORCHINDUCTOR_", "TRITON_"),
    *("CUDA_", "NCCL_", "NVIDIA_TF32_", "CUBLAS_", "GLOO_", "UCX_", "OMP_", "KMP_", "MKL_"),
)
_NAMES = ("LD_PRELOAD",)  # another allocator is a usual setting of vLLM's CPU build


def inherited(spec: DeploymentSpec, own: Mapping[str, str], exported: Mapping[str, str]) -> dict[str, str] | None:
    """What a record keeps of the variables that can change what the server does, and that Saturate did not set.

    Args:
        own: what Saturate gives the server, which overrides what is exported. exported: this process's environment.

    Returns:
        By name what `bench.runs.environment.recorded` keeps; None for a server that is not started here.
    """
    engine = spec.engine
    if engine.source == "external":
        return None
    names = {name for name in for_a_server(exported) if name.startswith(_PREFIXES) or name in _NAMES} - own.keys()
    if engine.source == "container" and engine.runtime != "apptainer":  # which passes on what it is given by name
        names &= set(passed_to_containers(spec))
    return recorded({name: exported[name] for name in names})
