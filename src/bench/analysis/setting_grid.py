"""Throughput with each combination of two settings, against that with the first of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from bench.analysis.compare import compare
from bench.analysis.setting_gain import rank
from bench.axes import HELD
from bench.study.settings import crossed_settings, value_text, varying_settings

_METRIC = "throughput_tokens_per_s"


@dataclass(frozen=True)
class SettingGrid:
    """The deployments of a model, an engine and a load by two settings.

    Attributes:
        settings: columns of the two. others: of each, the settings that change exactly when it does. fixed: what else the study varies,
            with the value that all of these have (column, text).
        values: of each setting, as texts: the default first, numbers by size.
        first: the deployment with which the others are compared: the study's baseline, or the one with the first values.
        cells: one row a combination that was measured: `deployment`, `one`, `other` (values as texts), `ratio` (output tokens/s ÷
            those of `first`, the geometric mean over the loads that both have; null where no pair of runs is valid), `low`, `high` (of
            a family of intervals that all hold at 95 %; null where the noise is not known), `verdict` (`first`, `better`, `worse`,
            `no evidence`, or `unknown` where nothing was compared) and `levels`, how many loads were compared.
    """

    model: str
    engine: str | None
    workload: str
    settings: tuple[str, str]
    others: tuple[tuple[str, ...], tuple[str, ...]]
    fixed: tuple[tuple[str, str], ...]
    values: tuple[tuple[str, ...], tuple[str, ...]]
    first: str
    cells: pl.DataFrame


def setting_grids(runs: pl.DataFrame) -> list[SettingGrid]:
    """Every two settings that were each measured with several values of the other, all else alike.

    Of open loops there are none: their throughput is the load that they offer.

    Args:
        runs: summary rows of workloads whose load is what is asked about, as `setting_gains` takes them.
    """
    found = []
    held = runs.filter(pl.col("axis").is_in(HELD))
    for _, group in held.group_by("model", "engine", "workload", "axis", maintain_order=True):
        rows = [side.row(0, named=True) for side in group.partition_by("deployment", maintain_order=True)]
        groups = varying_settings(rows)
        for one, other, alike in crossed_settings(rows):
            part = group.filter(pl.col("deployment").is_in([row["deployment"] for row in alike]))
            fixed = tuple((name, value_text(name, alike[0][name])) for name in groups if name not in (one, other))
            found.append(_grid(part, alike, (one, other), (groups[one], groups[other]), fixed))
    return found


def _grid(
    runs: pl.DataFrame,
    rows: Sequence[Mapping[str, Any]],
    settings: tuple[str, str],
    others: tuple[tuple[str, ...], tuple[str, ...]],
    fixed: tuple[tuple[str, str], ...],
) -> SettingGrid:
    one, other = settings
    ordered = sorted(rows, key=lambda row: (not row["baseline"], rank(row[one]), rank(row[other])))
    first = ordered[0]["deployment"]
    judged = _judged(runs, first)
    cells = pl.DataFrame(
        [
            {"deployment": row["deployment"], "one": value_text(one, row[one]), "other": value_text(other, row[other])}
            for row in rows
        ]
    ).join(judged, on="deployment", how="left", maintain_order="left")
    is_first = pl.col("deployment") == first
    values = [
        tuple(dict.fromkeys(value_text(name, value) for value in sorted((row[name] for row in rows), key=rank)))
        for name in settings
    ]
    row = ordered[0]
    return SettingGrid(
        model=row["model"],
        engine=row["engine"],
        workload=row["workload"],
        settings=settings,
        others=others,
        fixed=fixed,
        values=(values[0], values[1]),
        first=first,
        cells=cells.with_columns(
            ratio=pl.when(is_first).then(1.0).otherwise("ratio"),
            verdict=pl.when(is_first).then(pl.lit("first")).otherwise(pl.col("verdict").fill_null("unknown")),
        ),
    )


def _judged(runs: pl.DataFrame, first: str) -> pl.DataFrame:
    """Each deployment against the first, all in one family of verdicts: `deployment`, `ratio`, `low`, `high`, `verdict`, `levels`."""
    baseline, candidates = runs.filter(pl.col("deployment") == first), runs.filter(pl.col("deployment") != first)
    names = candidates["deployment"].unique(maintain_order=True)
    # The first once for each other one, under its name: by that they are matched.
    copies = pl.concat([baseline.with_columns(deployment=pl.lit(name)) for name in names])
    overall = compare(copies, candidates, [_METRIC]).overall
    return overall.select("deployment", "ratio", "low", "high", "levels", verdict="pooled")
