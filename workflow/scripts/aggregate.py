from pathlib import Path

from bench.analysis import aggregate
from bench.cli.jobs import job
from bench.study.config import Thresholds

with job(snakemake.log[0]):
    aggregate(
        [Path(path) for path in snakemake.input.summaries],
        launches=[Path(path) for path in snakemake.input.launches],
        facts=[Path(path) for path in snakemake.input.facts],
        thresholds=Thresholds(**snakemake.params.thresholds),
        summary=Path(snakemake.output.summary),
        summary_csv=Path(snakemake.output.csv),
        timeseries=Path(snakemake.output.timeseries),
    )
