from pathlib import Path

from bench.findings.report import closing_lines
from bench.findings.tables import Tables
from bench.report.page import write_manifest
from bench.runs.paths import Paths
from bench.study.decision import Decision
from bench.study.plan import Plan
from bench.study.read import load_config
from bench.workflow import job

with job(snakemake.log[0]) as say:
    plan = Plan.of(load_config(snakemake.config, source="the workflow's configuration"))
    figures = [Path(path) for path in snakemake.input.figures]
    results = Tables.read(
        Path(snakemake.input.summary),
        Path(snakemake.input.timeseries),
        Decision(**snakemake.params.decision),
        searches=[Path(Paths.SEARCHES.format(deployment=name)) for name in plan.deployments if plan.searches_of(name)],
        analysis=Path(Paths.ANALYSIS),
    )
    closing = closing_lines(results, figures=len(figures))
    write_manifest(
        Path(snakemake.output.manifest),
        figures=figures,
        page=Path(snakemake.input.page),
        runs=results.runs,
        closing=closing,
    )
    for line in closing:
        say(line)
