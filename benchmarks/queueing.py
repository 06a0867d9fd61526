"""What a queueing formula says of a server: the baseline that a replay of its steps is held against.

An M/G/c queue: c requests are served at a time, each for as long as one took in measured closed loops with as many in flight.

Source: Allen, Probability, Statistics, and Queueing Theory (1990), 5.3: M/G/c by Allen and Cunneen; Erlang's C for those that wait.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from bench.predict.calibrate import MeasuredRun
from bench.predict.study import measured

_P50, _P99 = 0.5, 0.99


@dataclass(frozen=True)
class Service:
    """A server as a single request and closed loops show it, in between by straight lines.

    Attributes:
        slots: requests that are served at a time; the others wait. served: of each run, requests in service, ascending.
        whole_s: mean time in service. token_s: TPOT P50. alone_s: TTFT of a single request. calm: of the loop without a queue, TTFT P50
            and P99. spread: squared coefficient of variation of the time in service.
    """

    slots: float
    served: tuple[float, ...]
    whole_s: tuple[float, ...]
    token_s: tuple[float, ...]
    alone_s: float
    calm: tuple[float, float]
    spread: float

    @classmethod
    def of(cls, runs: Sequence[MeasuredRun], slots: float) -> Service:
        """By a burst of one and closed loops, the lowest of which has no queue."""
        steady = sorted(
            (run for run in runs if run.condition[1] == 1 or run.condition[0] != "burst"), key=lambda x: x.condition[1]
        )
        single, loops = steady[0], steady[1:]
        numbers = [measured(run) for run in steady]
        usual = float(pl.concat([run.requests for run in loops])["completion_tokens"].mean())  # type: ignore[arg-type]
        # A single request has lengths of its own.
        longer = usual / float(single.requests["completion_tokens"].mean())  # type: ignore[arg-type]
        alone = numbers[0]["ttft_p50_s"]
        decode = [run.requests.select(pl.col("end_s") - pl.col("first_token_s")).to_series().to_numpy() for run in steady]
        whole = [
            alone + float(each.mean()) * (longer if run is single else 1.0) for run, each in zip(steady, decode, strict=True)
        ]
        return cls(
            slots=slots,
            served=tuple(min(slots, run.condition[1]) for run in steady),
            whole_s=tuple(whole),
            token_s=tuple(each["tpot_p50_s"] for each in numbers),
            alone_s=alone,
            calm=(numbers[1]["ttft_p50_s"], numbers[1]["ttft_p99_s"]),
            spread=float((decode[-1].std() / decode[-1].mean()) ** 2),
        )

    def with_slots(self, slots: float) -> Service:
        """The same server with fewer slots."""
        return replace(self, slots=slots)

    def closed(self, held: int, tokens: float) -> dict[str, float]:
        """A closed loop, by Little's law. Args: tokens: of an answer, in the mean."""
        served = min(float(held), self.slots)
        whole = self._at(self.whole_s, served)
        wait = (held / served - 1) * whole
        return self._numbers(served / whole * tokens, served, wait, wait)

    def at_rate(self, rate: float, requests: int, tokens: float, *, longer: float = 1.0) -> dict[str, float]:
        """Poisson arrivals.

        Args:
            requests: that are sent. longer: how many times as long they are as those measured.
        """
        served = 0.0
        for _ in range(200):  # in service without a queue: rate × time in service, which rises with it
            served += 0.2 * (min(self.slots, rate * longer * self._at(self.whole_s, served)) - served)
        most = self.slots / (longer * self._at(self.whole_s, self.slots))
        if rate < most:
            waits = _erlang_c(self.slots, self.slots * rate / most)
            mean_s = (1 + self.spread) / 2 / (most - rate)  # of those that wait
            wait = [max(0.0, mean_s * math.log(waits / (1 - share))) if waits else 0.0 for share in (_P50, _P99)]
        else:  # the queue grows until the last has come
            wait = [share * requests * (1 / most - 1 / rate) for share in (_P50, _P99)]
        span = requests / min(rate, most) + longer * self._at(self.whole_s, served)
        return self._numbers(requests * tokens / span, served, *wait, longer=longer)

    def _at(self, values: Sequence[float], served: float) -> float:
        return float(np.interp(served, self.served, values))

    def _numbers(
        self, tokens_per_s: float, served: float, wait: float, longest: float, longer: float = 1.0
    ) -> dict[str, float]:
        first, slow = (longer * float(np.interp(served, self.served[:2], (self.alone_s, each))) for each in self.calm)
        return {
            "throughput_tokens_per_s": tokens_per_s,
            "ttft_p50_s": first + wait,
            "ttft_p99_s": slow + longest,
            "tpot_p50_s": self._at(self.token_s, served),
        }


def _erlang_c(slots: float, offered: float) -> float:
    """The share of the requests that wait. Args: offered: load in slots (Erlang), below their number."""
    blocked = 1.0
    for n in range(1, max(1, round(slots)) + 1):
        blocked = offered * blocked / (n + offered * blocked)
    busy = offered / max(1, round(slots))
    return min(1.0, blocked / (1 - busy * (1 - blocked))) if busy < 1 else 1.0
