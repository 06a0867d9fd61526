from pathlib import Path

from bench.figures import Results
from bench.figures.drawing import draw_figures
from bench.published import Accelerator
from bench.study import Decision, Paths
from bench.workflow import job

with job(snakemake.log[0]) as say:
    tables = [Path(snakemake.input.summary), Path(snakemake.input.timeseries)]
    analysed = list(map(Path, snakemake.input.analysis))
    calibration = next(map(Path, snakemake.input.calibration), None)
    results = Results.read(
        *tables,
        Decision(**snakemake.params.decision),
        Accelerator(**snakemake.params.device) if snakemake.params.device else None,
        calibration,
        list(map(Path, snakemake.input.searches)),
        Path(Paths.ANALYSIS),
    )
    drawn = draw_figures(
        snakemake.params.code, results, Path(Paths.MANIFEST).parent, tables=tables + analysed, calibration=calibration, say=say
    )
    say(f"drawn: {', '.join(drawn) or 'none'}; of {len(snakemake.params.code)} figures")
