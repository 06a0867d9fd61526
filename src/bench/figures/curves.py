"""The curves of a study, as the figures and the report call them. The report draws nothing, so altair is not imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from bench.figures.tables import Tables


def with_curve(results: Tables, frame: pl.DataFrame) -> pl.DataFrame:
    """Add `curve`, what a line is called, and `curve_size` and `curve_width`, by which curves in one place still show.

    A curve is a deployment, with its workload where the study has several. Points shrink and lines grow thinner from curve to curve.
    """
    order = curve_column(results)
    steps = {curve: i / max(1, len(order) - 1) for i, curve in enumerate(order)}
    step = pl.col("curve").replace_strict(steps, return_dtype=pl.Float64) if steps else pl.lit(0.0)
    return named(results, frame).with_columns(curve_size=130 - 90 * step, curve_width=4 - 2.5 * step)


def curve_column(results: Tables) -> list[str]:
    """The curves in the order of legends and panels."""
    return in_order(results, named(results, results.runs))["curve"].unique(maintain_order=True).to_list()


def in_order(results: Tables, table: pl.DataFrame) -> pl.DataFrame:
    """Rows of curves by workload, and of each workload by deployment, both in the study's order: as legends have them."""
    order = {key: results.study[key].unique(maintain_order=True).to_list() for key in ("workload", "deployment")}
    places = [pl.col(key).replace_strict(names, range(len(names)), return_dtype=pl.Int64) for key, names in order.items()]
    return table.sort(places, maintain_order=True)


def lacking(results: Tables, column: str) -> dict[str, list[float]]:
    """By curve, the levels of which no run has a value in `column`; empty where no run at all has one, as no panel shows it then."""
    if column not in results.runs.columns or results.runs[column].null_count() == results.runs.height:
        return {}
    levels = named(results, results.runs).group_by("curve", "level").agg(pl.col(column).is_null().all())
    found = levels.filter(column).group_by("curve").agg(pl.col("level").sort())
    levels_of = dict(found.select("curve", "level").iter_rows())
    return {curve: levels_of[curve] for curve in curve_column(results) if curve in levels_of}


def named(results: Tables, frame: pl.DataFrame) -> pl.DataFrame:
    """Add `curve` alone."""
    name = pl.format("{} · {}", "deployment", "workload") if results.several_workloads else pl.col("deployment")
    return frame.with_columns(curve=name)
