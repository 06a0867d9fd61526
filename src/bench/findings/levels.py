"""Every level of every curve in one line, and whether loads that were measured alone are within the SLOs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from bench.axes import AXES
from bench.findings.capacity.curves import limits_text
from bench.findings.tables import Tables
from bench.parse.windows import level_values
from bench.report.blocks import Answer, Block, Cell, Column, Section, Table, Text, cell_of_latency, shortened
from bench.runs.latencies import class_names
from bench.runs.sentences import latency_text, load_text
from bench.study.slo import Slo, applying

if TYPE_CHECKING:
    from bench.findings.view import View

_WITHOUT_SLOS = (("ttft", "p50"), ("ttft", "p95"), ("tpot", "p50"), ("e2e", "p50"))


def shown_latencies(slos: Sequence[Slo]) -> list[Slo]:
    """The percentiles of the table: those that the SLOs limit, or usual ones without a limit."""
    return list(slos) or [Slo(metric, at, math.inf) for metric, at in _WITHOUT_SLOS]


def level_rows(runs: pl.DataFrame, slos: Sequence[Slo]) -> list[dict[str, Any]]:
    """The levels of each deployment and workload, ascending.

    Args:
        runs: rows of the summary, of steady windows (`bench.parse.windows`).

    Returns:
        Of each level `deployment`, `workload`, `family`, `axis`, `level`, `turns`, `runs` and `valid` (their numbers);
        `latencies`, of each of `shown_latencies` the value (s) and whether it is within its limit; `requests_per_s`,
        `tokens_per_s`, `kv_usage_peak`, `reasoning_tokens`, `prefix_hit_rate_answers`: values of `level_values`, None where one is not
        known; where no run is valid, of the invalid ones; `others`, the most of the cores' time that other processes took in an invalid
        run (0–1).
    """
    shown = shown_latencies(slos)
    numbers = {"requests_per_s": "throughput_requests_per_s", "tokens_per_s": "throughput_tokens_per_s"}
    numbers |= {name: name for name in ("kv_usage_peak", "reasoning_tokens", "prefix_hit_rate_answers")}
    at = ("deployment", "workload", "axis", "level")
    # Of a level without a valid run those of its invalid ones, which are marked so, and enter nothing else.
    told = runs.with_columns(valid=pl.col("valid") | ~pl.col("valid").any().over(at))
    values = {
        tuple(row[key] for key in at): row
        for row in level_values(told, [*numbers.values(), *(slo.column for slo in shown)]).iter_rows(named=True)
    }
    found = []
    keys = ("deployment", "workload", "family", "axis", "level")
    order = ("deployment", "family", "prompt_fixed", "output_fixed", "workload", "axis", "level")
    for key, group in runs.sort(order, nulls_last=True).group_by(keys, maintain_order=True):
        place = dict(zip(keys, key, strict=True))
        value = values.get(tuple(place[name] for name in at), {})
        latencies = [value.get(slo.column) for slo in shown]
        found.append(
            {
                **place,
                "turns": group["turns"].max(),
                "runs": len(group),
                "valid": len(group.filter("valid")),
                "latencies": [
                    (each, each is not None and each <= slo.limit_s and group["valid"].any())
                    for each, slo in zip(latencies, shown, strict=True)
                ],
                **{to: value.get(name) for to, name in numbers.items()},
                "others": group.filter(~pl.col("valid"))["host_other_share"].max(),
            }
        )
    return found


def reasons(runs: pl.DataFrame) -> bool:
    """Whether some answer began with reasoning. Args: runs: rows of the summary."""
    return bool((runs["reasoning_tokens"].fill_null(0) > 0).any())


def answer(results: Tables) -> Answer:
    """Whether workloads measured at a single load are within the SLOs there; they have no limit. Those of a search have its answer."""
    curve, slos, searched = ["deployment", "workload"], results.decision.slos, results.searches
    told = pl.DataFrame([(name, found.workload) for name, found in searched], dict.fromkeys(curve, pl.String), orient="row")
    left = results.plain.join(results.curves, on=curve, how="anti").join(told, on=curve, how="anti")
    lines = []
    for row in level_rows(left.filter("valid", pl.col("recovered").is_null()), slos) if slos else ():
        found = [
            f"{'meets' if within else 'misses'} {slo} (measured: {latency_text(value)})"
            for slo, (value, within) in zip(slos, row["latencies"], strict=True)
            if value is not None
        ]
        load = load_text(row["level"], AXES[row["axis"]].unit)
        lines += [f"{row['deployment']} · {row['workload']} at {load}: {', '.join(found)}."] if found else []
    return Answer(
        name="alone",
        question="Are workloads that were measured at one load within the SLOs?",
        lines=shortened(lines, where="in the report's table of levels"),
        do=("Measure two loads or more of a workload to learn its limit, which one load does not show.",),
    )


def section(view: View) -> Section:
    results = view.results
    # Of a class that no load has, the table would have dashes alone.
    kinds = results.runs["classes"].unique(maintain_order=True)
    judged = [list(applying(results.decision.slos, class_names(classes))) for classes in kinds]
    shown = shown_latencies([slo for slo in results.decision.slos if any(slo in each for each in judged)])
    if reasons(results.runs) and not any(slo.metric == "ttfo" for slo in shown):
        shown += [Slo("ttfo", at, math.inf) for at in ("p50", "p95")]
    place = ["deployment", "workload", "axis", "level"]
    cost = results.priced.filter("valid").group_by(place).agg(pl.col("cost_per_million_tokens").mean())
    costs = {tuple(at): usd for *at, usd in cost.iter_rows()}
    rows = [
        {
            **row,
            "usd": costs.get(tuple(row[name] for name in place)),
            "curve": row["curve"] if row["valid"] else f"✕ invalid: {row['curve']}",
            "invalid": not row["valid"],
            "valid": Cell(f"{row['valid']} of {row['runs']}", row["valid"]),
            **{name: row[name] or None for name in ("reasoning_tokens", "others")},
            **{
                slo.name: cell_of_latency(value, met and math.isfinite(slo.limit_s))
                for slo, (value, met) in zip(shown, row["latencies"], strict=True)
            },
        }
        for row in view.of_curves(level_rows(results.runs, shown))
    ]
    columns = [
        Column("curve", "curve"),
        Column("load", "load"),
        *(Column(slo.name, slo.name) for slo in shown),
        Column("requests/s", "requests_per_s", "%.3g"),
        Column(results.tokens_per_s.removeprefix("output "), "tokens_per_s", "%.0f"),
        *([Column("peak KV usage", "kv_usage_peak", "%.0f %%", 100)] if results.counted != "prompt tokens" else []),
        Column("reasoning tokens", "reasoning_tokens", "%.0f"),
        Column("hit rate", "prefix_hit_rate_answers", "%.0f %%", 100),
        Column(f"USD a million {results.counted}", "usd", "%.3g"),
        *([] if results.runs["valid"].all() else [Column("valid runs", "valid")]),
        Column("others' work", "others", "%.0f %%", 100),
    ]
    within = limits_text(judged)
    meaning = (
        "Percentiles are of all judged requests of a level's valid runs, those that became steady where some did"
        f"{f'; bold: within its limit ({within})' if within else ''}. Rates are means."
    )
    blocks: list[Block] = [Table("Every level", columns, rows), Text(meaning)] if rows else []
    return Section("levels", "Levels", blocks, short=blocks)
