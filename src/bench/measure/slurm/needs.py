"""What one session needs: cores, memory and GPUs of a node, and time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bench.axes import AXES
from bench.runs.launch import Launch
from bench.servers.spec import DeploymentSpec
from bench.study.plan import Plan
from bench.study.specs import RunSpec
from bench.workloads.schedule import at_least_s, schedule

# Of the client, the scraper and an engine's libraries beside the model: vLLM's process alone holds 2 to 3 GiB.
_BESIDE_BYTES = 6 * 2**30
_CLIENT_CORES = 2
# A closed loop or a burst ends when its answers do, which nobody knows before. Most take seconds; a session that needs longer
# keeps its finished runs and goes on in its next attempt, which gets more time.
_ANSWERED_S = 120.0
_DRAIN_S = 30.0
# a search's time, reference loads and what lies between runs included, ÷ that under load
_BESIDE_LOAD = 1.5
_SHORTEST_MIN = 30


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What a session's job needs.

    Attributes:
        cores: for the servers (one a worker where none is pinned) and for the client. memory_mb: None before the model is known.
        gpu_type: the cluster's name of the GPUs, None where any will do. minutes: wall time.
    """

    cores: int
    memory_mb: int | None
    gpus: int
    gpu_type: str | None = None
    minutes: int


def session_needs(
    plan: Plan,
    deployment: str,
    session: int | None = None,
    *,
    launch: Launch | None = None,
    gpu_type: str | None = None,
    attempt: int = 1,
) -> Needs:
    """What a session of a study needs; without its number, what any session of the deployment does, and no time.

    Args:
        launch, gpu_type, attempt: as of `needs_of`.
    """
    runs = [] if session is None else plan.listed_of(deployment, session)
    searches = [] if session is None else plan.searches_of(deployment, session)
    # A search may take its whole budget, whose seconds are those under load.
    start_s = plan.config.measurement.ready_timeout_s + sum(_BESIDE_LOAD * search.settings.seconds for search in searches)
    return needs_of(plan.deployments[deployment], runs, launch, gpu_type=gpu_type, start_s=start_s, attempt=attempt)


def needs_of(
    spec: DeploymentSpec,
    runs: Sequence[RunSpec],
    launch: Launch | None = None,
    *,
    gpu_type: str | None = None,
    start_s: float = 0.0,
    attempt: int = 1,
) -> Needs:
    """What a session of `runs` needs.

    Memory: on a CPU the weights and the KV cache, twice the weights at the most while they are loaded; on GPUs the weights once, which
    pass through the node's memory; and 6 GiB beside. Time: the server's start and each run, an open loop as long as its schedule, any
    other 120 s; from the second attempt on, a multiple.

    Args:
        launch: with the memory plan; without it, `memory_mb` is None. gpu_type: the cluster's name of the GPUs.
        start_s: that the server's start may take. attempt: 1 for the first.
    """
    external = spec.engine.source == "external"
    d = spec.deployment
    seconds = start_s + sum(_length_s(run) for run in runs)
    return Needs(
        cores=_CLIENT_CORES if external else (d.cores or 1) * d.workers * d.replicas + _CLIENT_CORES,
        memory_mb=None if launch is None else math.ceil(_memory_bytes(launch, spec.gpus_started) / 2**20),
        gpus=spec.gpus_started,
        gpu_type=gpu_type,
        minutes=attempt * max(_SHORTEST_MIN, math.ceil(seconds / 60)),
    )


def _length_s(run: RunSpec) -> float:
    if AXES[run.workload.axis].held:
        return _ANSWERED_S
    sent = schedule(run.workload, run.level, run.schedule_seed)
    return at_least_s(sent) + _DRAIN_S


def _memory_bytes(launch: Launch, gpus: int) -> int:
    plan = launch.plan
    if plan is None or launch.base_url is not None:
        return _BESIDE_BYTES
    ways = launch.replicas * (launch.tensor_parallel or 1) * (launch.pipeline_parallel or 1) * (launch.data_parallel or 1)
    weights = (plan.weight_bytes or 0) * ways  # known of all that are started here
    return _BESIDE_BYTES + (weights if gpus else 2 * weights + ways * (plan.kv_cache_bytes or 0))
