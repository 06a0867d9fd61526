"""How often a search finds what it looks for beside SLOs: the load that fills the KV cache, the highest throughput, the equilibrium.

    python -m benchmarks.targets                   # some 140 planted truths; about ten minutes on one core
    python -m benchmarks.targets --curves 16 --servers 10 --json targets.json

The curves are those of `tests.support.limits`, of known turning points, stretched, and measured with 1 to 5 % of noise; both of their
targets are looked for in one search. The servers are those of `benchmarks.capacity`, with a small KV cache; of some the telemetry is
withheld.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from tests.support.limits import CURVES, TOP

from bench.analysis.regions import FLAT, PROPORTIONAL
from bench.search import Aim, Budget, Measured, search
from bench.search.equilibrium import EquilibriumTarget
from bench.search.targets import KvCacheTarget, Target, full_cache
from bench.search.throughput import RateTarget, ThroughputTarget
from benchmarks.capacity.fleet import Case
from benchmarks.capacity.server import Server
from benchmarks.capacity.truth import Demand, ceiling
from benchmarks.search import case_run

PRECISION = 0.1
BUDGET = Budget(40, math.inf)
_CURVES = CURVES[:8]  # without the bursts, which no search sends
_EVERY = 7  # servers: of each such one the telemetry is withheld
_TRUTH_SEEDS = 7
_QUIET = 0.025  # noise of a run
_LATENCIES = 24  # that a run near the answer lasts


@dataclass(frozen=True)
class Planted:
    """Something to measure, with its truths.

    Attributes:
        kind: of it. aim: of the search. targets: what is looked for.
        truths: of each, the true load; None: there is none, or it cannot be known. tolerance: by which a truth is known, as a share.
        run: summary row of a run: of a load, with so many requests, by a seed. noise: of a curve's runs (relative).
    """

    kind: str
    aim: Aim
    targets: tuple[Target, ...]
    truths: Mapping[str, float | None]
    tolerance: float
    run: Callable[[float, int, int], dict[str, Any]]
    noise: float | None = None


def of_curve(number: int, seed: int) -> Planted:
    """A throughput curve of a closed loop, up to 4 times as wide as planted."""
    curve = _CURVES[number % len(_CURVES)]
    random = np.random.default_rng([seed, number, 31])
    noise, wide = random.uniform(0.01, 0.05), math.exp(random.uniform(0, math.log(4)))
    own = noise * random.uniform(0.3, 1.0)  # the share of the noise that a run shows by itself

    def rate(load: np.ndarray) -> np.ndarray:
        return wide * curve.throughput(load / wide)

    highest = math.floor(TOP * wide)
    loads = np.arange(1.0, highest + 1)
    rates = rate(loads)
    topped = np.flatnonzero(rates >= FLAT * rates.max())[0]
    each = rates / loads
    ends = np.flatnonzero(each < PROPORTIONAL * each[0])
    truths = {
        "throughput": float(loads[topped]) if curve.flat or curve.peak else None,
        "equilibrium": float(loads[ends[0]]) if len(ends) else None,
    }

    def run(load: float, count: int, run_seed: int) -> dict[str, Any]:
        draw = np.random.default_rng([seed, number, run_seed, 32])
        tokens = float(rate(np.array([load]))[0]) * math.exp(noise * draw.standard_normal())
        answers = [{"ok": True, "ttft": 0.1, "tpot": None, "e2e": load / tokens}] * 20
        empty = dict.fromkeys(("steady_why", "steady_growth", "steady_growth_error", "steady_needs_s"))
        return {**empty, "steady_from_s": 0.0, "level": load, "arrival": "closed", "requests": count, "judged": answers,
                "duration_s": 100 * count / tokens, "steady_tokens_per_s": tokens, "steady_error": own}  # fmt: skip

    aim = Aim([], 0.01, True, PRECISION, 1.0, 1.0, float(highest))
    return Planted(curve.name, aim, (ThroughputTarget(), EquilibriumTarget()), truths, 0.0, run, noise)


def of_server(number: int, seed: int) -> Planted:
    """A server whose KV cache holds 4 to 80 requests; in every third one the load is a rate."""
    random = np.random.default_rng([seed, number, 33])
    held, sigma = number % 3 != 0, float(random.choice([0.0, 0.0, 0.5]))
    prompt, output = int(random.integers(100, 1500)), int(random.integers(24, 160))
    demand = Demand("closed" if held else "poisson", prompt, output, sigma)
    size, holds = 16, math.exp(random.uniform(math.log(4), math.log(80)))
    blocks = max(math.ceil(demand.longest / size) + 2, math.ceil(holds * ((prompt + output) / size + 1)))
    slots = int(random.integers(2, max(4, round(holds / 2)))) if number % 10 == 9 else 256  # these never fill the cache
    server = Server(
        a_ms=random.uniform(8, 25),
        b_ms=random.uniform(0.02, 0.3),
        c_ms=random.uniform(0.01, 0.1),
        d_ms=random.uniform(0.003, 0.03),
        noise=random.uniform(0.02, 0.1),
        blocks=blocks,
        slots=slots,
        block_size=size,
    )
    case = cast("Case", SimpleNamespace(server=server, demand=demand, number=number))
    scraped = number % _EVERY != 3

    def run(load: float, count: int, run_seed: int) -> dict[str, Any]:
        return case_run(case, load, count, 1000 * seed + run_seed, 1.0, scraped=scraped)

    alone = statistics.median(each["e2e"] for each in case_run(case, 1.0 if held else 0.2, 20, 5, 1.0)["judged"])
    start = 1.0 if held else float(f"{1 / alone:.3g}")
    aim = Aim([], 0.01, held, PRECISION, start, 1.0 if held else start / 64, 512.0)
    if not held:
        return Planted("server", aim, (RateTarget(),), {"throughput": ceiling(server, demand, seed=number)}, 0.02, run)
    truths = {"kv_cache": _fills(case, aim) if scraped else None}
    kind = "no telemetry" if not scraped else "too few slots" if slots < 256 else "server"
    return Planted(kind, aim, (KvCacheTarget(),), truths, 0.0, run)


def _fills(case: Case, aim: Aim) -> float | None:
    """The lowest load at which most runs, as long as those near the answer, fill the cache; None where none does."""

    def fills(load: float) -> bool:
        count = math.ceil(max(200, _LATENCIES * load))
        full = []
        for seed in range(_TRUTH_SEEDS):
            row = case_run(case, load, count, 77_000 + seed, 1.0, scraped=True)
            full.append(full_cache(row))
            if max(full.count(True), full.count(False)) > _TRUTH_SEEDS // 2:
                break
        return full.count(True) > full.count(False)

    low, high = 0.0, aim.start
    while not fills(high):
        low, high = high, 2 * high
        if high > aim.highest:
            return None
    while high - low > 1:
        middle = float((low + high) // 2)
        low, high = (low, middle) if fills(middle) else (middle, high)
    return high


def judged(planted: Planted) -> list[dict[str, Any]]:
    """What a search finds, target by target."""
    runs = 0

    def measure(load: float, count: int, _: int) -> Measured:
        nonlocal runs
        runs += 1
        return Measured(planted.run(load, count, runs))

    found = search(planted.aim, BUDGET, measure, targets=planted.targets)
    results = []
    for name, answer in found.answers.items():
        truth, off = planted.truths[name], planted.tolerance
        known = answer.why not in ("above", "below", "never", "unmeasured")
        middle = (answer.low + answer.high) / 2
        results.append(
            {
                "kind": planted.kind,
                "noise": planted.noise,
                "target": name + ("" if planted.aim.held else ", rate"),
                "truth": truth,
                "limit": answer.limit,
                "low": answer.low,
                "high": None if math.isinf(answer.high) else answer.high,
                "why": answer.why,
                "holds": not known if truth is None else answer.low * (1 - off) <= truth <= answer.high * (1 + off),
                "narrow": not known
                or answer.high - answer.low <= max(1.0 if planted.aim.held else 0.0, 2 * PRECISION * middle),
                "unknown": truth is None,
                "runs": runs,
                "loads": [look.load for look in found.looks],
            }
        )
    return results


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """The result, to read."""
    lines = [
        "| target | n | interval holds | as narrow as asked | within 10 % | runs, median | none or not known | of these found out |",
        "|---|" + "--:|" * 7,
    ]

    def share(values: Sequence[bool]) -> str:
        return f"{100 * statistics.mean(values):.0f} %" if values else "–"

    groups: dict[str, Callable[[Mapping[str, Any]], bool]] = {}
    for target in dict.fromkeys(each["target"] for each in results):
        groups[target] = lambda each, target=target: each["target"] == target
        if any(each["noise"] for each in results if each["target"] == target):
            groups[f"{target}, noise of 1 to 2.5 %"] = lambda each, target=target: (
                each["target"] == target and each["noise"] <= _QUIET
            )
            groups[f"{target}, noise of 2.5 to 5 %"] = lambda each, target=target: (
                each["target"] == target and each["noise"] > _QUIET
            )
    for name, belongs in groups.items():
        of = [each for each in results if belongs(each)]
        mine, none = [each for each in of if not each["unknown"]], [each for each in of if each["unknown"]]
        near = [abs(each["limit"] - each["truth"]) <= max(0.1 * each["truth"], 0.5) for each in mine]
        cells = [str(len(mine)), share([x["holds"] for x in mine]), share([x["narrow"] for x in mine]), share(near),
                 f"{statistics.median(x['runs'] for x in of):g}", str(len(none)), share([x["holds"] for x in none])]  # fmt: skip
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Search, and print how often the answers are right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curves", type=int, default=48)
    parser.add_argument("--servers", type=int, default=60)
    parser.add_argument("--seed", type=int, default=32)
    parser.add_argument("--json", type=Path, help="write everything, case by case")
    options = parser.parse_args()
    results: list[dict[str, Any]] = []
    for kind, of, count in (("curve", of_curve, options.curves), ("server", of_server, options.servers)):
        for number in range(count):
            results += [{**each, "number": number} for each in judged(of(number, options.seed))]
            if number % 10 == 9:
                print(f"{number + 1} of {count} {kind}s", file=sys.stderr, flush=True)
            if options.json:
                options.json.write_text(json.dumps(results, indent=1) + "\n")
    print(table(results))
    for each in results:
        if not each["holds"]:
            ends = f"{each['low']:g} to {each['high'] or math.inf:g}"
            print(f"{each['kind']} {each['number']}: {each['target']} {ends}, true {each['truth']}, {each['why']}")


if __name__ == "__main__":
    main()
