"""The GPUs of a session: each of those side by side has its own, whichever workflow it is of, and its server's are looked at."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager

from bench.measure.nvml import nvml_endpoint, nvml_problem
from bench.servers.gpu_metrics import is_nvml
from bench.servers.gpus import NvmlError, gpu_names, gpu_uuids
from bench.servers.server import Server
from bench.servers.spec import DeploymentSpec

_VARIABLE = "CUDA_VISIBLE_DEVICES"


@contextmanager
def own_gpus(
    spec: DeploymentSpec, environment: MutableMapping[str, str], say: Callable[[str], None], *, prefix: str = "saturate-gpu"
) -> Iterator[None]:
    """Set CUDA_VISIBLE_DEVICES to GPUs that no other session of this machine has, and keep them until the end.

    It waits until as many as the server takes are free, among those that `environment` shows. A GPU is kept by a local socket's name
    with its UUID, which the kernel releases however this process ends; containers with networks of their own do not see each other's.
    Nothing is done where no server is started here, where SLURM gives jobs their GPUs, and where NVML cannot be used.

    Args:
        environment: of this process, which the server inherits. say: takes a line when it has to wait.
        prefix: of the names.
    """
    known = [] if spec.engine.source == "external" or "SLURM_JOB_ID" in environment else _known(spec, environment)
    if not known or not spec.gpus:
        yield
        return
    with ExitStack() as held:
        names = _take(known, spec.gpus, prefix, held, lambda text: say(f"{spec.name}: {text}"))
        before = environment.get(_VARIABLE)
        environment[_VARIABLE] = ",".join(names)
        try:
            yield
        finally:
            del environment[_VARIABLE]
            if before is not None:
                environment[_VARIABLE] = before


def _known(spec: DeploymentSpec, environment: MutableMapping[str, str]) -> Sequence[tuple[str, str]]:
    """The GPUs to choose from, and their UUIDs: those that the deployment names itself, or that this process sees."""
    own = spec.deployment.environment
    try:
        if _VARIABLE in own:
            return gpu_uuids(gpu_names(spec, own))
        return gpu_uuids(gpu_names(spec, environment, every=True) if _VARIABLE in environment else None)
    except NvmlError:  # the preflight says why, where that matters
        return []


def _take(
    known: Sequence[tuple[str, str]], count: int, prefix: str, held: ExitStack, say: Callable[[str], None]
) -> Sequence[str]:
    """The names of `count` GPUs of `known` (name and UUID), locked until `held` closes; all of them where there are no more."""
    count = min(count, len(known))
    waiting = False
    while True:
        with ExitStack() as taken:
            names: list[str] = []
            for name, uuid in known:
                if len(names) < count and _locked(f"{prefix}-{uuid}", taken):
                    names.append(name)
            if len(names) == count:
                held.enter_context(taken.pop_all())
                return names
        if not waiting:
            say(f"waiting for {count} of GPUs {', '.join(name for name, _ in known)}; other sessions have them")
        waiting = True
        time.sleep(1)


def _locked(name: str, taken: ExitStack) -> bool:
    """Whether the name of a GPU could be had; `taken` gives it back."""
    lock = socket.socket(socket.AF_UNIX)
    try:
        lock.bind(f"\0{name}")  # in the kernel's own space of names, not a file: nobody can put anything in its place
    except OSError as error:
        lock.close()
        if error.errno == errno.EADDRINUSE:
            return False
        raise
    taken.enter_context(lock)
    return True


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
