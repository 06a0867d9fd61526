from pathlib import Path

import polars as pl

from bench.errors import BenchError
from bench.grading import grade, read_set
from bench.records.columns import schema_of
from bench.records.summary import read_summary
from bench.workflow import job

with job(snakemake.log[0]) as say:
    tasks = {digest: task for file, column in snakemake.params.sets for digest, task in read_set(Path(file), column).items()}
    try:
        rows = grade(read_summary(Path(snakemake.input.summary)).iter_rows(named=True), tasks, say)
    except BenchError as error:  # a machine without a sandbox must not cost the study its report
        say(f"answers are not graded: {error}")
        rows = []
    pl.DataFrame(rows, schema=schema_of("grades")).write_parquet(snakemake.output.grades)
