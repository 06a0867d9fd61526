rule deploy:
    """The launch command and the memory plan; refuses what cannot fit, before any server starts."""
    input:
        engine=engine_of,
        checkpoint=checkpoint_of,
    output:
        launch=paths.LAUNCH,
    params:
        deployment=lambda wildcards: PLAN.deployments[wildcards.deployment].digest,
        longest=lambda wildcards: PLAN.longest_request(wildcards.deployment),
    log:
        "logs/deploy/{deployment}.log",
    conda:
        "../envs/bench.yaml"
    script:
        "../scripts/deploy.py"
