"""What a server calls our metrics: found from what it exposes and, where it is known, its version. The names: each engine's own."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bench.servers.engines import ENGINES
from bench.servers.kind import RAY, Exposed, Kind

GAUGES = ("kv_usage", "running", "waiting")  # kv_usage: share of the KV cache in use, 0 to 1; the others: requests
SHARES = ("kv_usage",)  # of several engines behind one endpoint the fullest counts; other gauges add up
# Tokens, but for preemptions, which are of requests, and drafts, which are of steps that verified one.
COUNTERS = (
    *("preemptions", "server_prompt_tokens", "server_generation_tokens", "prefix_queries", "prefix_hits"),
    *("spec_drafts", "spec_draft_tokens", "spec_accepted_tokens"),
)
MEANS = ("spec_accepted_length",)  # gauges of means over the server's latest steps; 0 before there was one
# Seconds; read as the difference of sum and count between the run's first and last scrape.
HISTOGRAMS = (*("server_ttft", "server_itl", "server_queue_time"), *("server_prefill_time", "server_decode_time", "server_e2e"))

_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")

_Version = tuple[int, ...]


@dataclass(frozen=True)
class Catalogue:
    """What one server calls our metrics.

    Attributes:
        engine: which one it is, with its version where that is known; None where it exposes nothing of any that we know.
        kind: likewise, as `bench.servers.engines` has it.
        names: by our metric the name under which it is exposed; of a histogram, without `_sum` and `_count`.
        facts: likewise of what it reports of itself, its KV cache above all.
        zero: metrics that are not exposed yet because there was nothing to count.
        missing: of each metric that should be exposed and is not, a few words that name it.
        tpot: what its histogram of the TPOT of each request would be called, exposed or not; None where it has none at all.
        late: whether the values are those of some seconds ago: no count of a run, and nothing to compare with the client's.
    """

    engine: str | None
    kind: Kind | None
    names: Mapping[str, str]
    facts: Mapping[str, str]
    zero: frozenset[str]
    missing: list[str]
    tpot: str | None = None
    late: bool = False

    def sample_names(self) -> dict[str, str]:
        """The samples to read: of a gauge or a counter the one of its name, of a histogram `…_sum` and `…_count`."""
        return {ours: name for metric, family in self.names.items() for ours, name in _samples(metric, family).items()}


def find_catalogue(exposed: Collection[str], version: str | None = None) -> Catalogue:
    """What the server calls our metrics whose exposition has samples of the names `exposed`.

    The engine is the one of whose names, as it spells them or those who pass them on, the most are there; a prefix alone makes none. A
    metric has the newest of its names that is there. One that has none is null where the engine does not expose it, in general or at
    its version; else it is missing. Of an unknown version the newest names are expected. Ray passes values on late, and drops gauges
    that rest: only gauges are read of it, and none is missing.

    Args:
        version: the engine's, as it reports it.
    """
    present = set(exposed)
    engine, spelling = max(_SPELLED, key=lambda each: len(_SPELLED[each] & present))
    if not _SPELLED[engine, spelling] & present:
        known = ", ".join(engine.title for engine in ENGINES)
        return Catalogue(None, None, {}, {}, frozenset(), [f"the metrics of any engine that is known ({known})"])

    spelled = partial(_spelled, engine=engine, spelling=spelling)

    now = _parsed(version)
    title = engine.title if now is None else f"{engine.title} {version}"
    names, zero, missing = {}, set(), []
    for metric, rows in engine.metrics.items():
        found = next((spelled(row.name) for row in rows if _sample(metric, spelled(row.name)) in present), None)
        due = [row for row in rows if _exposed_at(row, now)]
        if found is not None:
            names[metric] = found
        elif any(row.absent is None for row in due):
            expected = dict.fromkeys(_sample(metric, spelled(row.name)) for row in due)
            missing.append(f"{metric} ({' or '.join(expected)} in {title})")
        elif now is not None and any(row.absent == "zero" for row in due):
            zero.add(metric)
    facts = {fact: spelled(name) for fact, name in engine.facts.items() if spelled(name) in present}
    if spelling.startswith(RAY):
        names = {metric: name for metric, name in names.items() if metric in GAUGES}
        return Catalogue(title, engine, names, facts, frozenset(), [], late=True)
    tpot = spelled(engine.tpot) if engine.tpot else None
    return Catalogue(title, engine, names, facts, frozenset(zero), sorted(missing), tpot)


def exposition_names(metrics: Iterable[str]) -> list[str]:
    """Every sample that shows one of `metrics`, of any engine and version, in any spelling."""
    names = {
        name
        for engine, spelling in _SPELLED
        for metric in metrics
        for row in engine.metrics.get(metric, ())
        for name in _samples(metric, _spelled(row.name, engine, spelling)).values()
    }
    return sorted(names)


def of_other_versions(engine: Kind, version: str | None) -> set[str]:
    """Names of an engine's metrics that it does not expose at a version; none where the version is not known."""
    now = _parsed(version)
    rows = [row for rows in engine.metrics.values() for row in rows]
    return {row.name for row in rows} - {row.name for row in rows if _exposed_at(row, now)} if now else set()


def _spelled(name: str, engine: Kind, spelling: str) -> str:
    return spelling + name.removeprefix(engine.prefix)


def _exposed_at(row: Exposed, now: _Version | None) -> bool:
    """Whether the name is exposed at a version; where that is unknown, whether it still is at the newest."""
    until = _parsed(row.until)
    if now is None:
        return until is None
    return (_parsed(row.since) or ()) <= now and (until is None or now < until)


def _parsed(version: str | None) -> _Version | None:
    match = _VERSION.match(version or "")
    return tuple(int(part or 0) for part in match.groups()) if match else None


def _samples(metric: str, name: str) -> dict[str, str]:
    if metric not in HISTOGRAMS:
        return {metric: name}
    return {f"{metric}_{part}": f"{name}_{part}" for part in ("sum", "count")}


def _sample(metric: str, name: str) -> str:
    """The sample that shows that a metric is there."""
    return f"{name}_sum" if metric in HISTOGRAMS else name


_SPELLED = {
    (engine, spelling): frozenset(
        _spelled(name, engine, spelling)
        for name in (
            *(_sample(metric, row.name) for metric, rows in engine.metrics.items() for row in rows),
            *engine.facts.values(),
        )
    )
    for engine in ENGINES
    for spelling in engine.spellings()
}


def apart(series: Sequence[Mapping[str, str]], kind: Kind) -> list[int]:
    """The places in `series`, the label sets of one metric, of those that count each request once.

    Of ranks that share their requests the first one counts (`Kind.repeats`), and of a total and its parts the total (`Kind.totals`);
    parts without a total count each.
    """
    totals = {_without(labels, kind.totals) for labels in series if kind.totals and _is_total(labels, kind)}
    counted = [
        place for place, labels in enumerate(series) if _is_total(labels, kind) or _without(labels, kind.totals) not in totals
    ]
    first: dict[frozenset[tuple[str, str]], int] = {}
    for place in sorted(counted, key=lambda place: _ranks(series[place], kind)):
        first.setdefault(_without(series[place], kind.repeats), place)
    return sorted(first.values())


def _is_total(labels: Mapping[str, str], kind: Kind) -> bool:
    return all(labels.get(label) == value for label, value in kind.totals.items())


def _without(labels: Mapping[str, str], names: Collection[str]) -> frozenset[tuple[str, str]]:
    return frozenset((name, value) for name, value in labels.items() if name not in names)


def _ranks(labels: Mapping[str, str], kind: Kind) -> list[tuple[int, str]]:
    """Ranks in an order that sorts them as numbers."""
    return [(len(labels.get(name, "")), labels.get(name, "")) for name in kind.repeats]
