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
    script:
        "../scripts/figure.py"
