rule parse:
    """A session's raw records, as tidy tables and summaries beside them; then its answers, ahead of the next session."""
    input:
        index=[] if PACKED else paths.SESSION,
    output:
        # It lists the records that were parsed, and by which code: by a copy of it, those are kept.
        parsed=paths.PARSED,
    log:
        "logs/parse/{deployment}/{session}.log",
    priority: 1
    localrule: True
    conda:
        "../envs/bench.yaml"
    params:
        code=code_of("parse"),
        # Those of a pack, which has no indexes.
        records=lambda wildcards: (PLAN.records(wildcards.deployment, int(wildcards.session)) if PACKED else None),
    script:
        "../scripts/parse.py"


rule aggregate:
    """One row a run with its verdict, and every run's course over time."""
    input:
        parsed=PARSED,
        launches=LAUNCHES,
    output:
        summary=paths.SUMMARY,
        csv=report(paths.SUMMARY_CSV, caption="../report/summary.rst", category="Runs"),
        timeseries=paths.TIMESERIES,
    log:
        "logs/aggregate.log",
    localrule: True
    conda:
        "../envs/bench.yaml"
    params:
        code=code_of("aggregate"),
        baseline=PLAN.config.study.baseline,
        slo=PLAN.config.decision.slo,
        thresholds=PLAN.config.thresholds.model_dump(),
        plan=PLAN.digest,
    script:
        "../scripts/aggregate.py"
