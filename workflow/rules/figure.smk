localrules:
    figures,


rule figures:
    """Every figure of the study, in one process; those that would come out unchanged stay."""
    input:
        summary=paths.SUMMARY,
        timeseries=paths.TIMESERIES,
        analysis=expand(paths.ANALYSED, table=DRAWN),
        calibration=CALIBRATED,
        searches=SEARCHED,
    output:
        svg=[
            update(
                report(
                    paths.FIGURE_SVG.format(figure=figure),
                    category="Figures",
                    labels={"figure": figure},
                )
            )
            for figure in FIGURES
        ],
        png=[update(paths.FIGURE_PNG.format(figure=figure)) for figure in FIGURES],
        spec=[update(paths.FIGURE_SPEC.format(figure=figure)) for figure in FIGURES],
    log:
        "logs/figures.log",
    conda:
        "../envs/bench.yaml"
    params:
        code={figure: code_of_figure(figure) for figure in FIGURES},
        decision=PLAN.config.decision.model_dump(),
        device=PLAN.device.model_dump() if PLAN.device else None,
    script:
        "../scripts/figure.py"
