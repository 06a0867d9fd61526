rule tune:
    """The best of the servers that compete: starts them one after the other, as often as it takes, and races them.

    What its visits measured stays in a file that is no output: one that was ended, or that gets more minutes, goes on from there.
    """
    input:
        launches=expand(paths.LAUNCH, deployment=PLAN.tuned.deployments if PLAN.tuned else []),
    output:
        tuning=paths.TUNING,
    log:
        "logs/tune.log",
    conda:
        "../envs/bench.yaml"
    # All that there are: nothing else is measured meanwhile.
    threads: workflow.resource_settings.cores or 1
    resources:
        gpu=(max(spec.gpus_started for spec in PLAN.tuned.deployments.values()) if PLAN.tuned else 0),
    params:
        tune=PLAN.config.tune.model_dump() if PLAN.tuned else None,
        digest=PLAN.tuned.digest if PLAN.tuned else None,
    script:
        "../scripts/tune.py"
