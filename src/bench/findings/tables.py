"""What a figure is drawn from."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from bench.models.catalogue import Accelerator
from bench.parse.windows import of_windows
from bench.predict.calibration import Calibration, ModelRecord
from bench.runs.files import read, read_known
from bench.runs.grades import why_ungraded
from bench.runs.latencies import class_names
from bench.runs.searches import SearchRecord, TuningRecord, found_in
from bench.runs.summary import read_summary
from bench.study.decision import Decision
from bench.study.slo import applying
from bench.workloads.endpoints.kind import unit_of

if TYPE_CHECKING:
    from bench.findings.analysis import Analysis
    from bench.findings.comparison.compare import Comparison


@dataclass(frozen=True)
class Tables:
    """The tables of a study: one row a run, and every run's course over time.

    Attributes:
        whole: the runs of the study that these are a part of; None where they are all.
        decision: what is to be decided from them. device: that they ran on; None where it is not known.
        calibration: the model of each deployment; None where none was made. searches: the deployment of each search, and what it found.
        analysed: what they show, where it was written before; else None. grades: of answers to a graded set; None without one.
        ungraded: why nothing could be graded. tuning: which of the servers that compete is best; None without one.
    """

    runs: pl.DataFrame
    timeseries: pl.DataFrame
    whole: pl.DataFrame | None = None
    decision: Decision = field(default_factory=Decision)
    device: Accelerator | None = None
    calibration: Calibration | None = None
    searches: tuple[tuple[str, SearchRecord], ...] = ()
    analysed: Analysis | None = None
    grades: pl.DataFrame | None = None
    ungraded: str | None = None
    tuning: TuningRecord | None = None

    @classmethod
    def read(
        cls,
        summary: Path,
        timeseries: Path,
        decision: Decision | None = None,
        device: Accelerator | None = None,
        calibration: Path | None = None,
        searches: Sequence[Path] = (),
        analysis: Path | None = None,
        grades: Path | None = None,
        tuning: Path | None = None,
    ) -> Tables:
        """The results in the files that `aggregate`, `calibrate`, searches, `analyse` and `grade` wrote; steady windows, if any, of
        loads that go on.

        Args:
            analysis: the folder with the tables of the analysis; None analyses these runs.
        """
        from bench.findings.analysis import read_analysis  # noqa: PLC0415 - it imports what charts are drawn from

        runs = of_windows(read_summary(summary))[0]
        models = read_known(Calibration, calibration) if calibration else None
        return cls(
            runs,
            pl.read_parquet(timeseries),
            decision=decision or Decision(),
            device=device,
            calibration=models and models.of(runs["deployment"].unique()),
            searches=found_in(searches),
            analysed=read_analysis(analysis) if analysis else None,
            grades=pl.read_parquet(grades) if grades else None,
            ungraded=why_ungraded(grades) if grades else None,
            tuning=read(TuningRecord, tuning) if tuning else None,
        )

    def given(self, uses: Collection[str]) -> Tables:
        """The same results with no more than `uses` says, as `bench.findings.registry.FIGURES` has it."""
        return Tables(
            self.runs,
            self.timeseries,
            self.whole,
            decision=Decision(**self.decision.model_dump(include=set(uses))),
            device=self.device if "accelerator" in uses else None,
            calibration=self.calibration if "calibration" in uses else None,
            analysed=self.analysis,
        )

    @property
    def models(self) -> tuple[ModelRecord, ...]:
        """What predicts loads that nobody measured, of each deployment; none where nothing was calibrated."""
        return self.calibration.models if self.calibration else ()

    @property
    def axis(self) -> str:
        """What the load of these runs is counted in: a name in `bench.axes`."""
        return str(self.runs["axis"][0])

    @property
    def tokens_per_s(self) -> str:
        """What the throughput of these runs counts, as an axis has it."""
        return f"{unit_of(self.runs['work'] if 'work' in self.runs.columns else [None])}/s"

    @property
    def counted(self) -> str:
        """What the throughput of these runs counts, such as `tokens`."""
        return self.tokens_per_s.removesuffix("/s")

    def of(self, deployment: str) -> Tables:
        """The results of one deployment."""
        return replace(
            self, runs=self.runs.filter(deployment=deployment), timeseries=self.timeseries.filter(deployment=deployment)
        )

    def by_axis(self) -> list[Tables]:
        """The results of each axis, so that no figure has two kinds of load on one of its axes.

        Length sweeps are left out (`questions.plain`) unless the study has nothing else.
        """
        shown = self.runs if self.plain.is_empty() else self.plain
        return [
            replace(
                self,
                runs=runs,
                timeseries=self.timeseries.join(runs.select("deployment", "run"), on=["deployment", "run"], how="semi"),
                whole=self.runs,
                analysed=self.analysis,
            )
            for runs in shown.partition_by("axis", maintain_order=True)
        ]

    @cached_property
    def analysis(self) -> Analysis:
        """What the runs of the whole study show."""
        from bench.findings.analysis import Analysis  # noqa: PLC0415 - as above

        return self.analysed or Analysis(self.study, self.decision, self.device)

    def of_curves(self, table: pl.DataFrame) -> pl.DataFrame:
        """The rows of these runs' curves, of a table with `deployment` and `workload`."""
        return table.join(self.runs, on=["deployment", "workload"], how="semi", maintain_order="left")

    @cached_property
    def saturation(self) -> pl.DataFrame:
        """One row a deployment and workload: measured and predicted saturation, and the turning points of the mean throughput."""
        return self.of_curves(self.analysis.saturation)

    @cached_property
    def plain(self) -> pl.DataFrame:
        """The runs whose load is what is asked about."""
        from bench.findings.analysis import plain_of  # noqa: PLC0415 - as above

        return plain_of(self.runs)

    @cached_property
    def curves(self) -> pl.DataFrame:
        """The runs from which an instance's capacity may be read: those of `plain` at two loads or more."""
        from bench.findings.analysis import curves_of  # noqa: PLC0415 - as above

        return curves_of(self.runs)

    @cached_property
    def capacity(self) -> pl.DataFrame:
        """One row a curve of `curves`: `C_max`, and the rate there; without SLOs, of open loops alone."""
        return self.analysis.capacity.join(self.curves, on=["deployment", "workload"], how="semi", maintain_order="left")

    @property
    def points(self) -> pl.DataFrame:
        """The rows of `capacity` under the decision's SLOs; none without any."""
        return self.capacity.filter(self.capacity["slos"].list.len() > 0)

    @cached_property
    def limits(self) -> dict[tuple[str, str], SearchRecord]:
        """By deployment and workload, what a search for just the decision's SLOs found."""
        classes = dict(self.runs.select("workload", "classes").unique().iter_rows())
        return {
            (name, found.workload): found
            for name, found in self.searches
            if found.slos == tuple(map(str, applying(self.decision.slos, class_names(classes.get(found.workload)))))
        }

    @cached_property
    def priced(self) -> pl.DataFrame:
        """The runs with what their load would cost and earn an hour."""
        from bench.findings.economics import economics  # noqa: PLC0415 - as above

        return economics(self.runs, self.decision, self.device)

    @property
    def priced_curves(self) -> pl.DataFrame:
        """Those of `priced` from which an instance's capacity may be read."""
        return self.priced.join(self.curves, on=["deployment", "run"], how="semi", maintain_order="left")

    @property
    def comparisons(self) -> dict[str, Comparison]:
        """Each deployment that shares a load with the study's baseline, compared with it, over all that the study measured."""
        return self.analysis.comparisons

    @cached_property
    def several_workloads(self) -> bool:
        """Whether curves must be told apart by workload as well as by deployment."""
        return self.study["workload"].n_unique() > 1

    @property
    def study(self) -> pl.DataFrame:
        """The runs of the whole study: what its curves are called and coloured by, in each part of a figure."""
        return self.runs if self.whole is None else self.whole
