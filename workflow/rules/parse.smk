localrules:
    parse,


rule parse:
    """One run's raw records, as tidy tables and a summary."""
    input:
        record=paths.RECORD,
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
        code=library(
            "drift.py",
            "parse",
            "records/latencies.py",
            "records/request_table.py",
            "records/run.py",
            "records/run_summary.py",
            "telemetry/catalogue.py",
            "engines",
            "telemetry/devices.py",
            "records/environment.py",
        ),
    script:
        "../scripts/parse.py"
