"""Requests whose rate changes over a day."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from bench.errors import BenchError
from bench.workloads.schedule import PlannedRequest, schedule
from bench.workloads.workload import Workload

_BETWEEN = 33  # points between two moments, between which the rate is a straight line and its sum is none; convention


@dataclass(frozen=True)
class Traffic:
    """A rate over time.

    Attributes:
        moments: rising from 0 (s). rates: requests/s (conversations/s) at each; straight lines between them.
    """

    moments: tuple[float, ...]
    rates: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """Time until the last moment."""
        return self.moments[-1]

    @property
    def peak(self) -> float:
        """Highest rate."""
        return max(self.rates)

    @property
    def requests(self) -> float:
        """Requests that are expected in all."""
        return float(np.trapezoid(self.rates, self.moments))

    def highest(self, begin_s: float, end_s: float) -> float:
        """Highest rate between two moments (s)."""
        ends = np.interp([begin_s, min(end_s, self.seconds)], self.moments, self.rates)
        return max([*map(float, ends), *(r for m, r in zip(self.moments, self.rates, strict=True) if begin_s <= m <= end_s)])

    def scaled(self, share: float) -> Traffic:
        """A share of this traffic (0–1)."""
        return Traffic(self.moments, tuple(share * rate for rate in self.rates))

    def plans(self, workload: Workload, seed: str) -> list[PlannedRequest]:
        """Its requests: as many as are expected, with the workload's lengths, turns and gaps; their pattern is bent by the rate.

        Source: time rescaling of a point process (Daley and Vere-Jones, An Introduction to the Theory of Point Processes, 7.4).
        """
        count = max(1, round(self.requests))
        workload = workload.model_copy(update={"num_requests": count, "duration_s": None, "step": None})
        fine = np.unique(np.concatenate([np.linspace(*ends, _BETWEEN) for ends in pairwise(self.moments)]))
        rates = np.interp(fine, self.moments, self.rates)
        so_far = np.concatenate([[0.0], np.cumsum((rates[1:] + rates[:-1]) / 2 * np.diff(fine))])
        plans = schedule(workload, 1.0, seed)
        due = iter(np.interp([plan.due_s for plan in plans if plan.due_s is not None], so_far, fine).tolist())
        return [plan if plan.due_s is None else replace(plan, due_s=next(due)) for plan in plans]


def read_traffic(file: Path) -> Traffic:
    """Read a CSV file with the columns `seconds` and `requests_per_s`; its first moment is 0.

    Raises:
        BenchError: it cannot be read, or has no two moments in their order.
    """
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            rows = [(float(row["seconds"]), float(row["requests_per_s"])) for row in csv.DictReader(lines)]
    except FileNotFoundError:
        raise BenchError(f"{file}: no such file.") from None
    except (KeyError, TypeError, ValueError) as error:
        raise BenchError(f"{file}: not a CSV file of numbers with the columns seconds and requests_per_s ({error}).") from None
    moments, rates = zip(*rows, strict=True) if rows else ((0.0,), (0.0,))
    rising = len(rows) >= 2 and all(a < b for a, b in pairwise(moments)) and math.isfinite(moments[-1])
    if not (rising and max(rates) and all(0 <= rate < math.inf for rate in rates)):
        raise BenchError(f"{file}: needs two rows or more with rising seconds, and rates of 0 or more, not all 0.")
    return Traffic(tuple(moment - moments[0] for moment in moments), tuple(rates))
