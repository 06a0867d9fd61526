rule figure:
    """One figure of the whole study."""
    input:
        summary=paths.SUMMARY,
        timeseries=paths.TIMESERIES,
    output:
        svg=report(
            paths.FIGURE_SVG,
            category="Figures",
            labels={"figure": "{figure}"},
        ),
        png=paths.FIGURE_PNG,
        spec=paths.FIGURE_SPEC,
    log:
        "logs/figure/{figure}.log",
    conda:
        "../envs/bench.yaml"
    params:
        code=library("figures", "analysis"),
        chart=lambda wildcards: library(
            f"figures/charts/{wildcards.figure.replace('-', '_')}.py"
        ),
        decision=PLAN.config.decision.model_dump(),
        device=PLAN.device.model_dump() if PLAN.device else None,
    script:
        "../scripts/figure.py"
