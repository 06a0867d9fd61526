"""How well a search finds the highest rate of conversations within an SLO, on replayed servers whose limit is known.

    python -m benchmarks.conversations                 # 60 servers; five minutes on two cores
    python -m benchmarks.conversations --servers 20 --json conversations.json

Each server has step times, limits and noise of its own (`benchmarks.predict`), and answers the conversations that the client would send
(`bench.workloads.schedule`): turns that wait for the answer before them, pauses, prompts that grow, with a prefix cache or without.
Their limit comes from a run of many more conversations at each rate.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bench.parse.scrapes import TELEMETRY_SCHEMA
from bench.parse.steady import in_steady_state, steady_figures
from bench.predict.replay import replay
from bench.search.placing import Aim
from bench.study.read import load_workload
from bench.study.slo import Slo, parse_slo
from bench.workloads.schedule import schedule
from bench.workloads.turns import Turns
from bench.workloads.workload import Workload
from benchmarks.predict import Engine, drawn_engine
from benchmarks.search import FAILED, PRECISION, Planted, by_search

_LONG, _LOOK = 16_000, 2000  # requests of a run that shows whether a rate is carried; of one that shows a latency
_WARM = 0.1  # of them, which meet a server that is still empty
_FINE = 1.01  # ratio of the rates between which a limit is known
_SPEEDS = 0.03  # by which rounds differ (standard deviation of the logarithm)
_BEHIND = 0.02  # of the conversations of a run's second half: a server that falls behind by more does not keep up
_BEARS = 1.3  # what an SLO's latency is at the limit ÷ what it is with little load, at least


@dataclass(frozen=True)
class Service:
    """A server and what it is asked for. workload: without how many conversations of it. turns: its. slo: None until one is chosen."""

    engine: Engine
    workload: Workload
    turns: Turns
    slo: Slo | None = None

    def requests(self, rate: float, conversations: int, seed: int, speed: float = 1.0) -> pl.DataFrame:
        """A run's requests, as their tidy table has them."""
        plans = schedule(self.workload.model_copy(update={"num_requests": conversations}), rate, f"{seed}")
        step, noise = self.engine.step.times(1 / speed), self.engine.step_noise
        found = replay(plans, self.engine.limits, step, noise=noise, seed=seed)
        asked = pl.DataFrame(
            [(x.index, next(iter(x.after), None)) for x in plans], schema={"index": pl.Int64, "after": pl.Int64}, orient="row"
        )
        return (
            asked.join(found.requests, on="index", how="inner")
            .sort("index")
            .with_columns(
                outcome=pl.lit("ok"),
                last_token_s=pl.col("end_s"),
                ttft_s=pl.col("first_token_s") - pl.col("sent_s"),
                e2e_s=pl.col("end_s") - pl.col("sent_s"),
                tpot_s=(pl.col("end_s") - pl.col("first_token_s")) / (pl.col("output_tokens") - 1).clip(1),
                prompt_asked=pl.col("prompt_tokens"),
                output_asked=pl.col("output_tokens"),
                completion_tokens=pl.col("output_tokens"),
                token_times_s=pl.concat_list("first_token_s", "end_s"),  # when the others came, the steady window need not know
            )
        )

    def percentile(self, metric: str, share: float, rate: float, seed: int) -> float:
        """Of a latency (s), about."""
        table = self.requests(rate, math.ceil(_LOOK / self.turns.count), seed)
        return float(table[f"{metric}_s"].quantile(share))  # type: ignore[arg-type]

    def carries(self, rate: float, seed: int) -> bool:
        """Whether a long run is within the SLO, and does not fall behind."""
        table = self.requests(rate, math.ceil(_LONG / self.turns.count), seed)
        within = table.sort("sent_s")[int(_WARM * len(table)) :][f"{self.slo.metric}_s"] <= self.slo.limit_s
        roots = table.filter(pl.col("after").is_null())["sent_s"].sort()
        ends = table.group_by(pl.col("after").is_null().cum_sum()).agg(pl.col("end_s").max())["end_s"]
        ended = int(ends.is_between(roots[len(roots) // 2], roots[-1]).sum())
        return float(within.mean()) >= self.slo.share and ended >= (1 - _BEHIND) * len(roots) / 2  # type: ignore[arg-type]

    def run(self, rate: float, conversations: int, seed: int, speed: float) -> dict[str, Any]:
        """The summary row of a run."""
        table = self.requests(rate, conversations, seed, speed)
        definition = {"arrival": self.workload.arrival, "axis": self.workload.axis, "level": rate}
        window, figures = steady_figures(definition, table, pl.DataFrame(schema=TELEMETRY_SCHEMA))
        judged = table.filter(in_steady_state(window)).sort("sent_s") if window else table.clear()
        latencies = {name: pl.col(f"{name}_s") for name in ("ttft", "tpot", "e2e")}
        return {
            **dict.fromkeys(("steady_from_s", "steady_growth", "steady_growth_error", "steady_needs_s")),
            **figures,
            "level": rate,
            "arrival": self.workload.arrival,
            "requests": len(table),
            "num_requests": conversations * self.turns.count,
            "duration_s": float(table["end_s"].max()),  # type: ignore[arg-type]
            "judged": judged.select(ok=pl.lit(value=True), **latencies).to_dicts(),
        }


def drawn(number: int, seed: int) -> tuple[Service, float]:
    """A service and its limit, the highest rate that it carries (conversations/s)."""
    attempts = (_attempt(np.random.default_rng([seed, number, attempt]), number + 1) for attempt in range(100))
    return next(found for found in attempts if found is not None)


def _attempt(random: np.random.Generator, seed: int) -> tuple[Service, float] | None:
    """None where the SLO that is drawn does not bear on the load."""
    service = _service(random)
    metric, share = str(random.choice(["ttft", "ttft", "tpot", "e2e"])), float(random.choice([0.9, 0.95, 0.99]))
    highest, lowest = random.uniform(0.5, 0.95) * (top := _ceiling(service, seed)), random.uniform(0.02, 0.1) * top
    loaded = service.percentile(metric, share, highest, seed)
    if loaded < _BEARS * service.percentile(metric, share, lowest, seed):
        return None
    service = replace(service, slo=parse_slo(f"{metric}_p{100 * share:.0f}={round(1000 * loaded, 1):g}ms"))
    low, high = lowest, 1.5 * top
    if not service.carries(low, seed) or service.carries(high, seed):
        return None
    while high / low > _FINE:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if service.carries(middle, seed) else (low, middle)
    return service, low


def _service(random: np.random.Generator) -> Service:
    engine = drawn_engine(int(random.integers(2**31)))
    prompt, output, count = engine.prompt, engine.output, int(random.integers(2, 7))
    added = int(random.integers(8, max(9, prompt // 2)))
    blocks = engine.limits.blocks
    if blocks is not None:  # of conversations, whose prompts grow
        longest = 4 * prompt + count * (2 * output + added)
        blocks = max(int(blocks * random.uniform(1.5, 4)), 2 * longest // engine.limits.block_size)
    limits = replace(engine.limits, blocks=blocks, cached=blocks is not None and random.random() < 0.7)
    varied = {"distribution": "lognormal", "median": prompt, "sigma": 0.5, "min": 1, "max": 4 * prompt}
    content = {
        "arrival": str(random.choice(["poisson", "poisson", "constant"])),
        "prompt_tokens": varied if random.random() < 0.5 else prompt,
        "output_tokens": {"distribution": "uniform", "min": max(1, output // 2), "max": 2 * output},
        "turns": {"count": count, "new_tokens": added, "think_s": float(random.choice([0.0, 0.5, 2.0, 5.0]))},
    }
    workload = load_workload(content, source="benchmark")
    return Service(replace(engine, limits=limits), workload, workload.turns)


def _ceiling(service: Service, seed: int) -> float:
    """Conversations/s of a server that always has plenty to do."""
    conversations = math.ceil(_LOOK / service.turns.count)
    without_pauses = service.workload.model_copy(update={"turns": service.turns.model_copy(update={"think_s": 0.0})})
    table = replace(service, workload=without_pauses).requests(1e6, conversations, seed)
    return conversations / float(table["end_s"].max())  # type: ignore[arg-type]


def planted(service: Service, limit: float) -> Planted:
    """As the search wants it, which begins with a conversation at a time."""
    count, think_s = service.turns.count, service.turns.think_s
    alone = count * service.percentile("e2e", 0.5, 1e-3, 5) + (count - 1) * think_s
    start = float(f"{1 / alone:.3g}")
    aim = Aim([service.slo], FAILED, False, PRECISION, start, 4096.0, turns=count, think_s=think_s)
    return Planted("conversations", limit, aim, service.run, lambda _, draw: math.exp(draw.normal(0, _SPEEDS)))


def judged(job: tuple[int, int]) -> dict[str, Any]:
    """One service by the search. Args: job: its number, the seed."""
    number, seed = job
    service, limit = drawn(number, seed)
    return {
        "number": number,
        "turns": service.turns.count,
        "think_s": service.turns.think_s,
        "cached": service.engine.limits.cached,
        "slo": str(service.slo),
        "truth": limit,
        "search": by_search(planted(service, limit), number),
    }


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """The result, to read."""
    lines = [
        "| conversations | n | interval holds | as narrow as asked | within 10 % | runs, median | minutes of load, median |"
    ]
    lines.append("|---|" + "--:|" * 6)
    groups = {
        "all": lambda _: True,
        "prefix cache": lambda each: each["cached"],
        "pauses of 2 s and more": lambda each: each["think_s"] >= 2,
        "four turns and more": lambda each: each["turns"] >= 4,
    }
    for name, belongs in groups.items():
        mine = [each["search"] for each in results if belongs(each)]
        if mine:
            shares = [f"{100 * statistics.mean(bool(each[key]) for each in mine):.0f} %" for key in ("holds", "narrow", "near")]
            runs, seconds = (statistics.median(each[key] for each in mine) for key in ("runs", "seconds"))
            lines.append(f"| {name} | {len(mine)} | {' | '.join(shares)} | {runs:g} | {seconds / 60:.0f} |")
    return "\n".join(lines)


def main() -> None:
    """Search, and print how often it was right."""
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write everything, server by server")
    options = parser.parse_args()
    with ProcessPoolExecutor(options.jobs) as pool:
        results = list(pool.map(judged, [(number, options.seed) for number in range(options.servers)]))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    print(table(results))
    missed = [f"server {each['number']}" for each in results if not each["search"]["holds"]]
    print(f"\n{len(missed)} intervals miss: {', '.join(missed)}")


if __name__ == "__main__":
    main()
