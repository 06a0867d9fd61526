from pathlib import Path

from bench.beside.quality.answers import grade
from bench.beside.quality.graded_set import read_set
from bench.errors import BenchError
from bench.runs.grades import write_grades
from bench.runs.summary import read_summary
from bench.workflow import job

with job(snakemake.log[0]) as say:
    tasks = {digest: task for file, column in snakemake.params.sets for digest, task in read_set(Path(file), column).items()}
    try:
        rows, why = grade(read_summary(Path(snakemake.input.summary)).iter_rows(named=True), tasks, say), None
    except BenchError as error:  # a machine without a sandbox must not cost the study its report
        say(f"answers are not graded: {error}")
        rows, why = [], str(error)
    write_grades(Path(snakemake.output.grades), rows, why=why, failures=snakemake.params.failures + bool(why))
