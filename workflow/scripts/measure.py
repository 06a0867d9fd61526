import os
from pathlib import Path

from bench.measure.own_gpus import own_gpus
from bench.measure.session import measure
from bench.search.laddered import LadderSearches
from bench.store import Store
from bench.study import Paths, Plan, load_config
from bench.workflow import job

with job(snakemake.log[0]) as say:
    plan = Plan.of(load_config(snakemake.config, source="the workflow's configuration"))
    deployment, session = plan.session_at(Path(snakemake.output.facts))
    store = Store(Path(Paths.STORE), owner=deployment)
    searching = plan.searches_of(deployment, session)
    searches = LadderSearches(plan, plan.deployments[deployment], store, say) if searching else None
    with own_gpus(plan.deployments[deployment], os.environ, say):
        measure(
            plan,
            deployment,
            plan.listed_of(deployment, session),
            session=session,
            launch=Path(snakemake.input.launch),
            facts=Path(snakemake.output.facts),
            store=store,
            say=say,
            search=searches,
        )
    if searches:
        searches.write(Path(snakemake.output.search[0]))
