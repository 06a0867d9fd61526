"""What a study knows of a server that production can be held to: one curve's limit, and what its sustained runs showed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from bench.axes import CONCURRENCY, RATE
from bench.beside.production.curve import read_curve
from bench.errors import count_text
from bench.findings.capacity.words import limit
from bench.findings.sizing import Limits, OperatingPoint, limits
from bench.parse.server import gauges
from bench.runs.sentences import load_text
from bench.servers.kind import Kind
from bench.servers.metrics import Catalogue, find_catalogue
from bench.study.slo import Slo, parse_slo

_LE = re.compile(r'\ble="([^"]+)"')
_UNSHARED = "unique"  # `cache` of runs whose prompts have nothing in common


@dataclass(frozen=True)
class Histogram:
    """A server's histogram of a latency of each request.

    Attributes:
        name: without `_bucket`. bounds: upper bounds of its buckets (s), ascending, by the text of the label `le`.
    """

    name: str
    bounds: Mapping[str, float]


@dataclass(frozen=True)
class Sustained:
    """What valid runs at loads up to C_max showed; None where it is not known.

    Attributes:
        runs: how many there are. waiting: most requests that waited in their steady windows. kv_usage: highest KV usage there (0–1).
        preemptions: of all of them. hit_rate: the lowest prefix-cache hit rate (0–1). shared: whether their prompts have something in
            common.
    """

    runs: int
    waiting: float | None = None
    kv_usage: float | None = None
    preemptions: float | None = None
    hit_rate: float | None = None
    shared: bool = False


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One curve, and the server that it was measured on.

    Attributes:
        point: its row of `capacity.parquet`. slos: those of all requests: no server tells classes apart.
        kind: which engine the metrics are of, and engine: the same with its version; None where no telemetry shows it.
        digest: of the deployment. names: what the server calls our metrics. histograms: by latency.
        sustained: what the runs up to C_max showed. limits: of admission; None where no limit, or no lower end of it, is known.
    """

    point: Mapping[str, Any]
    slos: tuple[Slo, ...] = ()
    kind: Kind | None = None
    engine: str | None = None
    digest: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    sustained: Sustained
    limits: Limits | None = None

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
        unit = self.point["unit"]
        return {"requests in flight": CONCURRENCY, "requests/s": RATE}.get(unit) if self.point["basis"] == "steady" else None

    @property
    def limit_text(self) -> str:
        """The limit, and what it was judged by."""
        point, engine = self.point, self.engine or "engine not known"
        judged = f" within {', '.join(point['slos'])}" if point["slos"] else ""
        return f"The limit of {point['workload']}{judged}: {limit(point)}, at 95 % confidence; {engine}"

    @property
    def sustained_text(self) -> str:
        """Which runs are meant by sustained ones."""
        return f"{count_text(self.sustained.runs, 'valid run')} up to {load_text(self.point['c_max'], self.point['unit'])}"


def read_measured(folder: Path, workload: str | None = None) -> Measured:
    """What production can be held to by one curve of a folder of results. Args and errors as of `read_curve`."""
    curve = read_curve(folder, workload)
    point, runs = curve.point, curve.runs
    sustained = runs.filter((pl.col("level") <= point["c_max"]) & pl.col("valid") & pl.col("counts_valid"))
    telemetries = {run["run"]: table for run in sustained.iter_rows(named=True) if (table := curve.telemetry(run)) is not None}
    settings = runs.row(0, named=True)
    slos = tuple(parse_slo(text) for text in point["slos"] if " of " not in text)
    found = OperatingPoint.of(point, settings) if point["kind"] == "found" and point["basis"] == "steady" else None
    ttft = min((slo.limit_s for slo in slos if slo.metric == "ttft"), default=None)
    last = next(reversed(telemetries.values()), None)
    exposed = [] if last is None else last["name"].unique().to_list()
    catalogue = find_catalogue(exposed, curve.version)
    return Measured(
        point=point,
        slos=slos,
        kind=catalogue.kind,
        engine=catalogue.engine,
        digest=curve.facts.digest if curve.facts else None,
        names=catalogue.names,
        histograms={} if last is None else dict(_histograms(last, catalogue)),
        sustained=_sustained(sustained, telemetries, point["c_max"]),
        limits=limits(found, ttft) if found is not None and point["low"] else None,
    )


def _histograms(telemetry: pl.DataFrame, catalogue: Catalogue) -> Iterator[tuple[str, Histogram]]:
    names = catalogue.names
    for metric, name in (("ttft", names.get("server_ttft")), ("tpot", catalogue.tpot), ("e2e", names.get("server_e2e"))):
        labels = telemetry.filter(pl.col("name") == f"{name}_bucket")["labels"].unique().to_list() if name else []
        texts = {found[1] for each in labels if (found := _LE.search(each))}
        bounds = {text: bound for bound, text in sorted((float(text), text) for text in texts)}
        if name and bounds:
            yield metric, Histogram(name, bounds)


def _sustained(runs: pl.DataFrame, telemetries: Mapping[str, pl.DataFrame], c_max: float) -> Sustained:
    rates, preempted = runs["prefix_hit_rate"].to_list(), runs["preemptions"].to_list()
    return Sustained(  # of a run that does not show it, it is not known
        runs.height,
        waiting=_peak(runs, telemetries, "waiting", c_max),
        kv_usage=_peak(runs, telemetries, "kv_usage", c_max),
        preemptions=sum(preempted) if preempted and None not in preempted else None,
        hit_rate=min(rates) if rates and None not in rates else None,
        shared=runs.height > 0 and set(runs["cache"]).isdisjoint({_UNSHARED, None}),
    )


def _peak(runs: pl.DataFrame, telemetries: Mapping[str, pl.DataFrame], gauge: str, c_max: float) -> float | None:
    """The highest value of a gauge in any steady window; None where a run at C_max does not show it."""
    peaks = []
    for run in runs.iter_rows(named=True):
        telemetry, found = telemetries.get(run["run"]), []
        if telemetry is not None and run["steady_from_s"] is not None:
            window = pl.col("elapsed_s").is_between(run["steady_from_s"], run["steady_until_s"]) & (pl.col("gauge") == gauge)
            found = [value for part in telemetry.partition_by("endpoint") for value in gauges(part).filter(window)["value"]]
        if found:
            peaks.append(max(found))
        elif run["level"] == c_max:
            return None
    return max(peaks, default=None) if c_max in runs["level"] else None
