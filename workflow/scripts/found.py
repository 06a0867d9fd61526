import json
from pathlib import Path

from bench.study import Plan, load_config
from bench.workflow import job

with job(snakemake.log[0]):
    plan = Plan.of(load_config(snakemake.config, source="the workflow's configuration"))
    runs = [[run.deployment.name, run.name] for run in plan.runs if run.searched]
    Path(snakemake.output.runs).write_text(json.dumps(runs, indent=1) + "\n")
