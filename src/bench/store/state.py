"""Where each run of a study stands, from what lies on disk."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from bench.records.checksums import record_digest
from bench.store.store import Store
from bench.study import DeploymentSpec, Plan, RunSpec

__all__ = ["State", "facts_key", "run_states"]

State = Literal["missing", "measured", "stale", "invalid"]


def run_states(plan: Plan, store: Store, invalid: Collection[str]) -> list[tuple[RunSpec, State]]:
    """Each run with its state.

    `missing`: no measurement. `stale`: a measurement of another definition (the deployment, the workload or the protocol
    changed); it will be measured again. `invalid`: measured, and some part of it cannot be trusted. `measured`: everything else.

    Args:
        invalid: digests of the runs of which some part cannot be trusted.
    """
    return [(run, _state(run, store, invalid)) for run in plan.runs]


def _state(run: RunSpec, store: Store, invalid: Collection[str]) -> State:
    digest = record_digest(run.record)
    # Finished runs of a session that failed lie in the store alone until the next session puts them in place.
    if digest != run.digest and not store.holds(run.digest):
        return "missing" if digest is None else "stale"
    return "invalid" if run.digest in invalid else "measured"


def facts_key(spec: DeploymentSpec, session: int = 1) -> str:
    """What the store keeps the facts of a deployment's session under; by name too: the same deployment under another name has sessions
    of its own.
    """
    return f"deployment-{spec.name}-{spec.digest}" + (f"-session-{session}" if session > 1 else "")
