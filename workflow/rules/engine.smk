rule engine:
    """The server's command: its environment built from pinned locks, or found on this machine."""
    input:
        # Their digests decide, not their times: in a fresh checkout they are newer than an environment that was built from the same.
        locks=lambda wildcards: ancient(own_locks(wildcards.engine)),
    output:
        record=paths.ENGINE,
    log:
        "logs/engine/{engine}.log",
    localrule: True
    conda:
        "../envs/bench.yaml"
    params:
        engine=lambda wildcards: PLAN.config.engines[wildcards.engine].model_dump(
            by_alias=True
        ),
        locks=locks_of,
    script:
        "../scripts/engine.py"
