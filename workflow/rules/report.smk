rule report:
    """The figures and tables on one page that works offline."""
    input:
        specs=expand(paths.FIGURE_SPEC, figure=FIGURES),
        sessions=INDEXES,
        summary=paths.SUMMARY,
        timeseries=paths.TIMESERIES,
        analysis=ANALYSED,
        causes=paths.CAUSES,
        findings=paths.FINDINGS,
        calibration=CALIBRATED,
        grades=GRADED,
        tuning=TUNED,
    output:
        page=report(paths.REPORT, caption="../report/page.rst", category="Report"),
        markdown=paths.REPORT_MARKDOWN,
    log:
        "logs/report.log",
    conda:
        "../envs/bench.yaml"
    params:
        code=code_of("report"),
        title=PLAN.config.study.title,
        # Those that searches find are counted when the page is written: here they may be still to come.
        listed=sum(not run.searched for run in PLAN.every),
        decision=PLAN.config.decision.model_dump(),
        thresholds=PLAN.config.thresholds.model_dump(),
        device=DEVICE,
    script:
        "../scripts/report.py"


rule manifest:
    """Every figure with its checksum, and the runs that it was drawn from."""
    input:
        figures=expand(
            [paths.FIGURE_SVG, paths.FIGURE_PNG, paths.FIGURE_SPEC],
            figure=FIGURES,
        ),
        page=paths.REPORT,
        summary=paths.SUMMARY,
        timeseries=paths.TIMESERIES,
        analysis=ANALYSED,
        causes=paths.CAUSES,
        findings=paths.FINDINGS,
    output:
        manifest=paths.MANIFEST,
    log:
        "logs/manifest.log",
    conda:
        "../envs/bench.yaml"
    params:
        code=code_of("manifest"),
        decision=PLAN.config.decision.model_dump(),
    script:
        "../scripts/manifest.py"
