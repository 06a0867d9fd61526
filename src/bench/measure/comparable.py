"""What a session refuses, because its runs would not compare with those that the deployment has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.runs.environment import counted
from bench.runs.launch import Launch
from bench.runs.paths import Paths
from bench.runs.run import read_record
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
        here: dict[str, Any] = {}
        then: dict[str, Any] = {}
        for name, value in now.items():
            was = getattr(record, name)
            if name in ("router_version", "environment") and None in (value, was):
                continue
            here |= _named(name, value)
            then |= _named(name, was)
        differing = [
            f"{name} is {here.get(name, 'not set')} now and was {then.get(name, 'not set')} then"
            for name in sorted(here.keys() | then.keys())
            if here.get(name) != then.get(name)
        ]
        if differing:
            raise BenchError(
                f"{spec.name}: {run.key} was measured otherwise: {'; '.join(differing)}. Measure what is missing as then, narrow "
                "the study to what there is (`select`), give what is new a deployment of its own (its `environment` overrides what is "
                f"exported), or forget the older runs with `bench runs --discard '{spec.name}/*'`."
            )


def _named(name: str, value: Any) -> Mapping[str, Any]:
    return counted(value) if name == "environment" else {name.replace("_", " "): value}


def refuse_strange_launch(launch: Launch) -> None:
    """Refuse a launch whose program is not here: one that came with a pack names a program of the machine that measured."""
    program = launch.argv[0] if launch.argv else ""
    if "/" in program and not Path(program).exists():
        raise BenchError(
            f"{launch.deployment}: {program} is not here; its launch is of another machine. Measure what is missing there, "
            f"or remove {Paths.LAUNCH.format(deployment=launch.deployment)}, and the next workflow builds the engine here."
        )
