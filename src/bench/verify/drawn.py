"""What is made of all runs together: the summary table, the figures and the report, made again."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bench.aggregate import aggregate
from bench.analyse import analyse, servers_of, write_analysis
from bench.analysis.windows import of_windows
from bench.errors import BenchError
from bench.figures import Results, figures_of
from bench.figures.save import KINDS, save_figure
from bench.models import geometry_if_known
from bench.predict.study import calibrate_study
from bench.records.calibration import read_calibration
from bench.records.checksums import checksum
from bench.records.summary import read_summary
from bench.report import write_report
from bench.study import Paths, Plan
from bench.study.paths import ANALYSES
from bench.verify.check import Check, Tables, same_numbers, same_picture, same_specification

__all__ = ["Drawing", "at", "check_figures", "check_models", "check_report", "check_tables", "drawn_by"]

_DRAWN_BY = re.compile(r"This page was drawn by Saturate \S+ from <code>(?:commit )?([^<]+)</code>")


def at(folder: Path, path: str | Path) -> Path:
    """Where a result lies in a folder of results that may have another name."""
    return folder / Path(path).relative_to("results")


def drawn_by(folder: Path) -> str | None:
    """The sources that drew the report in a folder of results, as `commit_of` names them; None where it does not name any."""
    page = at(folder, Paths.REPORT)
    found = _DRAWN_BY.search(page.read_text(encoding="utf-8", errors="replace")) if page.is_file() else None
    return found[1] if found else None


@dataclass(frozen=True)
class Drawing:
    """A study whose results are made again.

    Attributes:
        folder: the results. again: where what is made again goes; `runs` in it is what was parsed again.
        plan: of the runs that were drawn. listed: by name the SHA-256 of each figure and of the page, as the manifest has them.
        say: takes progress lines.
    """

    folder: Path
    again: Path
    plan: Plan
    listed: dict[str, str]
    say: Callable[[str], None]

    def results(self) -> Results:
        """The tables that were made again."""
        summary, timeseries = at(self.again, Paths.SUMMARY), at(self.again, Paths.TIMESERIES)
        decision, device = self.plan.config.decision, self.plan.device
        analysis = at(self.again, Paths.ANALYSIS)
        return Results.read(summary, timeseries, decision, device, self.calibration, self.searches, analysis)

    @property
    def calibration(self) -> Path | None:
        """The models of the servers; None where the study has none."""
        return at(self.folder, Paths.CALIBRATION) if "predicted-loads" in figures_of(self.plan.rows) else None

    @property
    def searches(self) -> list[Path]:
        """What searches found, a file of each deployment that has any."""
        names = (name for name in self.plan.deployments if self.plan.searches_of(name))
        return [at(self.folder, Paths.SEARCHES.format(deployment=name)) for name in names]

    def of_deployments(self, path: str) -> list[Path]:
        """A file of each deployment."""
        return [at(self.folder, path.format(deployment=name)) for name in self.plan.deployments]


def check_tables(drawing: Drawing, made_by: str | None) -> Check:
    """Make the tables of the study again and compare them.

    Args:
        made_by: the sources that made them, where they are not these.

    Raises:
        BenchError: they cannot be made.
    """
    drawing.say("making the tables")
    check, plan = Check("tables of the study"), drawing.plan
    again = {path: at(drawing.again, path) for path in (Paths.SUMMARY, Paths.SUMMARY_CSV, Paths.TIMESERIES)}
    aggregate(
        [at(drawing.again, run.record).with_name(Path(Paths.RUN_SUMMARY).name) for run in plan.runs],
        expected={run.key: run.digest for run in plan.runs},
        launches=drawing.of_deployments(Paths.LAUNCH),
        facts=drawing.of_deployments(Paths.FACTS),
        thresholds=plan.config.thresholds,
        baseline=plan.config.study.baseline,
        replicas=plan.replicas,
        slos=plan.config.decision.slos,
        summary=again[Paths.SUMMARY],
        summary_csv=again[Paths.SUMMARY_CSV],
        timeseries=again[Paths.TIMESERIES],
    )
    runs = of_windows(read_summary(again[Paths.SUMMARY]))[0]
    servers = servers_of(plan.deployments.values(), geometry_if_known)
    write_analysis(analyse(runs, plan.config.decision, plan.device, servers), at(drawing.again, Paths.ANALYSIS))
    again |= {path: at(drawing.again, path) for path in (Paths.ANALYSED.format(table=name) for name in ANALYSES)}
    tables = Tables(check, made_by)
    for path, new in again.items():
        stored = at(drawing.folder, path)
        if stored.is_file():
            tables.compare(stored, new)
        else:
            check.compare(f"{stored}: missing")
    return tables.done()


def check_models(drawing: Drawing) -> Check:
    """Fit the model of each server again and compare all of its numbers."""
    check, file = Check("models of the servers"), drawing.calibration
    if file is None:
        return check
    if not file.is_file():
        check.compare(f"{file}: missing")
        return check
    drawing.say("fitting the models of the servers")
    stored = read_calibration(file)
    again = calibrate_study(
        read_summary(at(drawing.again, Paths.SUMMARY)),
        drawing.folder,
        {(run.deployment.name, run.name): run.workload for run in drawing.plan.runs},
        code="",
    )
    known = {model.deployment: model for model in stored.models} if stored else {}
    for model in again.models:
        same = model.deployment in known and same_numbers(
            *(asdict(replace(each, digest="")) for each in (known[model.deployment], model))
        )
        check.compare(None if same else f"{file}: the model of {model.deployment} is not what the raw records give")
    return check


def check_figures(drawing: Drawing) -> Check:
    """Draw every figure again. Specifications, which hold the data, have to be the same; pictures, where the fonts are.

    A picture that comes out otherwise is one that was changed, where another one of its kind comes out the same.
    """
    check, results = Check("figures"), drawing.results()
    names = figures_of(drawing.plan.rows)
    otherwise: dict[str, list[Path]] = {kind: [] for kind in KINDS}
    same: set[str] = set()
    for number, name in enumerate(names, 1):
        drawing.say(f"drawing figure {number} of {len(names)}")
        for new in save_figure(name, results, at(drawing.again, Paths.FIGURE_SVG.format(figure=name)).with_suffix("")):
            stored, kind = at(drawing.folder, Paths.FIGURE_SVG.format(figure=name)).with_name(new.name), new.suffix[1:]
            if not stored.is_file():
                check.compare(f"{stored}: missing")
            elif checksum(stored) != drawing.listed.get(stored.name):
                check.compare(f"{stored}: not what was drawn (SHA-256 in {at(drawing.folder, Paths.MANIFEST)})")
            elif kind == "json":
                check.compare(None if same_specification(stored, new) else f"{stored}: not what the raw records give")
            elif same_picture(stored, new):
                check.compare(None)
                same.add(kind)
            else:
                otherwise[kind].append(stored)
    for kind, pictures in otherwise.items():
        if kind in same:
            for picture in pictures:
                check.compare(f"{picture}: not what the raw records give")
        elif pictures:
            check.unchecked.append(
                f"{len(pictures)} {kind.upper()} files, by their pixels: drawn with other fonts or another renderer. Their "
                "specifications were checked."
            )
    expected = {f"{name}.{kind}" for name in names for kind in KINDS} | {Path(Paths.REPORT).name}
    for name in sorted(drawing.listed.keys() - expected):
        check.compare(f"{at(drawing.folder, Paths.MANIFEST)}: lists {name}, which this study does not have")
    return check


def check_report(drawing: Drawing) -> Check:
    """Write the report again and compare it, as the sources that drew it would sign it."""
    drawing.say("writing the report")
    check, plan = Check("report"), drawing.plan
    page, markdown = at(drawing.folder, Paths.REPORT), at(drawing.folder, Paths.REPORT_MARKDOWN)
    if not page.is_file():
        check.unchecked.append(f"{page}: not here")
        return check
    text = page.read_text(encoding="utf-8", errors="replace")
    new = {path: at(drawing.again, path) for path in (Paths.REPORT, Paths.REPORT_MARKDOWN)}
    stored = [at(drawing.folder, Paths.FIGURE_SPEC.format(figure=name)) for name in figures_of(plan.rows)]
    redrawn = [drawing.again / spec.relative_to(drawing.folder) for spec in stored]
    try:
        write_report(
            new[Paths.REPORT],
            summary=new[Paths.REPORT_MARKDOWN],
            title=plan.config.study.title,
            results=drawing.results(),
            # What Altair numbered may have other numbers.
            specs=[old if same_specification(old, again) else again for old, again in zip(stored, redrawn, strict=True)],
            facts=drawing.of_deployments(Paths.FACTS),
            commit=drawn_by(drawing.folder),
            of_study=plan.of_study,
            thresholds=plan.config.thresholds,
            geometries={spec.name: shape for spec in plan.deployments.values() if (shape := geometry_if_known(spec.model))},
        )
    except BenchError as error:
        check.unchecked.append(f"{page}: cannot be written again: {error}")
        return check
    for own, again in zip((page, markdown), new.values(), strict=True):
        if not own.is_file():
            check.unchecked.append(f"{own}: not here")
        elif own.read_bytes() == again.read_bytes():
            check.compare(None)
        else:
            check.compare(f"{own}: not what the raw records give" + _version(text, again))
    return check


def _version(page: str, again: Path) -> str:
    """That another version wrote the page, where one did."""
    generators = [
        re.search(r'name="generator" content="([^"]+)"', each) for each in (page, again.with_suffix(".html").read_text())
    ]
    old, new = (found[1] if found else "an unknown version" for found in generators)
    return "" if old == new else f"; {old} wrote it, and this is {new}"
