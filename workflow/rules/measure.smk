# One session a deployment: its runs are its outputs, so a rule for each. update() keeps the runs that exist, and the
# session measures those that are missing. The code behind it is no input: PROTOCOL says when old runs no longer compare.
for deployment in PLAN.deployments:

    rule:
        name:
            f"measure_{deployment}"
        input:
            launch=paths.LAUNCH.format(deployment=deployment),
        output:
            facts=update(paths.FACTS.format(deployment=deployment)),
            records=update([str(run.record) for run in PLAN.runs_of(deployment)]),
        log:
            f"logs/measure/{deployment}.log",
        conda:
            "../envs/bench.yaml"
        threads: cores_of(deployment)
        resources:
            gpu=gpus_of(deployment),
            runtime="4h",
        params:
            deployment=PLAN.deployments[deployment].digest,
            protocol=PROTOCOL,
        script:
            "../scripts/measure.py"
