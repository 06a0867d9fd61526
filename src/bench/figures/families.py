"""Factor figures: one part a family of swept lengths, as two families are two studies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import altair as alt
import polars as pl

from bench.analysis.decisive import crossed
from bench.analysis.factors import with_metrics
from bench.figures.results import Results
from bench.figures.theme import nothing_to_show


def by_family(results: Results, draw: Callable[[pl.DataFrame], alt.TopLevelMixin]) -> alt.TopLevelMixin:
    """`draw` of the runs of each family that crosses load, lengths and settings: below one another, named where there are several.

    Args:
        results: `runs` as `with_metrics` takes them. draw: takes rows of it.
    """
    valid = results.runs.filter("valid")
    families = with_metrics(valid.filter(crossed(valid))).partition_by("family", maintain_order=True)
    if not families:
        return nothing_to_show("no family of workloads in whose valid runs two of load, lengths and settings vary")
    charts = [draw(family) for family in families]
    if len(charts) == 1:
        return charts[0]
    named: list[Any] = [
        chart.properties(title=alt.TitleParams(family["family"][0], fontSize=14, anchor="start"))
        for chart, family in zip(charts, families, strict=True)
    ]
    whole: alt.VConcatChart = alt.vconcat(*named).resolve_scale(color="independent")
    return whole
