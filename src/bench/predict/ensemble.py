"""An ensemble of servers that a calibrated model allows: other fits, and other speeds of the machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.predict.calibrate import Calibrated
from bench.predict.limits import Limits
from bench.predict.replay import Replay, replay
from bench.predict.server import ReplayedServer
from bench.predict.step_time import StepTime
from bench.workloads.schedule import PlannedRequest

_LEAST_PATH_S = (
    1e-4  # shortest way from the client to the engine (s); convention: a step that follows an answer has begun by then
)


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
        return max(self.path * self.step.idle_s, _LEAST_PATH_S)

    @property
    def wake_s(self) -> float:
        """Extra time of a step that finds the engine idle (s)."""
        return (1 - self.path) * self.step.idle_s

    def replay(self, plans: Sequence[PlannedRequest], *, held: int | None = None) -> Replay:
        """Planned requests on this server. Args: held: as of `replay`."""
        noise, seed = self.model.fitted.noise, 1 + self.number
        way = {"overhead_s": self.overhead_s, "wake_s": self.wake_s}
        return replay(plans, self.limits, self.step, held=held, noise=noise, seed=seed, **way)

    def server(self, number: int, now: float) -> ReplayedServer:
        """An instance, whose clock starts then (s); each has other noise."""
        noise, seed = self.model.fitted.noise, 1 + 10_000 * self.number + number
        return ReplayedServer(self.limits, self.step, now=now, wake_s=self.wake_s, noise=noise, seed=seed)

    def longer(self, metric: str) -> float:
        """Factor from a replayed latency of `METRICS` to a real one: predictions of unseen runs were off by as much."""
        return math.exp(self.off * self.model.beyond.get(metric, 0.0))


def typical(model: Calibrated, limits: Limits | None = None) -> Member:
    """The best fit, at the machine's usual speed."""
    return Member(model, limits or model.limits, 0, model.fitted.best, 0.5, 0.0)


def members(model: Calibrated, limits: Limits | None = None, *, count: int, seed: int = 1) -> list[Member]:
    """An ensemble. Args: limits: of the scheduler, in place of the calibrated ones."""
    random, errors, paths = (np.random.default_rng(each) for each in (seed, [seed, 1], [seed, 2]))
    fitted, found = model.fitted, []
    for number in range(count):
        speed = math.exp(fitted.run_noise * random.standard_normal())
        step = fitted.draws[number % len(fitted.draws)].times(speed)
        found.append(
            Member(model, limits or model.limits, number, step, float(paths.uniform()), float(errors.standard_normal()))
        )
    return found
