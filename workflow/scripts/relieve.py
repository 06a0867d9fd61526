from pathlib import Path

import polars as pl

from bench.predict.relief import find_reliefs
from bench.predict.relief_record import Reliefs
from bench.runs.files import read_known, write_record
from bench.runs.summary import read_summary
from bench.study.decision import Decision
from bench.workflow import job

with job(snakemake.log[0]) as say:
    file = Path(snakemake.output.reliefs)
    found = find_reliefs(
        read_summary(Path(snakemake.input.summary)),
        file.parent,
        pl.read_parquet(snakemake.input.capacity),
        Decision(**snakemake.params.decision).slos,
        code=snakemake.params.code,
        known=read_known(Reliefs, file),
        say=say,
    )
    write_record(found, file)
