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
        code=library(
            "axes.py",
            "drift.py",
            "endpoints",
            "engines",
            "parse",
            "records/classes.py",
            "records/environment.py",
            "records/files.py",
            "records/form.py",
            "records/latencies.py",
            "records/request.py",
            "records/request_table.py",
            "records/run.py",
            "records/run_summary.py",
            "statistics.py",
            "telemetry",
            "work.py",
        ),
    script:
        "../scripts/parse.py"
