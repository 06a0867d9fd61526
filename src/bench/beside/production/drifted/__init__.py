"""Whether production is still what a study measured: its traffic, its speed and its server, from what Prometheus kept of it."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from bench.beside.production.curve import Curve
from bench.beside.production.drifted.judged import (
    DIFFERS,
    LENGTHS,
    LOAD,
    SAME,
    TITLES,
    UNKNOWN,
    VERSION,
    Compared,
    compared,
)
from bench.beside.production.drifted.served import Window, read_names, served
from bench.beside.production.drifted.studied import read_studied
from bench.errors import BenchError, first_names
from bench.servers.kind import Kind
from bench.servers.metrics import find_catalogue, of_other_versions


@dataclass(frozen=True)
class Drift:
    """Production beside a study.

    Attributes:
        deployment, workload: of the study. instances: servers of production. compared: the quantities. verdict: `same`, `differs` or
            `not known`.
    """

    deployment: str
    workload: str
    instances: int
    compared: Sequence[Compared]

    @property
    def verdict(self) -> str:
        """`same` where load, both lengths and E2E are the same, nothing differs, and no interval is too wide.

        TTFT and ITL are parts of E2E: where their intervals alone are too wide, they leave it the same.
        """
        if any(each.verdict == DIFFERS for each in self.compared):
            return DIFFERS
        same = {each.name for each in self.compared if each.verdict == SAME}
        undecided = {each.name for each in self.compared if each.too_wide} - {TITLES["ttft"], TITLES["itl"]}
        return SAME if same >= {LOAD, *LENGTHS, TITLES["e2e"]} and not undecided else UNKNOWN


def find_drift(curve: Curve, window: Window) -> Drift:
    """Compare what Prometheus kept with a curve of a study.

    Raises:
        BenchError: Prometheus does not answer, or has no series of the server, or none of an engine that is known.
    """
    where = f"--prometheus {window.url}: with {window.chosen}"
    names = window.names()
    catalogue = find_catalogue(names, curve.version)
    if catalogue.kind is None:
        raise BenchError(
            f"{where} the series belong to no known engine: {', '.join(sorted(names)[:5])}. Give the labels of the job that "
            "scrapes the servers: --label job=NAME."
        )
    between = served(window.samples(list(dict.fromkeys(read_names(catalogue).values()))), catalogue)
    if between.is_empty():
        raise BenchError(
            f"{where} no server has two scrapes in this time. Give a longer time (--last), or labels of a server that was up."
        )
    studied = read_studied(curve)
    kind = find_catalogue(studied.names, curve.version).kind
    return Drift(
        deployment=curve.point["deployment"],
        workload=curve.point["workload"],
        instances=between["instance"].n_unique(),
        compared=[
            *compared(studied, between, window.end - window.begin),
            compared_version(curve.version, (kind, catalogue.kind), (studied.names, names)),
        ],
    )


def compared_version(
    version: str | None, kinds: tuple[Kind | None, Kind], names: tuple[Collection[str], Collection[str]]
) -> Compared:
    """The engine and its version, by names of metrics alone: no engine shows its version among them, and only a name that the study's
    version does not have is another version, as others depend on settings and on what was asked.

    Args:
        version: of the study. kinds, names: of the study and of production.
    """
    then, now = kinds
    engine = " ".join(filter(None, [then.title if then else None, version])) or None
    bare = Compared(VERSION, "", engine, now.title)
    if then is not None and then is not now:
        return replace(bare, verdict=DIFFERS, why="another engine")
    # Without prefix, and without what a type appends; none of a recording rule (`vllm:…:rate5m`).
    stem = re.compile(rf"{re.escape(now.prefix)}([^:]+?)(?:_(?:sum|count|bucket|created|total))?")
    before, seen, others = (
        {known[1] for name in each if (known := stem.fullmatch(name))} for each in (*names, of_other_versions(now, version))
    )
    if found := sorted((seen - before) & others):
        why = f"it exposes {first_names(found, 3)}, which {engine} does not have: another version"
        return replace(bare, verdict=DIFFERS, why=why)
    return replace(bare, why="no name among its metrics shows another version")
