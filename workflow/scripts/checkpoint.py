from pathlib import Path

from bench.models import write_checkpoint
from bench.study import Model
from bench.workflow import job

with job(snakemake.log[0]):
    write_checkpoint(snakemake.wildcards.model, Model(**snakemake.params.model), Path(snakemake.output.record))
