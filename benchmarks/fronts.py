"""How often a gateway that queues, buffers or repeats requests is named, or an API server that is too slow, and an honest one is not:
made studies of known truth.

    python -m benchmarks.fronts                  # 572 studies of four loads; three minutes on two cores
    python -m benchmarks.fronts --studies 20

Each study has one engine of any speed, requests of any length and four loads. Between its client and its engine lie a way of up to
50 ms with some jitter, and a gateway that is honest or does one thing. Runs go through the real parse; what is named is compared with
what was planted. In the last rows telemetry is lost, and nothing may be named from it.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from bench.analysis.front import front, front_wait, unknown_fronts
from bench.parse.latency import latency_columns
from bench.parse.run import summarise
from bench.parse.stream import engine_is_ahead
from bench.records.request_table import REQUEST_SCHEMA
from bench.records.run import Client, Host, Prefix, RunRecord
from bench.telemetry import find_catalogue
from benchmarks.exposition import sample_name, with_catalogue
from benchmarks.verdicts.server import OVERHEAD_S, Engine, Load, Request, serve

__all__ = ["PLANTED", "judge", "study"]

_ENDPOINT = "u"
_NAMES = find_catalogue({sample_name(line) for line in with_catalogue(10_000) if line[0] != "#"}, "0.32.0").sample_names()
_SHARES = (0.15, 0.5, 0.8, 1.05)  # of what the engine carries
_REQUESTS = 80
# What is planted, and what must be named of it; none where nothing may be.
PLANTED: dict[str, tuple[str, ...]] = {
    "honest": (),
    "queues": ("queues",),
    "buffers": ("buffers",),
    "gathers": ("gathers",),
    "repeats": ("repeats",),
    "an API server that is too slow": ("front_end",),
    "a busy API server": (),
    "others' requests of the same length": ("repeats_or_others",),
    "others' requests of other lengths": (),
    "no telemetry": (),
    "no scrape after the load": (),
    "no histograms": (),
    "the counters fall": (),
}


@dataclass(frozen=True)
class _Between:
    """What lies between: the way's time there and back (s), its jitter (s), and what a gateway does."""

    way_s: float
    jitter_s: float
    buffers: bool = False
    gathers: int = 1


def study(what: str, seed: int) -> tuple[list[dict[str, Any]], list[float]]:
    """The rows of a study's runs, with `front_wait_s`, and the true mean wait of each (s)."""
    generator = np.random.default_rng([list(PLANTED).index(what), seed])
    step = float(np.exp(generator.uniform(np.log(0.005), np.log(0.08))))
    slots = int(generator.choice([8, 16, 32, 64]))
    # Of long prompts an engine makes too few tokens to be ahead of its API server.
    most = 128 if "API server" in what else 2000
    prompt, output = (int(np.exp(generator.uniform(np.log(low), np.log(high)))) for low, high in ((32, most), (16, 120)))
    engine = Engine(
        step, float(generator.uniform(0, 0.05)), float(np.exp(generator.uniform(np.log(1e-5), np.log(2e-4)))), slots=slots
    )
    carried = slots / (step * output * (1 + engine.per_sequence * slots) + slots * engine.prefill_s * prompt)
    closed = generator.random() < 0.5
    between = _Between(float(generator.uniform(0.0005, 0.05)), float(generator.uniform(0, 0.005)))
    if what == "queues":
        engine = replace(engine, gate=max(1, int(slots * generator.uniform(0.1, 0.5))))
    elif what in ("repeats", "no telemetry", "no scrape after the load", "no histograms", "the counters fall"):
        engine = replace(engine, repeated=float(generator.uniform(0.04, 0.3)))
    elif "API server" in what:  # by its share of the most tokens that the engine makes in a second
        busy = generator.uniform(1.5, 4) if what.endswith("slow") else generator.uniform(0.3, 0.9)
        engine = replace(engine, api_s=float(busy * step * (1 + engine.per_sequence * (slots - 1)) / slots))
    between = replace(between, buffers=what == "buffers", gathers=int(generator.integers(2, 9)) if what == "gathers" else 1)
    rows, waits = [], []
    for share in _SHARES:
        level = max(1, round(2 * share * slots)) if closed else share * carried
        count = max(_REQUESTS, int(2 * level)) if closed else _REQUESTS
        load = (
            Load([0.0] * int(level), int(level), count)
            if closed
            else Load(np.cumsum(generator.exponential(1 / level, count)).tolist())
        )
        done, gauges = serve(engine, load, (prompt, output), np.full(count, 2e-4), generator)
        rows.append(_summary(what, done, gauges, level, between, "closed" if closed else "poisson", generator))
        waits.append(float(np.mean([r.entered - r.sent for r in done])))
    table = pl.DataFrame([_known(row) for row in rows], infer_schema_length=None).with_columns(front_wait_s=front_wait())
    return [{**row, "front_wait_s": wait} for row, wait in zip(rows, table["front_wait_s"], strict=True)], waits


_NUMBERS = (
    *("ttft_n", "ttft_mean_s", "server_ttft_n", "server_ttft_mean_s", "itl_mean_s", "tpot_mean_s", "server_itl_mean_s"),
    *("level", "tokens_per_chunk", "tokens_per_arrival"),
)


def _known(row: Mapping[str, Any]) -> dict[str, Any]:
    named = {name: row[name] for name in ("deployment", "workload", "arrival")}
    return named | {name: None if row.get(name) is None else float(row[name]) for name in _NUMBERS}


def _summary(
    what: str,
    done: list[Request],
    gauges: list[tuple[float, int, int]],
    level: float,
    between: _Between,
    arrival: str,
    generator: np.random.Generator,
) -> dict[str, Any]:
    """The summary that the real parse makes of a run."""
    strangers = what.startswith("others")
    mine = [r for r in done if not (strangers and generator.random() < 0.25)]
    theirs = [r for r in done if r not in mine] if strangers else []
    rows = pl.DataFrame([_row(i, r, between, generator) for i, r in enumerate(mine)], schema=REQUEST_SCHEMA)
    end = float(rows["end_s"].max())  # type: ignore[arg-type]
    at = np.concatenate([[-0.2], np.arange(0.0, end, 0.2), [end + 0.05]])
    at = at + np.where(np.isin(np.arange(len(at)), (0, len(at) - 1)), 0.0, generator.exponential(0.01, len(at)))
    odd = 5 if what == "others' requests of other lengths" else 1
    samples = _samples(done, theirs, odd, gauges, at, cached=bool(generator.random() < 0.5))
    if what == "no telemetry":
        samples, at = samples.clear(), at[:0]
    elif what == "no scrape after the load":
        cut = float(rows["end_s"].max()) / 2  # type: ignore[arg-type]
        samples, at = samples.filter(pl.col("elapsed_s") < cut), at[at < cut]
    elif what == "no histograms":
        samples = samples.filter(~pl.col("name").str.contains("_(?:sum|count)$"))
    elif what == "the counters fall":
        late = pl.col("scrape") > len(at) // 2
        samples = samples.with_columns(value=pl.when(late).then(pl.col("value") / 1e6).otherwise("value"))
    record = RunRecord(
        engine_version="0.32.0",
        digest="d",
        round=1,
        definition={"deployment": "a", "run": "r", "workload": "w", "arrival": arrival, "level": level, "repeat": 1, "stream": True,
                    "axis": "concurrency" if arrival == "closed" else "request_rate", "cache": "unique"},
        started="",
        clock_start_s=0.0,
        drain_s=0.0,
        scrape_interval_s=0.2,
        scrape_endpoint=_ENDPOINT,
        prefix=Prefix(expected_tokens=0),
        client=Client(),
        host=Host(),
        files={},
    )  # fmt: skip
    return summarise(record, latency_columns(rows.lazy()).collect(), samples, at.tolist())


def _row(index: int, r: Request, between: _Between, generator: np.random.Generator) -> dict[str, Any]:
    """A request as the client records it."""
    back = between.way_s / 2 + np.sort(generator.exponential(between.jitter_s, len(r.tokens)))[::-1].mean()
    sent = r.sent - between.way_s / 2 - float(generator.exponential(between.jitter_s))
    times = np.array(r.tokens) + back
    if between.buffers:
        times = np.full(len(times), times[-1])
    elif between.gathers > 1:
        last = np.minimum(np.arange(len(times)) // between.gathers * between.gathers + between.gathers - 1, len(times) - 1)
        times = times[last]
    stamps = times.tolist()
    return {
        "index": index, "outcome": "ok", "status": 200, "prompt_asked": r.prompt, "output_asked": r.output,
        "prompt_tokens": r.prompt, "completion_tokens": r.output, "streamed_tokens": r.output, "streamed_least": r.output,
        "first_tokens": float(between.gathers), "arrivals": len(set(stamps)), "done": True,
        "scheduled_s": sent, "sent_s": sent, "first_token_s": stamps[0], "last_token_s": stamps[-1], "end_s": stamps[-1],
        "token_times_s": stamps, "ttft_s": stamps[0] - sent, "e2e_s": stamps[-1] - sent,
    }  # fmt: skip


def _samples(
    done: list[Request], theirs: list[Request], odd: int, gauges: list[tuple[float, int, int]], at: np.ndarray, *, cached: bool
) -> pl.DataFrame:
    """What the engine exposes at each scrape: each request, and each try that was lost, as vLLM counts them.

    Args:
        cached: whether prompts that come again are served by the prefix cache, and left out of the count of prompt tokens.
    """
    first, ended, gaps, prompts, hits, made = [], [], [], [], [(0.0, 0.0)], []
    for r in done:
        longer = odd if r in theirs else 1
        own = (r.entered, r.tokens[0], r.tokens[-1], r.output, r.made[-1] - r.made[0])
        tries = [*((entered, begin, end, tokens, end - begin) for entered, begin, end, tokens in r.lost), own]
        for number, (entered, begin, end, tokens, apart) in enumerate(tries):
            begin, end = begin - OVERHEAD_S, max(begin, end) - OVERHEAD_S  # noqa: PLW2901 - where the API server counts them
            first.append((begin, begin - entered))
            (hits if cached and number else prompts).append((begin, float(r.prompt * longer)))
            ended.append((end, end - entered))
            made.append((end, float(tokens)))
            gaps += [(end, apart / max(1, tokens - 1))] * (tokens - 1)  # by the engine's own clock
    rising = {"server_ttft": first, "server_e2e": ended, "server_itl": gaps}
    last = np.searchsorted([moment for moment, _, _ in gauges], at, side="right") - 1
    zero = np.zeros(len(at))
    values = {name: zero for ours, name in _NAMES.items() if not ours.startswith("spec_")}
    for ours, events in rising.items():
        values[_NAMES[f"{ours}_sum"]] = _course(events, at)
        values[_NAMES[f"{ours}_count"]] = _course([(moment, 1.0) for moment, _ in events], at)
    values |= {
        _NAMES["server_prompt_tokens"]: _course(prompts, at),
        _NAMES["prefix_hits"]: _course(hits, at),
        _NAMES["server_generation_tokens"]: _course(made, at),
        _NAMES["running"]: np.array([gauges[i][1] for i in last], dtype=float),
        _NAMES["waiting"]: np.array([gauges[i][2] for i in last], dtype=float),
    }
    parts = [
        pl.DataFrame({"scrape": range(len(at)), "elapsed_s": at, "name": name, "value": 1000.0 + column})
        for name, column in values.items()
    ]
    return pl.concat(parts).select(
        pl.col("scrape").cast(pl.Int32), "elapsed_s", endpoint=pl.lit(_ENDPOINT), name="name", labels=pl.lit(""), value="value"
    )


def _course(events: list[tuple[float, float]], at: np.ndarray) -> np.ndarray:
    """The sum of what came until each scrape."""
    moments, values = (np.array(column) for column in zip(*sorted(events), strict=True))
    return np.concatenate([[0.0], np.cumsum(values)])[np.searchsorted(moments, at, side="right")]


def judge(case: tuple[str, int]) -> tuple[str, frozenset[str], bool, list[float]]:
    """What was planted, what was named in any run, whether it is said that a queue is not known, and the errors of waits that were
    named (share of the true one).
    """
    what, seed = case
    rows, waits = study(what, seed)
    named = [(each, wait) for row, wait in zip(rows, waits, strict=True) for each in front(row)]
    errors = [(each.wait_s or 0.0) / wait - 1 for each, wait in named if each.kind == "queues" and what == "queues"]
    kinds = {each.kind for each, _ in named}
    whole = [_known(row) for row in rows if row["scraped_after"]]  # as the report has it: of valid runs
    if whole and pl.DataFrame(whole, infer_schema_length=None).filter(engine_is_ahead()).height:
        kinds.add("front_end")
    return what, frozenset(kinds), all("queues" in unknown_fronts(row) for row in rows), errors


def report(found: list[tuple[str, frozenset[str], bool, list[float]]]) -> None:
    """Print how often each was named rightly, wrongly, or said not to be known."""
    print("| planted | studies | named | something else named | a queue said not to be known |\n|---|--:|--:|--:|--:|")
    for what, due in PLANTED.items():
        of = [each for each in found if each[0] == what]
        hit = sum(bool(set(due) & named) for _, named, _, _ in of)
        wrong = Counter(kind for _, named, _, _ in of for kind in named - set(due))
        false = sum(bool(named - set(due)) for _, named, _, _ in of)
        others = f"{false}" + (f" ({', '.join(f'{kind} {n}' for kind, n in wrong.items())})" if wrong else "")
        print(f"| {what} | {len(of)} | {hit if due else '–'} | {others} | {sum(each[2] for each in of)} |")
    errors = [error for each in found for error in each[3]]
    if errors:
        low, middle, high = np.quantile(errors, (0.05, 0.5, 0.95))
        print(
            f"\nwaits that were named, against the true ones: {middle:+.1%} in the median, 90 % between {low:+.1%} and {high:+.1%}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=44, metavar="N", help="studies of each kind (default: 44)")
    options = parser.parse_args()
    cases = [(what, seed) for what in PLANTED for seed in range(options.studies)]
    with ProcessPoolExecutor() as pool:
        report(list(pool.map(judge, cases, chunksize=4)))


if __name__ == "__main__":
    main()
