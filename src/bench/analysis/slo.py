"""What load meets the SLOs: goodput, C_max with its interval, usable requests/s, and the knee of the tail."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from bench.errors import BenchError

__all__ = ["Slo", "goodput", "operating_points", "parse_slo"]

_METRICS = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E"}
_PERCENTILES = ("p50", "p90", "p95", "p99")
_UNITS = {"s": 1.0, "ms": 1e-3}


@dataclass(frozen=True)
class Slo:
    """A limit on a percentile of a latency.

    Attributes:
        metric: `ttft`, `tpot` or `e2e`. percentile: `p50`, `p90`, `p95` or `p99`. limit_s: seconds.
    """

    metric: str
    percentile: str
    limit_s: float

    @property
    def column(self) -> str:
        """The summary's column."""
        return f"{self.metric}_{self.percentile}_s"

    @property
    def bound(self) -> str:
        """The column of its bound, which the true percentile does not exceed at 99 % confidence."""
        return f"{self.metric}_{self.percentile}_bound_s"

    def __str__(self) -> str:
        limit = f"{self.limit_s:g} s" if self.limit_s >= 1 else f"{1000 * self.limit_s:g} ms"
        return f"{_METRICS[self.metric]} {self.percentile.upper()} ≤ {limit}"


def parse_slo(text: str) -> Slo:
    """An SLO from `ttft_p99=2s` or `tpot_p95=50ms`.

    Raises:
        BenchError: it is not one.
    """
    match = re.fullmatch(r"(ttft|tpot|e2e)_(p50|p90|p95|p99)\s*(?:=|<=)\s*(\d+(?:\.\d+)?)\s*(s|ms)", text.strip().lower())
    if match is None or float(match[3]) == 0:
        raise BenchError(
            f"{text!r} is no SLO: name {', '.join(_METRICS)}, one of {', '.join(_PERCENTILES)} and a limit, as in ttft_p99=2s or tpot_p95=50ms."
        )
    return Slo(match[1], match[2], float(match[3]) * _UNITS[match[4]])


def goodput(requests: pl.DataFrame, slos: Sequence[Slo], duration_s: float) -> float:
    """Requests/s that met every limit, each by itself: a percentile says which share has to, and not which request.

    Args:
        requests: one run's, with `outcome` and the metrics' columns (s); a request that failed met none.
        duration_s: of the run (s).
    """
    met = pl.lit(True)
    for slo in slos:
        met &= pl.col(f"{slo.metric}_s").is_null() | (pl.col(f"{slo.metric}_s") <= slo.limit_s)
    return requests.filter((pl.col("outcome") == "ok") & met).height / duration_s


def operating_points(runs: pl.DataFrame, slos: Sequence[Slo]) -> pl.DataFrame:
    """`C_max` of each curve: the highest load of which neither it nor a lower one misses an SLO, and what is carried there.

    A level meets an SLO where the mean of its valid repeats' percentiles is within the limit. It surely meets it where the bound of
    each repeat is, and surely misses it where its interval (Student's t) is beyond, or, of a single run, the percentile itself. Nothing
    is told of loads between those that were measured: `C_max` lies between `low` and `high`.

    Args:
        runs: summary rows (`deployment`, `workload`, `axis`, `level`, `valid`, `throughput_requests_per_s`, `e2e_mean_s` and the SLOs'
            columns); invalid runs are left out.

    Returns:
        One row a deployment and workload: `kind` (`found`; `above` all levels, `below` all of them; `unknown`: nothing valid), `c_max`
        (the level; null unless found or above), `low` (highest level up to which all surely meet; null where no bound says so), `high`
        (lowest level that misses), `missed` (the SLOs that it misses, in words), and of the runs at `c_max` the means `usable_rps`
        (requests/s), `tokens_per_s`, `latency_s` (E2E, s), `prompt_tokens`, `output_tokens`, `in_flight` (requests).
    """
    rows = []
    for (deployment, workload), group in runs.group_by("deployment", "workload", maintain_order=True):
        levels = [
            _level(level, at, slos)
            for (level,), at in group.filter("valid").sort("level").group_by("level", maintain_order=True)
        ]
        first = next((i for i, told in enumerate(levels) if told["missed"]), len(levels))
        sure = next((i for i, told in enumerate(levels) if not told["sure"]), len(levels))
        kind = "unknown" if not levels else "above" if first == len(levels) else "found" if first else "below"
        point = levels[first - 1] if first else {}
        rows.append(
            {
                "deployment": deployment,
                "workload": workload,
                "axis": group["axis"][0],
                "kind": kind,
                "c_max": point.get("level"),
                "low": levels[min(sure, first) - 1]["level"] if min(sure, first) else None,
                "high": levels[first]["level"] if first < len(levels) else None,
                "missed": ", ".join(levels[first]["missed"]) if first < len(levels) else None,
                **{name: point.get(name) for name in _CARRIED},
            }
        )
    words = dict.fromkeys(("deployment", "workload", "axis", "kind", "missed"), pl.String)
    numbers = dict.fromkeys(("c_max", "low", "high", *_CARRIED), pl.Float64)
    return pl.DataFrame(rows, schema_overrides={**words, **numbers})


_CARRIED = {
    "usable_rps": "throughput_requests_per_s",
    "tokens_per_s": "throughput_tokens_per_s",
    "latency_s": "e2e_mean_s",
    "prompt_tokens": "prompt_tokens",
    "output_tokens": "output_tokens",
    "in_flight": "client_in_flight_mean",
}


def _level(level: float, runs: pl.DataFrame, slos: Sequence[Slo]) -> dict[str, Any]:
    """One level: which SLOs it misses, whether it surely meets all, and what it carries."""
    missed, sure = [], True
    for slo in slos:
        value = runs[slo.column].mean()
        if value is None:
            raise BenchError(
                f"{slo} cannot be judged at {level:g}: no run there has {slo.column}. An answer that is not streamed has no TTFT."
            )
        if value > slo.limit_s:
            missed.append(f"{slo} ({value:.3g} s)")
        bounds = runs[slo.bound]
        sure = sure and bounds.null_count() == 0 and bounds.max() <= slo.limit_s
    carried = {name: runs[column].mean() if column in runs.columns else None for name, column in _CARRIED.items()}
    return {"level": level, "missed": missed, "sure": sure and not missed, **carried}
