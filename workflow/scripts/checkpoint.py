from pathlib import Path

from bench.cli.jobs import job
from bench.models import write_checkpoint
from bench.study import Model

with job(snakemake.log[0]):
    write_checkpoint(snakemake.wildcards.model, Model(**snakemake.params.model), Path(snakemake.output.record))
