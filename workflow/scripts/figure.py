from pathlib import Path

from bench.findings.registry import draw_figure
from bench.findings.tables import Tables
from bench.models.accelerators import Accelerator
from bench.runs.paths import Paths
from bench.study.decision import Decision
from bench.workflow import job

with job(snakemake.log[0]):
    results = Tables.read(
        Path(snakemake.input.summary),
        Path(snakemake.input.timeseries),
        Decision(**snakemake.params.decision),
        Accelerator(**snakemake.params.device) if snakemake.params.device else None,
        next(map(Path, snakemake.input.calibration), None),
        analysis=Path(Paths.ANALYSIS),
        grades=next(map(Path, snakemake.input.grades), None),
        tuning=next(map(Path, snakemake.input.tuning), None),
    )
    draw_figure(snakemake.wildcards.figure, results, Path(snakemake.output.svg).with_suffix(""))
