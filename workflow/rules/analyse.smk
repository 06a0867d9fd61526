localrules:
    analyse,


rule analyse:
    """What the runs show: capacity, saturation, regions, comparisons and causes, once for figures, report and commands."""
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
            "models",
            "parse/percentiles.py",
            "parse/steady.py",
            "records",
            "statistics.py",
            "study/questions.py",
            "study/slo.py",
        ),
        decision=PLAN.config.decision.model_dump(),
        device=PLAN.device.model_dump() if PLAN.device else None,
    script:
        "../scripts/analyse.py"
