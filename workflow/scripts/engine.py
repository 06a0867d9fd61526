from pathlib import Path

from bench.servers.environment import prepare_engine
from bench.study.read import load_config
from bench.workflow import job

with job(snakemake.log[0]) as say:
    name = snakemake.wildcards.engine
    engine = load_config(snakemake.config, source="the workflow's configuration").engines[name]
    prepare_engine(name, engine, Path(snakemake.output.record), say)
