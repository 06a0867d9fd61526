rule deploy:
    """The launch command and the memory plan; refuses what cannot fit, before any server starts."""
    input:
        unpack(lambda wildcards: PLAN.started[wildcards.deployment].inputs),
    output:
        launch=paths.LAUNCH,
    log:
        "logs/deploy/{deployment}.log",
    conda:
        "../envs/bench.yaml"
    params:
        code=code_of("deploy"),
        deployment=lambda wildcards: PLAN.started[wildcards.deployment].digest,
        # A default that is said of a running server: no part of the digest, and of its launch.
        settings=lambda wildcards: PLAN.started[wildcards.deployment].settings,
        gpus=lambda wildcards: PLAN.started[wildcards.deployment].gpus,
        protocol=PROTOCOL,
        longest=lambda wildcards: PLAN.longest_request(wildcards.deployment),
    script:
        "../scripts/deploy.py"
