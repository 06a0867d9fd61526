"""A study as its report shows it: what several sections need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import polars as pl

from bench.findings.answers import answers
from bench.findings.capacity.curves import Curve, curves_of, limits_text
from bench.findings.tables import Tables
from bench.report.blocks import Answer, cell_of_load
from bench.runs.deployment import DeploymentFacts
from bench.study.config import Thresholds


@dataclass(frozen=True)
class View:
    """A study as its report shows it.

    Attributes:
        facts: of its deployments. thresholds: by which validity was judged. figures: as `read_figure`
            gives them, in the order of the page. commit: of the sources that draw it.
    """

    results: Tables
    facts: Sequence[DeploymentFacts] = ()
    thresholds: Thresholds = field(default_factory=Thresholds)
    figures: Sequence[Mapping[str, Any]] = ()
    commit: str | None = None

    @cached_property
    def runs(self) -> pl.DataFrame:
        return self.results.runs.sort("deployment", "workload", "level", "repeat", maintain_order=True)

    @cached_property
    def invalid(self) -> pl.DataFrame:
        """The runs of which some part cannot be trusted."""
        return self.runs.filter(~(pl.col("valid") & pl.col("counts_valid")))

    @cached_property
    def curves(self) -> list[Curve]:
        return curves_of(self.results)

    @cached_property
    def judged(self) -> list[Curve]:
        """Those of which it is known what they sustain, or why not."""
        return [curve for curve in self.curves if curve.point]

    @cached_property
    def answers(self) -> list[Answer]:
        return answers(self.results, self.curves)

    @cached_property
    def within(self) -> str:
        """The limits that judge any curve, in words; empty without any."""
        return limits_text(curve.slos for curve in self.curves if curve.point or curve.slos)

    @cached_property
    def families(self) -> dict[str, str]:
        """Of each workload its family."""
        return dict(self.runs.select("workload", "family").iter_rows())

    def of_curves(self, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Rows of curves with their `family` and `curve`, their name; of levels with their `load`, too."""
        return [
            {"family": self.families[row["workload"]], "curve": f"{row['deployment']} · {row['workload']}"}
            | ({"load": cell_of_load(row)} if "level" in row else {})
            | dict(row)
            for row in rows
        ]
