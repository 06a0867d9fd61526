"""Whether production is still what a study measured: its traffic, its speed and its server, from what Prometheus kept of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from bench.drifted.curve import read_studied
from bench.drifted.judge import DIFFERS, LENGTHS, PARTS, SAME, UNKNOWN, WHOLES, Compared, compared
from bench.drifted.prometheus import Window
from bench.drifted.served import START_TIME, read_names, scraped_twice, served
from bench.drifted.server import compared_server
from bench.errors import BenchError
from bench.guard import Curve
from bench.parse.server import labels_of
from bench.servers.metrics import find_catalogue

__all__ = ["DIFFERS", "SAME", "UNKNOWN", "Compared", "Drift", "Window", "find_drift"]


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
        undecided = any(
            each.verdict == UNKNOWN and each.shown and not (each.name in PARTS and each.change is not None)
            for each in self.compared
        )
        return SAME if same >= LENGTHS.keys() and same & WHOLES and not undecided else UNKNOWN


def find_drift(curve: Curve, window: Window) -> Drift:
    """Compare what Prometheus kept with a curve of a study.

    Raises:
        BenchError: the study is of a fleet, or Prometheus does not answer, or has no series of the server, or none of an engine that is
            known.
    """
    if curve.workers:
        raise BenchError(
            f"{curve.folder}: {curve.point['deployment']} is a fleet, and what is compared is the load and speed of one server. Give "
            "one replica's study."
        )
    names = window.names()
    version = curve.facts.engine_version if curve.facts else None
    catalogue = find_catalogue(names, version)
    if catalogue.kind is None:
        raise BenchError(
            f"--prometheus {window.url}: the series with {window.chosen} are of no engine that is known: "
            f"{', '.join(sorted(names)[:5])}. Give the labels of the job that scrapes the servers: --label job=NAME."
        )
    ours = read_names(catalogue)
    read = dict.fromkeys([*ours.values(), *catalogue.facts.values()])
    samples = window.samples([*read, *([START_TIME] if START_TIME in names else [])])
    if twice := scraped_twice(
        samples.filter(pl.col("name").is_in([ours[each] for each in ("running", "output") if each in ours]))
    ):
        raise BenchError(
            f"--prometheus {window.url}: with {window.chosen} several scrape the same server, by series that differ in "
            f"{', '.join(twice)}. Name one of them: --label {twice[0]}=VALUE."
        )
    between = served(samples, catalogue)
    if between.is_empty():
        raise BenchError(
            f"--prometheus {window.url}: with {window.chosen} it has no two scrapes of a server in this time. "
            "Give a longer time (--last), or labels of a server that was up then."
        )
    studied = read_studied(curve)
    seconds = window.end - window.begin
    shown = set(catalogue.facts.values())
    texts = samples.select("labels", of_facts=pl.col("name").is_in(list(shown))).unique()
    labels = [labels_of(text) for text in texts.filter("of_facts")["labels"]]
    others = {key for text in texts.filter(~pl.col("of_facts"))["labels"] for key in labels_of(text)}
    kind = find_catalogue(studied.names, version).kind
    server = compared_server(curve.facts, (kind, catalogue.kind), (studied.names, names), labels, others)
    instances = max(1, between["instance"].n_unique())
    return Drift(
        deployment=curve.point["deployment"],
        workload=curve.point["workload"],
        instances=instances,
        seen=_seen(between, seconds),
        restarts=int(between["restarted"].sum()),
        compared=[*compared(studied, between, seconds), *server],
    )


def _seen(between: pl.DataFrame, seconds: float) -> float:
    """Share of the time that was counted (0–1): of each server from its first to its last scrape, of all together in the whole time."""
    begin, end = (pl.col("at_s") - pl.col("seconds")).min(), pl.col("at_s").max()
    lives = float(between.group_by("instance").agg(life=end - begin)["life"].sum())
    counted = float(between.filter(~pl.col("restarted"))["seconds"].sum())
    return min(1.0, counted / lives * float(between.select(end - begin).item()) / seconds)
