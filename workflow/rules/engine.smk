localrules:
    engine,


rule engine:
    """The server's command: its environment built from pinned locks, or found on this machine."""
    input:
        # Their times say nothing: in a fresh checkout they are newer than an environment that was built from the same. Their digests do.
        locks=lambda wildcards: ancient(PLAN.config.engines[wildcards.engine].locks),
    output:
        record=paths.ENGINE,
    log:
        "logs/engine/{engine}.log",
    conda:
        "../envs/bench.yaml"
    params:
        engine=lambda wildcards: PLAN.config.engines[wildcards.engine].model_dump(),
        locks=locks_of,
    script:
        "../scripts/engine.py"
