rule aggregate:
    """One row a run with its verdict, and every run's course over time."""
    input:
        summaries=of_runs(paths.RUN_SUMMARY),
        requests=of_runs(paths.REQUESTS),
        telemetry=of_runs(paths.TELEMETRY),
        launches=LAUNCHES,
        sessions=INDEXES,
    output:
        summary=paths.SUMMARY,
        csv=report(paths.SUMMARY_CSV, caption="../report/summary.rst", category="Runs"),
        timeseries=paths.TIMESERIES,
    log:
        "logs/aggregate.log",
    conda:
        "../envs/bench.yaml"
    params:
        code=code_of("aggregate"),
        baseline=PLAN.config.study.baseline,
        replicas=PLAN.replicas,
        slo=PLAN.config.decision.slo,
        thresholds=PLAN.config.thresholds.model_dump(),
        plan=PLAN.digest,
    script:
        "../scripts/aggregate.py"
