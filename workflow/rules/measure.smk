# One session or more a deployment: the runs of a session are its outputs, so a rule for each. update() keeps the runs that exist, and
# the session measures those that are missing. The code behind it is not an input: a raised PROTOCOL marks old runs as no longer comparable.
for deployment, session in PLAN.sessions:

    rule:
        name:
            session_name("measure_", deployment, session)
        input:
            launch=paths.LAUNCH.format(deployment=deployment),
            # Only the order counts, not the time: sessions of all deployments alternate on one machine.
            previous=ancient(facts_before(deployment, session)),
        output:
            facts=update(str(paths.facts(deployment, session))),
            records=update(
                [str(run.record) for run in PLAN.listed_of(deployment, session)]
            ),
            search=[
                update(paths.SEARCHES.format(deployment=deployment))
                for _ in PLAN.searches_of(deployment, session)[:1]
            ],
        log:
            session_name("logs/measure/", deployment, session) + ".log",
        conda:
            "../envs/bench.yaml"
        threads: cores_of(deployment)
        resources:
            **placed(deployment, session),
            **nodes_of(deployment),
            mem_mb=memory_of(deployment),
            runtime=minutes_of(deployment, session),
            slurm_extra=further_options(deployment),
        params:
            **search_params(deployment, session),
            deployment=PLAN.deployments[deployment].digest,
            protocol=PROTOCOL,
        script:
            "../scripts/measure.py"
