from pathlib import Path

import polars as pl

from bench.predict.calibration import Calibration
from bench.predict.relief import find_reliefs
from bench.predict.calibration import Reliefs
from bench.predict.study import calibrate_study
from bench.runs.files import read_known, write_record
from bench.runs.summary import read_summary
from bench.study.decision import Decision
from bench.study.read import plan_of
from bench.workflow import job

with job(snakemake.log[0]) as say:
    table, code = read_summary(Path(snakemake.input.summary)), snakemake.params.code
    workloads = {(run.deployment.name, run.name): run.workload for run in plan_of(snakemake.config).runs}
    file = Path(snakemake.output.calibration)
    known = read_known(Calibration, file)
    write_record(calibrate_study(table, file.parent, workloads, code=code, known=known, say=say), file)
    file = Path(snakemake.output.reliefs)
    capacity, slos = pl.read_parquet(snakemake.input.capacity), Decision(**snakemake.params.decision).slos
    known = read_known(Reliefs, file)
    write_record(find_reliefs(table, file.parent, capacity, slos, code=code, known=known, say=say), file)
