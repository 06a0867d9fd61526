"""What a session refuses, because its runs would not compare with those that the deployment has."""

from __future__ import annotations

import json
from typing import Any

from bench.engine import hardware
from bench.errors import BenchError
from bench.measure.state import facts_key
from bench.measure.store import Store
from bench.study import DeploymentSpec, Plan

__all__ = ["refuse_another_machine", "refuse_another_version"]


def refuse_another_machine(plan: Plan, spec: DeploymentSpec, store: Store) -> None:
    """A curve of two machines is none. Runs that were unpacked, or came with a copied folder, are of another.

    Raises:
        BenchError: runs of this deployment were measured by a server on another device.
    """
    facts = store.folder(facts_key(spec)) / "deployment.json"
    if (
        spec.engine.source == "external"
        or not facts.exists()
        or not any(store.holds(run.digest) for run in plan.runs_of(spec.name))
    ):
        return
    then, now = (_device(spec, told) for told in (json.loads(facts.read_text())["hardware"], hardware()))
    if then != now:
        raise BenchError(
            f"{spec.name}: its runs so far were measured on {then}, and this is {now}. Measure what is missing there too, narrow the "
            f"study to what there is (`select`), or forget the runs with `bench discard '{spec.name}/*'` to measure all of them here."
        )


def _device(spec: DeploymentSpec, told: dict[str, Any]) -> str:
    """What a managed server runs on, by name."""
    if spec.engine.device == "cpu":
        return str(told["cpu"])
    return " and ".join(dict.fromkeys(gpu["name"] for gpu in told["gpus"])) or f"a machine without a GPU ({told['cpu']})"


def refuse_another_version(plan: Plan, spec: DeploymentSpec, store: Store, version: str | None) -> None:
    """A curve of two engine versions is none. Only a command, an image's tag or an endpoint can change behind its name.

    Raises:
        BenchError: runs of this deployment were measured on another version.
    """
    for run in plan.runs_of(spec.name):
        record = store.root / run.digest / "run.json"
        then = json.loads(record.read_text()).get("engine_version") if record.exists() else version
        if then != version:
            raise BenchError(
                f"{spec.name}: the engine is now version {version}, but {run.key} was measured on {then}. Forget the older runs with "
                f"`bench discard '{spec.name}/*'`, or give the new version a deployment of its own."
            )
