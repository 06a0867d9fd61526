rule calibrate:
    """The model of each deployment, judged by runs that it has not seen."""
    input:
        summary=paths.SUMMARY,
        requests=of_runs(paths.REQUESTS),
        launches=expand(paths.LAUNCH, deployment=PLAN.deployments),
        sessions=INDEXES,
    output:
        # Models whose runs and code are the same are kept from the file that is there.
        calibration=update(paths.CALIBRATION),
    log:
        "logs/calibrate.log",
    localrule: True
    conda:
        "../envs/bench.yaml"
    params:
        code=library(*MODELLED),
        code=library(
            "predict",
            "axes.py",
            "load/arrivals.py",
            "load/schedule.py",
            "pool.py",
            "parse/steps.py",
            "parse/stream.py",
            "records/calibration.py",
            "records/latencies.py",
            "statistics.py",
            "study/arrivals.py",
            "study/lengths.py",
            "study/trace.py",
            "study/turns.py",
            "study/workload.py",
            "table_file.py",
            "study/trace_blocks.py",
            "study/trace_history.py",
            "study/trace_otel.py",
            "study/trace_times.py",
            "study/trace_tree.py",
            "study/trace_weka.py",
        ),
    script:
        "../scripts/calibrate.py"
