from pathlib import Path

import polars as pl

from bench.predict.calibration import Calibration, Reliefs
from bench.predict.relief import find_reliefs
from bench.predict.study import calibrate_study
from bench.runs.files import kept, read_known, write_record
from bench.runs.summary import read_summary
from bench.study.decision import Decision
from bench.study.read import plan_of
from bench.workflow import job

with job(snakemake.log[0]) as say:
    table, code = read_summary(Path(snakemake.input.summary)), snakemake.params.code
    workloads = {(run.deployment.name, run.name): run.workload for run in plan_of(snakemake.config).runs}
    file = Path(snakemake.output.calibration)
    found = calibrate_study(table, file.parent, workloads, code=code, known=read_known(Calibration, kept(file)), say=say)
    for path in (kept(file), file):
        write_record(found, path)
    file = Path(snakemake.output.reliefs)
    capacity, slos = pl.read_parquet(snakemake.input.capacity), Decision(**snakemake.params.decision).slos
    reliefs = find_reliefs(table, file.parent, capacity, slos, code=code, known=read_known(Reliefs, kept(file)), say=say)
    for path in (kept(file), file):
        write_record(reliefs, path)
