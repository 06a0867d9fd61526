"""What is scraped beside the engine: the endpoints of the configuration, and the GPUs of a server that is ours."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from bench.measure.nvml import nvml_endpoint, nvml_problem
from bench.servers.gpu_metrics import is_nvml
from bench.servers.gpus import gpu_names
from bench.servers.server import Server
from bench.servers.spec import DeploymentSpec


def further_endpoints(spec: DeploymentSpec, server: Server, configured: Iterable[str], say: Callable[[str], None]) -> list[str]:
    """The endpoints in `configured`, then the GPUs on which `server` runs, where it is ours and the configuration names none.

    GPUs that NVML cannot read here are left out, and `say` gets the reason: a run is worth measuring without them. Which GPUs an
    external server has, or whether they are here at all, only the configuration can know.
    """
    endpoints = list(configured)
    if spec.engine.backend == "cuda" and server.managed and not any(map(is_nvml, endpoints)):
        gpus = gpu_names(spec, {**os.environ, **server.environment})
        if gpus:  # an empty list would be all of the machine's
            endpoints.append(nvml_endpoint(gpus))
    problems = {endpoint: nvml_problem(endpoint) for endpoint in endpoints if is_nvml(endpoint)}
    for endpoint, problem in problems.items():
        if problem:
            say(f"{problem}; measuring without GPU telemetry ({endpoint})")
    return [endpoint for endpoint in endpoints if not problems.get(endpoint)]
