rule parse:
    """One run's raw records, as tidy tables and a summary."""
    input:
        # Its time does not count, since it is as new as the session's last run: `measured` says whether this run is another one.
        index=lambda wildcards: ancient(index_of_run(wildcards)),
    output:
        requests=paths.REQUESTS,
        telemetry=paths.TELEMETRY,
        wide=paths.WIDE,
        summary=paths.RUN_SUMMARY,
    log:
        "logs/parse/{deployment}/{run}.log",
    localrule: True
    conda:
        "../envs/bench.yaml"
    params:
        measured=record_of_run,
        code=code_of("parse"),
    script:
        "../scripts/parse.py"
