import os
from pathlib import Path

from bench.measure.own_gpus import own_gpus
from bench.measure.session import measure
from bench.store import Store
from bench.study import Paths, Plan, load_config
from bench.workflow import job

with job(snakemake.log[0]) as say:
    plan = Plan.of(load_config(snakemake.config, source="the workflow's configuration"))
    deployment, session = plan.session_at(Path(snakemake.output.facts))
    with own_gpus(plan.deployments[deployment], os.environ, say):
        measure(
            plan,
            deployment,
            plan.runs_of(deployment, session),
            session=session,
            launch=Path(snakemake.input.launch),
            facts=Path(snakemake.output.facts),
            store=Store(Path(Paths.STORE), owner=deployment),
            say=say,
        )
