from pathlib import Path

from bench.models.checkpoint import write_checkpoint
from bench.models.model import Model
from bench.workflow import job

with job(snakemake.log[0]):
    write_checkpoint(snakemake.wildcards.model, Model(**snakemake.params.model), Path(snakemake.output.record))
