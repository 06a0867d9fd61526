from pathlib import Path

from bench.figures import Results
from bench.figures.save import save_figure
from bench.study import Decision, Device
from bench.workflow import job

with job(snakemake.log[0]):
    results = Results.read(
        Path(snakemake.input.summary),
        Path(snakemake.input.timeseries),
        Decision(**snakemake.params.decision),
        Device(**snakemake.params.device) if snakemake.params.device else None,
    )
    save_figure(snakemake.wildcards.figure, results, Path(snakemake.output.svg).with_suffix(""))
