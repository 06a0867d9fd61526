"""The searches of a study, and the runs that they measured: as many as it took, known only afterwards."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

from bench.axes import AXES
from bench.runs.files import UNREADABLE, digest, read_known, read_object
from bench.runs.paths import Paths
from bench.runs.searches import DeploymentSearches, SearchRecord
from bench.servers.spec import DeploymentSpec
from bench.study.search import Search
from bench.study.slo import Slo
from bench.study.specs import RunSpec, load_label
from bench.workloads.workload import Workload


@dataclass(frozen=True)
class SearchSpec:
    """A search for the highest load of a deployment within SLOs.

    Attributes:
        family, workload_name, workload: as of a run. settings: the ladder's `search`.
        slos, failed_share: what has to be met.
        thresholds: by which runs are judged. seed: of the study. files: SHA-256 of each file that the workload reads, by path.
    """

    deployment: DeploymentSpec
    family: str
    workload_name: str
    workload: Workload
    settings: Search
    slos: tuple[Slo, ...]
    failed_share: float
    seed: int
    files: Mapping[str, str]
    thresholds: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The workload, its lengths and `auto`, as in `chat_poisson_p128_o64_auto`."""
        return f"{self.workload_name}_{load_label(self.workload)}_auto"

    @property
    def key(self) -> str:
        """`deployment/search`, what `select` matches."""
        return f"{self.deployment.name}/{self.name}"

    @cached_property
    def digest(self) -> str:
        """Digest of all that decides the answer, what is measured and by what it is judged."""
        first = self._run(self._start, 1, 1, stop=self.workload.stop_overloaded)  # which changes no answer
        slos = [str(slo) for slo in self.slos]
        # `lowest` was a key once: those that ended then stay known.
        settings = self.settings.model_dump(mode="json") | {"lowest": None}
        return digest([first.digest, settings, slos, self.failed_share, dict(self.thresholds)])

    @property
    def _start(self) -> float:
        return self.settings.start or 1.0

    @property
    def first(self) -> RunSpec:
        """A run that stands for those of the search before one is placed: the lengths of its first request are theirs."""
        return self.run(self._start, max(1, math.ceil(self._start)), 1)

    def run(self, level: float, requests: int, repeat: int) -> RunSpec:
        """A run of `requests` requests at `level`, which ends early where it is plainly overloaded."""
        return self._run(level, requests, repeat, stop=self.workload.stoppable)

    def _run(self, level: float, requests: int, repeat: int, *, stop: bool) -> RunSpec:
        sent = self.workload.model_copy(update={"num_requests": requests, "duration_s": None, "stop_overloaded": stop})
        level = int(level) if AXES[self.workload.axis].held else level
        return RunSpec(
            self.deployment, self.family, self.workload_name, sent, level, repeat, self.seed, self.files, searched=True
        )

    def measured(self, definition: Mapping[str, Any], digest: str) -> RunSpec | None:
        """The run of a record, if it is one of this search by today's definition; one that may not end early shows no less.

        Args:
            definition, digest: as the record has them.
        """
        level, requests, repeat = (definition.get(key) for key in ("level", "num_requests", "repeat"))
        if definition.get("workload") != self.workload_name:
            return None
        if not (isinstance(level, int | float) and isinstance(requests, int) and isinstance(repeat, int)):
            return None
        runs = (self._run(level, requests, repeat, stop=stop) for stop in (self.workload.stoppable, False))
        return next((run for run in runs if run.digest == digest), None)

    def selected(self, patterns: Iterable[str]) -> bool:
        """Whether one of `patterns` matches its key."""
        return any(fnmatchcase(self.key, pattern) for pattern in patterns)


def found_runs(searches: Sequence[SearchSpec], records: Iterable[Path]) -> list[RunSpec]:
    """The runs of searches that are measured, in the order in which they were.

    Args:
        records: `run.json` of what is measured, of these searches or not. What cannot be read, or is defined otherwise by now, is left.
    """
    found: dict[str, tuple[str, RunSpec]] = {}
    names = {search.deployment.name for search in searches}
    for path in records:
        try:
            content = read_object(path)
            definition, digest, started = content["definition"], str(content["digest"]), str(content["started"])
        except (*UNREADABLE, KeyError):
            continue
        if digest in found or not isinstance(definition, dict) or definition.get("deployment") not in names:
            continue
        mine = (s.measured(definition, digest) for s in searches if s.deployment.name == definition["deployment"])
        if run := next(filter(None, mine), None):
            found[digest] = (started, run)
    return [run for _, run in sorted(found.values(), key=lambda pair: (pair[0], pair[1].name))]


def search_record(search: SearchSpec, results: Path = Path(Paths.RESULTS)) -> SearchRecord | None:
    """What a search found, if it has ended as it is defined now."""
    place = results / Path(Paths.SEARCHES.format(deployment=search.deployment.name)).relative_to(Paths.RESULTS)
    record = read_known(DeploymentSearches, place)
    return next((each for each in record.searches if each.digest == search.digest), None) if record else None
