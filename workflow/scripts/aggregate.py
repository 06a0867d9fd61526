from pathlib import Path

from bench.parse.table import aggregate
from bench.runs.paths import Paths
from bench.study.config import Thresholds
from bench.study.plan import Plan
from bench.study.read import load_config
from bench.workflow import job

with job(snakemake.log[0]):
    plan = Plan.of(load_config(snakemake.config, source="the workflow's configuration"))
    aggregate(
        [Path(path) for path in snakemake.input.summaries],
        expected={run.key: run.digest for run in plan.runs},
        launches=[Path(path) for path in snakemake.input.launches],
        facts=[Paths.facts(name) for name in plan.deployments],
        thresholds=Thresholds(**snakemake.params.thresholds),
        baseline=snakemake.params.baseline,
        replicas=snakemake.params.replicas,
        slos=plan.config.decision.slos,
        summary=Path(snakemake.output.summary),
        summary_csv=Path(snakemake.output.csv),
        timeseries=Path(snakemake.output.timeseries),
    )
