rule engine:
    """The server's command: its environment built from pinned locks, or found on this machine."""
    input:
        # Those that come with the workflow are other files after each upgrade of it. Their digests decide, not their times:
        # in a fresh checkout they are newer than an environment that was built from the same.
        locks=lambda wildcards: ancient(list(filter(os.path.exists, PLAN.config.engines[wildcards.engine].locks))),
    output:
        record=paths.ENGINE,
    log:
        "logs/engine/{engine}.log",
    conda:
        "../envs/bench.yaml"
    params:
        engine=lambda wildcards: PLAN.config.engines[wildcards.engine].model_dump(by_alias=True),
        locks=lambda wildcards: PLAN.engine_locks[wildcards.engine],
    script:
        "../scripts/engine.py"
