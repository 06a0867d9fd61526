rule analyse:
    """What the runs show, once for figures, report and commands: capacity, saturation, regions, comparisons and causes."""
    input:
        summary=paths.SUMMARY,
    output:
        ANALYSED,
    log:
        "logs/analyse.log",
    localrule: True
    conda:
        "../envs/bench.yaml"
    params:
        code=code_of_analysis(),
        decision=PLAN.config.decision.model_dump(include={"slo", "failed_share"}),
    script:
        "../scripts/analyse.py"


rule findings:
    """What the report says beyond the tables: knees, fleets, economics, advice. It depends on all of the decision."""
    input:
        ANALYSED,
        summary=paths.SUMMARY,
    output:
        findings=paths.FINDINGS,
    log:
        "logs/findings.log",
    localrule: True
    conda:
        "../envs/bench.yaml"
    params:
        code=code_of_analysis(),
        decision=PLAN.config.decision.model_dump(),
        device=PLAN.device.model_dump() if PLAN.device else None,
    script:
        "../scripts/findings.py"
