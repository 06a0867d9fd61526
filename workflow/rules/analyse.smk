JUDGED_BY = PLAN.config.decision.model_dump(include={"slo", "failed_share"})


rule analyse:
    """What the runs show, once for figures, report and commands: capacity, saturation, regions and comparisons."""
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
        code=code_of("analyse", shows=False),
        decision=JUDGED_BY,
    script:
        "../scripts/analyse.py"


rule calibrate:
    """The model of each deployment, judged by runs that it has not seen, and what its replays gain where a resource is relieved."""
    input:
        parsed=PARSED,
        capacity=paths.ANALYSED.format(table="capacity.parquet"),
        summary=paths.SUMMARY,
        launches=LAUNCHES,
    output:
        # Models and curves whose runs, limits and code are the same are kept from copies of these.
        calibration=paths.CALIBRATION,
        reliefs=paths.RELIEFS,
    log:
        "logs/calibrate.log",
    localrule: True
    conda:
        "../envs/bench.yaml"
    params:
        code=code_of("calibrate"),
        decision=JUDGED_BY,
    script:
        "../scripts/calibrate.py"


rule findings:
    """What the report says beyond the tables: causes, knees, fleets, economics, advice. It depends on all of the decision."""
    input:
        ANALYSED,
        summary=paths.SUMMARY,
        reliefs=paths.RELIEFS,
    output:
        causes=paths.CAUSES,
        findings=paths.FINDINGS,
    log:
        "logs/findings.log",
    localrule: True
    conda:
        "../envs/bench.yaml"
    params:
        code=code_of("findings", shows=False),
        decision=DECISION,
        device=DEVICE,
    script:
        "../scripts/findings.py"
