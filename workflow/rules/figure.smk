# What some figures are drawn from beside the runs.
USED = {"calibration": CALIBRATED, "tuning": TUNED}


rule figure:
    """One chart, as SVG, PNG and Vega-Lite specification."""
    input:
        unpack(lambda w: {use: file for use, files in USED.items() if use in used_by(w.figure) for file in files}),
        summary=paths.SUMMARY,
        timeseries=paths.TIMESERIES,
        analysis=ANALYSED,
    output:
        svg=report(paths.FIGURE_SVG, caption="../report/figure.rst", category="Figures", labels={"figure": "{figure}"}),
        png=paths.FIGURE_PNG,
        spec=paths.FIGURE_SPEC,
    log:
        "logs/figures/{figure}.log",
    conda:
        "../envs/bench.yaml"
    params:
        code=lambda wildcards: code_of("figure", module_of(wildcards.figure)),
        decision=lambda wildcards: PLAN.config.decision.model_dump(include=set(used_by(wildcards.figure))),
        device=lambda wildcards: (DEVICE if "accelerator" in used_by(wildcards.figure) else None),
    script:
        "../scripts/figure.py"
