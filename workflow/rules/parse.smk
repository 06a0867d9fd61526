rule parse:
    """One run's raw records, as tidy tables and a summary."""
    input:
        # Its time does not count, since it is as new as the session's last run: `measured` says whether this run is another one.
        index=lambda wildcards: ancient(PLAN.index_of(wildcards.deployment, wildcards.run)),
    output:
        requests=paths.REQUESTS,
        telemetry=paths.TELEMETRY,
        wide=paths.WIDE,
        summary=paths.RUN_SUMMARY,
    log:
        "logs/parse/{deployment}/{run}.log",
    conda:
        "../envs/bench.yaml"
    params:
        measured=record_of_run,
        code=code_of("parse"),
    script:
        "../scripts/parse.py"
