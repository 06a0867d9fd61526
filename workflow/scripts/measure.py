from pathlib import Path

from bench.measure.session import measure
from bench.measure.store import Store
from bench.study import Paths, Plan, load_config
from bench.workflow import job

with job(snakemake.log[0]) as say:
    plan = Plan.of(load_config(snakemake.config, source="the workflow's configuration"))
    runs = [plan.run_at(Path(record)) for record in snakemake.output.records]
    measure(
        plan,
        runs[0].deployment.name,
        runs,
        launch=Path(snakemake.input.launch),
        facts=Path(snakemake.output.facts),
        store=Store(Path(Paths.STORE), owner=runs[0].deployment.name),
        say=say,
    )
