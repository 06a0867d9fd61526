"""How well a search finds the highest load within an SLO: planted servers of known limit, beside searches by point estimates.

    python -m benchmarks.search                    # 200 simulated servers and 100 planted curves; nine minutes on two cores
    python -m benchmarks.search --servers 40 --curves 0 --loop open --ours     # as `bench find` has them, without other searches

The servers are those of `benchmarks.capacity`: an engine step by step, with noise, stalls, failures, refusals and a drifting machine.
The curves are latencies over load that no engine has to explain: cliffs, flat tails, humps. Runs last as long as the search asks for.
On servers ours begins with its probe, and its minutes are those of a user of `bench find`: probe, reference loads and runs.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.optimize import isotonic_regression

from bench.parse.observation import observed
from bench.search.placing import ROUND, Aim
from bench.search.probe import Probed, Reply, Send, probe
from bench.search.search import Budget, Measured, search
from bench.study.slo import parse_slo
from benchmarks.capacity.fleet import Case, drawn_case
from benchmarks.capacity.ladder import answered_row, drawn_requests, run_row
from benchmarks.capacity.server import OK, Load, simulate
from benchmarks.harness import Referee, print_table

FAILED = 0.01
PRECISION = 0.1
BUDGET = Budget(30, 1800.0)  # as `bench find` has it
_SPEEDS = 0.03  # by which rounds differ (standard deviation of the logarithm)
_STEADY = 3  # runs, for which a machine's speed stays
_REFERENCE_ERROR = 0.07  # of one reference load; on real machines 5 to 9 %
_BELOW, _PROBED = 0.7, 0.15  # first load that a probe finds ÷ the limit, and how far that strays
_REFERENCE = 16, 4, 256, 32, 2  # requests of a reference load, how many at once, their longest lengths, and times
_AIPERF_PRECISION = 0.05
_SHAPES = ("cliff", "steep", "gentle", "flat tail", "hump below", "falls beyond")


@dataclass(frozen=True)
class Planted:
    """Something to measure, with its limit.

    Attributes:
        kind: of it. limit: the highest load that is carried; 0 where none is. aim: of the search.
        start: first load of searches by point estimates, and of ours where no probe can be sent.
        run: summary row of a run: of a load, with so many requests, by a seed, at a speed of the machine.
        speed: of the machine at the nth run, with random numbers of this server's.
        closed: what sends a probe's closed loops, at a speed of the machine; None where nothing does.
        reference_s: how long the reference load before a run takes (s).
    """

    kind: str
    limit: float
    aim: Aim
    run: Callable[[float, int, int, float], dict[str, Any]]
    speed: Callable[[int, np.random.Generator], float]
    start: float = 1.0
    closed: Callable[[float], Send] | None = None
    reference_s: float = 0.0


def of_case(case: Case, precision: float = PRECISION) -> Planted:
    """A server of the capacity benchmark. Where to begin is what one request at a time shows."""
    slo = parse_slo(case.limit.text)
    held = case.demand.arrival == "closed"
    alone = run_row(case, 0.2 if not held else 1.0, 20, 5, 1.0)
    latency = statistics.median([each["e2e"] for each in alone["judged"] if each["ok"]] or [1.0])
    start = 1.0 if held else float(f"{1 / latency:.3g}")
    aim = Aim([slo], FAILED, held, precision, None, 512.0, case.demand.shape)

    phase = np.random.default_rng([case.number, 31]).uniform(0, 28)

    def speed(n: int, random: np.random.Generator) -> float:
        if case.drift == "rounds":
            return math.exp(random.normal(0, _SPEEDS))
        # It slows down and speeds up again, so that its usual speed is the one that the limit is known at. A search begins anywhere.
        return 1 + case.trend * (0.5 - abs(((n + phase) / 14 + 1) % 2 - 1))

    count, at_once, prompt, output, times = _REFERENCE
    short = Load([min(prompt, case.demand.prompt)] * count, [min(output, case.demand.output)] * count, None, at_once)
    reference_s = times * float(np.nanmax(simulate(case.server, short, seed=5).end))
    return Planted(
        case.kind,
        case.level,
        aim,
        partial(run_row, case),
        speed,
        start,
        partial(closed_loop, case),
        reference_s,
    )


def closed_loop(case: Case, speed: float) -> Send:
    """What sends a probe's closed loops to a server. Args: speed: of its machine."""
    numbers = itertools.count(100_000)
    held = replace(case, demand=replace(case.demand, arrival="closed"))

    def send(in_flight: int, count: int, timeout_s: float) -> list[Reply]:
        seed = next(numbers)
        load = drawn_requests(held, np.random.default_rng([case.number, seed, 9]), in_flight, count)
        trace = simulate(case.server, load, seed=seed, speed=speed, watch=True)
        replies = []
        for i, (sent, first, last, end) in enumerate(
            zip(trace.sent.tolist(), trace.first.tolist(), trace.last.tolist(), trace.end.tolist(), strict=True)
        ):
            if math.isnan(sent):
                continue
            ok, cut = bool(trace.status[i] == OK), end - sent >= timeout_s
            outcome = "cut" if cut else "ok" if ok else "http_error"
            latencies = {
                "ttft": None if math.isnan(first) else first - sent,
                "tpot": (last - first) / max(1, load.outputs[i] - 1) if ok and not cut else None,
                "e2e": last - sent if ok and not cut else None,
            }
            replies.append(Reply(sent, min(end, sent + timeout_s), outcome, latencies, tuple(trace.made(i).tolist())))
        return replies

    return send


def of_curve(number: int, seed: int, precision: float = PRECISION) -> Planted:
    """A latency over load: its percentile is limit × exp(shape(log(load ÷ truth))), times what the run and each request add."""
    random = np.random.default_rng([seed, number, 21])
    shape = _SHAPES[number % len(_SHAPES)]
    share = float(random.choice([0.5, 0.9, 0.95, 0.99]))
    slo = parse_slo(f"ttft_p{100 * share:.0f}=1s")
    held = bool(random.random() < 0.5)
    truth = float(random.integers(3, 200)) if held else float(f"{math.exp(random.uniform(0, 5)):.4g}")
    sigma, noise, alike = random.uniform(0.05, 0.5), random.uniform(0.0, 0.04), random.choice([0.0, 0.5])
    slope, low = random.uniform(0.5, 1.0), random.uniform(-1.5, -0.4)
    at = truth + 0.5 if held else truth  # a whole number is the last one that is carried
    z = float(statistics.NormalDist().inv_cdf(share))

    def excess(load: float) -> float:
        x = math.log(load / at)
        if shape == "cliff":
            return low if x < 0 else 1.5
        if shape == "steep":
            return max(low, 8 * x)
        if shape == "gentle":
            return slope * x
        if shape == "flat tail":
            return max(low, 0.5 * x if x < 0 else 0.15 * x)
        if shape == "hump below":
            return max(low, 3 * x) + 0.25 * math.exp(-((x + 1.1) ** 2) / 0.05)
        return max(low, 3 * x) if x < 0.4 else max(0.3, 1.2 - (x - 0.4))

    def run(load: float, count: int, run_seed: int, speed: float) -> dict[str, Any]:
        draw = np.random.default_rng([seed, number, run_seed])
        normal = draw.standard_normal(count)
        if alike:
            for i in range(1, count):
                normal[i] = alike * normal[i - 1] + math.sqrt(1 - alike**2) * normal[i]
        middle = excess(load if held else load / speed) - math.log(speed) + draw.normal(0, noise)
        values = np.exp(middle + sigma * (normal - z))
        return answered_row(values.tolist(), load, "closed" if held else "poisson")

    start = _BELOW * truth * math.exp(random.normal(0, _PROBED))  # about where a probe puts it
    start = max(1.0, round(start)) if held else float(f"{start:.3g}")
    aim = Aim([slo], FAILED, held, precision, start, 2048.0)
    return Planted(shape, truth, aim, run, lambda _, draw: math.exp(draw.normal(0, _SPEEDS)) if number % 2 else 1.0)


class _Machine:
    """Measures a planted server run by run, as its machine's speed changes from round to round."""

    def __init__(self, planted: Planted, seed: int) -> None:
        self.planted, self.random, self.runs, self.seconds = planted, np.random.default_rng([seed, 77]), 0, 0.0
        self.speed = self.seen = 1.0

    def measure(self, load: float, count: int, _: int) -> Measured:
        """A run, with what the reference load before it showed of the machine."""
        number = self.runs // ROUND
        if self.runs % _STEADY == 0:
            self.speed = self.planted.speed(self.runs, self.random)
        if self.runs % ROUND == 0:  # a reference load
            self.seen = self.speed * math.exp(self.random.normal(0, _REFERENCE_ERROR))
            self.seconds += self.planted.reference_s
        self.runs += 1
        row = self.planted.run(load, count, self.runs, self.speed)
        self.seconds += row["duration_s"]
        return Measured(row, (), self.seen, round=str(number))

    def probe(self, aim: Aim) -> Probed:
        """Where a search begins, on the machine as it is a while before the first run."""
        closed = self.planted.closed
        if closed is None:
            raise ValueError("nothing sends a probe to a planted curve")
        probed = probe(aim, closed(self.planted.speed(0, self.random)))
        self.seconds += probed.seconds
        return probed


def by_search(planted: Planted, seed: int) -> dict[str, Any]:
    """What the search finds."""
    machine = _Machine(planted, seed)
    found = search(planted.aim, BUDGET, machine.measure, begin=machine.probe)
    answer, truth = found.answer, planted.limit
    off = 0.0 if planted.aim.held else 0.01  # a simulated server's rate is known to 1 %
    middle, precision = (answer.low + answer.high) / 2, planted.aim.precision
    return {
        "limit": answer.limit,
        "low": answer.low,
        "high": answer.high,
        "why": answer.why,
        "holds": answer.low * (1 - off) <= truth <= answer.high * (1 + off),
        "narrow": answer.why in ("above", "below") or answer.high == answer.low or answer.high - middle <= precision * middle,
        **_cost(machine, answer.limit, truth),
    }


def by_bisection(planted: Planted, seed: int) -> dict[str, Any]:
    """Doubles until a run misses, then halves what lies between, by each run's own percentiles, as GuideLLM's goodput profile does."""
    machine, aim = _Machine(planted, seed), planted.aim
    low, high, load = 0.0, math.inf, planted.start
    while machine.runs < BUDGET.runs and (high / max(low, 1e-9) > 1 + aim.precision and not (aim.held and high - low <= 1)):
        if _passes(machine, load):
            low = load
            load = 2 * load if math.isinf(high) else (low + high) / 2
        else:
            high = load
            load = (low + high) / 2
        load = math.floor(load) if aim.held else load
        if load < (1.0 if aim.held else planted.start / 64) or load > aim.highest or load in (low, high):
            break
    return _cost(machine, low, planted.limit)


def by_sweep(planted: Planted, seed: int) -> dict[str, Any]:
    """Ten levels, evenly spaced from the first to where the load is twice too much; the highest below the first that misses."""
    machine, aim = _Machine(planted, seed), planted.aim
    top = 2 * (planted.limit or planted.start)
    levels = np.linspace(planted.start, top, 10)
    carried = 0.0
    for level in np.unique(np.round(levels)) if aim.held else levels:
        if not _passes(machine, float(level)):
            break
        carried = float(level)
    return _cost(machine, carried, planted.limit)


def by_aiperf(planted: Planted, seed: int) -> dict[str, Any]:
    """Doubles until a run misses, measures three loads between, then where a rising curve through all runs crosses the limit, until
    what passed and what missed lie within 5 %: AIPerf 0.13's default for the highest concurrency under an SLA, without its cliff guard.

    Source: AIPerf, docs/sweeping/find-max-passing-concurrency.md, `smooth_isotonic`; replicates are off, as they are by default.
    """
    machine, aim = _Machine(planted, seed), planted.aim
    margins: dict[float, float] = {}
    low, high, load = 0.0, math.inf, planted.start

    def probe(load: float) -> None:
        nonlocal low, high
        passes, margins[load] = _judged(machine, load)
        if passes and load < high:
            low = max(low, load)
        elif not passes and load > low:
            high = min(high, load)

    while math.isinf(high) and load <= aim.highest and machine.runs < BUDGET.runs:
        probe(load)
        load *= 2
    if not low or math.isinf(high):
        return _cost(machine, low, planted.limit)
    between, fits = [low + (high - low) * part / 4 for part in (1, 2, 3)], 0
    while machine.runs < BUDGET.runs:
        for each in dict.fromkeys(float(round(load)) if aim.held else load for load in between):
            if each not in margins and machine.runs < BUDGET.runs:
                probe(each)
        fits += 1
        if (high - low) / high < _AIPERF_PRECISION or (aim.held and high - low <= 1):
            break
        loads = sorted(margins)
        rising = isotonic_regression([margins[each] for each in loads]).x
        if len(set(np.round(rising, 9))) < 3 and fits < 3:
            between = [low + (high - low) * part for part in (0.125, 0.625)]
            continue
        curve = PchipInterpolator(loads, rising + 1e-9 * (np.ptp(rising) or 1.0) * np.arange(len(rising)))
        roots = [float(root) for root in curve.solve(0.0, extrapolate=False) if low <= root <= high]
        load = roots[0] if roots else (low + high) / 2
        if aim.held:
            load = min(max(float(round(load)), low + 1), high - 1)
        elif not low < load < high:
            load = (low + high) / 2
        if load in margins:
            break
        between = [load]
    return _cost(machine, low, planted.limit)


def _passes(machine: _Machine, load: float) -> bool:
    return _judged(machine, load)[0]


def _judged(machine: _Machine, load: float) -> tuple[bool, float]:
    """Whether a run passes, and by how much its percentile lies above the limit, as a share of it."""
    aim = machine.planted.aim
    row = machine.measure(load, aim.requests(load, 0.5, [], near=True), 1).row
    seen = observed(row, aim.slos, aim.failed_share)
    if seen is None:
        return False, 1.0
    margin = math.expm1(seen.excesses[aim.slos[0].column].value)
    return not seen.slow and not seen.grows and seen.failed <= aim.failed_share * seen.requests, margin


def _cost(machine: _Machine, limit: float, truth: float) -> dict[str, Any]:
    return {"runs": machine.runs, "seconds": machine.seconds, "near": abs(limit - truth) <= 0.1 * truth + 1e-9}


def judged(job: tuple[str, int, int, float, bool]) -> dict[str, Any]:
    """One planted server by every search.

    Args:
        job: `server` or `curve`, its number, the seed, the precision asked for, and whether other searches look for it too.
    """
    what, number, seed, precision, rivals = job
    curve = what == "curve"
    planted = of_curve(number, seed, precision) if curve else of_case(drawn_case(number, seed, causes=False), precision)
    others = {"bisection": by_bisection, "aiperf": by_aiperf, "sweep": by_sweep} if rivals else {}
    found = {name: search_of(planted, number) for name, search_of in {"search": by_search, **others}.items()}
    return {"what": what, "number": number, "kind": planted.kind, "held": planted.aim.held, "truth": planted.limit, **found}


def of_loop(loop: str, count: int, seed: int) -> list[int]:
    """The numbers of the first servers of a seed. Args: loop: `open`, `closed` or `both`."""
    if loop == "both":
        return list(range(count))
    wanted = (
        number
        for number in itertools.count()
        if (drawn_case(number, seed, causes=False).demand.arrival == "closed") == (loop == "closed")
    )
    return list(itertools.islice(wanted, count))


def report(results: Sequence[Mapping[str, Any]]) -> None:
    """Print the result: of kinds, those of which fewer intervals hold, or are as narrow, than of the others."""
    others = [name for name in ("bisection", "aiperf", "sweep") if name in results[0]]
    titles = ["n", "interval holds", "as narrow as asked", "runs, median", "minutes, median", "within 10 %"]
    titles += [title for name in others for title in (f"{name}: within 10 %", "runs")]
    groups = {"all": list(results)}
    for what, (held, loop) in itertools.product(("server", "curve"), ((False, "open"), (True, "closed"))):
        groups[f"{what}s, {loop} loop"] = [each for each in results if (each["what"], each["held"]) == (what, held)]
    whole = set(groups)
    for kind in dict.fromkeys(each["kind"] for each in results):
        groups[kind] = [each for each in results if each["kind"] == kind]
    lines = []
    for name, mine in groups.items():
        if not mine or (name not in whole and min(_mean(mine, "holds") / 0.9, _mean(mine, "narrow") / 0.8) >= 1):
            continue
        minutes = statistics.median(each["search"]["seconds"] for each in mine) / 60
        shares = [f"{100 * _mean(mine, key):.0f} %" for key in ("holds", "narrow", "near")]
        theirs = [cell for by in others for cell in (f"{100 * _mean(mine, 'near', by):.0f} %", _runs(mine, by))]
        lines.append([name, len(mine), *shares[:2], _runs(mine, "search"), f"{minutes:.1f}", shares[2], *theirs])
    print_table(["planted", *titles], lines)
    print(f"\nended by their budget: {sum(each['search']['why'] in ('runs', 'seconds', 'short') for each in results)}")
    missed = [each for each in results if not each["search"]["holds"]]
    print(f"\n{len(missed)} intervals miss: " + ", ".join(f"{each['what']} {each['number']}" for each in missed))


def _mean(results: Sequence[Mapping[str, Any]], key: str, by: str = "search") -> float:
    return statistics.mean(bool(each[by][key]) for each in results)


def _runs(results: Sequence[Mapping[str, Any]], by: str) -> str:
    return f"{statistics.median(each[by]['runs'] for each in results):g}"


def main() -> None:
    referee = Referee(__doc__, seed=22, servers=200, curves=100)
    referee.option("--precision", type=float, default=PRECISION, help="half the width that is asked for (default: %(default)s)")
    referee.option("--loop", choices=("both", "open", "closed"), default="both", help="of the servers")
    referee.option("--ours", action="store_true", help="without the searches by point estimates")
    options = referee.options()
    asked = options.seed, options.precision, not options.ours
    servers = of_loop(options.loop, options.servers, options.seed)
    most = {"server": max(servers, default=0) + 1, "curve": options.curves}
    jobs = [("server", number, *asked) for number in servers]
    jobs += [("curve", number, *asked) for number in range(options.curves)]
    jobs.sort(key=lambda job: job[1] / most[job[0]])  # so that a part of them is a sample of both
    report(referee.spread(judged, jobs))


if __name__ == "__main__":
    main()
