# What searches of `auto` ladders measured: runs that nobody could list before.
localrules:
    found,
    found_run,


checkpoint found:
    """The runs that searches measured, of all deployments."""
    input:
        SEARCHED,
    output:
        runs=paths.FOUND,
    log:
        "logs/found.log",
    conda:
        "../envs/bench.yaml"
    script:
        "../scripts/found.py"


rule found_run:
    """A run of a search in its place, where it is gone from there: the session that measured it has put it there."""
    output:
        record=paths.RECORD,
    log:
        "logs/found/{deployment}/{run}.log",
    conda:
        "../envs/bench.yaml"
    script:
        "../scripts/found_run.py"
