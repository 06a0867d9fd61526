"""Where each run and each session of a study stands, from what lies on disk, and which study this folder measured or drew last."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Literal

from bench.errors import BenchError
from bench.runs.files import checksum, digest, read_known, record_digest, whole, write_object, write_record
from bench.runs.paths import Paths
from bench.runs.run import RECORD
from bench.runs.store import SessionIndex, Store
from bench.servers.spec import DeploymentSpec
from bench.study.plan import Plan
from bench.study.searches import SearchSpec, search_record
from bench.study.specs import RunSpec


def remember_study(file: Path, scale: str | None = None) -> None:
    """Note the study's file and its scale, for commands that are about the results here."""
    record = Path(Paths.STUDY)
    write_object({"file": str(file), **({"scale": scale} if scale else {})}, record)


def last_study() -> tuple[Path, str | None] | None:
    """The study's file and its scale; None where no workflow has noted one. Raises BenchError: the note cannot be read."""
    record = Path(Paths.STUDY)
    if not record.exists():
        return None
    try:
        note = json.loads(record.read_text(encoding="utf-8"))
        return Path(note["file"]), note.get("scale")
    except (ValueError, KeyError, TypeError):
        raise BenchError(f"{record}: not readable. Name the study's file with --configfile, or delete this one.") from None


State = Literal["missing", "measured", "stale", "invalid"]


def run_states(plan: Plan, store: Store, invalid: Collection[str]) -> list[tuple[RunSpec, State]]:
    """Each run with its state.

    `missing`: no measurement. `stale`: the same load was measured before something that defines the run changed; it will be measured
    again. `invalid`: measured, and some part of it cannot be trusted. `measured`: everything else.

    Args:
        invalid: digests of the runs of which some part cannot be trusted.
    """
    mine = {run.name for run in plan.every}  # a search's run of the same load is another one, and no former one
    loads = {
        name: {_load(each.parent.name) for each in (store.root / name).glob(f"*/{RECORD}") if each.parent.name not in mine}
        for name in plan.deployments
    }
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
    return [each for each in plan.sessions if not measured(plan, *each, store)]


def forget(plan: Plan, store: Store, run: RunSpec) -> None:
    """Forget a measured run: its session is measured again."""
    file = Path(Paths.FORGOTTEN.format(deployment=run.deployment.name, session=plan.place_of(run).session))
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as lines:
        lines.write(f"{run.key}\n")
    store.discard(run)


def wanted(plan: Plan, deployment: str, session: int) -> str:
    """Digest of all that a session measures, in any order, and of what was forgotten: where it changes, the session starts again."""
    digests = [run.digest for run in plan.listed_of(deployment, session)]
    digests += [search.digest for search in plan.searches_of(deployment, session)]
    file = Path(Paths.FORGOTTEN.format(deployment=deployment, session=session))
    measures = digest([plan.deployments[deployment].digest, *sorted(digests)])
    return measures + (f" {checksum(file)}" if file.exists() else "")


def refuse_lacking(plan: Plan, store: Store) -> None:
    """Refuse a pack's study whose runs are not all here. Raises BenchError: it names how many are not."""
    absent = [run.key for run in plan.runs if plan.config.packed and not store.holds(run)]
    if absent:
        raise BenchError(
            f"the pack lacks {len(absent)} of its {len(plan.runs)} runs, such as {absent[0]}, and a pack's study measures nothing. "
            "Unpack one that has them, or narrow SELECT."
        )


def unended_searches(plan: Plan, store: Store) -> list[SearchSpec]:
    """The searches that lack an answer, or a run that one rests on."""
    return [search for search in plan.searches if not _ended(search, plan, store)]


def measured(plan: Plan, deployment: str, session: int, store: Store) -> bool:
    """Whether a session has its facts, each run that the study lists, and the answer of each search.

    A run that its index does not list may have been copied here in part, so its files are looked at.
    """
    index = read_known(SessionIndex, Paths.session(deployment, session))
    known = index.runs if index else {}
    return (
        record_digest(Paths.facts(deployment, session)) == plan.deployments[deployment].digest
        and all(
            store.holds(run) and (run.name in known or whole(store.folder(run), RECORD))
            for run in plan.listed_of(deployment, session)
        )
        and all(_ended(search, plan, store) for search in plan.searches_of(deployment, session))
    )


def _ended(search: SearchSpec, plan: Plan, store: Store) -> bool:
    """Whether a search has its answer, and the runs that it rests on are still there."""
    answer = search_record(search, store.root.parent)
    if answer is None:
        return False
    held = {run.digest for run in plan.every if run.deployment == search.deployment and store.holds(run)}
    return all(run.digest in held for run in answer.runs)


def write_index(plan: Plan, deployment: str, session: int, store: Store) -> None:
    """Write the index of a session that is measured. Raises BenchError: a run or a search of it is missing."""
    if not measured(plan, deployment, session, store):
        raise BenchError(f"{deployment}, session {session}: not fully measured. Run the workflow again.")
    searches = Path(Paths.SEARCHES.format(deployment=deployment))
    index = SessionIndex(
        deployment=deployment,
        session=session,
        digest=plan.deployments[deployment].digest,
        facts=checksum(Paths.facts(deployment, session)),
        searches=checksum(searches) if plan.searches_of(deployment, session) else None,
        runs={
            run.name: checksum(store.record(run))
            for run in plan.every  # whatever `select` leaves of the study
            if run.deployment.name == deployment and plan.place_of(run).session == session and store.holds(run)
        },
    )
    path = Paths.session(deployment, session)
    write_record(index, path)
