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
    localrule: True
    conda:
        "../envs/bench.yaml"
    params:
        engine=lambda wildcards: PLAN.config.engines[wildcards.engine].model_dump(by_alias=True),
        locks=lambda wildcards: PLAN.engine_locks[wildcards.engine],
    script:
        "../scripts/engine.py"


rule weights:
    """The model: written from its shape, linked from a folder, or fetched from a hub."""
    output:
        record=paths.CHECKPOINT,
    log:
        "logs/weights/{model}.log",
    localrule: True
    conda:
        "../envs/bench.yaml"
    params:
        model=lambda wildcards: PLAN.config.models[wildcards.model].model_dump(exclude_defaults=True),
        fingerprint=lambda wildcards: PLAN.fingerprints.get(wildcards.model),
        protocol=PROTOCOL,
    script:
        "../scripts/weights.py"


rule deploy:
    """The launch command and the memory plan; refuses what cannot fit, before any server starts."""
    input:
        unpack(lambda wildcards: PLAN.started[wildcards.deployment].inputs),
    output:
        launch=paths.LAUNCH,
    log:
        "logs/deploy/{deployment}.log",
    localrule: True
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
