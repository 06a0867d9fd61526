"""Production beside a study: planted servers, and their series over hours."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bench.beside.production.curve import Curve
from bench.beside.production.drifted import Drift, find_drift
from bench.beside.production.drifted.served import SAMPLES, Window
from bench.results import Results
from tests.support import records

SLOTS = 16
STEP_S, EACH_S, PROMPT_S = 0.008, 0.001, 0.0002  # of a step, for each request in it, and of a prompt token
STARTS_DIFFER = 0.03
LEVELS = (1, 2, 4, 8, 16, 24, 32)
HOUR_S = 3600.0


NAMES = {
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
    "prompt": "vllm:prompt_tokens_total",
    "output": "vllm:generation_tokens_total",
    "queries": "vllm:prefix_cache_queries_total",
    "hits": "vllm:prefix_cache_hits_total",
    **{
        f"{latency}_{part}": f"vllm:{name}_seconds_{part}"
        for latency, name in (("ttft", "time_to_first_token"), ("itl", "inter_token_latency"), ("e2e", "e2e_request_latency"))
        for part in ("sum", "count")
    },
}


LLAMA = {
    "running": "llamacpp:requests_processing",
    "waiting": "llamacpp:requests_deferred",
    "computed": "llamacpp:prompt_tokens_total",
    "hits": "llamacpp:prompt_tokens_cached_total",
    "output": "llamacpp:tokens_predicted_total",
}


GAUGES = ("running", "waiting")


@dataclass(frozen=True)
class Planted:
    """What production is like.

    Attributes:
        rate: requests/s. prompt, output: mean lengths (tokens). hits: share of prompt tokens from the cache. slow: factor on all times.
        idle: share of the time without requests, at its begin. missing: share of scrapes that are missing. hole: whether ten minutes of
            scrapes are missing too. restart: whether the server begins anew within the time. names: what it calls its metrics.
    """

    rate: float = 2.0
    prompt: float = 200.0
    output: float = 100.0
    hits: float = 0.3
    slow: float = 1.0
    idle: float = 0.0
    missing: float = 0.0
    hole: bool = False
    restart: bool = False
    servers: int = 1
    names: dict[str, str] = field(default_factory=lambda: NAMES)


class PlantedServer:
    """A server that shares its steps among all requests in it, and its counters."""

    def __init__(self, slow: float) -> None:
        self.slow, self.now, self.tokens = slow, 0.0, 0.0  # tokens: that each request in it has got since the start
        self.running: list[tuple[float, float, int]] = []  # its tokens at its end, when it came, its output
        self.waiting: list[tuple[float, int, int, int]] = []
        self.counters = dict.fromkeys((*NAMES, "computed"), 0.0)

    def until(self, moment: float) -> bool:
        """Run to a moment, or to the next end; whether a request has ended."""
        busy = len(self.running)
        if not busy:
            self.now = max(self.now, moment)
            return False
        step = self.slow * (STEP_S + EACH_S * busy)
        end = self.now + (self.running[0][0] - self.tokens) * step
        reached = min(end, moment)
        passed = max(0.0, reached - self.now)
        self.tokens += passed / step
        self._decode(passed, passed / step)
        self.now = max(self.now, reached)
        if end > moment:
            return False
        self.tokens, came, _ = heapq.heappop(self.running)
        self.counters["e2e_sum"] += self.now - came
        self.counters["e2e_count"] += 1
        self._admit()
        return True

    def send(self, prompt: int, output: int, cached: int) -> None:
        self.waiting.append((self.now, prompt, output, cached))
        self._admit()

    def _decode(self, seconds: float, tokens: float) -> None:
        busy = len(self.running)
        self.counters["itl_sum"] += busy * seconds
        self.counters["itl_count"] += busy * tokens
        self.counters["output"] += busy * tokens

    def _admit(self) -> None:
        while self.waiting and len(self.running) < SLOTS:
            came, prompt, output, cached = self.waiting.pop(0)
            stall = self.slow * PROMPT_S * (prompt - cached)
            self._decode(stall, 0.0)
            self.now += stall
            for name, value in (("prompt", prompt), ("queries", prompt), ("hits", cached), ("computed", prompt - cached)):
                self.counters[name] += value
            self.counters["ttft_sum"] += self.now - came
            self.counters["ttft_count"] += 1
            heapq.heappush(self.running, (self.tokens + output, came, output))

    def exposed(self) -> dict[str, float]:
        return {**self.counters, "running": float(len(self.running)), "waiting": float(len(self.waiting))}


def lengths(
    random: np.random.Generator, planted: Planted, moment: float, drift: Callable[[float], float]
) -> tuple[int, int, int]:
    """Prompt, output, and how much of the prompt is in the cache."""
    prompt, output = (
        max(2, round(mean * drift(moment) * random.gamma(4.0) / 4.0)) for mean in (planted.prompt, planted.output)
    )
    return prompt, output, round(prompt * random.binomial(10, planted.hits) / 10)


def wandering(random: np.random.Generator, share: float) -> Callable[[float], float]:
    """A factor about 1 that moves over minutes: an autoregression of one value a minute. Args: share: its standard deviation."""
    keep, value, values = math.exp(-1 / 5), float(random.normal()), []
    for _ in range(200):
        value = keep * value + math.sqrt(1 - keep**2) * float(random.normal())
        values.append(math.exp(share * value - share**2 / 2))
    return lambda moment: values[int(moment / 60)]


def scraped(
    server: PlantedServer, moments: Sequence[float], arrivals: Iterator[tuple[float, tuple[int, int, int]]], held: int = 0
) -> pl.DataFrame:
    """Its counters at some moments. Args: arrivals: when each request comes, and its lengths. held: of a closed loop."""
    rows, coming = [], next(arrivals)
    for _ in range(held):
        server.send(*coming[1])
        coming = next(arrivals)
    for moment in moments:
        while True:
            stop = moment if held else min(moment, coming[0])
            ended = server.until(stop)
            if (held and ended) or (not held and not ended and coming[0] <= moment):
                server.send(*coming[1])
                coming = next(arrivals)
            elif not ended:
                break
        rows.append({"at_s": moment, **server.exposed()})
    return pl.DataFrame(rows)


def samples(table: pl.DataFrame, planted: Planted, target: str) -> pl.DataFrame:
    """As Prometheus keeps them. Args: target: the labels that it adds."""
    names = planted.names
    long = table.select("at_s", **{name: pl.col(ours) for ours, name in names.items()}).unpivot(
        index="at_s", variable_name="name"
    )
    return long.with_columns(instance=pl.lit("x"), labels=pl.lit(target)).select(*SAMPLES)


class PlantedCurve(Curve):
    """A study whose telemetry is held in memory."""

    tables: dict[str, pl.DataFrame]

    def telemetry(self, run: Any) -> pl.DataFrame | None:
        return self.tables.get(run["run"])


def study(random: np.random.Generator, planted: Planted) -> PlantedCurve:
    """What a study measured. Args: planted: production as it was then."""
    slow = math.exp(random.normal(0, STARTS_DIFFER))
    tables, rows = {}, []
    for level in LEVELS:
        arrivals = ((0.0, lengths(random, planted, 0.0, lambda _: 1.0)) for _ in iter(int, 1))
        table = scraped(PlantedServer(slow), np.arange(1.0, 141.0), arrivals, held=level)
        found = samples(table, planted, "")
        scrape = {"scrape": pl.col("at_s").cast(pl.Int32), "elapsed_s": "at_s", "endpoint": "instance"}
        tables[f"r{level}"] = found.select("name", "labels", "value", **scrape)
        rate = (table["e2e_count"][-1] - table["e2e_count"][19]) / 120
        rows.append({"deployment": "a", "run": f"r{level}", "level": float(level), "valid": True, "counts_valid": True,
                     "steady_from_s": 20.0, "steady_until_s": 140.0, "steady_requests_per_s": rate, "session": 1,
                     "prompt_tokens": planted.prompt, "output_tokens": planted.output, "workers": None})  # fmt: skip
    results, point = Results(Path(), pl.DataFrame()), {"deployment": "a", "workload": "w"}
    curve = PlantedCurve(results, point, pl.DataFrame(rows), records.facts())
    object.__setattr__(curve, "tables", tables)
    return curve


class PlantedWindow(Window):
    """What Prometheus would answer, held in memory."""

    kept: pl.DataFrame

    def names(self) -> list[str]:
        return sorted(self.kept["name"].unique())

    def samples(self, names: Sequence[str]) -> pl.DataFrame:
        return self.kept.filter(pl.col("name").is_in(list(names)))


def production(random: np.random.Generator, planted: Planted) -> PlantedWindow:
    """An hour of production."""
    window = PlantedWindow("planted", {"job": "a"}, 0.0, HOUR_S)
    servers = ["x", *(f"x{i}" for i in range(1, planted.servers))]
    object.__setattr__(window, "kept", pl.concat([_kept(random, planted, name) for name in servers]))
    return window


def _kept(random: np.random.Generator, planted: Planted, name: str) -> pl.DataFrame:
    """What Prometheus has of a server, scraped every 15 s."""
    slow = planted.slow * math.exp(random.normal(0, STARTS_DIFFER))
    busy, long = wandering(random, 0.3), wandering(random, 0.05)

    def arrivals() -> Iterator[tuple[float, tuple[int, int, int]]]:
        moment = planted.idle * HOUR_S
        while True:
            moment += random.exponential(1 / (planted.rate * busy(min(moment, HOUR_S))))
            yield moment, lengths(random, planted, min(moment, HOUR_S), long)

    moments = np.arange(float(random.uniform(1, 15)), HOUR_S, 15.0)
    table = scraped(PlantedServer(slow), moments, arrivals())
    if planted.restart:
        again = table["at_s"] > HOUR_S / 2
        base = table.filter(again).head(1)
        counters = [name for name in table.columns if name not in (*GAUGES, "at_s")]
        table = table.with_columns(
            pl.when(again).then(pl.col(name) - base[name][0]).otherwise(name).alias(name) for name in counters
        )
    kept = random.random(len(table)) >= planted.missing
    hole = (table["at_s"] > 1000) & (table["at_s"] < 1600) if planted.hole else pl.repeat(value=False, n=len(table), eager=True)
    table = table.filter(pl.Series(kept) & ~hole)
    return samples(table, planted, f'instance="{name}",job="a"').with_columns(instance=pl.lit(name))


WAS = Planted()
HARD = {"missing": 0.2, "hole": True, "restart": True}
WITHOUT = {ours: name for ours, name in NAMES.items() if not ours.startswith(("ttft", "itl", "hits", "queries"))}


#: What is planted: by name production, and the quantities of which one has to differ; None where nothing may.
CASES: dict[str, tuple[Planted, set[str] | None]] = {
    "nothing changed": (WAS, None),
    "nothing changed, 20 % and ten minutes of scrapes missing, a restart": (replace(WAS, **HARD), None),
    "nothing changed, no TTFT, ITL or hits": (replace(WAS, names=WITHOUT), None),
    "nothing changed, idle for half the time": (replace(WAS, idle=0.5), None),
    "nothing changed, idle for 95 % of the time": (replace(WAS, idle=0.95), None),
    "nothing changed, a third of the load": (replace(WAS, rate=0.7), None),
    "nothing changed, llama.cpp": (replace(WAS, names=LLAMA), None),
    "nothing changed, two servers": (replace(WAS, servers=2), None),
    "nothing changed, near the limit": (replace(WAS, rate=3.8), None),
    "output 25 % longer": (replace(WAS, output=125.0), {"output length"}),
    "prompts 25 % longer": (replace(WAS, prompt=250.0), {"prompt length"}),
    "output 25 % longer, scrapes missing, a restart": (replace(WAS, output=125.0, **HARD), {"output length"}),
    "hit rate 0.45 in place of 0.30": (replace(WAS, hits=0.45), {"prefix-cache hit rate"}),
    "slower by a third": (replace(WAS, slow=4 / 3), {"TTFT, mean", "ITL, mean", "E2E, mean"}),
    "slower by a third, scrapes missing, a restart": (
        replace(WAS, slow=4 / 3, **HARD), {"TTFT, mean", "ITL, mean", "E2E, mean"},
    ),
    "slower by a fifth": (replace(WAS, slow=1.2), {"TTFT, mean", "ITL, mean", "E2E, mean"}),
    "nothing changed, a metric more": (replace(WAS, names={**NAMES, "computed": "vllm:new_total"}), None),
    "another version: a metric of an older one": (
        replace(WAS, names={**NAMES, "computed": "vllm:gpu_cache_usage_perc"}), {"engine and version"},
    ),
    "more load than was measured": (replace(WAS, rate=6.5), {"requests in flight, a server"}),
    "output 25 % longer, llama.cpp": (replace(WAS, output=125.0, names=LLAMA), {"prompt ÷ output tokens"}),
    "slower by a third, llama.cpp": (replace(WAS, slow=4 / 3, names=LLAMA), {"time in flight for an output token"}),
}  # fmt: skip


@cache
def studied(seed: int, *, of_llama: bool) -> PlantedCurve:
    return study(np.random.default_rng([20261127, seed]), replace(WAS, names=LLAMA if of_llama else NAMES))


def tried(name: str, seed: int) -> tuple[dict[str, str], str]:
    """The verdict on each quantity, and on the whole."""
    planted, _ = CASES[name]
    random = np.random.default_rng([20261127, seed, list(CASES).index(name)])
    found: Drift = find_drift(studied(seed, of_llama=planted.names is LLAMA), production(random, planted))
    return {each.name: each.verdict for each in found.compared}, found.verdict
