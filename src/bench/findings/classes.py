"""Each class of requests at each load in one line: how many, how long they are, their latencies against their limits, their rates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from bench.parse.windows import level_values
from bench.report.blocks import Column, Section, Table, Text, cell_of_latency
from bench.runs.latencies import LATENCIES, class_column, class_names
from bench.study.slo import Slo

if TYPE_CHECKING:
    from bench.findings.view import View

_USUAL = "p95"  # percentile of a latency that nothing limits
_MEANS = {
    "prompt_tokens": "prompt_tokens",
    "output_tokens": "output_tokens",
    "requests_per_s": "throughput_requests_per_s",
    "tokens_per_s": "throughput_tokens_per_s",
}


def class_rows(runs: pl.DataFrame, slos: Sequence[Slo]) -> list[dict[str, Any]]:
    """The classes of each deployment and workload at each level, ascending; none where no workload has classes.

    Args:
        runs: rows of the summary. slos: of the decision.

    Returns:
        Of each `deployment`, `workload`, `family`, `axis`, `level` and `name`: `requests`, the judged ones of the valid runs, and how
        many of them `failed`; `latencies`, of TTFT, TPOT and E2E, and TTFO if it is limited, the percentile that is limited, else
        P95: its name, its value (s; as in `level_values`), and whether it is within the limit, None without one; the means of the
        valid runs `prompt_tokens`, `output_tokens`, `requests_per_s` and `tokens_per_s`.
    """
    found = []
    keys = ("deployment", "workload", "family", "axis", "level")
    valid = runs.filter(pl.col("valid") & pl.col("classes").is_not_null()).sort(keys)
    for key, group in valid.group_by(keys, maintain_order=True):
        judged = [each for run in group["judged"].to_list() for each in run or ()]
        for name in class_names(group["classes"][0]):
            mine = [each for each in judged if each["request_class"] == name]
            limits = {slo.metric: slo for slo in slos if slo.request_class == name}
            shown = [
                limits.get(metric) or Slo(metric, _USUAL, 0.0, name)
                for metric in LATENCIES
                if metric in limits or metric != "ttfo"
            ]
            (values,) = level_values(group, [slo.column for slo in shown]).to_dicts()
            found.append(
                {
                    **dict(zip(keys, key, strict=True)),
                    "name": name,
                    "requests": len(mine),
                    "failed": sum(not each["ok"] for each in mine),
                    "latencies": {
                        slo.metric: (
                            slo.percentile.upper(),
                            value,
                            value <= slo.limit_s if value is not None and slo.limit_s else None,
                        )
                        for slo in shown
                        for value in [values[slo.column]]
                    },
                    **{to: _mean(group, class_column(name, column)) for to, column in _MEANS.items()},
                }
            )
    return found


def _mean(runs: pl.DataFrame, column: str) -> float | None:
    mean = runs[column].mean() if column in runs.columns else None
    return mean if isinstance(mean, float) else None


def section(view: View) -> Section:
    rows = [
        {
            **row,
            **{
                name: cell_of_latency(value, met, name=f"{percentile} ", marked=True)
                for name, (percentile, value, met) in row["latencies"].items()
            },
        }
        for row in view.of_curves(class_rows(view.results.runs, view.results.decision.slos))
    ]
    columns = [
        Column("curve", "curve"),
        Column("load", "load"),
        Column("class", "name"),
        Column("requests", "requests", "%d"),
        Column("failed", "failed", "%d"),
        Column("prompt tokens", "prompt_tokens", "%.0f"),
        Column("output tokens", "output_tokens", "%.0f"),
        *(Column(latency.title, name) for name, latency in LATENCIES.items()),
        Column("requests/s", "requests_per_s", "%.3g"),
        Column("tokens/s", "tokens_per_s", "%.0f"),
    ]
    meaning = (
        "Percentiles cover all judged requests of the class in the level's valid runs; bold: within the class's limit; ✕: beyond it. "
        "The load is that of all classes together."
    )
    return Section(
        "classes", "Classes of requests", [Table("Every class at every level", columns, rows), Text(meaning)] if rows else []
    )
