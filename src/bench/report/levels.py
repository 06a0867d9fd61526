"""Every level of every curve in one line: the latencies that the SLOs name, its rates, and how many of its runs are valid."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from bench.parse.percentiles import percentile
from bench.study import Slo

__all__ = ["level_rows", "reached", "shown_latencies"]

_WITHOUT_SLOS = (("ttft", "p50"), ("ttft", "p95"), ("tpot", "p50"), ("e2e", "p50"))


def shown_latencies(slos: Sequence[Slo]) -> list[Slo]:
    """The percentiles of the table: those that the SLOs limit, or usual ones without a limit."""
    return list(slos) or [Slo(metric, at, math.inf) for metric, at in _WITHOUT_SLOS]


def level_rows(runs: pl.DataFrame, slos: Sequence[Slo]) -> list[dict[str, Any]]:
    """The levels of each deployment and workload, ascending.

    Args:
        runs: rows of the summary, of steady windows (`bench.analysis.windows`); percentiles are those of all judged requests of a
            level's valid runs together, and a failed request is slower than any limit.

    Returns:
        Of each level `deployment`, `workload`, `family`, `axis`, `level`, `work`, `turns`, `runs` and `valid` (their numbers);
        `latencies`, of each of `shown_latencies` a value (s; infinity where that share of requests failed, None where it is not
        known) and whether it is within its limit; means of the valid runs `requests_per_s` and `tokens_per_s`; the highest
        `kv_usage_peak`.
    """
    found = []
    keys = ("deployment", "workload", "family", "axis", "level")
    order = ["deployment", "family", *(name for name in ("prompt_fixed", "output_fixed") if name in runs.columns), *keys]
    for key, group in runs.sort(list(dict.fromkeys(order)), nulls_last=True).group_by(keys, maintain_order=True):
        valid = group.filter("valid")
        judged = [each for run in valid["judged"].to_list() for each in run or ()]
        latencies = [reached(judged, slo) for slo in shown_latencies(slos)]
        found.append(
            {
                **dict(zip(keys, key, strict=True)),
                "work": group["work"].first() if "work" in group.columns else None,
                "turns": group["turns"].max() if "turns" in group.columns else None,
                "runs": len(group),
                "valid": len(valid),
                "latencies": [
                    (value, value is not None and value <= slo.limit_s)
                    for value, slo in zip(latencies, shown_latencies(slos), strict=True)
                ],
                "requests_per_s": valid["throughput_requests_per_s"].mean(),
                "tokens_per_s": valid["throughput_tokens_per_s"].mean(),
                "kv_usage_peak": valid["kv_usage_peak"].max(),
            }
        )
    return found


def reached(judged: Sequence[Mapping[str, Any]], slo: Slo) -> float | None:
    """The percentile of an SLO, of all requests or of its class (s): infinity where that share of them failed, None without any."""
    mine = [each for each in judged if slo.request_class in (None, each.get("request_class"))]
    values = [each[slo.metric] if each["ok"] else math.inf for each in mine]
    return percentile(pl.Series(values, dtype=pl.Float64), slo.share)
