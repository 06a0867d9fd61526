rule grade:
    """Which tasks of a graded set each run solved. It runs the answers' programs on every core, so only when all is measured."""
    input:
        summary=paths.SUMMARY,
    output:
        grades=paths.GRADES,
    log:
        "logs/grade.log",
    localrule: True
    conda:
        "../envs/bench.yaml"
    params:
        code=code_of("grade", GRADING.__module__),
        sets=GRADED_SETS,
        # What is sent is part of the runs' digests; by what it is graded is not.
        holds=[checksum(Path(file)) for file in GRADED_SETS],
    script:
        "../scripts/grade.py"
