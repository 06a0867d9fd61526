rule figure:
    """One chart, as SVG, PNG and Vega-Lite specification."""
    input:
        summary=paths.SUMMARY,
        timeseries=paths.TIMESERIES,
        analysis=ANALYSED,
        calibration=lambda wildcards: (
            CALIBRATED if "calibration" in uses_of(wildcards) else []
        ),
        grades=lambda wildcards: (GRADED if "grades" in uses_of(wildcards) else []),
        tuning=lambda wildcards: TUNED if "tuning" in uses_of(wildcards) else [],
    output:
        svg=report(paths.FIGURE_SVG, category="Figures", labels={"figure": "{figure}"}),
        png=paths.FIGURE_PNG,
        spec=paths.FIGURE_SPEC,
    log:
        "logs/figures/{figure}.log",
    localrule: True
    conda:
        "../envs/bench.yaml"
    params:
        code=code_of_figure,
        decision=lambda wildcards: PLAN.config.decision.model_dump(
            include=set(uses_of(wildcards))
        ),
        device=lambda wildcards: (
            PLAN.device.model_dump()
            if PLAN.device and "accelerator" in uses_of(wildcards)
            else None
        ),
    script:
        "../scripts/figure.py"
