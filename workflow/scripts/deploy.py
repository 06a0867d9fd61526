from pathlib import Path

from bench.servers.launch import write_launch
from bench.study.read import plan_of
from bench.workflow import job

with job(snakemake.log[0]):
    plan = plan_of(snakemake.config)
    write_launch(
        plan.started[snakemake.wildcards.deployment],
        snakemake.params.longest,
        engine=Path(snakemake.input.engine),
        checkpoint=Path(checkpoint) if (checkpoint := snakemake.input.get("checkpoint")) else None,
        launch=Path(snakemake.output.launch),
    )
