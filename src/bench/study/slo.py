"""A service-level objective: a limit on a percentile of a latency."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from bench.errors import BenchError, three_digits
from bench.runs.latencies import LATENCIES, PERCENTILES, class_column

_UNITS = {"s": 1.0, "ms": 1e-3}  # seconds of a unit; derived
_CLASS = r"[a-z0-9][a-z0-9.-]*"  # as names of a configuration are
_COLUMN = rf"(?:class_({_CLASS})_)?({'|'.join(LATENCIES)})_({'|'.join(PERCENTILES)})_s"
_SLO = rf"(?:({_CLASS})\.)?({'|'.join(LATENCIES)})[_ ]({'|'.join(PERCENTILES)})\s*(?:=|<=|≤)\s*(\d+(?:\.\d+)?)\s*(s|ms)"


@dataclass(frozen=True)
class Slo:
    """A limit on a percentile of a latency.

    Attributes:
        metric: a name in `LATENCIES`. percentile: one of `PERCENTILES`. limit_s: seconds.
        request_class: whose requests it limits; None: those of all.
    """

    metric: str
    percentile: str
    limit_s: float
    request_class: str | None = None

    @classmethod
    def named(cls, column: str, limit_s: float = math.inf) -> Slo | None:
        """The SLO with this `column`; None where that is no percentile of a latency."""
        match = re.fullmatch(_COLUMN, column)
        return cls(match[2], match[3], limit_s, match[1]) if match else None

    @classmethod
    def of_column(cls, column: str, limit_s: float) -> Slo:
        slo = cls.named(column, limit_s)
        assert slo is not None
        return slo

    @property
    def column(self) -> str:
        """The summary's column."""
        return class_column(self.request_class, f"{self.metric}_{self.percentile}_s")

    @property
    def share(self) -> float:
        """Share of the requests that have to be within the limit (0–1)."""
        return int(self.percentile[1:]) / 100

    @property
    def bound(self) -> str:
        """The column of the upper bound that the true percentile does not exceed at 99 % confidence."""
        return class_column(self.request_class, f"{self.metric}_{self.percentile}_bound_s")

    @property
    def name(self) -> str:
        """Without the limit, such as `TTFT P99`, or `TTFT P99 of chat`."""
        of_class = f" of {self.request_class}" if self.request_class else ""
        return f"{LATENCIES[self.metric].title} {self.percentile.upper()}{of_class}"

    @property
    def unit(self) -> str:
        """The unit in which its limit is printed."""
        return "s" if self.limit_s >= 1 else "ms"

    def __str__(self) -> str:
        return f"{self.name} ≤ {self.limit_s / _UNITS[self.unit]:g} {self.unit}"


def time_text(seconds: float, unit: str) -> str:
    """A time in the unit of an SLO, such as `11.1 ms`."""
    return f"{three_digits(seconds / _UNITS[unit])} {unit}"


def parse_slo(text: str) -> Slo:
    """An SLO from `ttft_p99=2s` or `tpot_p95=50ms`; of one class of a workload's requests from `chat.ttft_p99=2s`. One
    of all requests is also read as it is printed, `TTFT P99 ≤ 2 s`.

    Raises:
        BenchError: it is not one.
    """
    match = re.fullmatch(_SLO, text.strip().lower())
    if match is None or not 0 < float(match[4]) < 1e6:
        raise BenchError(
            f"{text[:40]!r} is not an SLO. Write a latency ({', '.join(LATENCIES)}), a percentile ({', '.join(PERCENTILES)}) and a "
            "limit with its unit (s, ms), as in ttft_p99=2s or tpot_p95=50ms; for a class of requests chat.ttft_p99=2s."
        )
    return Slo(match[2], match[3], float(match[4]) * _UNITS[match[5]], match[1])


def applying(slos: Iterable[Slo], classes: Collection[str]) -> list[Slo]:
    """The SLOs that limit a load: those of all requests, and those of the classes that it has."""
    return [slo for slo in slos if slo.request_class is None or slo.request_class in classes]
