from pathlib import Path

from bench.findings.registry import draw_figure
from bench.findings.tables import Tables
from bench.models.catalogue import Accelerator
from bench.runs.paths import Paths
from bench.study.decision import Decision
from bench.workflow import job

with job(snakemake.log[0]):
    results = Tables.read(
        Path(snakemake.input.summary),
        Path(snakemake.input.timeseries),
        Decision(**snakemake.params.decision),
        Accelerator(**snakemake.params.device) if snakemake.params.device else None,
        analysis=Path(Paths.ANALYSIS),
        calibration=next(map(Path, snakemake.input.get("calibration", ())), None),
    )
    draw_figure(snakemake.wildcards.figure, results, Path(snakemake.output.svg).with_suffix(""))
