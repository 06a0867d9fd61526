"""The servers of the benchmark: drawn, each with a load, a limit and what is done to its study."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter

from benchmarks.capacity.server import Server, simulate
from benchmarks.capacity.truth import Demand, Limit, ceiling, crossing, drawn_load, gains, latencies, sustainable
from benchmarks.harness import RESULTS

__all__ = ["Case", "drawn_case"]

HERE = Path(__file__).parent
TRUTHS = RESULTS / "capacity" / "truths"
_WEIGHTS = {
    "kv": 0.17, "sequences": 0.15, "prefill": 0.15, "decode": 0.14, "interference": 0.13, "refusals": 0.12, "any": 0.14
}  # fmt: skip
_ALL_CAUSES = ("kv", "sequences", "prefill", "decode", "interference", "refusals", "none", "unknown")
_LAX_S = 10.0  # a limit from which on it does not bear on the load (s)
_RISES = 1.05  # ratio of a latency at a fifth more load from which on it has a limit
_SLOWEST_S = 4.0  # a limit beyond it would take runs of minutes
_DECISIVE, _CLEAR = 1.15, 1.1  # a cause raises the rate by so much, and by so much more than the next one


@dataclass(frozen=True)
class Case:
    """One server of the benchmark.

    Attributes:
        number, kind: which one it is, and which resource it was drawn to run out of (`any`: whichever comes first).
        level, rps: the highest level that is sustainable, and its requests/s (0: none). around: the level about which is measured.
        gains: by resource that is relaxed. second: a limit on another latency that is crossed at the same level; None where none is.
        causes: right answers. withheld: what telemetry lacks (`""`: nothing; `all`, `names`, `gauges`).
        ends_below: whether the ladder ends below the limit. drift: `""`, `rounds` or `trend`. trend: of the session (relative).
    """

    number: int
    kind: str
    server: Server
    demand: Demand
    limit: Limit
    level: float
    rps: float
    around: float
    gains: dict[str, float] = field(default_factory=dict)
    second: Limit | None = None
    causes: tuple[str, ...] = ()
    withheld: str = ""
    ends_below: bool = False
    drift: str = ""
    trend: float = 0.0

    @property
    def name(self) -> str:
        """Of its deployment."""
        return f"s{self.number:03}"


def drawn_case(number: int, seed: int, *, causes: bool = True) -> Case:
    """The `number`th server of a seed. Its truth takes seconds, and is kept. Args: causes: whether theirs are sought."""
    code = [(HERE / name).read_text() for name in ("server.py", "truth.py", "fleet.py")]
    path = TRUTHS / f"{hashlib.sha256(json.dumps([seed, number, causes, code]).encode()).hexdigest()[:16]}.json"
    if path.exists():
        return TypeAdapter(Case).validate_json(path.read_bytes())
    case = next(case for attempt in range(200) if (case := _attempt(number, [seed, number, attempt], causes)) is not None)
    TRUTHS.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps(asdict(case)))
    unfinished.rename(path)
    return case


def _attempt(number: int, seed: list[int], sought: bool) -> Case | None:
    """A server with a limit that bears on its load, and the truth; None where the draw has no such limit."""
    random = np.random.default_rng(seed)
    kind = str(random.choice(list(_WEIGHTS), p=list(_WEIGHTS.values())))
    demand = _demand(kind, random)
    server = _server(kind, demand, random)
    special = random.random()
    lax = kind != "refusals" and demand.arrival != "closed" and kind not in ("decode", "interference", "any") and special < 0.12
    metric, share = _slo(kind, lax, random)
    if random.random() < 0.1:
        server = replace(server, failure_share=float(random.uniform(0.1, 0.6) * min(1 - share, 0.01)))
    limit = _limit(server, demand, metric, share, lax, random)
    if limit is None:
        return None
    simulation = number + 1
    guess = 24.0 if demand.arrival == "closed" else 0.7 * ceiling(server, demand, seed=simulation)
    level, rps = sustainable(server, demand, limit, guess, seed=simulation)
    if not level or not 2 <= rps <= 40 or (demand.arrival == "closed" and level < 3):
        return None
    if random.random() < 0.03:  # more fail than may, at any load
        broken = replace(server, failure_share=float(random.uniform(0.02, 0.05)))
        return Case(number, "broken", broken, demand, limit, 0.0, 0.0, around=level, causes=_ALL_CAUSES)
    found = gains(server, demand, limit, level, seed=simulation) if sought else {"none": 1.0}
    case = Case(number, kind, server, demand, limit, level, rps, level, found)
    return _marked(replace(case, second=_second(case, simulation)), random) if case.gains else None


def _second(case: Case, seed: int) -> Limit | None:
    """A limit on another latency that is crossed at the same level, if one rises there and no queue is all that limits."""
    if case.limit.seconds >= _LAX_S or case.server.most_in_flight or case.server.most_waiting is not None:
        return None
    known = crossing(case.server, case.demand, case.level, seed=seed)
    risen = {key: beyond / at for key, (at, beyond) in known.items() if key[0] != case.limit.metric and at < math.inf}
    steepest = max(risen, key=risen.__getitem__, default=None)
    if steepest is None or risen[steepest] < _RISES:
        return None
    return Limit(*steepest, float(f"{known[steepest][0]:.4g}"))


def _marked(case: Case, random: np.random.Generator) -> Case:
    """With what is done to its study, and the right answers."""
    best = max(case.gains.values())
    mixed = tuple(cause for cause, gain in case.gains.items() if gain >= best / _CLEAR)
    causes = mixed if best >= _DECISIVE else (*mixed, "none")
    draw = random.random()
    withheld = "all" if draw < 0.04 else "names" if draw < 0.07 else "gauges" if draw < 0.1 else ""
    ends_below = 0.1 <= draw < 0.16
    if withheld:
        causes = ("unknown",)
    elif ends_below:
        causes = ("none",)
    elif best < _DECISIVE:
        causes = mixed
    drift = "trend" if random.random() < 0.15 else "rounds" if random.random() < 0.7 else ""
    trend = float(random.uniform(0.1, 0.2)) if drift == "trend" else 0.0
    return replace(case, causes=causes, withheld=withheld, ends_below=ends_below, drift=drift, trend=trend)


def _between(random: np.random.Generator, low: float, high: float) -> float:
    """Log-uniform, to three digits."""
    return float(f"{math.exp(random.uniform(math.log(low), math.log(high))):.3g}")


def _demand(kind: str, random: np.random.Generator) -> Demand:
    arrival = str(random.choice(["poisson", "closed", "gamma", "constant"], p=[0.4, 0.3, 0.15, 0.15]))
    prompts = {
        "kv": (200, 1200), "sequences": (50, 400), "prefill": (400, 2000), "decode": (16, 100), "interference": (400, 2000),
        "refusals": (50, 800), "any": (50, 1500),
    }[kind]  # fmt: skip
    outputs = {"prefill": (16, 32), "any": (16, 64)}.get(kind, (32, 64))
    return Demand(
        arrival,
        prompt=round(_between(random, *prompts)),
        output=int(random.integers(outputs[0], outputs[1] + 1)),
        sigma=float(random.choice([0.0, 0.3, 0.6])),
        burstiness=float(random.choice([0.3, 0.5, 2.0])) if arrival == "gamma" else None,
    )


def _server(kind: str, demand: Demand, random: np.random.Generator) -> Server:
    """Parameters that make the resource `kind` short, as a rule."""
    scale = _between(random, 0.7, 2.0)
    size = int(random.choice([16, 32]))
    mean = demand.prompt * math.exp(demand.sigma**2 / 2) + demand.output
    slots = int(random.choice([64, 128, 256]))
    if kind == "sequences" or (kind == "any" and random.random() < 0.4):
        slots = int(random.integers(4, 25))
    holds = {"kv": random.integers(5, 16), "any": random.integers(6, 60)}.get(kind, 200)
    blocks = max(math.ceil(demand.longest / size) + 2, math.ceil(holds * (mean + size / 2) / size) + 1)
    heavy = {"prefill": (0.03, 0.1), "interference": (0.03, 0.1), "any": (0.003, 0.1)}.get(kind, (0.003, 0.01))
    each = {"decode": (0.3, 1.0), "any": (0.01, 0.8)}.get(kind, (0.01, 0.06))
    context = {"decode": (0.2, 2.0), "any": (0.01, 1.0)}.get(kind, (0.01, 0.1))
    return Server(
        a_ms=scale * _between(random, *((3, 6) if kind == "prefill" else (8, 25))),
        b_ms=scale * _between(random, *each),
        c_ms=scale * _between(random, *context),
        d_ms=_between(random, *heavy),
        noise=_between(random, 0.02, 0.1),
        stall_share=float(random.choice([0.0, 2e-4])),
        stall_ms=50.0,
        budget=int(random.choice([512, 2048, 8192] if kind != "interference" else [2048, 8192])),
        slots=slots,
        blocks=blocks,
        block_size=size,
        wire_ms=_between(random, 0.1, 1.0),
        **_front_end(kind, demand, random),
    )


def _front_end(kind: str, demand: Demand, random: np.random.Generator) -> dict[str, int]:
    """What it refuses. A queue's limit would refuse the burst with which a closed loop begins, which is not what it sustains."""
    if kind != "refusals":
        return {}
    if demand.arrival == "closed" or random.random() < 0.7:
        return {"most_in_flight": int(random.integers(6, 25))}
    return {"most_waiting": int(random.integers(1, 5))}


def _slo(kind: str, lax: bool, random: np.random.Generator) -> tuple[str, float]:
    metrics = {
        "kv": ("ttft", "ttft", "e2e"), "sequences": ("ttft", "ttft", "e2e"), "prefill": ("ttft",),
        "decode": ("tpot", "tpot", "e2e"), "interference": ("tpot",), "refusals": ("ttft", "e2e"), "any": ("ttft", "tpot", "e2e"),
    }[kind]  # fmt: skip
    metric = str(random.choice(metrics))
    shares = {"ttft": (0.99, 0.95, 0.9), "tpot": (0.95, 0.95, 0.5), "e2e": (0.95, 0.9)}[metric]
    return metric, 0.95 if lax else float(random.choice(shares))


def _limit(server: Server, demand: Demand, metric: str, share: float, lax: bool, random: np.random.Generator) -> Limit | None:
    """A limit that is met at a low load and missed within the server's range; one of a minute's order where it is to be lax."""
    seed = 7

    def percentile(level: float, count: int) -> float:
        trace = simulate(server, drawn_load(demand, level, count, seed), seed=seed)
        known = latencies(trace, metric)[count // 20 :]
        return float(np.nanquantile(known, share)) if np.isfinite(known).any() else math.nan

    if lax:
        return Limit(metric, share, 60.0)
    queued = server.slots < 64  # requests wait for a slot
    if demand.arrival == "closed":
        level = random.uniform(1.2, 3) * server.slots if queued else random.uniform(5, 41)
        alone, loaded = percentile(1, 500), percentile(int(level), 6000)
    else:
        highest = ceiling(server, demand, seed=seed)
        share_of_it = random.uniform(0.8, 0.97) if queued else random.uniform(0.5, 0.95)
        alone, loaded = percentile(0.1 * highest, 1000), percentile(share_of_it * highest, 6000)
    if server.most_in_flight or server.most_waiting is not None:
        loaded *= 3
        if not math.isfinite(loaded):
            return None
    elif loaded < (3 if queued and metric == "ttft" else 1.3) * alone or not loaded <= _SLOWEST_S:
        return None
    return Limit(metric, share, float(f"{loaded:.3g}"))
