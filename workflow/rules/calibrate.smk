localrules:
    calibrate,


rule calibrate:
    """The model of each deployment, judged by runs that it has not seen."""
    input:
        summary=paths.SUMMARY,
        requests=of_runs(paths.REQUESTS),
        launches=of_deployments(paths.LAUNCH),
        sessions=INDEXES,
    output:
        calibration=paths.CALIBRATION,
    log:
        "logs/calibrate.log",
    conda:
        "../envs/bench.yaml"
    params:
        code=library(
            "predict",
            "load/arrivals.py",
            "load/schedule.py",
            "records/calibration.py",
            "records/latencies.py",
            "study/arrivals.py",
            "study/lengths.py",
            "study/trace.py",
        ),
    script:
        "../scripts/calibrate.py"
