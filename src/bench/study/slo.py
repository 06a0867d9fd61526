"""A service-level objective: a limit on a percentile of a latency."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bench.errors import BenchError
from bench.records.latencies import LATENCIES, PERCENTILES

__all__ = ["Slo", "parse_slo"]

_UNITS = {"s": 1.0, "ms": 1e-3}  # seconds of a unit; derived
_SLO = rf"({'|'.join(LATENCIES)})_({'|'.join(PERCENTILES)})\s*(?:=|<=|≤)\s*(\d+(?:\.\d+)?)\s*(s|ms)"


@dataclass(frozen=True)
class Slo:
    """A limit on a percentile of a latency.

    Attributes:
        metric: a name in `LATENCIES`. percentile: one of `PERCENTILES`. limit_s: seconds.
    """

    metric: str
    percentile: str
    limit_s: float

    @classmethod
    def of_column(cls, column: str, limit_s: float) -> Slo:
        """The SLO whose `column` is given."""
        metric, percentile = column.removesuffix("_s").rsplit("_", 1)
        return cls(metric, percentile, limit_s)

    @property
    def column(self) -> str:
        """The summary's column."""
        return f"{self.metric}_{self.percentile}_s"

    @property
    def share(self) -> float:
        """Of the requests, which have to be within the limit (0–1)."""
        return int(self.percentile[1:]) / 100

    @property
    def bound(self) -> str:
        """The column of its bound, which the true percentile does not exceed at 99 % confidence."""
        return f"{self.metric}_{self.percentile}_bound_s"

    @property
    def name(self) -> str:
        """Without the limit, such as `TTFT P99`."""
        return f"{LATENCIES[self.metric].title} {self.percentile.upper()}"

    def __str__(self) -> str:
        limit = f"{self.limit_s:g} s" if self.limit_s >= 1 else f"{1000 * self.limit_s:g} ms"
        return f"{self.name} ≤ {limit}"


def parse_slo(text: str) -> Slo:
    """An SLO from `ttft_p99=2s` or `tpot_p95=50ms`.

    Raises:
        BenchError: it is not one.
    """
    match = re.fullmatch(_SLO, text.strip().lower())
    if match is None or not 0 < float(match[3]) < 1e6:
        raise BenchError(
            f"{text!r} is not an SLO: give {', '.join(LATENCIES)}, one of {', '.join(PERCENTILES)} and a limit in s or ms, "
            "as in ttft_p99=2s or tpot_p95=50ms."
        )
    return Slo(match[1], match[2], float(match[3]) * _UNITS[match[4]])
