"""Results as a user opens them: a study's folder, runs that `bench parse` made, or a summary table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from bench.errors import BenchError
from bench.findings.analysis import TABLES, Analysis, read_table, slos_of
from bench.parse.slo import goodput, judged_frame, judged_requests
from bench.parse.table import summary_frame
from bench.runs.columns import COLUMNS
from bench.runs.deployment import DeploymentFacts
from bench.runs.files import read
from bench.runs.launch import Launch
from bench.runs.paths import Paths
from bench.runs.summary import read_run_summary, read_summary
from bench.shipped import BENCH
from bench.study.config import Thresholds
from bench.study.decision import Decision
from bench.study.slo import Slo, parse_slo

if TYPE_CHECKING:
    import altair as alt

    from bench.findings.tables import Tables


@dataclass(frozen=True)
class Results:
    """Runs that were measured, and what was made of them.

    Attributes:
        place: the folder or table that they were read from. runs: one row a run; columns: docs/reference/metrics.md.
        deployment: the one that was named; None for all of the place.
    """

    place: Path
    runs: pl.DataFrame
    deployment: str | None = None

    @classmethod
    def open(cls, place: str | Path = Paths.RESULTS) -> Results:
        """The results in a folder of a study, below a folder of parsed runs, or in a summary.parquet.

        Args:
            place: any of these, with `:DEPLOYMENT` behind it for one deployment; or a deployment of the study in this folder.

        Raises:
            BenchError: it is none of these, or holds no runs.
        """
        text = str(place)
        if Path(text).exists():
            return cls(Path(text), _read(Path(text)))
        folder, colon, deployment = text.rpartition(":")
        study = Path(Paths.SUMMARY)
        if colon and Path(folder).exists():
            found = cls(Path(folder), _read(Path(folder)), deployment)
        elif study.exists():
            found = cls(study, _read(study), text)
        else:
            raise BenchError(
                f"{text}: no such file or folder, and no deployment either, as {study} is missing. Give a folder with results or a "
                "summary.parquet, followed by :DEPLOYMENT if it has several."
            )
        names = sorted(set(found.runs["deployment"]))
        if found.deployment not in names:
            where = str(found.place) if colon else f"{text}: no such file or folder, and {study}"
            raise BenchError(f"{where} has no deployment {found.deployment!r}. There are: {', '.join(names)}.")
        return found

    @staticmethod
    def of_study(folder: Path) -> bool:
        """Whether a study's command has made the tables of a folder."""
        names = Paths.SUMMARY, Paths.TIMESERIES, Paths.ANALYSIS
        return all((folder / Path(name).name).exists() for name in names)

    @property
    def own(self) -> pl.DataFrame:
        """The runs of the deployment that was named; all where none was."""
        return self.runs if self.deployment is None else self.runs.filter(self.runs["deployment"] == self.deployment)

    @property
    def folder(self) -> Path:
        """The folder of the results."""
        return self._table.parent if self._table else self.place

    def requests(self, deployment: str, run: str) -> pl.DataFrame:
        """The requests of a run, one row each. Raises BenchError where its table is not there."""
        return self._of_run(Paths.REQUESTS, deployment, run)

    def telemetry(self, deployment: str, run: str) -> pl.DataFrame:
        """What was scraped during a run, one row a sample. Raises BenchError where its table is not there."""
        return self._of_run(Paths.TELEMETRY, deployment, run)

    def facts(self, deployment: str) -> DeploymentFacts | None:
        """What was running as a deployment; None where nobody has measured it here."""
        file = self._beside(Paths.FACTS.format(deployment=deployment))
        return read(DeploymentFacts, file) if file.is_file() else None

    def analysis(self, name: str) -> pl.DataFrame:
        """A table of what the runs show: `capacity`, `saturation`, or `comparisons` with the study's baseline.

        Its columns: docs/reference/analysis.md.

        Raises:
            BenchError: there is no such table, or the study's command has not written it.
        """
        if name not in TABLES:
            raise BenchError(f"{name}: not a table of an analysis. There are: {', '.join(TABLES)}.")
        return read_table(self.folder / Path(Paths.ANALYSIS).name, name)

    def capacity(self, slos: Sequence[str] = (), failed_share: float = 0.01) -> pl.DataFrame:
        """What each curve sustains within `slos`, one row a curve.

        Args:
            slos: such as `ttft_p99=2s`. failed_share: of requests that may fail (0–1).

        Raises:
            BenchError: neither the table nor a file beside it has the requests of a run; or an argument is none.
        """
        if not 0 <= failed_share <= 1:
            raise BenchError(f"failed_share is {failed_share:g}: give a share of requests, 0 to 1.")
        decision = Decision(slo=[text for text in slos if parse_slo(text)], failed_share=failed_share)
        return Analysis(self.judged(decision.slos), decision).capacity

    def judged(self, slos: Sequence[Slo]) -> pl.DataFrame:
        """The runs with their goodput under `slos` and the requests that they are judged by. Raises BenchError as `capacity`."""
        found = []
        for run in self.runs.iter_rows(named=True):
            table = self._file(Paths.REQUESTS, run["deployment"], run["run"])
            if table.exists():
                requests = judged_requests(run, pl.read_parquet(table))
            elif run["judged"] is not None:
                requests = judged_frame(run["judged"])
            else:
                raise BenchError(
                    f"{table}: no such file, and {self.place} does not have the latencies of {run['run']}: an SLO cannot be judged. "
                    f"Run the study's command again, or `{BENCH} figures`: both write the table anew from its runs."
                )
            found.append(goodput(run, requests, slos))
        return self.runs.with_columns(
            pl.Series("goodput_requests_per_s", [row["goodput_requests_per_s"] for row in found], dtype=pl.Float64),
            pl.Series("judged", [row["judged"] for row in found], dtype=COLUMNS["judged"].dtype),
        )

    @cached_property
    def tables(self) -> Tables:
        """What figures of a study are drawn from. Raises BenchError where its time series are not there."""
        from bench.findings.tables import Tables  # noqa: PLC0415 - few callers draw

        calibration, tuning = (self._beside(name) for name in (Paths.CALIBRATION, Paths.TUNING))
        series, analysis = self.folder / Path(Paths.TIMESERIES).name, self.folder / Path(Paths.ANALYSIS).name
        if self._table is None or not series.exists():
            raise BenchError(
                f"{series}: no such file. Run the study's command again, or `{BENCH} figures`, and name its folder."
            )
        found = Tables.read(
            *(self._table, series, Decision(slo=list(slos_of(analysis)))),
            analysis=analysis if analysis.is_dir() else None,
            calibration=calibration if calibration.is_file() else None,
            tuning=tuning if tuning.is_file() else None,
        )
        return found if self.deployment is None else found.of(self.deployment)

    def figures(self) -> list[str]:
        """The names of the figures that these runs can answer."""
        from bench.findings.registry import figures_of  # noqa: PLC0415 - as above

        slos = list(slos_of(self.folder / Path(Paths.ANALYSIS).name))
        rows = [{**row, "slo": slos} for row in self.own.iter_rows(named=True)]
        return figures_of(rows)

    def figure(self, name: str) -> alt.TopLevelMixin:
        """One of `figures` as an Altair chart, under the study's SLOs: notebooks show it, `.properties` alters it, `.save` writes it.

        Raises:
            BenchError: there is no such figure.
        """
        from bench.findings.registry import chart  # noqa: PLC0415 - as above

        return chart(name, self.tables)

    @property
    def _table(self) -> Path | None:
        return _table(self.place)

    def _beside(self, path: str) -> Path:
        return self.folder / Path(path).relative_to(Paths.RESULTS)

    def _file(self, pattern: str, deployment: str, run: str) -> Path:
        return self._beside(pattern.format(deployment=deployment, run=run))

    def _of_run(self, pattern: str, deployment: str, run: str) -> pl.DataFrame:
        file = self._file(pattern, deployment, run)
        if not file.is_file():
            raise BenchError(f"{file}: no such file. Run the study's command again: it writes the tables of its runs.")
        return pl.read_parquet(file)


def _table(place: Path) -> Path | None:
    tables = (place / "summary.parquet", place / Paths.SUMMARY) if place.is_dir() else (place,)
    return next((table for table in tables if table.exists()), None)


def _read(path: Path) -> pl.DataFrame:
    if path.name.endswith((".tar.gz", ".tgz")):
        raise BenchError(
            f"{path}: a pack holds raw records, not results. Take it in with `{BENCH} unpack {path}`, run the command that it "
            "prints, and give the results."
        )
    table = _table(path)
    return _of_parsed_runs(path) if table is None else read_summary(table)


def _of_parsed_runs(folder: Path) -> pl.DataFrame:
    """The rows of the parsed runs below a folder, judged by the default thresholds."""
    runs = sorted(folder.rglob("summary.json"))
    if not runs:
        raise BenchError(
            f"{folder}: neither summary.parquet, nor {Paths.SUMMARY}, nor a summary.json at any depth. A study's command writes its "
            f"table, `{BENCH} parse` a run's summary."
        )
    launches = {launch.deployment: launch for launch in (read(Launch, path) for path in folder.rglob("launch.json"))}
    facts = {fact.deployment: fact for fact in (read(DeploymentFacts, path) for path in folder.rglob("deployment.json"))}
    return summary_frame([read_run_summary(run).figures for run in runs], launches, facts, Thresholds())
