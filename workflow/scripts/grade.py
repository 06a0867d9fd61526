from pathlib import Path

from bench.errors import BenchError
from bench.plugins import plugin
from bench.runs.grades import write_grades
from bench.runs.summary import read_summary
from bench.workflow import job

with job(snakemake.log[0]) as say:
    runs = read_summary(Path(snakemake.input.summary)).iter_rows(named=True)
    try:
        rows, why = plugin("grading", "sets").grade(runs, snakemake.params.sets, say), None
    except BenchError as error:  # a machine without a sandbox must not cost the study its report
        say(f"answers are not graded: {error}")
        rows, why = [], str(error)
    write_grades(Path(snakemake.output.grades), rows, why=why)
