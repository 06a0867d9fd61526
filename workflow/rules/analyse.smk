rule analyse:
    """What the runs show, once for figures, report and commands: capacity, saturation, regions and comparisons."""
    input:
        summary=paths.SUMMARY,
    output:
        ANALYSED,
    log:
        "logs/analyse.log",
    conda:
        "../envs/bench.yaml"
    params:
        code=code_of("analyse", shows=False),
        decision=PLAN.config.decision.model_dump(include={"slo", "failed_share"}),
    script:
        "../scripts/analyse.py"


rule relieve:
    """What relieving each of a server's resources would bring to each curve, by replays of its calibrated model."""
    input:
        capacity=paths.ANALYSED.format(table="capacity.parquet"),
        summary=paths.SUMMARY,
        requests=of_runs(paths.REQUESTS),
        launches=LAUNCHES,
        sessions=INDEXES,
    output:
        # Curves whose runs, limit and code are the same are kept from the file that is there.
        reliefs=update(paths.RELIEFS),
    log:
        "logs/relieve.log",
    conda:
        "../envs/bench.yaml"
    params:
        code=code_of("relieve"),
        decision=PLAN.config.decision.model_dump(include={"slo", "failed_share"}),
    script:
        "../scripts/relieve.py"


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
    conda:
        "../envs/bench.yaml"
    params:
        code=code_of("findings", shows=False),
        decision=PLAN.config.decision.model_dump(),
        device=DEVICE,
    script:
        "../scripts/findings.py"
