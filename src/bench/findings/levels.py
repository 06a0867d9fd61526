"""Every level of every curve in one line, and in words those of curves with a single one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from bench.axes import AXES
from bench.errors import count_text
from bench.parse.level_values import level_values
from bench.report.answer import AGAIN, Answer, shortened
from bench.runs.sentences import latency_text, load_text, time_text
from bench.study.slo import Slo
from bench.work import unit_of

_WITHOUT_SLOS = (("ttft", "p50"), ("ttft", "p95"), ("tpot", "p50"), ("e2e", "p50"))


def shown_latencies(slos: Sequence[Slo]) -> list[Slo]:
    """The percentiles of the table: those that the SLOs limit, or usual ones without a limit."""
    return list(slos) or [Slo(metric, at, math.inf) for metric, at in _WITHOUT_SLOS]


def level_rows(runs: pl.DataFrame, slos: Sequence[Slo]) -> list[dict[str, Any]]:
    """The levels of each deployment and workload, ascending.

    Args:
        runs: rows of the summary, of steady windows (`bench.parse.windows`).

    Returns:
        Of each level `deployment`, `workload`, `family`, `axis`, `level`, `work`, `turns`, `runs` and `valid` (their numbers);
        `latencies`, of each of `shown_latencies` the value (s) and whether it is within its limit; `requests_per_s`,
        `tokens_per_s`, `best_second` (most tokens in a second) and `kv_usage_peak`. All values are those of `level_values`, None
        where one is not known.
    """
    shown = shown_latencies(slos)
    numbers = ("throughput_requests_per_s", "throughput_tokens_per_s", "throughput_peak_tokens_per_s", "kv_usage_peak")
    at = ("deployment", "workload", "axis", "level")
    values = {
        tuple(row[key] for key in at): row
        for row in level_values(runs, [*numbers, *(slo.column for slo in shown)]).iter_rows(named=True)
    }
    found = []
    keys = ("deployment", "workload", "family", "axis", "level")
    order = ["deployment", "family", *(name for name in ("prompt_fixed", "output_fixed") if name in runs.columns), *keys]
    for key, group in runs.sort(list(dict.fromkeys(order)), nulls_last=True).group_by(keys, maintain_order=True):
        place = dict(zip(keys, key, strict=True))
        value = values.get(tuple(place[name] for name in at), {})
        latencies = [value.get(slo.column) for slo in shown]
        found.append(
            {
                **place,
                "work": group["work"].first() if "work" in group.columns else None,
                "turns": group["turns"].max() if "turns" in group.columns else None,
                "runs": len(group),
                "valid": len(group.filter("valid")),
                "latencies": [
                    (each, each is not None and each <= slo.limit_s) for each, slo in zip(latencies, shown, strict=True)
                ],
                "requests_per_s": value.get("throughput_requests_per_s"),
                "tokens_per_s": value.get("throughput_tokens_per_s"),
                "best_second": value.get("throughput_peak_tokens_per_s"),
                "kv_usage_peak": value.get("kv_usage_peak"),
            }
        )
    return found


_WORKER = ("deployment", "workload", "family", "axis", "turns", "level")
_MEANS = ("running_mean", "waiting_mean", "kv_usage_mean", "prefix_hit_rate")


def worker_rows(runs: pl.DataFrame) -> list[dict[str, Any]]:
    """Each worker of a fleet at each level; none where there is a single one, which had all of the load.

    The shares of requests and of output tokens (0–1) that it had of its level's runs, the highest KV usage, and the means over runs of
    the other columns; null where no run has a value. Args: runs: rows of the summary with `workers`.
    """
    table = runs.select(*_WORKER, pl.col("workers")).explode("workers").unnest("workers")
    if table["worker"].n_unique() < 2:
        return []
    alike, counted = (*_WORKER, "role"), ("requests", "generation_tokens")
    each = table.group_by(*alike, "worker", maintain_order=True).agg(
        pl.col(counted).sum(),
        *(pl.col(name).null_count().alias(f"{name}_lacking") for name in counted),
        pl.col("kv_usage_peak").max(),
        pl.col(_MEANS).mean(),
        pl.col("version").first(),
    )
    shares = [
        pl.when(pl.col(f"{name}_lacking").sum().over(alike) == 0, pl.col(name).sum().over(alike) > 0)
        .then(pl.col(name) / pl.col(name).sum().over(alike))
        .alias(f"{name}_share")
        for name in counted
    ]
    return each.with_columns(shares).sort("workload", "axis", "level", maintain_order=True).to_dicts()


Row = Mapping[str, Any]


def answer(levels: Sequence[Row], shown: Sequence[Slo]) -> Answer:
    """What workloads with a single load show, by the numbers of the report's table of levels.

    Args:
        levels: rows of `bench.findings.levels.level_rows`. shown: whose percentiles their `latencies` are.
    """
    invalid = [level for level in levels if level["valid"] < level["runs"]]
    return Answer(
        name="alone",
        question="What do workloads that were measured at one load show?",
        lines=shortened([_line(level, shown) for level in levels]),
        sure=("One load shows neither a limit nor what more load would bring.",),
        do=(*([AGAIN] if invalid else []), "Measure two levels or more of a workload to learn what an instance sustains."),
    )


def _line(level: Row, shown: Sequence[Slo]) -> str:
    name = f"{level['deployment']} · {level['workload']}, {load_text(level['level'], AXES[level['axis']].unit)}"
    if not level["valid"]:
        return f"{name}: not known, {'the run is' if level['runs'] == 1 else 'all runs are'} invalid."
    found = [] if level["tokens_per_s"] is None else [f"{level['tokens_per_s']:,.3g} {unit_of([level['work']])}/s"]
    found += [
        f"{slo.metric.upper()} {slo.percentile.upper()} {latency_text(value)}{_beside_limit(slo, within=within)}"
        for slo, (value, within) in zip(shown, level["latencies"], strict=True)
        if value is not None
    ]
    if level["runs"] > 1:
        name += f" ({level['valid']} of {count_text(level['runs'], 'run')})"
    return f"{name}: {', '.join(found) or 'nothing was measured'}."


def _beside_limit(slo: Slo, *, within: bool) -> str:
    return "" if math.isinf(slo.limit_s) else f" ({'within' if within else 'misses'} its limit, {time_text(slo.limit_s)})"
