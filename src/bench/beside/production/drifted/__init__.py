"""Whether production is still what a study measured: its traffic, its speed and its server, from what Prometheus kept of it."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import polars as pl

from bench.beside.production.curve import Curve
from bench.beside.production.drifted.judged import DIFFERS, LENGTHS, SAME, TITLES, UNKNOWN, Compared, compared
from bench.beside.production.drifted.served import Window, read_names, scraped_twice, served
from bench.beside.production.drifted.studied import read_studied
from bench.errors import BenchError, first_names
from bench.servers.kind import Kind
from bench.servers.metrics import find_catalogue, of_other_versions


@dataclass(frozen=True)
class Drift:
    """Production beside a study.

    Attributes:
        deployment, workload: of the study. instances: servers of production. seen: share of the time that was counted (0–1), of each
            server from its first to its last scrape.
        restarts: how often one of them began anew. compared: the quantities. verdict: `same`, `differs` or `not known`.
    """

    deployment: str
    workload: str
    instances: int
    seen: float
    restarts: int
    compared: Sequence[Compared]

    @property
    def verdict(self) -> str:
        """`same` where both lengths and E2E, or the time in flight, are the same, nothing differs, and nothing that both sides show is
        undecided, such as what lies outside the measured loads.

        TTFT and ITL are parts of E2E: where their intervals alone are too wide, they leave it the same.
        """
        if any(each.verdict == DIFFERS for each in self.compared):
            return DIFFERS
        same = {each.name for each in self.compared if each.verdict == SAME}
        parts = (TITLES["ttft"], TITLES["itl"])
        undecided = [each for each in self.compared if each.verdict == UNKNOWN and each.shown]
        undecided = [each for each in undecided if each.name not in parts or each.change is None]
        return SAME if same >= {*LENGTHS} and same & {TITLES["e2e"], TITLES["held"]} and not undecided else UNKNOWN


def find_drift(curve: Curve, window: Window) -> Drift:
    """Compare what Prometheus kept with a curve of a study.

    Raises:
        BenchError: the study is of a fleet, or Prometheus does not answer, or has no series of the server, or none of an engine that is
            known.
    """
    where = f"--prometheus {window.url}: with {window.chosen}"
    if curve.workers:
        raise BenchError(
            f"{curve.results.place}: {curve.point['deployment']} is a fleet, but production is compared with one server. Give "
            "one replica's study."
        )
    names = window.names()
    catalogue = find_catalogue(names, curve.version)
    if catalogue.kind is None:
        raise BenchError(
            f"{where} the series belong to no known engine: {', '.join(sorted(names)[:5])}. Give the labels of the job that "
            "scrapes the servers: --label job=NAME."
        )
    ours = read_names(catalogue)
    samples = window.samples(list(dict.fromkeys(ours.values())))
    if twice := scraped_twice(samples.filter(pl.col("name").is_in([ours.get("running"), ours.get("output")]))):
        raise BenchError(
            f"{where} several jobs scrape the same server; their series differ in {', '.join(twice)}. Choose one: --label "
            f"{twice[0]}=VALUE."
        )
    between = served(samples, catalogue)
    if between.is_empty():
        raise BenchError(
            f"{where} no server has two scrapes in this time. Give a longer time (--last), or labels of a server that was up."
        )
    studied, seconds = read_studied(curve), window.end - window.begin
    kind = find_catalogue(studied.names, curve.version).kind
    begin, end = (pl.col("at_s") - pl.col("seconds")).min(), pl.col("at_s").max()
    lives = float(between.group_by("instance").agg(life=end - begin)["life"].sum())
    counted = float(between.filter(~pl.col("restarted"))["seconds"].sum())
    return Drift(
        deployment=curve.point["deployment"],
        workload=curve.point["workload"],
        instances=max(1, between["instance"].n_unique()),
        seen=min(1.0, counted / lives * float(between.select(end - begin).item()) / seconds),
        restarts=int(between["restarted"].sum()),
        compared=[
            *compared(studied, between, seconds),
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
    bare = Compared("engine and version", "server", "", engine, now.title)
    if then is None:
        return replace(bare, why="the study has no metrics", shown=False)
    if then is not now:
        return replace(bare, verdict=DIFFERS, why="another engine")
    prefixes = "|".join(sorted((re.escape(each.prefix) for each in now.spellings()), key=len, reverse=True))
    # Without prefix, and without what a type appends; none of a recording rule (`vllm:…:rate5m`).
    stem = re.compile(rf"(?:{prefixes})([^:]+?)(?:_(?:sum|count|bucket|created|total))?")
    before, seen, others = (
        {known[1] for name in each if (known := stem.fullmatch(name))} for each in (*names, of_other_versions(now, version))
    )
    if found := sorted((seen - before) & others):
        why = f"it exposes {first_names(found, 3)}, which {engine} does not have: another version"
        return replace(bare, verdict=DIFFERS, why=why)
    return replace(bare, why="no name among its metrics shows another version", shown=False)
