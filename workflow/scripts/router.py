from pathlib import Path

from bench.engine import prepare_router
from bench.workflow import job

with job(snakemake.log[0]) as say:
    prepare_router(snakemake.wildcards.router, snakemake.params.lock, Path(snakemake.output.record), say)
