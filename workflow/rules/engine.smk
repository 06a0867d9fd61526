rule engine:
    """The server's command: its environment built from pinned locks, or found on this machine."""
    input:
        locks=lambda wildcards: PLAN.config.engines[wildcards.engine].locks,
    output:
        record=paths.ENGINE,
    params:
        engine=lambda wildcards: PLAN.config.engines[wildcards.engine].model_dump(),
    log:
        "logs/engine/{engine}.log",
    conda:
        "../envs/bench.yaml"
    script:
        "../scripts/engine.py"
