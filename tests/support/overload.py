"""Servers that are overloaded or not, of known truth."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from benchmarks.capacity.fleet import Case, drawn_case
from benchmarks.capacity.server import OK, Load, simulate

from bench.load.exchange import Exchange
from bench.load.overload import LOOKS_S, Overload
from bench.parse.steady import SteadyWindow, steady_window

Floats = npt.NDArray[np.float64]


# Moments of sending (s) → those of the ends, and which ones are answers.
Served = tuple[Floats, npt.NDArray[np.bool_]]
Serve = Callable[[Floats], Served]
_LOADS = (0.3, 3.0)  # times what is carried
_REQUESTS = (120, 3000)
_SERVERS, _SERVERS_SEED = 200, 22  # of the capacity benchmark; two thirds of them are open loops
_KINDS = ("engine", "shared", "queue", "latencies")
_MACHINES = ("even", "stall", "slow start", "drift", "slow spell")


@dataclass(frozen=True)
class Run:
    """What happened in a run. Attributes: sent, end: of each request (s). ok: whether it was answered."""

    sent: Floats
    end: Floats
    ok: npt.NDArray[np.bool_]

    def steady(self) -> SteadyWindow | None:
        """Its steady window."""
        took = np.where(self.ok, self.end - self.sent, np.nan)
        frame = pl.DataFrame(
            {
                "index": np.arange(len(self.sent)),
                "after": pl.Series([None] * len(self.sent), dtype=pl.Int64),
                "outcome": np.where(self.ok, "ok", "http_error"),
                "sent_s": self.sent,
                "end_s": self.end,
                "e2e_s": pl.Series(took).fill_nan(None),
                "token_times_s": pl.Series([[]] * len(self.sent), dtype=pl.List(pl.Float64)),
            }
        )
        return steady_window(frame, held=False)


def warped(serve: Serve, knots: Floats, done: Floats) -> Serve:
    """The same server on a machine whose speed changes: between the `knots` (s) it does what takes `done` seconds otherwise."""

    def changed(sent: Floats) -> Served:
        end, ok = serve(np.interp(sent, knots, done))
        return np.interp(end, done, knots), ok

    return changed


def disturbed(serve: Serve, machine: str, length_s: float, random: np.random.Generator) -> Serve:
    """The server on a machine of that kind, for a load that is sent in `length_s`."""
    far = 50 * length_s + 1000.0
    pieces: list[tuple[float, float]]  # (until, speed)
    if machine == "stall":
        at, lasts = random.uniform(0, length_s), random.uniform(1, 6)
        pieces = [(at, 1.0), (at + lasts, 1e-9)]
    elif machine == "slow start":
        pieces = [(random.uniform(0.5, 5), random.uniform(0.02, 0.5))]
    elif machine == "drift":
        change = random.uniform(-0.2, 0.2)
        pieces = [(length_s * (i + 1) / 20, 1 + change * i / 20) for i in range(20)]
    elif machine == "slow spell":
        at, lasts = random.uniform(0, length_s), random.uniform(0.02, 0.25) * length_s
        pieces = [(at, 1.0), (at + lasts, 0.6)]
    else:
        return serve
    last = pieces[-1][1] if machine == "drift" else 1.0
    knots, done = [0.0], [0.0]
    for until, speed in [*pieces, (far, last)]:
        done.append(done[-1] + speed * (until - knots[-1]))
        knots.append(until)
    return warped(serve, np.array(knots), np.array(done))


@cache
def engines(seed: int, count: int) -> list[Case]:
    """The open loops of the capacity benchmark whose limit is known."""
    cases = (drawn_case(number, seed) for number in range(count))
    return [case for case in cases if case.demand.arrival != "closed" and case.level]


def engine(case: Case, seed: int, random: np.random.Generator) -> Serve:
    """An engine, step by step."""
    server = case.server if random.random() < 0.8 else replace(case.server, failure_share=float(random.uniform(0.01, 0.2)))
    demand = case.demand
    drawn = demand.prompt * np.exp(demand.sigma * np.random.default_rng(seed).standard_normal(3 * _REQUESTS[1]))
    prompts = np.round(drawn[(drawn >= 1) & (drawn <= 4 * demand.prompt)]).astype(int).tolist()

    def serve(sent: Floats) -> Served:
        load = Load(prompts[: len(sent)], [demand.output] * len(sent), sent.tolist())
        trace = simulate(server, load, seed=seed)
        return trace.end, trace.status == OK

    return serve


def shared(work: Floats) -> Serve:
    """A server whose requests share it evenly, however many there are; alone each one takes what `work` says (s)."""

    def serve(sent: Floats) -> Served:
        ends = np.zeros(len(sent))
        inside: list[tuple[float, int]] = []
        clock = given = 0.0
        i = 0
        while i < len(sent) or inside:
            due = sent[i] if i < len(sent) else math.inf
            leaves = clock + (inside[0][0] - given) * len(inside) if inside else math.inf
            moment = min(due, leaves)
            given += (moment - clock) / len(inside) if inside else 0.0
            clock = moment
            if due <= leaves:
                heapq.heappush(inside, (given + work[i], i))
                i += 1
            else:
                ends[heapq.heappop(inside)[1]] = clock
        return ends, np.ones(len(sent), dtype=bool)

    return serve


def queue(work: Floats, servers: int) -> Serve:
    """So many servers, each of which serves one request after the other."""

    def serve(sent: Floats) -> Served:
        free, ends = [0.0] * servers, np.zeros(len(sent))
        for i, at in enumerate(sent):
            which = int(np.argmin(free))
            free[which] = ends[i] = max(at, free[which]) + work[i]
        return ends, np.ones(len(sent), dtype=bool)

    return serve


def planted(number: int, seed: int) -> tuple[dict[str, Any], Serve, Floats]:
    """A run to be: what it is, its server, and the moments of sending (s)."""
    random = np.random.default_rng([seed, number, 31])
    kind, machine = _KINDS[number % len(_KINDS)], _MACHINES[number // len(_KINDS) % len(_MACHINES)]
    count = round(math.exp(random.uniform(*map(math.log, _REQUESTS))))
    shape = float(random.choice([math.inf, 1.0, 0.5, 0.3]))
    near = random.random() < 0.5  # half of the runs lie about the limit, where it is hardest
    share = math.exp(random.uniform(math.log(0.8), math.log(1.3)) if near else random.uniform(*map(math.log, _LOADS)))
    # Lengths, and with them the work of a request, are all alike, or vary.
    sigma = float(random.choice([0.0, 0.5, 1.0]))
    work = np.exp(sigma * random.standard_normal(count) - sigma**2 / 2)
    carried = 1.0
    if kind == "engine":
        cases = engines(_SERVERS_SEED, _SERVERS)
        case = cases[int(random.integers(len(cases)))]
        carried = case.level
        serve = engine(case, number, random)
        if case.server.most_in_flight or case.server.most_waiting is not None:
            kind = "engine that refuses"
    elif kind == "shared":
        serve = shared(work)
    elif kind == "queue":
        servers = int(random.choice([1, 4, 32]))
        serve = queue(work * servers, servers)
    else:
        longest = float(random.uniform(0.5, 0.3 * count))
        serve = lambda sent: (sent + longest * work[: len(sent)], np.ones(len(sent), dtype=bool))  # noqa: E731
    scale = 1.0 if "engine" in kind else math.exp(random.uniform(math.log(0.02), math.log(2)))  # seconds of work
    rate = carried * share / scale
    gaps = np.ones(count + 1) if math.isinf(shape) else random.gamma(shape, 1 / shape, count + 1)
    sent = np.concatenate([[0.0], np.cumsum(gaps)[:-1]]) * (count / gaps.sum() / rate)
    sent = sent[:count]
    what = {"kind": kind, "machine": machine, "share": share, "count": count, "burstiness": shape, "sigma": sigma}
    return what, disturbed(scaled(serve, scale), machine, float(sent[-1]), random), sent


def scaled(serve: Serve, factor: float) -> Serve:
    """A server of which everything takes `factor` times as long."""

    def slower(sent: Floats) -> Served:
        end, ok = serve(sent / factor)
        return end * factor, ok

    return slower


def stopped(sent: Floats, end: Floats) -> int | None:
    """How many requests the rule lets a run send; None where that is all of them."""
    exchanges = [Exchange(i, due_s=float(due)) for i, due in enumerate(sent)]
    for exchange, moment in zip(exchanges, end.tolist(), strict=True):
        exchange.end = moment
    rule, ends = Overload(exchanges, 0.0), np.sort(end)
    looks = np.arange(LOOKS_S, sent[-1], LOOKS_S)
    for at, ended in zip(looks.tolist(), np.searchsorted(ends, looks, side="right").tolist(), strict=True):
        if rule.plain(at, ended):
            return int(np.searchsorted(sent, at, side="right"))
    return None


def judged(job: tuple[int, int]) -> dict[str, Any]:
    """One run, whole and stopped. Args: job: its number, and the seed."""
    what, serve, sent = planted(*job)
    whole = Run(sent, *serve(sent))
    window = whole.steady()
    result = {
        **what,
        "number": job[0],
        "why": window.why if window else "short",
        "growth": window.growth if window else None,
        "failed": float(np.mean(~whole.ok)),
        "seconds": float(whole.end.max()),
        "stopped": stopped(sent, whole.end),
    }
    if result["stopped"] is not None:
        part = Run(sent[: result["stopped"]], *serve(sent[: result["stopped"]]))
        rest = part.steady()
        result |= {"part_seconds": float(part.end.max()), "part": vars(rest) if rest else None}
    return result
