"""A run of a study: a deployment under one load, with the digest of all that it measures; and the order in which runs are measured:
rounds over all levels of a deployment, dealt to sessions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bench.axes import AXES
from bench.plugins import names, origin
from bench.runs.files import digest
from bench.runs.paths import Paths
from bench.servers.spec import DeploymentSpec
from bench.workloads.trace import converted_by
from bench.workloads.workload import Workload

# version of the measuring protocol: where old runs no longer compare, raise it (tests/study/test_protocol.py), and every run is
# measured again; convention
PROTOCOL = 6


@dataclass(frozen=True)
class RunSpec:
    """One run: a deployment under one workload at one level, once.

    `digest` covers everything that is measured, and `name` ends with its beginning: a run that is defined otherwise has another folder.

    Attributes:
        family: the workload's key in the configuration. workload_name: the same, with the lengths that its ladder gives it.
        level: requests in flight, requests a second or a time scale, as the workload's axis says.
        files: SHA-256 of each file that the workload reads, by path.
        searched: whether a search chose the level, which is no part of what is measured.
    """

    deployment: DeploymentSpec
    family: str
    workload_name: str
    workload: Workload
    level: float
    repeat: int
    seed: int
    files: Mapping[str, str]
    searched: bool = False

    @cached_property
    def name(self) -> str:
        """Folder name: workload, arrival, lengths, level, repeat and the first eight digits of the digest."""
        load = self.workload
        level = AXES[load.axis].label(self.level)
        return f"{self.workload_name}_{load_label(load)}_{level}_r{self.repeat}_{self.digest[:8]}"

    @property
    def _packages(self) -> dict[str, Any]:
        """The packages of others that write or send the requests: another version may send something else."""
        sent = [("endpoint", self.workload.endpoint), ("prompts", self.workload.prompts.source)]
        if self.workload.trace and any(origin("trace", name) for name in names("trace")):
            sent.append(("trace", converted_by(self.workload.trace) or ""))
        found = [package for kind, name in sent if (package := origin(kind, name))]
        return {"packages": found} if found else {}

    @property
    def key(self) -> str:
        """`deployment/run`, what `select` matches and messages print."""
        return f"{self.deployment.name}/{self.name}"

    @property
    def schedule_seed(self) -> str:
        """What draws arrivals and lengths: the same for all deployments, which are so compared on the same requests.

        Each level has draws of its own: a burst of arrivals that all levels shared would shift the whole curve, and C_max with it,
        and no number of levels would show it.
        """
        return f"{self.seed}/{self.repeat}/{self.level:g}"

    @cached_property
    def definition(self) -> dict[str, Any]:
        """The run as plain data, as its record keeps it."""
        return {**self._identity, "run": self.name}

    @property
    def _identity(self) -> dict[str, Any]:
        return {
            "deployment": self.deployment.name,
            "workload": self.workload_name,
            **({"family": self.family} if self.family != self.workload_name else {}),
            **self.workload.model_dump(mode="json", exclude_defaults=True),
            **({"files": dict(self.files)} if self.files else {}),
            **self._packages,
            "axis": self.workload.axis,
            "level": self.level,
            "repeat": self.repeat,
            "seed": self.seed,
        }

    @cached_property
    def digest(self) -> str:
        """Digest of everything that decides what this run measures."""
        return digest({"protocol": PROTOCOL, "deployment": self.deployment.digest, "run": self._identity})

    @property
    def record(self) -> Path:
        """Where the run's record lies, below the working directory."""
        return Path(Paths.RECORD.format(deployment=self.deployment.name, run=self.name))


def load_label(workload: Workload) -> str:
    """Arrival and lengths of a workload in short, such as `burst_p128_o64`; of one with classes their number."""
    if workload.classes:
        return f"{workload.arrival}_{len(workload.classes)}classes"
    lengths = (("p", workload.prompt_tokens), ("o", workload.output_tokens))
    own = "" if workload.prompts.sized else f"_p{workload.prompts.source}"
    return workload.arrival + own + "".join(f"_{letter}{length.label}" for letter, length in lengths if length)


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
