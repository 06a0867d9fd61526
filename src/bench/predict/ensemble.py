"""An ensemble of servers that a calibrated model allows: other fits, speeds of the machine and noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.predict.calibrate import Calibrated
from bench.predict.noise import Noise
from bench.predict.replay import Replay, replay
from bench.predict.server import ReplayedServer
from bench.predict.state import Limits
from bench.predict.step_time import StepTime
from bench.predict.way import LEAST_PATH_S
from bench.workloads.schedule import PlannedRequest


@dataclass(frozen=True)
class Member:
    """One server of an ensemble.

    Attributes:
        step: its step times. path_s: from the client to the engine and back (s). off: by how many standard deviations its latencies
            are off beyond what is replayed.
    """

    model: Calibrated
    limits: Limits
    number: int
    step: StepTime
    path_s: float
    noise: Noise
    off: float

    @property
    def overhead_s(self) -> float:
        """From the client to the queue (s)."""
        return max(self.path_s, LEAST_PATH_S)

    @property
    def wake_s(self) -> float:
        """Extra time of a step that finds the engine idle (s)."""
        return max(0.0, self.step.idle_s - self.path_s)

    def replay(self, plans: Sequence[PlannedRequest], *, held: int | None = None, seed: int) -> Replay:
        """Planned requests on this server. Args: held, seed: as of `replay`."""
        return replay(
            plans,
            self.limits,
            self.step,
            held=held,
            overhead_s=self.overhead_s,
            wake_s=self.wake_s,
            noise=self.noise,
            seed=seed,
        )

    def server(self, number: int, now: float) -> ReplayedServer:
        """An instance, whose clock starts then (s); each has other noise."""
        return ReplayedServer(
            self.limits, self.step, self.noise, 1 + 10_000 * self.number + number, now=now, wake_s=self.wake_s
        )

    def longer(self, metric: str) -> float:
        """Factor from a replayed latency of `METRICS` to a real one: predictions of unseen runs were off by as much."""
        return math.exp(self.off * self.model.beyond.get(metric, 0.0))


def typical(model: Calibrated, limits: Limits | None = None) -> Member:
    """The best fit, at the machine's usual speed."""
    best = model.fitted.best
    return Member(model, limits or model.limits, 0, best, _path(model, best, 0.5), _noise(model, 1.0), 0.0)


def members(model: Calibrated, limits: Limits | None = None, *, count: int, seed: int = 1) -> list[Member]:
    """An ensemble. Args: limits: of the scheduler, in place of the calibrated ones."""
    random, errors, paths = (np.random.default_rng(each) for each in (seed, [seed, 1], [seed, 2]))
    fitted = model.fitted
    found = []
    for number in range(count):
        noise = _noise(model, float(np.exp(fitted.run_noise * random.standard_normal())))
        step = fitted.draws[number % len(fitted.draws)]
        path_s = _path(model, step, float(paths.uniform()))
        found.append(Member(model, limits or model.limits, number, step, path_s, noise, float(errors.standard_normal())))
    return found


def _path(model: Calibrated, step: StepTime, share: float) -> float:
    """A possible way to the engine: one of those that the runs show, or else any part of the way to an idle one.

    Args:
        share: between the shortest and the longest (0–1).
    """
    low, high = model.fitted.path_s or (0.0, step.idle_s)
    return low + share * (high - low)


def _noise(model: Calibrated, run: float) -> Noise:
    fitted = model.fitted
    return Noise(run=run, step=fitted.step_noise, stalls_per_s=fitted.stalls_per_s, stall_s=fitted.stall_s)
