"""What a simulated server sustains under a limit on a latency, and which of its resources holds it there: by long simulation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import fmean

import numpy as np

from benchmarks.capacity.server import OK, Load, Server, Trace, simulate

__all__ = [
    "RELAXED",
    "Demand",
    "Limit",
    "ceiling",
    "crossing",
    "drawn_load",
    "gains",
    "last_integer",
    "latencies",
    "long_run",
    "sustainable",
]

REQUESTS = 20_000  # of a point near the limit
_OF_A_START, _OF_A_COARSE_START = 5_000, 2_500  # requests
_STARTS, _COARSE_STARTS = 12, 4  # of a closed loop
_FEWER = 10_000  # of one farther away, and of a counterfactual; of 5,000 requests of bursty load chance alone leaves 1 % behind
_WARM = 0.05  # of a run's requests, which meet a server that is still empty
_FAILED = 0.01  # the share that may fail
_BEHIND = 0.01  # of what arrives in a run's second half: a server that falls behind by more is not stable
_FINE, _COARSE = 1.01, 1.02  # ratio of the loads between which a limit is known
_HIGHEST = 512  # requests in flight that are tried
_MOST = 4.0  # times the guess: how far up is looked


@dataclass(frozen=True)
class Demand:
    """What is asked of a server.

    Attributes:
        arrival: `closed`, `constant`, `poisson` or `gamma` (of shape `burstiness`).
        prompt, output: median length (tokens). sigma: of the prompts' lognormal, cut off at four times the median; 0: all alike.
    """

    arrival: str
    prompt: int
    output: int
    sigma: float = 0.0
    burstiness: float | None = None

    @property
    def shape(self) -> float:
        """Of the gamma distribution of an open loop's gaps."""
        return math.inf if self.arrival == "constant" else self.burstiness or 1.0

    @property
    def more(self) -> float:
        """How many times as many requests bursty arrivals take to show as much."""
        return max(1.0, 1 / self.shape)

    @property
    def longest(self) -> int:
        """Tokens of the longest request."""
        return (4 * self.prompt if self.sigma else self.prompt) + self.output


@dataclass(frozen=True)
class Limit:
    """At least `share` of the requests have a `metric` (`ttft`, `tpot`, `e2e`) of at most `seconds`."""

    metric: str
    share: float
    seconds: float

    @property
    def text(self) -> str:
        """As configurations have it, such as `ttft_p99=812ms`."""
        return f"{self.metric}_p{100 * self.share:.0f}={1000 * self.seconds:g}ms"


@lru_cache(maxsize=64)
def _unit_moments(shape: float, count: int, seed: int) -> np.ndarray:
    if math.isinf(shape):
        return np.arange(count, dtype=float)
    return np.cumsum(np.random.default_rng([seed, 3]).gamma(shape, 1 / shape, count))


@lru_cache(maxsize=64)
def _prompts(median: int, sigma: float, count: int, seed: int) -> tuple[int, ...]:
    if not sigma:
        return (median,) * count
    random = np.random.default_rng([seed, 4])
    drawn = median * np.exp(sigma * random.standard_normal(2 * count))
    return tuple(np.round(drawn[(drawn >= 1) & (drawn <= 4 * median)][:count]).astype(int).tolist())


def drawn_load(demand: Demand, level: float, count: int, seed: int) -> Load:
    """`count` requests at `level` (requests/s, or in flight). The same seed gives the same draws at every level, stretched.

    A closed loop begins as if it had gone on for long: of the outputs of its first requests there is a rest left, from little to all.
    Whole requests that begin together end together, and so do their successors, for longer than any run: a truth of convoys,
    which nobody meets who does not begin with one.
    """
    prompts, outputs = _prompts(demand.prompt, demand.sigma, count, seed), (demand.output,) * count
    if demand.arrival == "closed":
        held = min(int(level), count)
        rest = (np.random.default_rng([seed, 5]).permutation(held) + 1) / held
        first = np.maximum(1, np.round(rest * demand.output)).astype(int).tolist()
        return Load(prompts, (*first, *outputs[held:]), in_flight=int(level))
    return Load(prompts, outputs, (_unit_moments(demand.shape, count, seed) / level).tolist())


def latencies(trace: Trace, metric: str) -> np.ndarray:
    """Of each request (s); NaN where it failed."""
    if metric == "ttft":
        values = trace.first - trace.sent
    elif metric == "e2e":
        values = trace.last - trace.sent
    else:
        values = (trace.last - trace.first) / np.maximum(1, trace.tokens - 1)
    return np.where(trace.status == OK, values, np.nan)


@dataclass(frozen=True)
class LongRun:
    """A long run's share of requests that were within the limit and that failed, whether it was stable, and its requests/s."""

    within: float
    failed: float
    stable: bool
    rps: float

    def meets(self, limit: Limit) -> bool:
        """Whether that is sustainable."""
        return self.within >= limit.share and self.failed <= _FAILED and self.stable


def long_run(server: Server, demand: Demand, limit: Limit, level: float, *, count: int, seed: int) -> LongRun:
    """The long run at one level."""
    trace = simulate(server, drawn_load(demand, level, count, seed), seed=seed)
    warm = int(_WARM * count)
    with np.errstate(invalid="ignore"):
        within = float(np.mean(latencies(trace, limit.metric)[warm:] <= limit.seconds))
    failed = float(np.mean(trace.status[warm:] != OK))
    ends = np.sort(trace.end)
    if demand.arrival == "closed":
        begin, until = ends[warm], ends[-1 - max(warm, int(level))]
        return LongRun(within, failed, True, float((count - 1 - warm - max(warm, int(level))) / (until - begin)))
    half, whole = trace.sent[count // 2], trace.sent[-1]
    arrived = count - count // 2
    ended = np.searchsorted(ends, whole) - np.searchsorted(ends, half)
    return LongRun(within, failed, bool(ended >= (1 - _BEHIND) * arrived), float(level))


def ceiling(server: Server, demand: Demand, *, seed: int) -> float:
    """Requests/s of a server that always has plenty to do, whatever they wait."""
    free, count = replace(server, most_in_flight=None, most_waiting=None), 4000
    trace = simulate(free, replace(drawn_load(demand, 1, count, seed), moments=(0.0,) * count), seed=seed)
    ends = np.sort(trace.end)
    return float(0.6 * count / (ends[int(0.8 * count)] - ends[int(0.2 * count)]))


def sustainable(
    server: Server, demand: Demand, limit: Limit, guess: float, *, seed: int, fine: bool = True
) -> tuple[float, float]:
    """The highest level that is sustainable, and its requests/s; zeros where none is.

    Args:
        guess: where to begin to look; four times as much is the highest that is tried.
        fine: to 1 % by long runs; else to 2 % by shorter ones. Of a closed loop: exactly.

    A closed loop's requests fall in with one another as its start has it, for longer than any run lasts: limits of single starts differ
    by up to a fourth. Each run of a study is a start of its own, so its truth is that of the requests of many starts together.
    """
    if fine:
        guess = sustainable(server, demand, limit, guess, seed=seed, fine=False)[0] or guess
    if demand.arrival == "closed":
        starts, count = (_STARTS, _OF_A_START) if fine else (_COARSE_STARTS, _OF_A_COARSE_START)

        def of_starts(level: int) -> LongRun:
            runs = [long_run(server, demand, limit, level, count=count, seed=1000 * seed + start) for start in range(starts)]
            within, failed, rps = (fmean(getattr(run, name) for run in runs) for name in ("within", "failed", "rps"))
            return LongRun(within, failed, True, rps)

        level = last_integer(lambda level: of_starts(level).meets(limit), max(1, round(guess)))
        return (float(level), of_starts(level).rps) if level else (0.0, 0.0)
    count = math.ceil((REQUESTS if fine else _FEWER) * demand.more)

    def run(level: float) -> LongRun:
        return long_run(server, demand, limit, level, count=count, seed=seed)

    low, high = _bracket(lambda level: run(level).meets(limit), guess, 1.015 if fine else 1.1)
    while low and high / low > (_FINE if fine else _COARSE):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if run(middle).meets(limit) else (low, middle)
    return low, low


def _bracket(met: Callable[[float], bool], guess: float, factor: float) -> tuple[float, float]:
    """A level that is met (0: none) and the next that is not, by ever larger factors from `guess` on."""
    if met(guess):
        low, high = guess, guess * factor
        while high < _MOST * guess and met(high):
            factor = min(1.6, factor**1.6)
            low, high = high, high * factor
        return low, high
    low, high = guess / factor, guess
    while not met(low):
        factor = min(1.6, factor**1.6)
        low, high = low / factor, low
        if low < guess / 100:
            return 0.0, high
    return low, high


def last_integer(met: Callable[[int], bool], guess: int) -> int:
    """The last number that is met, of those up to the first that is not; 0 where 1 is not."""
    low, high = 0, int(min(_HIGHEST, max(8, _MOST * guess))) + 1
    step, at = max(1, guess // 20), min(guess, _HIGHEST)
    while low < at < high:
        if met(at):
            low, at = at, min(at + step, high - 1)
        else:
            high, at = at, max(1, at - step)
        step *= 2
    while high > low + 1:
        middle = (low + high) // 2
        low, high = (middle, high) if met(middle) else (low, middle)
    return low


def crossing(server: Server, demand: Demand, level: float, *, seed: int) -> dict[tuple[str, float], tuple[float, float]]:
    """Each latency's percentiles (s) at a level, and at one that is a fifth higher.

    Of a closed loop, whose levels are whole numbers, the first lies between the level and the next one.
    """
    closed = demand.arrival == "closed"
    levels = (level, level + 1, max(level + 2, round(1.2 * level))) if closed else (level, level, 1.2 * level)
    starts = _STARTS if closed else 1
    count = _OF_A_START if closed else math.ceil(REQUESTS * demand.more)
    found: list[dict[tuple[str, float], float]] = []
    for at in levels:
        traces = [
            simulate(server, drawn_load(demand, at, count, 1000 * seed + start), seed=1000 * seed + start)
            for start in range(starts)
        ]
        known = {name: [latencies(trace, name)[int(_WARM * count) :] for trace in traces] for name in ("ttft", "tpot", "e2e")}
        found.append(
            {
                (name, share): float(np.quantile(np.nan_to_num(np.concatenate(values), nan=math.inf), share, method="higher"))
                for name, values in known.items()
                for share in (0.9, 0.95, 0.99)
            }
        )
    return {key: (math.sqrt(found[0][key] * found[1][key]), found[2][key]) for key in found[0]}


RELAXED: dict[str, Callable[[Server], Server]] = {
    "kv": lambda s: replace(s, blocks=4 * s.blocks),  # as good as without a bound, like the slots
    "sequences": lambda s: replace(s, slots=s.budget),
    "prefill": lambda s: replace(s, d_ms=s.d_ms / 2),
    "decode": lambda s: replace(s, a_ms=s.a_ms / 2, b_ms=s.b_ms / 2, c_ms=s.c_ms / 2),
    "refusals": lambda s: replace(s, most_in_flight=None, most_waiting=None),
    "interference": lambda s: replace(s, prefill_aside=True),
}


def gains(server: Server, demand: Demand, limit: Limit, level: float, *, seed: int) -> dict[str, float]:
    """By which factor the sustainable requests/s rise when one resource is relaxed, each by itself.

    Args:
        level: the highest that is sustainable.
    """

    def rps(changed: Server) -> float:
        return sustainable(changed, demand, limit, level, seed=seed, fine=False)[1]

    found, before = {}, rps(server)
    if not before:
        return {}
    for cause, relax in RELAXED.items():
        if (cause == "interference") != (limit.metric == "tpot") and cause in ("interference", "prefill"):
            continue  # of the time between tokens, prompts' arithmetic is the others'
        relaxed = relax(server)
        found[cause] = 1.0 if relaxed == server else rps(relaxed) / before
    return found
