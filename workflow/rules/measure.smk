rule measure:
    """One start of a server: load and telemetry of every run that is missing, then of its searches.

    Run folders are no outputs: each is written whole under its final name, and stays whatever becomes of the job. The index lists
    those of the session. A session that finds everything measured starts no server.
    """
    input:
        launch=paths.LAUNCH,
        # Only the order counts, not the time: sessions of all deployments alternate on one machine.
        previous=lambda wildcards: ancient(PLAN.index_before(wildcards.deployment, int(wildcards.session))),
    output:
        index=paths.SESSION,
    log:
        "logs/measure/{deployment}/{session}.log",
    conda:
        "../envs/bench.yaml"
    threads: cores_of
    resources:
        nodes=1,
        gpu=lambda wildcards: PLAN.deployments[wildcards.deployment].gpus_started,
        # As many as `threads` where it is submitted, which a dry run does not show.
        cpus_per_task=lambda wildcards: session_needs(PLAN, wildcards.deployment).cores,
        mem_mb=memory_of,
        runtime=lambda w, attempt: session_needs(PLAN, w.deployment, int(w.session), attempt=attempt).minutes,
        # A server that computes on the CPU wants its node for itself; SLURM gives GPUs to one job alone.
        slurm_extra=lambda wildcards: ("" if PLAN.started[wildcards.deployment].gpus_started else "--exclusive"),
    params:
        # No code: PROTOCOL, a part of every run's digest, says what is measured again.
        wanted=lambda wildcards: wanted(PLAN, wildcards.deployment, int(wildcards.session)),
    script:
        "../scripts/measure.py"
