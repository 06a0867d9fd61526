"""Runs of known truth: sound ones of many kinds, and the same with one fault planted at a size that matters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from bench.parse.latency import latency_columns
from bench.parse.run import summarise
from bench.parse.scrapes import TELEMETRY_SCHEMA
from bench.runs.request_table import REQUEST_SCHEMA
from bench.runs.run import Client, Host, Prefix, RunRecord
from bench.servers.metrics import find_catalogue
from benchmarks.exposition import sample_name, with_catalogue
from benchmarks.verdicts.server import Engine, Load, Request, serve

__all__ = ["FAULTS", "SOUND", "Case", "sound", "summary"]

_ENDPOINT = "u"
_INTERVAL_S = 0.2
_COUNTED_S = 0.005  # by how much later than the client sees a token the server may count it
_NAMES = find_catalogue({sample_name(line) for line in with_catalogue(10_000) if line[0] != "#"}, "0.32.0").sample_names()
SOUND = (
    "burst", "closed", "poisson", "short answers", "overload", "refusals", "shared prefix", "whole answers", "no telemetry",
    "tokens counted at the end", "last scraped at once",
)  # fmt: skip


@dataclass
class Case:
    """A run before it is simulated; a fault alters it.

    Attributes:
        delay: by how much each request leaves late (s). lag: of the client's timer, each 10 ms (s). others: share of the cores' time.
        hits: share of the prompts' tokens that the prefix cache serves; expected: that it should. keep: which scrapes came, by their
            moments and the load's ends (s). alter: what is done to the requests' rows, and reported: to the samples, at last.
        counted: what the server shows of the tokens that it made, at each scrape.
    """

    kind: str
    engine: Engine
    load: Load
    lengths: tuple[int, int]
    level: float
    delay: np.ndarray
    lag: Callable[[int], np.ndarray]
    cpu: float = 0.3
    skew: float = 0.0
    others: float = 0.03
    hits: float = 0.0
    expected: float = 0.0
    kv_usage: float = 0.5
    scraped: bool = True
    keep: Callable[[np.ndarray, float, float], np.ndarray] = field(default=lambda at, *_: np.full(len(at), True))
    alter: Callable[[pl.DataFrame], pl.DataFrame] = field(default=lambda requests: requests)
    reported: Callable[[pl.DataFrame], pl.DataFrame] = field(default=lambda samples: samples)
    counted: Callable[[np.ndarray], np.ndarray] = field(default=lambda made: made)


def _noise(count: int, generator: np.random.Generator) -> np.ndarray:
    """Lateness of a process on a shared machine at normal times (s): 0.2 ms, now and then some milliseconds, seldom tens of them.

    As on the two shared cores of docs/explanation/decisions.md: P99 of some milliseconds, longest of a run mostly below 60 ms.
    """
    usual = generator.lognormal(np.log(2e-4), 1.0, count)
    stalls = np.where(generator.random(count) < 0.0005, generator.exponential(0.02, count), 0.0)
    return np.minimum(usual + stalls, 0.15)


def sound(kind: str, generator: np.random.Generator) -> Case:
    """A run beyond reproach: an engine of any speed, answers short or long, few requests or many."""
    step = float(np.exp(generator.uniform(np.log(0.01), np.log(0.5))))
    most = float(np.clip(20.0 / step, 8, 200))
    output = int(np.exp(generator.uniform(np.log(4), np.log(most))))
    prompt = int(np.exp(generator.uniform(np.log(16), np.log(2000))))
    if kind == "short answers":  # of which scrapes never see the peaks
        step, output, prompt = (
            float(generator.uniform(0.01, 0.03)),
            int(generator.integers(4, 16)),
            int(generator.integers(16, 200)),
        )
    slots = int(generator.choice([4, 16, 64, 256]))
    engine = Engine(
        step, float(generator.uniform(0, 0.05)), float(np.exp(generator.uniform(np.log(1e-5), np.log(1e-3)))), slots=slots
    )
    level = int(np.exp(generator.uniform(0, np.log(64))))
    e2e = step * output * (1 + engine.per_sequence * level) + engine.prefill_s * prompt * level
    if kind in ("poisson", "short answers", "overload"):
        capacity = min(slots, 32) / (
            step * output * (1 + engine.per_sequence * min(slots, 32)) + 32 * engine.prefill_s * prompt
        )
        rate = capacity * float(generator.uniform(1.2, 2) if kind == "overload" else generator.uniform(0.1, 0.8))
        count = int(np.clip(rate * generator.uniform(8, 25), 10, 400))
        load, level = Load(np.cumsum(generator.exponential(1 / rate, count)).tolist()), rate  # type: ignore[assignment]
    elif kind == "closed" or (kind not in ("burst", "refusals") and generator.random() < 0.5):
        count = int(level * np.clip(20 / e2e, 2, 8)) + 1
        load = Load([0.0] * min(level, count), level, count)
        kind = kind if kind != "burst" else "closed"
    else:
        count = level
        load = Load([0.0] * count)
    if kind == "refusals":
        engine = replace(engine, admitted=max(1, level // 2))
    case = Case(
        kind, engine, load, (prompt, output), float(level), _noise(count, generator), lambda n: _noise(n, generator),
        cpu=float(generator.uniform(0.01, 0.8)), skew=float(generator.exponential(2e-5)), others=float(generator.beta(2, 60)),
    )  # fmt: skip
    if kind == "shared prefix":
        case.expected = float(generator.uniform(0.2, 0.9))
        case.hits = case.expected - float(generator.uniform(0, 0.02))
        if generator.random() < 0.3:  # a full cache has evicted what was shared
            case.hits, case.kv_usage = case.hits * float(generator.random()), 0.99
    case.scraped = kind != "no telemetry"
    if kind == "last scraped at once":  # 8 to 20 ms after the last answer, as runs of a short drain are
        case.keep = lambda at, _, end: at <= at[at >= end + 0.008][0]
    return case


def summary(case: Case, generator: np.random.Generator) -> dict[str, Any]:
    """The summary that the real parse makes of the run."""
    done, gauges = serve(case.engine, case.load, case.lengths, case.delay, generator)
    rows = case.alter(_rows(case, done))
    requests = latency_columns(rows.lazy()).collect()
    ended = [r.end or 0.0 for r in done]
    begin, end = min(r.sent for r in done), max(ended)
    at = _scrapes(begin, end, generator)
    at = at[case.keep(at, begin, end)] if case.scraped else at[:0]
    lag = case.lag(max(20, int((end - begin) / 0.01)))
    first = np.array([r.sent for r in done[: len(case.load.due)]])
    late = np.array([r.sent - r.scheduled for r in done])
    axis = "concurrency" if case.load.loop or not any(case.load.due) else "request_rate"
    arrival = "closed" if case.load.loop else "burst" if axis == "concurrency" else "poisson"
    prompts = sum(r.prompt for r in done if r.status == 200)
    record = RunRecord(
        engine_version="0.32.0",
        digest="d",
        round=1,
        definition={"deployment": "a", "run": "r", "workload": "w", "arrival": arrival, "axis": axis, "level": case.level, "repeat": 1,
                    "stream": case.kind != "whole answers", "cache": "shared" if case.expected else "unique"},
        started="",
        clock_start_s=0.0,
        drain_s=0.0,
        scrape_interval_s=_INTERVAL_S if case.scraped else None,
        scrape_endpoint="engine" if case.scraped else None,
        prefix=Prefix(expected_tokens=case.expected * sum(r.prompt for r in done)),
        client=Client(
            cpu_share=case.cpu, clock_skew_s=case.skew, send_spread_s=float(np.ptp(first)),
            schedule_delay_p99_s=float(np.quantile(late, 0.99)), loop_lag_p99_s=float(np.quantile(lag, 0.99)),
            loop_lag_max_s=float(lag.max()),
        ),
        host=Host(other_share=case.others),
        files={},
    )  # fmt: skip
    samples = case.reported(_samples(case, done, gauges, at, prompts)) if len(at) else pl.DataFrame(schema=TELEMETRY_SCHEMA)
    return summarise(record, requests, samples, at.tolist())


def _rows(case: Case, done: list[Request]) -> pl.DataFrame:
    """The requests as the records' reader gives them; a whole answer's tokens all come at its end."""
    streamed = case.kind != "whole answers"
    rows = []
    for i, r in enumerate(done):
        ok = r.status == 200
        tokens = (r.tokens if streamed else r.tokens[-1:]) if ok else []
        rows.append(
            {
                "index": i, "outcome": "ok" if ok else "http_error", "status": r.status, "prompt_asked": r.prompt,
                "output_asked": r.output, "prompt_tokens": r.prompt if ok else None, "completion_tokens": r.output if ok else None,
                "scheduled_s": r.scheduled, "sent_s": r.sent, "first_token_s": tokens[0] if tokens and streamed else None,
                "last_token_s": tokens[-1] if tokens else None, "end_s": r.end, "token_times_s": tokens,
                "ttft_s": tokens[0] - r.sent if tokens and streamed else None, "e2e_s": tokens[-1] - r.sent if tokens else None,
            }
        )  # fmt: skip
    return pl.DataFrame(rows, schema=REQUEST_SCHEMA)


def _scrapes(begin: float, end: float, generator: np.random.Generator) -> np.ndarray:
    """When scrapes came: each 200 ms, some late, a few much later, as the server was busy; slots that have passed are left out."""
    due = np.arange(begin - _INTERVAL_S, end + 2 * _INTERVAL_S, _INTERVAL_S)
    late = generator.exponential(0.01, len(due)) + np.where(
        generator.random(len(due)) < 0.01, generator.uniform(0.2, 1.2, len(due)), 0
    )
    late[[0, -1]] = 0.0
    at = due + late
    return at[np.concatenate([[True], np.diff(np.maximum.accumulate(at)) > 0])]


def _samples(
    case: Case, done: list[Request], gauges: list[tuple[float, int, int]], at: np.ndarray, prompts: int
) -> pl.DataFrame:
    """What the server reported at each scrape: gauges as of its last step, counters that rise over the load."""
    last = np.searchsorted([moment for moment, _, _ in gauges], at, side="right") - 1
    share = np.clip((at - at[0]) / max(1e-9, at[-1] - at[0]), 0, 1)
    whole = case.kind == "tokens counted at the end"
    made = _COUNTED_S + np.sort([t for r in done if r.tokens for t in (r.tokens[-1:] * len(r.tokens) if whole else r.tokens)])
    values = {name: 100.0 + share * len(done) for name in _NAMES.values()}
    values |= {
        _NAMES["running"]: np.array([gauges[i][1] for i in last], dtype=float),
        _NAMES["waiting"]: np.array([gauges[i][2] for i in last], dtype=float),
        _NAMES["kv_usage"]: np.full(len(at), case.kv_usage),
        _NAMES["preemptions"]: np.full(len(at), 3.0),
        _NAMES["server_generation_tokens"]: 1000 + case.counted(np.searchsorted(made, at, side="right").astype(float)),
        _NAMES["prefix_queries"]: 50 + share * prompts,
        _NAMES["prefix_hits"]: 20 + share * prompts * case.hits,
    }
    parts = [
        pl.DataFrame({"scrape": range(len(at)), "elapsed_s": at, "name": name, "value": column})
        for name, column in values.items()
    ]
    return pl.concat(parts).select(
        pl.col("scrape").cast(pl.Int32), "elapsed_s", endpoint=pl.lit(_ENDPOINT), name="name", labels=pl.lit(""), value="value"
    )


def _usual(generator: np.random.Generator, *kinds: str) -> Case:
    return sound(str(generator.choice(kinds or ("burst", "closed", "poisson"))), generator)


def _first(draw: Callable[[], Case], fits: Callable[[Case], bool]) -> Case:
    """The first run that is drawn and fits."""
    while not fits(case := draw()):
        pass
    return case


def _answer_s(case: Case) -> float:
    """What an answer takes alone."""
    return case.engine.step_s * case.lengths[1]


def _long_enough(generator: np.random.Generator, *kinds: str) -> Case:
    """A run of four seconds or more in which several requests are in flight: shorter ones cannot show who holds what."""

    def fits(case: Case) -> bool:
        e2e = _answer_s(case)
        many = case.level >= 4 if case.kind != "poisson" else case.level * e2e >= 4
        return many and 0.2 <= e2e <= 20 and len(case.delay) * e2e >= 4 * (case.level if case.kind == "closed" else 1)

    return _first(lambda: _usual(generator, *kinds), fits)


def _of_many(generator: np.random.Generator, least: int) -> Case:
    """A run of so many requests."""
    return _first(lambda: _usual(generator), lambda case: len(case.delay) >= least)


def _spread(generator: np.random.Generator) -> Case:
    case = _first(lambda: sound("burst", generator), lambda case: len(case.delay) >= 3)
    return replace(case, delay=case.delay + np.linspace(0, generator.uniform(0.15, 1.0), len(case.delay)))


def _late(generator: np.random.Generator) -> Case:
    case = sound("poisson", generator)
    late = generator.random(len(case.delay)) < 0.1
    late[0] = late[-1] = True
    return replace(case, delay=case.delay + np.where(late, generator.uniform(0.1, 0.5), 0))


def _gate(generator: np.random.Generator) -> Case:
    """Half of what is in flight, or less, is let in at once, and there is more of it for seconds."""
    case = _first(lambda: _long_enough(generator, "burst", "closed"), lambda case: case.level >= 6 and _answer_s(case) >= 1)
    gate = max(1, int(case.level * generator.uniform(0.1, 0.45)))
    return replace(case, engine=replace(case.engine, gate=gate))


def _others(generator: np.random.Generator) -> Case:
    case = _long_enough(generator)
    mean = case.level if case.kind != "poisson" else case.level * _answer_s(case) * 2
    return replace(case, engine=replace(case.engine, others=2 + int(mean * generator.uniform(0.7, 2)), slots=1000))


def _lengths(column: str) -> Callable[[np.random.Generator], Case]:
    def plant(generator: np.random.Generator) -> Case:
        off = int(generator.choice([-1, 1, 5]))
        one = pl.int_range(pl.len()) == 0
        return replace(
            _usual(generator), alter=lambda rows: rows.with_columns(pl.when(one).then(pl.col(column) + off).otherwise(column))
        )

    return plant


def _hits(generator: np.random.Generator) -> Case:
    case = _usual(generator)
    return replace(case, hits=float(generator.uniform(0.02, 0.9)))


def _missed_hits(generator: np.random.Generator) -> Case:
    case = sound("shared prefix", generator)
    return replace(case, hits=case.expected * float(generator.uniform(0, 0.6)), kv_usage=0.6)


def _refused(generator: np.random.Generator) -> Case:
    share = float(generator.uniform(0.05, 1))
    status = int(generator.choice([400, 401, 404, 413, 422]))

    def alter(rows: pl.DataFrame) -> pl.DataFrame:
        bad = pl.int_range(pl.len()) < pl.max_horizontal(1, (share * pl.len()).cast(pl.Int64))
        return rows.with_columns(
            outcome=pl.when(bad).then(pl.lit("http_error")).otherwise("outcome"),
            status=pl.when(bad).then(status).otherwise("status"),
        )

    return replace(_usual(generator), alter=alter)


def _lagging(generator: np.random.Generator) -> Case:
    """A client that is starved: of its timer's turns three in a hundred are late."""
    late = float(generator.uniform(0.08, 0.3))
    return replace(_usual(generator), lag=lambda n: np.where(np.arange(n) % 33 == 0, late, _noise(n, generator)))


def _stalled(generator: np.random.Generator) -> Case:
    stall = float(generator.uniform(0.3, 1.0))
    return replace(_usual(generator), lag=lambda n: np.where(np.arange(n) == n // 2, stall, _noise(n, generator)))


def _scraped(generator: np.random.Generator) -> Case:
    return _first(lambda: _long_enough(generator, "closed"), lambda case: _answer_s(case) > 4)


def _gap(generator: np.random.Generator) -> Case:
    gap = float(generator.uniform(2.3, 3.5))
    return replace(_scraped(generator), keep=lambda at, begin, _: ~((at > begin + 0.5) & (at < begin + 0.5 + gap)))


def _seldom(generator: np.random.Generator) -> Case:
    every = int(generator.integers(5, 9))
    return replace(
        _scraped(generator), keep=lambda at, begin, end: (np.arange(len(at)) % every == 0) | (at > end) | (at < begin)
    )


def _dropped(name: str) -> Callable[[np.random.Generator], Case]:
    return lambda generator: replace(_usual(generator), reported=lambda samples: samples.filter(pl.col("name") != _NAMES[name]))


def _counts(seen: Callable[[np.ndarray, np.random.Generator], np.ndarray]) -> Callable[[np.random.Generator], Case]:
    """Metrics that count other tokens than the answers'."""
    return lambda generator: replace(_usual(generator), counted=lambda made: seen(made, generator))


def _replicas(generator: np.random.Generator) -> Case:
    """Metrics of one of two to four replicas that get the requests at random, at least 20 of them."""
    case = _of_many(generator, 20)
    share = generator.binomial(len(case.delay), 1 / int(generator.integers(2, 5))) / len(case.delay)
    return replace(case, counted=lambda made: np.floor(made * share))


def _more(generator: np.random.Generator) -> Case:
    """Others made 0.4 to 3 times as many tokens, of three requests or more, and none of theirs was in flight at a scrape."""
    case = _of_many(generator, 8)
    share = 1 + float(generator.uniform(0.4, 3))
    return replace(case, counted=lambda made: np.floor(made * share))


def _fell(generator: np.random.Generator) -> Case:
    half = pl.col("scrape") >= pl.col("scrape").max() // 2 + 1
    counter = pl.col("name") == _NAMES["preemptions"]
    return replace(
        _usual(generator),
        reported=lambda samples: samples.with_columns(value=pl.when(half & counter).then(0.0).otherwise("value")),
    )


FAULTS: dict[str, tuple[str, str, Callable[[np.random.Generator], Case]]] = {
    "a burst leaves over 0.15–1 s": ("load", "the burst took too long to leave", _spread),
    "one request in ten leaves 0.1–0.5 s late": ("load", "requests left late", _late),
    "a gate lets in 10–45 % of the load": ("load", "something holds them back", _gate),
    "others have 0.7–2 times as many in flight": ("load", "others use it too", _others),
    "a prompt of another length": ("content", "another prompt length", _lengths("prompt_tokens")),
    "an answer of another length": ("content", "another output length", _lengths("completion_tokens")),
    "cache hits where none should be": ("content", "tokens came from the prefix cache", _hits),
    "40 % or more of the hits stay away": ("content", "the prefix cache served", _missed_hits),
    "5–100 % refused with a 4xx": ("content", "refused for what they are", _refused),
    "3 % of the client's turns 80–300 ms late": ("client", "event loop was late", _lagging),
    "the client stalls for 0.3–1 s": ("client", "stood still", _stalled),
    "the client takes 96–100 % of a core": (
        "client", "the client was the limit", lambda g: replace(_usual(g), cpu=float(g.uniform(0.96, 1)))),
    "clocks 2–50 ms apart": ("client", "clocks of our processes", lambda g: replace(_usual(g), skew=float(g.uniform(0.002, 0.05)))),
    "no scrape for 2.3–3.5 s": ("telemetry", "no scrape for", _gap),
    "every 5th to 8th scrape came": ("telemetry", "of the scrapes due", _seldom),
    "no scrape at all": (
        "telemetry", "no scrape succeeded", lambda g: replace(_usual(g), keep=lambda at, *_: np.full(len(at), False))),
    "none before the load": (
        "telemetry", "no scrape came before", lambda g: replace(_usual(g), keep=lambda at, begin, _: at > begin)),
    "none after the load": ("telemetry", "no scrape came after", lambda g: replace(_usual(g), keep=lambda at, _, end: at < end)),
    "a metric goes away": ("telemetry", "the exposition lacks", _dropped("waiting")),
    "a counter falls": ("telemetry", "counters fell back", _fell),
    "the tokens stand still": ("telemetry", "metrics count", _counts(lambda made, _: np.full(len(made), 7.0))),
    "an idle server's health checks": (
        "telemetry", "metrics count", _counts(lambda made, g: np.minimum(made, g.integers(1, 4)))),
    "one of 2–4 replicas": ("telemetry", "metrics count", _replicas),
    "others' tokens between scrapes": ("load", "others use it too", _more),
    "others take 20–60 % of the cores": (
        "machine", "other processes took", lambda g: replace(_usual(g), others=float(g.uniform(0.2, 0.6)))),
}  # fmt: skip
