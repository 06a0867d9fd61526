from pathlib import Path

from bench.servers.environment import prepare_engine
from bench.study.read import plan_of
from bench.workflow import job

with job(snakemake.log[0]) as say:
    name = snakemake.wildcards.engine
    engine = plan_of(snakemake.config).config.engines[name]
    prepare_engine(name, engine, Path(snakemake.output.record), say)
