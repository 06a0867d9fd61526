from pathlib import Path

from bench.findings.report import closing_lines, write_report
from bench.findings.tables import Tables
from bench.report.page import write_manifest
from bench.runs.paths import Paths
from bench.shipped import commit_of
from bench.study.read import plan_of
from bench.workflow import job

with job(snakemake.log[0]) as say:
    plan, files = plan_of(snakemake.config), snakemake.input
    results = Tables.read(
        Path(files.summary),
        Path(files.timeseries),
        plan.config.decision,
        plan.device,
        searches=[Path(Paths.SEARCHES.format(deployment=name)) for name in plan.deployments if plan.searches_of(name)],
        analysis=Path(Paths.ANALYSIS),
        **{use: next(map(Path, files[use]), None) for use in ("calibration", "grades", "tuning")},
    )
    page, figures = Path(snakemake.output.page), [Path(path) for path in files.figures]
    write_report(
        page,
        summary=Path(snakemake.output.markdown),
        title=plan.config.study.title,
        results=results,
        specs=[path for path in figures if path.suffix == ".json"],
        facts=[Paths.facts(name) for name in plan.deployments],
        commit=commit_of(),
        of_study=len(plan.every),
        thresholds=plan.config.thresholds,
    )
    closing = closing_lines(results, figures=len(figures))
    write_manifest(Path(snakemake.output.manifest), figures=figures, page=page, runs=results.runs, closing=closing)
    for line in closing:
        say(line)
