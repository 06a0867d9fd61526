"""The loss of a worker during a run."""

from __future__ import annotations

from pydantic import Field

from bench.fields import Count, Seconds, Strict


class Lose(Strict):
    """A worker of a fleet that is killed during each run of an open loop, and started again after it."""

    worker: Count = Field(default=1, description="Which replica, from 1.")
    after_s: Seconds = Field(description="When it is killed (s since the run's start).")
