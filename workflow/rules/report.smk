# What a figure may be drawn from, and some figures and the report beside it.
DRAWN = {"summary": paths.SUMMARY, "timeseries": paths.TIMESERIES, "analysis": ANALYSED}
USED = {"calibration": CALIBRATED, "grades": GRADED, "tuning": TUNED}


rule figure:
    """One chart, as SVG, PNG and Vega-Lite specification."""
    input:
        unpack(lambda w: {"calibration": CALIBRATED} if "calibration" in used_by(w.figure) else {}),
        **DRAWN,
    output:
        svg=report(paths.FIGURE_SVG, caption="../report/figure.rst", category="Figures", labels={"figure": "{figure}"}),
        png=paths.FIGURE_PNG,
        spec=paths.FIGURE_SPEC,
    log:
        "logs/figures/{figure}.log",
    localrule: True
    conda:
        "../envs/bench.yaml"
    params:
        code=lambda wildcards: code_of("figure", module_of(wildcards.figure)),
        decision=lambda wildcards: PLAN.config.decision.model_dump(include=set(used_by(wildcards.figure))),
        device=lambda wildcards: (DEVICE if "accelerator" in used_by(wildcards.figure) else None),
    script:
        "../scripts/figure.py"


rule report:
    """The figures and tables on one page that works offline; and a list of every figure with its checksum and runs."""
    input:
        **DRAWN,
        **USED,
        figures=expand([paths.FIGURE_SPEC, paths.FIGURE_SVG, paths.FIGURE_PNG], figure=FIGURES),
        sessions=INDEXES,
        causes=paths.CAUSES,
        findings=paths.FINDINGS,
    output:
        page=report(paths.REPORT, caption="../report/page.rst", category="Report"),
        markdown=paths.REPORT_MARKDOWN,
        manifest=paths.MANIFEST,
    log:
        "logs/report.log",
    localrule: True
    conda:
        "../envs/bench.yaml"
    params:
        code=code_of("report", *section_modules()),
        title=PLAN.config.study.title,
        # Those that searches find are counted when the page is written: here they may be still to come.
        listed=sum(not run.searched for run in PLAN.every),
        decision=DECISION,
        thresholds=PLAN.config.thresholds.model_dump(),
        device=DEVICE,
    script:
        "../scripts/report.py"
