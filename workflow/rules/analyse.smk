localrules:
    analyse,


rule analyse:
    """What the runs show: capacity, saturation, regions and comparisons, once for figures, report and commands."""
    input:
        summary=paths.SUMMARY,
    output:
        ANALYSED,
    log:
        "logs/analyse.log",
    conda:
        "../envs/bench.yaml"
    params:
        code=library(
            "analyse",
            "analysis",
            "errors.py",
            "records",
            "statistics.py",
            "study/curves.py",
            "study/slo.py",
        ),
        decision=PLAN.config.decision.model_dump(),
    script:
        "../scripts/analyse.py"
