from pathlib import Path

from bench.servers.launch import write_launch
from bench.study.plan import Plan
from bench.study.read import load_config
from bench.workflow import job

with job(snakemake.log[0]):
    plan = Plan.of(load_config(snakemake.config, source="the workflow's configuration"))
    write_launch(
        plan.started[snakemake.wildcards.deployment],
        snakemake.params.longest,
        engine=Path(snakemake.input.engine),
        checkpoint=Path(checkpoint) if (checkpoint := snakemake.input.get("checkpoint")) else None,
        launch=Path(snakemake.output.launch),
    )
