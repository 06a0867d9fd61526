from pathlib import Path

import polars as pl

from bench.predict.calibration import Calibration, Reliefs
from bench.predict.relief import find_reliefs
from bench.predict.study import calibrate_study
from bench.runs.files import read_kept, write_kept
from bench.runs.summary import read_summary
from bench.study.decision import Decision
from bench.study.read import plan_of
from bench.workflow import job

with job(snakemake.log[0]) as say:
    table, code = read_summary(Path(snakemake.input.summary)), snakemake.params.code
    workloads = {(run.deployment.name, run.name): run.workload for run in plan_of(snakemake.config).runs}
    capacity, slos = pl.read_parquet(snakemake.input.capacity), Decision(**snakemake.params.decision).slos
    models, gains = map(Path, snakemake.output)
    write_kept(
        calibrate_study(table, models.parent, workloads, code=code, known=read_kept(Calibration, models), say=say), models
    )
    write_kept(find_reliefs(table, gains.parent, capacity, slos, code=code, known=read_kept(Reliefs, gains), say=say), gains)
