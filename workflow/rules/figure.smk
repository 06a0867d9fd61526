rule figure:
    """One figure of the whole study."""
    input:
        summary=paths.SUMMARY,
        timeseries=paths.TIMESERIES,
        code=library(
            "figures",
            "analysis/compare.py",
            "analysis/factors.py",
            "analysis/importance.py",
            "analysis/lengths.py",
            "analysis/levels.py",
            "analysis/regions.py",
            "analysis/repeats.py",
            "analysis/saturation.py",
        ),
        chart=lambda wildcards: library(
            f"figures/charts/{wildcards.figure.replace('-', '_')}.py"
        ),
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
    script:
        "../scripts/figure.py"
