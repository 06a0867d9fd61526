from pathlib import Path

from bench.measure.session import measure
from bench.runs.paths import Paths
from bench.runs.store import Store
from bench.search.laddered import LadderSearches
from bench.study.plan import Plan
from bench.study.read import plan_of
from bench.study.state import measured, write_index
from bench.workflow import job

with job(snakemake.log[0]) as say:
    plan = plan_of(snakemake.config)
    deployment, session = snakemake.wildcards.deployment, int(snakemake.wildcards.session)
    spec, store = plan.deployments[deployment], Store(owner=deployment)
    if not measured(plan, deployment, session, store):
        searching = plan.searches_of(deployment, session)
        searches = LadderSearches(plan, spec, store, say) if searching else None
        measure(
            plan,
            deployment,
            plan.listed_of(deployment, session),
            launch=Path(snakemake.input.launch),
            facts=Paths.facts(deployment, session),
            store=store,
            say=say,
            search=searches,
        )
        if searches:
            searches.write(Path(Paths.SEARCHES.format(deployment=deployment)))
    write_index(Plan.of(plan.config), deployment, session, store)  # with what the searches found
