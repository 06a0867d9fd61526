"""What would stop a session, looked for before anything is built or started; runs that would not compare among it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from bench.errors import BenchError, count_text, first_names
from bench.headers import filled_headers
from bench.http import api_root
from bench.measure.exposition import find_metrics
from bench.measure.nvml import nvml_endpoint, nvml_problem
from bench.measure.served import find_workers, refuse_absent
from bench.models.config_json import geometry_at, geometry_of_model, stated_weights
from bench.models.geometry import Geometry
from bench.models.hub import refuse_unfetchable
from bench.models.model import Model
from bench.runs.environment import counted
from bench.runs.files import read
from bench.runs.launch import EngineRecord
from bench.runs.paths import Paths
from bench.runs.run import read_record
from bench.runs.store import Store
from bench.servers.engines import managed
from bench.servers.environment import refuse_unready, requirements
from bench.servers.facts import hardware
from bench.servers.fleet import HAPROXY, router_program
from bench.servers.gpu_metrics import is_nvml
from bench.servers.gpus import MissingGpuError, gpu_names
from bench.servers.launch import refuse_unfit
from bench.servers.server import Server, core_groups
from bench.servers.spec import DeploymentSpec
from bench.study.plan import Plan
from bench.study.state import unmeasured_sessions


def hardware_of(spec: DeploymentSpec) -> str | None:
    """The name of what a server that is started here runs on; None for an external one."""
    if spec.engine.source == "external":
        return None
    here = hardware()
    names = dict.fromkeys(gpu["name"] for gpu in here.gpus) if spec.engine.backend == "cuda" else None
    return " and ".join(names) if names else here.cpu


def refuse_others(plan: Plan, spec: DeploymentSpec, store: Store, **now: Any) -> None:
    """Refuse to mix runs in one curve that were measured otherwise: some may have been unpacked, come with a copied folder, or be of
    a server whose version or variables have changed since (`NCCL_P2P_DISABLE=1` alone can halve its speed).

    Args:
        now: `device`, `engine_version`, `router_version` or `environment` as this session's records have it. Of the last two, what is
            not known on both sides is not different.

    Raises:
        BenchError: it names what differs, and how to go on.
    """
    for run in (run for run in plan.every if run.deployment.name == spec.name and store.holds(run)):
        record = read_record(store.record(run))
        was = {name: getattr(record, name) for name in now}
        known = [name for name in now if name not in ("router_version", "environment") or None not in (now[name], was[name])]
        here, then = ({key: value for name in known for key, value in _named(name, each[name]).items()} for each in (now, was))
        differing = [
            f"{name} is {here.get(name, 'not set')} now and was {then.get(name, 'not set')} then"
            for name in sorted(here.keys() | then.keys())
            if here.get(name) != then.get(name)
        ]
        if differing:
            raise BenchError(
                f"{spec.name}: {run.key} was measured differently: {'; '.join(differing)}. Measure what is missing as then, narrow "
                "the study to what there is (`select`), give what is new a deployment of its own (its `environment` overrides what is "
                f"exported), or forget the older runs with `bench runs --discard '{spec.name}/*'`."
            )


def _named(name: str, value: Any) -> Mapping[str, Any]:
    return counted(value) if name == "environment" else {name.replace("_", " "): value}


def faults(plan: Plan, store: Store) -> list[str]:
    """Every reason why a session could not measure on this machine, in words.

    A session whose runs are all measured, and whose searches have ended, starts no server, and nothing is looked at for it.
    """
    starting = unmeasured_sessions(plan, store)
    specs = [plan.deployments[name] for name in dict.fromkeys(name for name, _ in starting)]
    places: dict[str, dict[str, None]] = {}  # of each fault: deployments share engines, models and the machine
    for check in (check for spec in specs for check in _checks(plan, spec, store)):
        try:
            check()
        except BenchError as error:
            place, _, what = str(error).partition(": ")
            places.setdefault(what, {})[place] = None
    return [f"{first_names(list(where))}: {what}" for what, where in places.items()]


def refuse_faults(plan: Plan, store: Store) -> None:
    """Refuse to start sessions that cannot measure on this machine.

    Raises:
        BenchError: it has `faults`, one a line.
    """
    if found := faults(plan, store):
        raise BenchError("\n".join(found))


def _checks(plan: Plan, spec: DeploymentSpec, store: Store) -> Iterator[Callable[[], object]]:
    if spec.engine.source == "external":
        yield partial(refuse_absent, spec)
        if spec.engine.workers or spec.engine.metrics not in (None, "none"):
            yield partial(_refuse_no_metrics, spec)
        return
    yield lambda: refuse_unready(spec.deployment.engine, spec.engine, _prepared(spec))
    if spec.deployment.router:
        router = () if spec.deployment.router == HAPROXY else spec.deployment.router
        yield lambda: _blamed(spec, partial(router_program, router))
    if spec.engine.backend == "cpu":
        servers = spec.deployment.workers * spec.deployment.replicas
        yield lambda: _blamed(spec, partial(core_groups, spec.deployment.cores, servers))
    else:
        yield partial(_refuse_gpus, spec)
    if spec.model.hub:
        yield partial(refuse_unfetchable, spec.model_name, spec.model)
    yield lambda: _refuse_unfit(spec, plan.longest_request(spec.name))
    yield lambda: refuse_others(plan, spec, store, device=hardware_of(spec))


def _prepared(spec: DeploymentSpec) -> Path | None:
    """The record of an engine that is ready; None where the workflow prepares it first."""
    record = Path(Paths.ENGINE.format(engine=spec.deployment.engine))
    if not record.exists():
        return None
    ready = read(EngineRecord, record)
    current = ready.source == spec.engine.source and dict(ready.locks or {}) == dict(spec.locks)
    return record if current and (ready.command or ())[1:] == tuple(spec.engine.command or ())[1:] else None


def _refuse_no_metrics(spec: DeploymentSpec) -> None:
    where = f"engines.{spec.deployment.engine}"
    headers = filled_headers(spec.engine.headers, where=f"{where}.headers")
    base_url = api_root(str(spec.engine.base_url))
    if spec.engine.workers:
        find_workers(base_url, {each: each for each in map(api_root, spec.engine.workers)}, headers, named=f"{where}.workers")
        return
    if why := find_metrics(base_url, spec.engine.metrics, headers).why:
        remedy = "Correct the address; `metrics: none` measures without, and causes and KV cache stay unknown."
        raise BenchError(f"{where}.metrics: {why}. {remedy}")


def _blamed(spec: DeploymentSpec, check: Callable[[], object]) -> None:
    try:
        check()
    except BenchError as error:
        raise BenchError(f"deployments.{spec.name}: {error}") from None


def _refuse_gpus(spec: DeploymentSpec) -> None:
    """Where NVML cannot read the GPUs, a run is still worth measuring."""
    d, needed = spec.deployment, spec.gpus or 0
    environment = {**os.environ, **d.environment}
    names = gpu_names(spec, environment)
    where = f"deployments.{spec.name}: needs {count_text(needed, 'GPU')}"
    if len(names) < needed:
        raise BenchError(
            f"{where}, and CUDA_VISIBLE_DEVICES={environment['CUDA_VISIBLE_DEVICES']} shows {len(names)}. Show more, or lower "
            "tensor_parallel, pipeline_parallel or data_parallel."
        )
    if problem := nvml_problem(nvml_endpoint(names), MissingGpuError) or _driver_missing():
        raise BenchError(
            f"{where}, and {problem}. Measure on a machine that has {'them' if needed > 1 else 'a GPU'}"
            + (", or lower tensor_parallel, pipeline_parallel or data_parallel." if needed > 1 else ".")
        )


def _driver_missing() -> str | None:
    """Why no server can use a GPU here, where NVML cannot be used either."""
    problem = nvml_problem(nvml_endpoint(()))
    if problem is None:
        return None
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return f"{problem}; libcuda.so.1 cannot be loaded either"
    return None


def _refuse_unfit(spec: DeploymentSpec, longest: int) -> None:
    """Weigh the model where its shape is known without a download."""
    geometry = _geometry(spec.model_name, spec.model)
    if geometry is not None:
        pins = [entry.split()[0] for lock in map(Path, spec.locks) if lock.exists() for entry in requirements(lock)]
        refuse_unfit(spec, geometry, longest, managed(spec.engine.kind).version(pins))


def _geometry(name: str, model: Model) -> Geometry | None:
    stated = None
    try:
        stated = geometry_of_model(model)
        return geometry_at(Path(model.here), stated_weights(model)) if model.here else stated
    except BenchError as error:
        if stated:
            return stated
        raise BenchError(f"models.{name}{'.path' if model.here else ''}: {error}") from None


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
