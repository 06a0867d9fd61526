rule weights:
    """The model: written from its shape, linked from a folder, or fetched from a hub."""
    output:
        record=paths.CHECKPOINT,
    log:
        "logs/weights/{model}.log",
    conda:
        "../envs/bench.yaml"
    params:
        model=lambda wildcards: PLAN.config.models[wildcards.model].model_dump(exclude_defaults=True),
        fingerprint=lambda wildcards: PLAN.fingerprints.get(wildcards.model),
        protocol=PROTOCOL,
    script:
        "../scripts/weights.py"
