"""The searches of a study, and the runs that they measured: as many as it took, known only afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

from bench.records.searches import DeploymentSearches, SearchedRun
from bench.study.search import Search
from bench.study.slo import Slo
from bench.study.specs import DeploymentSpec, RunSpec, digest, load_label
from bench.study.workload import Workload

__all__ = ["SearchSpec", "found_runs"]


@dataclass(frozen=True)
class SearchSpec:
    """A search for the highest load of a deployment within SLOs.

    Attributes:
        family, workload_name, workload: as of a run. settings: the ladder's `search`. slos, failed_share: what has to be met.
        seed: of the study. files: SHA-256 of each file that the workload reads, by path.
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
        first = self.run(self.settings.start, 1, 1)
        slos = [str(slo) for slo in self.slos]
        return digest([first.digest, self.settings.model_dump(mode="json"), slos, self.failed_share])

    def run(self, level: float, requests: int, repeat: int) -> RunSpec:
        """A run of `requests` requests at `level`."""
        sent = self.workload.model_copy(update={"num_requests": requests, "duration_s": None})
        level = int(level) if self.workload.axis == "concurrency" else level
        return RunSpec(
            self.deployment, self.family, self.workload_name, sent, level, repeat, self.seed, self.files, searched=True
        )

    def again(self, run: SearchedRun) -> RunSpec:
        """The run that a record names, by today's definition."""
        return self.run(run.level, run.requests, run.repeat)

    def selected(self, patterns: Iterable[str]) -> bool:
        """Whether one of `patterns` matches its key."""
        return any(fnmatchcase(self.key, pattern) for pattern in patterns)


def found_runs(searches: Iterable[SearchSpec], records: Mapping[str, DeploymentSearches]) -> list[RunSpec]:
    """The runs that searches measured, by their records. What the study defines otherwise by now is not among them.

    Args:
        records: by deployment.
    """
    found = []
    for search in searches:
        record = records.get(search.deployment.name)
        for run in (run for each in record.searches if each.name == search.name for run in each.runs) if record else ():
            spec = search.again(run)
            if spec.digest == run.digest:
                found.append(spec)
    return found
