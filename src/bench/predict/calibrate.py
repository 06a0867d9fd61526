"""A server's calibrated model: its scheduler's limits, its step times, and what it has seen; and the ensemble of servers that it
allows: other fits, and other speeds of the machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from bench.predict.calibration import Interval
from bench.predict.fleet import FleetReplay, Router, replay, replay_fleet
from bench.predict.limits import Limits
from bench.predict.server import ReplayedServer
from bench.predict.step_time import Fitted, StepTime, fit_steps
from bench.predict.steps import intervals
from bench.statistics.textbook import normal
from bench.workloads.schedule import PlannedRequest

# confidence of a prediction's interval; source: docs/explanation/decisions.md, "One confidence"
CONFIDENCE = 0.9
Z = normal(CONFIDENCE, 3)  # standard deviations about the mean that hold it of a normal distribution; derived
# replays of a load, and servers of an ensemble; derived: the fewest between whose least and greatest a further one lies so often
REPLAYS = round((1 + CONFIDENCE) / (1 - CONFIDENCE))


def ensemble_interval(values: Sequence[float]) -> Interval:
    """The median, and the central 90 % of where a further member would lie.

    Source: the mean of the kth of n values is the quantile k ÷ (n + 1) (Hyndman and Fan 1996, definition 6); the quantiles of 20 values
    by the usual definition hold 81 % of further ones.
    """
    low, middle, high = np.quantile(values, [(1 - CONFIDENCE) / 2, 0.5, (1 + CONFIDENCE) / 2], method="weibull")
    return Interval(float(middle), float(low), float(high))


@dataclass(frozen=True)
class MeasuredRun:
    """A run to calibrate with, or to judge by.

    Attributes:
        row: of the summary. requests: its table, in the order of their indices.
    """

    name: str
    row: Mapping[str, Any]
    requests: pl.DataFrame
    _steps: dict[Limits, pl.DataFrame] = field(default_factory=dict, init=False, repr=False, compare=False)

    def steps(self, limits: Limits) -> pl.DataFrame:
        """Its `intervals`, worked out once."""
        if limits not in self._steps:
            self._steps[limits] = intervals(self.requests, limits)
        return self._steps[limits]

    @property
    def held(self) -> int | None:
        """Requests that a closed loop keeps in flight; None for other loads."""
        return int(self.row["level"]) if self.row["arrival"] == "closed" else None

    @property
    def condition(self) -> tuple[str, float]:
        """Its workload and level: what repeats share."""
        return str(self.row["workload"]), float(self.row["level"])


@dataclass(frozen=True)
class Calibrated:
    """A model of a server.

    Attributes:
        longest: tokens of a request, the most that was seen. beyond: by metric, how far predictions of
            runs that it had not seen were off beyond what their ensembles say (standard deviation of ln).
    """

    limits: Limits
    fitted: Fitted
    longest: int
    beyond: Mapping[str, float] = field(default_factory=dict)


def calibrate(runs: Sequence[MeasuredRun], limits: Limits, *, draws: int = REPLAYS) -> Calibrated | None:
    """A model of the server; None where the runs show too few steps. Args: limits: what the scheduler obeys."""
    fitted = fit_steps([run.steps(limits) for run in runs], draws=draws)
    if fitted is None:
        return None
    longest = max(int(np.max((run.requests["prompt_asked"] + run.requests["output_asked"]).to_numpy())) for run in runs)
    return Calibrated(limits, fitted, longest)


def parameters(model: Calibrated) -> dict[str, Interval]:
    """What a step costs (s), which explains the server's speed: the best fit, and the central 90 % of the bootstrap.

    Returns:
        `step_s`, whatever is in it; `request_s`, a request more in it, in the mean of as many as were seen; `prompt_s` of 1,000 prompt
        tokens, in steps as large as were seen; `context_s` of 1,000 tokens of context that decodes read; `idle_s`, the way to an idle
        engine and back. Where slots are counted, `pass_s` of a pass
        through the layers beyond a step's first.
    """
    best, draws = _costs(model.fitted.best, model), [_costs(step, model) for step in model.fitted.draws]
    ends = {name: ensemble_interval([each[name] for each in draws]) for name in best}
    return {name: Interval(value, min(value, ends[name].low), max(value, ends[name].high)) for name, value in best.items()}


def _costs(step: StepTime, model: Calibrated) -> dict[str, float]:
    many, tokens = max(model.fitted.most["decodes"], 1.0), max(model.fitted.most["tokens"], 1.0)
    costs = {
        "step_s": step.fixed_s,
        "request_s": step.sequence_s + step.line(many) / many,
        "prompt_s": 1000 * step.line(tokens) / tokens,
        "context_s": 1000 * step.context_s,
        "idle_s": step.idle_s,
    }
    return costs if model.limits.pass_tokens is None else {**costs, "pass_s": step.pass_s}


def planned_again(run: MeasuredRun) -> list[PlannedRequest]:
    """The requests of a run as they were planned: lengths as asked, moments as due, and what their prompts have in common."""
    due = run.held is None
    ended = dict(run.requests.select("index", "end_s").iter_rows())
    shared = {"repeated": 1.0, "shared": run.row.get("shared_prefix") or 0.0}.get(str(run.row.get("cache")), 0.0)
    plans: dict[int, PlannedRequest] = {}
    for row in run.requests.sort("index").iter_rows(named=True):
        before = plans.get(row["after"]) if row["after"] is not None else None
        common = before.shared_tokens if before else int(shared * row["prompt_asked"])
        plans[row["index"]] = PlannedRequest(
            index=row["index"],
            conversation=before.conversation if before else row["index"],
            prompt_asked=row["prompt_asked"],
            output_tokens=row["output_asked"],
            due_s=row["scheduled_s"] if due and row["after"] is None else None,
            after=() if row["after"] is None else (row["after"],),
            think_s=_thought(row["scheduled_s"], ended.get(row["after"])),
            shared_tokens=common,
            reusable_tokens=before.prompt_tokens if before else common,
            request_class=row.get("request_class"),
        )
    return list(plans.values())


def _thought(due_s: float | None, ended_s: float | None) -> float:
    """From the end of the turn before to the moment at which this one was due (s)."""
    return 0.0 if due_s is None or ended_s is None else max(0.0, due_s - ended_s)


@dataclass(frozen=True)
class Member:
    """One server of an ensemble.

    Attributes:
        step: its step times. path: share of the way to an idle engine that leads to a busy one too (0–1): no run shows it. off: by how
            many standard deviations its latencies are off beyond what is replayed.
    """

    model: Calibrated
    limits: Limits
    number: int
    step: StepTime
    path: float
    off: float

    @property
    def overhead_s(self) -> float:
        """From the client to the queue (s)."""
        return self.path * self.step.idle_s

    @property
    def wake_s(self) -> float:
        """Extra time of a step that finds the engine idle (s)."""
        return (1 - self.path) * self.step.idle_s

    def replay(self, plans: Sequence[PlannedRequest], *, held: int | None = None) -> FleetReplay:
        """Planned requests on this server. Args: held: as of `replay`."""
        way = {"overhead_s": self.overhead_s, "wake_s": self.wake_s}
        return replay(plans, self.limits, self.step, held=held, noise=self.model.fitted.noise, seed=1 + self.number, **way)

    def server(self, number: int, now: float) -> ReplayedServer:
        """An instance, whose clock starts then (s); each has other noise."""
        noise, seed = self.model.fitted.noise, 1 + 10_000 * self.number + number
        return ReplayedServer(self.limits, self.step, now=now, wake_s=self.wake_s, noise=noise, seed=seed)

    def fleet(self, plans: Sequence[PlannedRequest], number: int, router: Router, **course: Any) -> FleetReplay:
        """Requests of an open loop on so many of them. Args: course: as of `replay_fleet`."""
        return replay_fleet(plans, self.server, number, router, overhead_s=self.overhead_s, seed=1 + self.number, **course)

    def longer(self, metric: str) -> float:
        """Factor from a replayed latency of `METRICS` to a real one: predictions of unseen runs were off by as much."""
        return math.exp(self.off * self.model.beyond.get(metric, 0.0))


def typical(model: Calibrated, limits: Limits | None = None) -> Member:
    """The best fit, at the machine's usual speed."""
    return Member(model, limits or model.limits, 0, model.fitted.best, 0.5, 0.0)


def members(model: Calibrated, limits: Limits | None = None, *, count: int) -> list[Member]:
    """An ensemble. Args: limits: of the scheduler, in place of the calibrated ones."""
    random, errors, paths = (np.random.default_rng(each) for each in (1, [1, 1], [1, 2]))
    fitted, found = model.fitted, []
    for number in range(count):
        speed = math.exp(fitted.run_noise * random.standard_normal())
        step = fitted.draws[number % len(fitted.draws)].times(speed)
        found.append(
            Member(model, limits or model.limits, number, step, float(paths.uniform()), float(errors.standard_normal()))
        )
    return found
