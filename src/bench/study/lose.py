"""The loss of a worker during a run."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bench.fields import Count, Strict


class Lose(Strict):
    """A worker of a fleet that is killed during each run of an open loop, and started again after it."""

    worker: Count = Field(default=1, description="Which replica, from 1.")
    after_s: Annotated[float, Field(gt=0)] = Field(description="When it is killed (s since the run's start).")
