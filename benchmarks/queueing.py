"""What a queueing formula says of a server: the baseline that a replay of its steps is held against.

An M/G/c queue: c requests are served at a time, each for as long as one took in measured closed loops with as many in flight.

Source: Allen, Probability, Statistics, and Queueing Theory (1990), 5.3: M/G/c by Allen and Cunneen; Erlang's C for those that wait.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from bench.predict.calibrate import MeasuredRun
from bench.predict.judge import measured

_P50, _P99 = 0.5, 0.99


@dataclass(frozen=True)
class Service:
    """A server as closed loops show it, in between by straight lines.

    Attributes:
        held: requests in flight of each, ascending. whole_s: mean E2E of each. first_s: TTFT P50. slow_s: TTFT P99. token_s: TPOT P50.
        tokens: of an answer, in the mean. spread: squared coefficient of variation of E2E at the highest.
    """

    held: tuple[float, ...]
    whole_s: tuple[float, ...]
    first_s: tuple[float, ...]
    slow_s: tuple[float, ...]
    token_s: tuple[float, ...]
    tokens: float
    spread: float

    @classmethod
    def of(cls, runs: Sequence[MeasuredRun]) -> Service:
        """By runs of a single request and of closed loops."""
        steady = sorted(
            (run for run in runs if run.condition[1] == 1 or run.condition[0] != "burst"), key=lambda run: run.condition[1]
        )
        numbers = [measured(run) for run in steady]
        whole = [run.requests.select(pl.col("end_s") - pl.col("sent_s")).to_series().to_numpy() for run in steady]
        return cls(
            held=tuple(run.condition[1] for run in steady),
            whole_s=tuple(float(each.mean()) for each in whole),
            first_s=tuple(each["ttft_p50_s"] for each in numbers),
            slow_s=tuple(each["ttft_p99_s"] for each in numbers),
            token_s=tuple(each["tpot_p50_s"] for each in numbers),
            tokens=float(np.mean([float(run.requests["completion_tokens"].mean() or 0.0) for run in steady])),  # type: ignore[arg-type]
            spread=float((whole[-1].std() / whole[-1].mean()) ** 2),
        )

    def at(self, values: Sequence[float], held: float) -> float:
        """One of its lines at so many in flight."""
        return float(np.interp(held, self.held, values))

    def closed(self, held: int) -> dict[str, float]:
        """A closed loop, by Little's law."""
        return {
            "throughput_tokens_per_s": held / self.at(self.whole_s, held) * self.tokens,
            "ttft_p50_s": self.at(self.first_s, held),
            "ttft_p99_s": self.at(self.slow_s, held),
            "tpot_p50_s": self.at(self.token_s, held),
        }

    def at_rate(self, rate: float, requests: int, slots: float, *, longer: float = 1.0) -> dict[str, float]:
        """Poisson arrivals.

        Args:
            requests: that are sent. slots: that are served at a time. longer: how many times as long requests are as those measured.
        """
        served = 0.0
        for _ in range(200):  # in flight without a queue: rate × time in service, which rises with it
            served += 0.2 * (min(slots, rate * longer * self.at(self.whole_s, served)) - served)
        most = slots / (longer * self.at(self.whole_s, slots))
        if rate < most:
            waits = _erlang_c(slots, slots * rate / most)
            mean_s = (1 + self.spread) / 2 / (most - rate)  # of those that wait
            wait = {share: max(0.0, mean_s * math.log(waits / (1 - share))) if waits else 0.0 for share in (_P50, _P99)}
        else:  # the queue grows until the last has come
            wait = {share: share * requests * (1 / most - 1 / rate) for share in (_P50, _P99)}
        span = requests / min(rate, most) + longer * self.at(self.whole_s, served)
        return {
            "throughput_tokens_per_s": requests * longer * self.tokens / span,
            "ttft_p50_s": longer * self.at(self.first_s, served) + wait[_P50],
            "ttft_p99_s": longer * self.at(self.slow_s, served) + wait[_P99],
            "tpot_p50_s": self.at(self.token_s, served),
        }


def _erlang_c(slots: float, offered: float) -> float:
    """The share of the requests that wait. Args: offered: load in slots (Erlang), below their number."""
    blocked = 1.0
    for n in range(1, max(1, round(slots)) + 1):
        blocked = offered * blocked / (n + offered * blocked)
    busy = offered / max(1, round(slots))
    return min(1.0, blocked / (1 - busy * (1 - blocked))) if busy < 1 else 1.0
