"""What a session refuses, because its runs would not compare with those that the deployment has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from bench.errors import BenchError
from bench.runs.environment import counted
from bench.runs.launch import Launch
from bench.runs.paths import Paths
from bench.runs.run import RunRecord, read_record
from bench.runs.store import Store
from bench.servers.facts import hardware
from bench.servers.spec import DeploymentSpec
from bench.study.plan import Plan


def hardware_of(spec: DeploymentSpec) -> str | None:
    """The name of what a server that is started here runs on; None for an external one."""
    if spec.engine.source == "external":
        return None
    here = hardware()
    names = dict.fromkeys(gpu["name"] for gpu in here.gpus) if spec.engine.backend == "cuda" else None
    return " and ".join(names) if names else here.cpu


def refuse_other_hardware(plan: Plan, spec: DeploymentSpec, store: Store, name: str | None) -> None:
    """Refuse to mix runs of different hardware in one curve: some may have been unpacked, or come with a copied folder.

    Args:
        name: of this machine's, as `hardware_of` gives it.
    """
    for key, record in _records(plan, spec, store):
        if record.device != name:
            raise BenchError(
                f"{spec.name}: this is {name}, but {key} was measured on {record.device}. Measure what is missing there too, narrow "
                f"the study to what there is (`select`), or forget the runs with `bench discard '{spec.name}/*'` to measure all here."
            )


def refuse_another_environment(plan: Plan, spec: DeploymentSpec, store: Store, environment: Mapping[str, str] | None) -> None:
    """Refuse to mix runs of servers that inherited different variables: `NCCL_P2P_DISABLE=1` alone can halve a server's speed.

    Args:
        environment: what `bench.servers.inherited` gives now.

    Raises:
        BenchError: it names each variable that differs, and how to go on.
    """
    now = counted(environment)
    for key, record in _records(plan, spec, store):
        if record.environment is None:  # of a server that was not started by us
            continue
        then = counted(record.environment)
        differing = [
            f"{name} is {now.get(name, 'not set')} now and was {then.get(name, 'not set')} then"
            for name in sorted(now.keys() | then.keys())
            if now.get(name) != then.get(name)
        ]
        if differing:
            raise BenchError(
                f"{spec.name}: exported variables reach the server, and they are not those under which {key} was measured: "
                f"{'; '.join(differing)}. Export what was exported then, or forget those runs with `bench discard '{spec.name}/*'`. "
                f"A variable under deployments.{spec.name}.environment is part of the deployment and overrides what is exported."
            )


def refuse_another_version(
    plan: Plan, spec: DeploymentSpec, store: Store, version: str | None, router: str | None = None
) -> None:
    """Refuse to mix runs of two versions of an engine or its router: what stands behind a command, a tag or an endpoint can change.

    Args:
        version: of the engine now. router: of the router; None where it is not known.
    """
    for key, record in _records(plan, spec, store):
        then, before = record.engine_version, record.router_version
        changed = f"the engine is now version {version}, but {key} was measured on {then}" if then != version else None
        if None not in (before, router) and before != router:
            changed = f"the router is now version {router}, but {key} was measured behind {before}"
        if changed:
            raise BenchError(
                f"{spec.name}: {changed}. Forget the older runs with `bench discard '{spec.name}/*'`, or give the new version a "
                "deployment of its own."
            )


def refuse_strange_launch(launch: Launch) -> None:
    """Refuse a launch whose program is not here: one that came with a pack names a program of the machine that measured."""
    program = launch.argv[0] if launch.argv else ""
    if "/" in program and not Path(program).exists():
        raise BenchError(
            f"{launch.deployment}: {program} is not here; its launch is of another machine. Measure what is missing there, "
            f"or remove {Paths.LAUNCH.format(deployment=launch.deployment)}, and the next workflow builds the engine here."
        )


def _records(plan: Plan, spec: DeploymentSpec, store: Store) -> Iterator[tuple[str, RunRecord]]:
    """The records of a deployment's runs by their keys, whatever `select` leaves of the study."""
    for run in (run for run in plan.every if run.deployment.name == spec.name):
        if store.holds(run):
            yield run.key, read_record(store.record(run))
