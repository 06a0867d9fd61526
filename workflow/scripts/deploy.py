from pathlib import Path

from bench.engine import write_launch
from bench.study import Plan, load_config
from bench.workflow import job

with job(snakemake.log[0]):
    plan = Plan.of(load_config(snakemake.config, source="the workflow's configuration"))
    write_launch(
        plan.started[snakemake.wildcards.deployment],
        snakemake.params.longest,
        engine=Path(snakemake.input.engine),
        checkpoint=Path(snakemake.input.checkpoint) if snakemake.input.checkpoint else None,
        launch=Path(snakemake.output.launch),
    )
