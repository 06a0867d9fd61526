"""What a figure is drawn from."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from bench.figures.conditions import CROSSED, plain
from bench.published import Accelerator
from bench.records.calibration import Calibration, read_calibration
from bench.records.searches import SearchRecord, read_searches
from bench.study import Decision
from bench.study.search import SLO

if TYPE_CHECKING:
    import polars as pl

    from bench.analysis import Comparison

__all__ = ["Results"]


@dataclass(frozen=True)
class Results:
    """The tables of a study: one row a run, and every run's course over time.

    Attributes:
        whole: the runs of the study that these are a part of; None where they are all.
        decision: what is to be decided from them. device: that they ran on; None where it is not known.
        calibration: the model of each deployment; None where none was made. searches: the deployment of each search, and what it found.
    """

    runs: pl.DataFrame
    timeseries: pl.DataFrame
    whole: pl.DataFrame | None = None
    decision: Decision = field(default_factory=Decision)
    device: Accelerator | None = None
    calibration: Calibration | None = None
    searches: tuple[tuple[str, SearchRecord], ...] = ()

    @classmethod
    def read(
        cls,
        summary: Path,
        timeseries: Path,
        decision: Decision | None = None,
        device: Accelerator | None = None,
        calibration: Path | None = None,
        searches: Sequence[Path] = (),
    ) -> Results:
        """The results in the files that `aggregate`, `calibrate` and searches wrote; steady windows, if any, of loads that go on."""
        import polars as pl  # noqa: PLC0415 - the workflow asks which figures there are without it

        from bench.analysis.windows import of_windows  # noqa: PLC0415 - as above
        from bench.records.summary import read_summary  # noqa: PLC0415 - as above

        runs = of_windows(read_summary(summary))[0]
        models = None if calibration is None else read_calibration(calibration)
        if models is not None:
            models = models.of(runs["deployment"].unique())
        found = tuple((each.deployment, one) for file in searches if (each := read_searches(file)) for one in each.searches)
        return cls(runs, pl.read_parquet(timeseries), None, decision or Decision(), device, models, found)

    def given(self, uses: Collection[str]) -> Results:
        """The same results with no more of the decision than the keys in `uses`; with the device where `accelerator` is one of them,
        with the models where `calibration` is, and with what searches found where `searches` is.
        """
        decision = Decision(**self.decision.model_dump(include=set(uses)))
        device = self.device if "accelerator" in uses else None
        calibration = self.calibration if "calibration" in uses else None
        searches = self.searches if "searches" in uses else ()
        return replace(self, decision=decision, device=device, calibration=calibration, searches=searches)

    @property
    def axis(self) -> str:
        """What the load of these runs is counted in: `concurrency`, `request_rate` or `time_scale`."""
        return str(self.runs["axis"][0])

    def by_axis(self) -> list[Results]:
        """The results of each axis, so that no figure has two kinds of load on one of its axes.

        Without the runs whose load is but a level, and their question another (`conditions.plain`), unless there are no others.
        """
        shown = self.runs if self.plain.is_empty() else self.plain
        return [
            replace(
                self,
                runs=runs,
                timeseries=self.timeseries.join(runs.select("deployment", "run"), on=["deployment", "run"], how="semi"),
                whole=self.runs,
            )
            for runs in shown.partition_by("axis", maintain_order=True)
        ]

    @cached_property
    def saturation(self) -> pl.DataFrame:
        """One row a deployment and workload: measured and predicted saturation."""
        from bench.analysis import saturation  # noqa: PLC0415 - as above

        return saturation(self.runs)

    @cached_property
    def plain(self) -> pl.DataFrame:
        """The runs whose load is what is asked about, as `conditions.plain` has them."""
        curve = ("deployment", "workload")
        rows = plain(self.runs.select(*curve, "family", "arrival", *CROSSED, "model", "tensor_parallel").to_dicts())
        kept = {tuple(row[key] for key in curve) for row in rows}
        return self.runs.filter([at in kept for at in self.runs.select(curve).iter_rows()])

    @cached_property
    def curves(self) -> pl.DataFrame:
        """The runs from which an instance's capacity may be read: those of `plain` at two loads or more."""
        import polars as pl  # noqa: PLC0415 - as above

        return self.plain.filter(pl.col("level").n_unique().over("deployment", "workload") > 1)

    @cached_property
    def points(self) -> pl.DataFrame:
        """One row a curve: `C_max` under the decision's SLOs, and what is carried there; no rows without any."""
        from bench.analysis import operating_points  # noqa: PLC0415 - as above

        runs = self.curves if self.decision.slo else self.curves.clear()
        return operating_points(runs, self.decision.slos, self.decision.failed_share)

    @cached_property
    def limits(self) -> dict[tuple[str, str], SearchRecord]:
        """By deployment and workload, what a search for just the decision's SLOs found."""
        slos = tuple(map(str, self.decision.slos))
        return {(name, found.workload): found for name, found in self.searches if found.target == SLO and found.slos == slos}

    @cached_property
    def priced(self) -> pl.DataFrame:
        """The runs with what their load would cost and earn an hour."""
        from bench.analysis import Prices, economics  # noqa: PLC0415 - as above

        return economics(self.runs, Prices.of(self.decision, self.device))

    @cached_property
    def comparisons(self) -> dict[str, Comparison]:
        """Each deployment that shares a load with the study's baseline, compared with it, over all that the study measured."""
        from bench.analysis import compare_with_baseline  # noqa: PLC0415 - as above

        return compare_with_baseline(self.study)

    @cached_property
    def whole_runs(self) -> pl.DataFrame:
        """The valid runs that stand as whole runs on a curve whose other levels are steady windows."""
        from bench.analysis.windows import whole_runs  # noqa: PLC0415 - as above

        return whole_runs(self.runs)

    @cached_property
    def several_workloads(self) -> bool:
        """Whether curves must be told apart by workload as well as by deployment."""
        return self.study["workload"].n_unique() > 1

    @property
    def study(self) -> pl.DataFrame:
        """The runs of the whole study: what its curves are called and coloured by, in each part of a figure."""
        return self.runs if self.whole is None else self.whole
