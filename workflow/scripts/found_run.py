from pathlib import Path

from bench.store import Store
from bench.study import Paths, Plan, load_config
from bench.workflow import job

with job(snakemake.log[0]):
    plan = Plan.of(load_config(snakemake.config, source="the workflow's configuration"))
    record = Path(snakemake.output.record)
    run = next(run for run in plan.runs if run.record == record)
    Store(Path(Paths.STORE)).place(run.digest, record.parent, last=record.name)
