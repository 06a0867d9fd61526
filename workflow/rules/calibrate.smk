rule calibrate:
    """The model of each deployment, judged by runs that it has not seen."""
    input:
        summary=paths.SUMMARY,
        requests=of_runs(paths.REQUESTS),
        launches=LAUNCHES,
        sessions=INDEXES,
    output:
        # Models whose runs and code are the same are kept from the file that is there.
        calibration=update(paths.CALIBRATION),
    log:
        "logs/calibrate.log",
    conda:
        "../envs/bench.yaml"
    params:
        code=code_of("calibrate"),
    script:
        "../scripts/calibrate.py"
