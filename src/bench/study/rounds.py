"""The order in which a study is measured: rounds over all levels of a deployment, dealt to sessions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.study.specs import RunSpec


@dataclass(frozen=True)
class Place:
    """When a run is measured.

    Attributes:
        round: from 1; the run's repeat. Each round has every level of the deployment once.
        session: the server start that measures the round, from 1.
        position: among all runs of the deployment, from 1.
    """

    round: int
    session: int
    position: int


def session_of(number: int, sessions: int) -> int:
    """The session that measures round `number`: rounds are dealt in turn, so that each session has the same levels."""
    return 1 + (number - 1) % sessions


def places_of(runs: Iterable[RunSpec], *, sessions: int) -> dict[str, Place]:
    """The place of each run of one deployment, by its key, in the order of measurement.

    Within a round the order is that of a digest of the seed, the round and the load. So a run's place relative to the others stays
    when levels are added, and deployments that are compared measure the same loads in the same order: a session that slows down
    or warms up does so alike for both.
    """

    def order(run: RunSpec) -> tuple[int, int, str]:
        load = f"{run.seed}/{run.repeat}/{run.workload_name}/{run.workload.axis}/{run.level:g}"
        return session_of(run.repeat, sessions), run.repeat, hashlib.sha256(load.encode()).hexdigest()

    return {
        run.key: Place(run.repeat, session_of(run.repeat, sessions), position)
        for position, run in enumerate(sorted(runs, key=order), start=1)
    }


def alternating(sessions: Mapping[str, Sequence[int]]) -> list[tuple[str, int]]:
    """All sessions of a study as (deployment, session): forwards, backwards, forwards, … (ABBA), so that a steady drift of the
    machine reaches every deployment alike.

    Args:
        sessions: of each deployment, in the study's order.
    """
    numbers = sorted({number for known in sessions.values() for number in known})
    return [
        (name, number)
        for number in numbers
        for name in (sessions if number % 2 else reversed(list(sessions)))
        if number in sessions[name]
    ]
