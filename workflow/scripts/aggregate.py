from pathlib import Path

from bench.parse.table import aggregate
from bench.runs.paths import Paths
from bench.study.read import plan_of
from bench.workflow import job

with job(snakemake.log[0]):
    plan = plan_of(snakemake.config)
    aggregate(
        [Path(Paths.RUN_SUMMARY.format(deployment=run.deployment.name, run=run.name)) for run in plan.runs],
        expected={run.key: run.digest for run in plan.runs},
        launches=[Path(path) for path in snakemake.input.launches],
        facts=[Paths.facts(name) for name in plan.deployments],
        thresholds=plan.config.thresholds,
        baseline=plan.config.study.baseline,
        slos=plan.config.decision.slos,
        summary=Path(snakemake.output.summary),
        summary_csv=Path(snakemake.output.csv),
        timeseries=Path(snakemake.output.timeseries),
    )
