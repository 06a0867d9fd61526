"""Gaps between the tokens of requests (ITL): of measured ones by their stamps, of replayed ones by the steps that made them."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from bench.parse.stream import gaps_between_tokens
from bench.predict.begun import Begun

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Gaps:
    """Gaps between tokens.

    Attributes:
        seconds: of each kind of gap. count: how many there are of it.
    """

    seconds: Floats
    count: Floats

    @classmethod
    def measured(cls, requests: pl.DataFrame, row: Mapping[str, Any]) -> Gaps:
        """The gaps that the columns `itl_*` count: of all answered requests, none where chunks are not tokens.

        Args:
            requests: with `token_times_s` (s). row: of the summary.
        """
        figures = {name: row.get(name) for name in ("tokens_per_chunk", "tokens_per_arrival", "unknown_streamed")}
        each = requests.select(pl.col("token_times_s").list.diff(null_behavior="drop").explode())["token_times_s"].drop_nulls()
        seconds = each.to_numpy() if gaps_between_tokens(figures) else np.empty(0)
        return cls(seconds, np.ones(len(seconds)))

    def percentiles(self, *shares: float) -> list[float | None]:
        """Percentiles (s), between two gaps by a line; None where there is no gap. Args: shares: 0–1."""
        if not len(self.seconds):
            return [None for _ in shares]
        order = np.argsort(self.seconds)
        seconds, upto = self.seconds[order], np.cumsum(self.count[order])
        found: list[float | None] = []
        for share in shares:
            place = share * (upto[-1] - 1)
            below, above = seconds[np.searchsorted(upto, [np.floor(place), np.ceil(place)], side="right")]
            found.append(float(below + (place % 1) * (above - below)))
        return found


class StepLog:
    """What the steps of a replay took, and how many requests each gave a token that is not their first."""

    def __init__(self) -> None:
        self._steps: array[float] = array("d")  # requests; steps, the first, how much longer a further one, a pause (s)
        self._apart: array[float] = array("d")

    def add(self, requests: int, done: Begun) -> None:
        """Note steps that are alike, without the noise of a single one. Args: requests: that each gives a token."""
        first = done.seconds if done.chunks else done.base
        self._steps.extend((requests, done.steps, done.run * first, done.run * done.slope, done.stall_s, done.stall_at))

    def add_gap(self, seconds: float) -> None:
        """Note the gap of a request that was preempted."""
        self._apart.append(seconds)

    def gaps(self, strays: Sequence[float] = (), seed: int = 1) -> Gaps:
        """The gaps between tokens. Args: strays: ln of a step's time ÷ the usual one, of which each step gets one at random."""
        rows = np.frombuffer(self._steps).reshape(-1, 6) if self._steps else np.empty((0, 6))
        requests, steps, first, further, stall_s, stall_at = rows.T
        number = steps.astype(int)
        of = np.repeat(np.arange(len(number)), number)
        nth = np.arange(len(of)) - np.repeat(np.cumsum(number) - number, number)
        seconds = first[of] + further[of] * nth
        if strays:
            seconds *= np.exp(np.random.default_rng(seed).choice(np.array(strays), len(of)))
        seconds += np.where(nth == np.minimum(np.floor(stall_at * steps), steps - 1)[of], stall_s[of], 0.0)
        apart = np.frombuffer(self._apart) if self._apart else np.empty(0)
        return Gaps(np.concatenate([seconds, apart]), np.concatenate([requests[of], np.ones(len(apart))]))
