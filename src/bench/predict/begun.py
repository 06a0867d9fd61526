"""Steps of a replayed server that are under way."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

from bench.predict.state import Request


@dataclass(slots=True)
class Begun:
    """Steps that are under way, all alike but for the length of what is decoded.

    Attributes:
        began: when (s). seconds: of all of them without noise. base: of the first, had it no prompts; 0 where nothing decodes.
        slope: by how much longer each further one is. chunks: of prompts, in a single one. run, deviation: their noise, as of
            `Noise.run`, and standard deviations of a step's. stall_s, stall_at: a pause, and after which share of the steps it comes.
    """

    began: float
    steps: int
    seconds: float
    run: float
    deviation: float
    stall_s: float = 0.0
    stall_at: float = 0.0
    base: float = 0.0
    slope: float = 0.0
    chunks: tuple[tuple[Request, int], ...] = ()

    @property
    def took(self) -> float:
        """Time that they take, with noise (s)."""
        return self.seconds * self._stretched + self.stall_s

    @property
    def ends(self) -> float:
        """When the last of them ends (s)."""
        return self.began + self.took

    @property
    def last(self) -> float:
        """When the last of them begins (s)."""
        before = self.steps - 1
        paused = self.stall_at * self.steps < before
        return self.began + seconds_of(before, self.base, self.slope) * self._stretched + (self.stall_s if paused else 0.0)

    @property
    def _stretched(self) -> float:
        return self.run * math.exp(self.deviation / math.sqrt(self.steps))

    def cut(self, moment: float) -> Begun:
        """As many of them as have begun by a moment."""
        steps = min(self.steps, _steps_until((moment - self.began) / self._stretched, self.base, self.slope))
        if steps == self.steps:
            return self
        paused = self.stall_s and self.stall_at * self.steps < steps
        seconds = seconds_of(steps, self.base, self.slope)
        place, stall_s = self.stall_at * self.steps / steps, self.stall_s if paused else 0.0
        return Begun(self.began, steps, seconds, self.run, self.deviation, stall_s, place, self.base, self.slope, self.chunks)


def seconds_of(steps: int, base: float, slope: float) -> float:
    """Time of so many steps (s), the first of `base` seconds and each further one `slope` longer."""
    return steps * base + slope * steps * (steps - 1) / 2


def _steps_until(seconds: float, base: float, slope: float) -> int:
    """The fewest steps that last so long, the first of `base` seconds and each further one `slope` longer."""
    if seconds <= 0:
        return 1
    if slope <= 0:
        return max(1, math.ceil(seconds / base)) if base > 0 else sys.maxsize
    half = base - slope / 2
    return max(1, math.ceil((-half + math.sqrt(half * half + 2 * slope * seconds)) / slope))
