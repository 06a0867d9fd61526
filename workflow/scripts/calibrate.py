from pathlib import Path

from bench.predict.calibration import Calibration
from bench.predict.study import calibrate_study
from bench.runs.files import read_known, write_record
from bench.runs.summary import read_summary
from bench.study.read import plan_of
from bench.workflow import job

with job(snakemake.log[0]) as say:
    plan = plan_of(snakemake.config)
    file = Path(snakemake.output.calibration)
    found = calibrate_study(
        read_summary(Path(snakemake.input.summary)),
        file.parent,
        {(run.deployment.name, run.name): run.workload for run in plan.runs},
        code=snakemake.params.code,
        known=read_known(Calibration, file),
        say=say,
    )
    write_record(found, file)
