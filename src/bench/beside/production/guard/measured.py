"""What a study knows of a server that production can be held to: one curve's limit, and what its sustained runs showed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from bench.axes import CONCURRENCY, RATE
from bench.beside.production.curve import read_curve
from bench.errors import count_text
from bench.findings.capacity.words import limit
from bench.findings.sizing import Limits, OperatingPoint, limits
from bench.parse.scrapes import TELEMETRY_SCHEMA
from bench.parse.server import gauges
from bench.runs.sentences import load_text
from bench.servers.metrics import Catalogue, find_catalogue
from bench.study.slo import Slo, parse_slo

_LE = re.compile(r'\ble="([^"]+)"')
_UNSHARED = "unique"  # `cache` of runs whose prompts have nothing in common
_AXES = {"requests in flight": CONCURRENCY, "requests/s": RATE}  # by the unit of a load that a server counts
Bounds = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One curve, and the server that it was measured on; None where something is not known.

    Attributes:
        point: its row of `capacity.parquet`. slos: those of all requests: no server tells classes apart.
        catalogue: which engine the metrics are of, and what it calls ours. digest: of the deployment.
        histograms: by latency the name of the server's histogram, without `_bucket`, and the upper bounds of its buckets (s),
            ascending, by the text of the label `le`.
        runs: valid ones at loads up to C_max, the sustained ones. waiting, kv_usage: the most requests that waited in their steady
            windows, and the highest KV usage there (0–1). preemptions: of all of them. hit_rate: the lowest prefix-cache hit rate
            (0–1), where all share prefixes.
        limits: of admission.
    """

    point: Mapping[str, Any]
    slos: tuple[Slo, ...]
    catalogue: Catalogue
    digest: str | None
    histograms: Mapping[str, tuple[str, Bounds]]
    runs: int
    waiting: float | None
    kv_usage: float | None
    preemptions: float | None
    hit_rate: float | None
    limits: Limits | None

    @property
    def deployment(self) -> str:
        """Its key: the name of Prometheus' job."""
        return str(self.point["deployment"])

    @property
    def found(self) -> bool:
        """Whether a load is known beyond which the SLOs are missed."""
        return bool(self.point["kind"] == "found")

    @property
    def low(self) -> float | None:
        """The lower end of C_max's interval; None where it is not established, or where it is 0: then no load is."""
        return self.point["low"] or None

    @property
    def no_low(self) -> str:
        """Why there is no `low`."""
        if self.point["low"] == 0:
            return "the lower end of C_max's interval is 0, so that no load is established to be within the SLOs"
        return "the lower end of C_max's interval is not established"

    @property
    def axis(self) -> str | None:
        """`concurrency` or `request_rate`; None where the load is counted in what no server counts."""
        return _AXES.get(self.point["unit"])

    @property
    def limit_text(self) -> str:
        """The limit, and what it was judged by."""
        point, engine = self.point, self.catalogue.engine or "engine not known"
        judged = f" within {', '.join(point['slos'])}" if point["slos"] else ""
        return f"The limit of {point['workload']}{judged}: {limit(point)}, at 95 % confidence; {engine}"

    @property
    def sustained_text(self) -> str:
        """Which runs are meant by sustained ones."""
        return f"{count_text(self.runs, 'valid run')} up to {load_text(self.point['c_max'], self.point['unit'])}"


def read_measured(folder: Path, workload: str | None = None) -> Measured:
    """What production can be held to by one curve of a folder of results. Args and errors as of `read_curve`."""
    curve = read_curve(folder, workload)
    point = curve.point
    runs = curve.runs.filter((pl.col("level") <= point["c_max"]) & pl.col("valid") & pl.col("counts_valid"))
    telemetries = [(run, table) for run in runs.iter_rows(named=True) if (table := curve.telemetry(run)) is not None]
    peaks = [(run["level"], _peaks(run, table)) for run, table in telemetries]
    slos = tuple(parse_slo(text) for text in point["slos"] if " of " not in text)
    found = OperatingPoint.of(point, curve.runs.row(0, named=True)) if point["kind"] == "found" else None
    ttft = min((slo.limit_s for slo in slos if slo.metric == "ttft"), default=None)
    last = telemetries[-1][1] if telemetries else pl.DataFrame(schema=TELEMETRY_SCHEMA)
    catalogue = find_catalogue(last["name"].unique().to_list(), curve.version)
    rates, preempted = runs["prefix_hit_rate"].to_list(), runs["preemptions"].to_list()
    shared = set(runs["cache"]).isdisjoint({_UNSHARED, None})

    def highest(gauge: str) -> float | None:
        """None where a run at C_max does not show it."""
        at_limit = [gauge in seen for level, seen in peaks if level == point["c_max"]]
        whole = len(at_limit) == runs.filter(level=point["c_max"]).height > 0 and all(at_limit)
        return max(seen[gauge] for _, seen in peaks if gauge in seen) if whole else None

    return Measured(
        point=point,
        slos=slos,
        catalogue=catalogue,
        digest=curve.facts.digest if curve.facts else None,
        histograms=dict(_histograms(last, catalogue)),
        runs=runs.height,
        waiting=highest("waiting"),
        kv_usage=highest("kv_usage"),
        preemptions=sum(preempted) if preempted and None not in preempted else None,
        hit_rate=min(rates) if rates and None not in rates and shared else None,
        limits=limits(found, ttft) if found is not None and point["low"] else None,
    )


def _histograms(telemetry: pl.DataFrame, catalogue: Catalogue) -> Iterator[tuple[str, tuple[str, Bounds]]]:
    names = catalogue.names
    for metric, name in (("ttft", names.get("server_ttft")), ("tpot", catalogue.tpot), ("e2e", names.get("server_e2e"))):
        labels = telemetry.filter(name=f"{name}_bucket")["labels"].unique().to_list()
        texts = {found[1] for each in labels if (found := _LE.search(each))}
        if name and texts:
            yield metric, (name, {text: float(text) for text in sorted(texts, key=float)})


def _peaks(run: Mapping[str, Any], telemetry: pl.DataFrame) -> dict[str, float]:
    """The highest value of each gauge in a run's steady window."""
    window = gauges(telemetry).filter(pl.col("elapsed_s").is_between(run["steady_from_s"], run["steady_until_s"]))
    return dict(window.group_by("gauge").agg(pl.col("value").max()).iter_rows())
