"""The noise of a replayed run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Noise:
    """How a replayed run strays: `run` multiplies all of its steps; `step` is the standard deviation of ln time of one step; pauses of
    `stall_s` in the mean come `stalls_per_s` times a second.
    """

    run: float = 1.0
    step: float = 0.0
    stalls_per_s: float = 0.0
    stall_s: float = 0.0


class Drawn:
    """Random numbers, drawn many at a time."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        self._normals: list[float] = []
        self._uniforms: list[float] = []

    def normal(self) -> float:
        if not self._normals:
            self._normals = self._random.standard_normal(4096).tolist()
        return self._normals.pop()

    def uniform(self) -> float:
        if not self._uniforms:
            self._uniforms = self._random.random(4096).tolist()
        return self._uniforms.pop()
