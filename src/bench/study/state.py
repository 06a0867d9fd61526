"""Where each run and each session of a study stands, from what lies on disk."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection
from pathlib import Path
from typing import Literal

from bench.errors import BenchError
from bench.runs.checksums import checksum, record_digest, whole
from bench.runs.files import read, write_record
from bench.runs.paths import Paths
from bench.runs.run import RECORD
from bench.runs.session import SessionIndex
from bench.runs.store import Store
from bench.servers.spec import DeploymentSpec
from bench.study.plan import Plan
from bench.study.searches import SearchSpec, search_record
from bench.study.specs import RunSpec

State = Literal["missing", "measured", "stale", "invalid"]


def run_states(plan: Plan, store: Store, invalid: Collection[str]) -> list[tuple[RunSpec, State]]:
    """Each run with its state.

    `missing`: no measurement. `stale`: the same load was measured before something that defines the run changed; it will be measured
    again. `invalid`: measured, and some part of it cannot be trusted. `measured`: everything else.

    Args:
        invalid: digests of the runs of which some part cannot be trusted.
    """
    loads = {name: {_load(each.name) for each in (store.root / name).glob("*")} for name in plan.deployments}
    return [(run, _state(run, store, invalid, loads[run.deployment.name])) for run in plan.runs]


def _state(run: RunSpec, store: Store, invalid: Collection[str], loads: Collection[str]) -> State:
    if not store.holds(run):
        return "stale" if _load(run.name) in loads else "missing"
    return "invalid" if run.digest in invalid else "measured"


def _load(name: str) -> str:
    """A run's name without the digest at its end."""
    return name.rpartition("_")[0]


def kept_facts(spec: DeploymentSpec, facts: Path) -> Path:
    """Where a session keeps its facts by the deployment's digest, beside `facts`.

    Whoever changes a setting and changes it back needs no server to gather them again.
    """
    return facts.with_name(f"{facts.stem}-{spec.digest[:16]}.json")


def unmeasured_sessions(plan: Plan, store: Store) -> list[tuple[str, int]]:
    """The sessions that lack a run, a search or their facts, as (deployment, number), in the order in which they are measured."""
    return [each for each in plan.sessions if not _measured(plan, *each, store)]


def unended_searches(plan: Plan, store: Store) -> list[SearchSpec]:
    """The searches that lack an answer, or a run that one rests on."""
    return [search for search in plan.searches if not _ended(search, plan, store)]


def _measured(plan: Plan, deployment: str, session: int, store: Store) -> bool:
    return (
        record_digest(Paths.facts(deployment, session)) == plan.deployments[deployment].digest
        and not _missing(plan, deployment, session, store)
        and all(_ended(search, plan, store) for search in plan.searches_of(deployment, session))
    )


def _missing(plan: Plan, deployment: str, session: int, store: Store) -> list[str]:
    """The listed runs that are not measured, by name; one that the index does not list yet may have been copied here in part."""
    index = _index(Paths.session(deployment, session))
    known = index.runs if index else {}
    return [
        run.name
        for run in plan.listed_of(deployment, session)
        if not store.holds(run) or not (run.name in known or whole(store.folder(run), RECORD))
    ]


def _ended(search: SearchSpec, plan: Plan, store: Store) -> bool:
    """Whether a search has its answer, and the runs that it rests on are still there."""
    answer = search_record(search, store.root.parent)
    if answer is None:
        return False
    held = {run.digest for run in plan.every if run.deployment == search.deployment and store.holds(run)}
    return all(run.digest in held for run in answer.runs)


def refresh_sessions(plan: Plan, store: Store) -> None:
    """Make what stands of each session below `results/sessions` agree with what lies on disk, before the workflow plans its jobs.

    A session that has something to measure gets a new list of what is missing, by which Snakemake starts it: the study may have another
    level, a run may have been discarded or removed, a killed session may have left some. The index of any other one is written again if
    it does not list what is there, such as runs that were copied here.
    """
    for deployment, session in plan.sessions:
        path, missing = (Path(each.format(deployment=deployment, session=session)) for each in (Paths.SESSION, Paths.MISSING))
        path.parent.mkdir(parents=True, exist_ok=True)
        if not _measured(plan, deployment, session, store):
            names = _missing(plan, deployment, session, store)
            missing.write_text(json.dumps({"missing": names, "noticed": time.time()}, indent=2) + "\n")
            continue
        if _outdated(path, plan, deployment, session, store):
            write_index(plan, deployment, session, store)
        if not missing.exists() or missing.stat().st_mtime > path.stat().st_mtime:  # what was missing then is here again
            missing.write_text("{}\n")
            os.utime(missing, (0, 0))  # no reason to start a session


def _outdated(path: Path, plan: Plan, deployment: str, session: int, store: Store) -> bool:
    """Whether an index is not that of what is there, to the byte: runs may have been copied here, with times of their own."""
    return _index(path) != _index_of(plan, deployment, session, store)


def _index(path: Path) -> SessionIndex | None:
    try:
        return read(SessionIndex, path) if path.exists() else None
    except BenchError:
        return None


def _runs(plan: Plan, deployment: str, session: int, store: Store) -> list[RunSpec]:
    """What is measured of a session, whatever `select` leaves of the study."""
    return [
        run
        for run in plan.every
        if run.deployment.name == deployment and plan.place_of(run).session == session and store.holds(run)
    ]


def write_index(plan: Plan, deployment: str, session: int, store: Store) -> None:
    """Write the index of a session that is measured.

    Raises:
        BenchError: a run or a search of it is missing.
    """
    if not _measured(plan, deployment, session, store):
        raise BenchError(f"{deployment}, session {session}: not all of it is measured. Run the workflow again.")
    index = _index_of(plan, deployment, session, store)
    path = Paths.session(deployment, session)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_record(index, path)


def _index_of(plan: Plan, deployment: str, session: int, store: Store) -> SessionIndex:
    searches = Path(Paths.SEARCHES.format(deployment=deployment))
    return SessionIndex(
        deployment=deployment,
        session=session,
        digest=plan.deployments[deployment].digest,
        facts=checksum(Paths.facts(deployment, session)),
        searches=checksum(searches) if plan.searches_of(deployment, session) else None,
        runs={run.name: checksum(store.record(run)) for run in _runs(plan, deployment, session, store)},
    )
