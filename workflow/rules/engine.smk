rule engine:
    """The server's command: its environment built from pinned locks, or found on this machine."""
    input:
        locks=lambda wildcards: PLAN.config.engines[wildcards.engine].locks,
    output:
        record=paths.ENGINE,
    log:
        "logs/engine/{engine}.log",
    conda:
        "../envs/bench.yaml"
    params:
        engine=lambda wildcards: PLAN.config.engines[wildcards.engine].model_dump(),
    script:
        "../scripts/engine.py"
