from pathlib import Path

from bench.engine import prepare_engine
from bench.study import Engine
from bench.workflow import job

with job(snakemake.log[0]) as say:
    prepare_engine(snakemake.wildcards.engine, Engine(**snakemake.params.engine), Path(snakemake.output.record), say)
