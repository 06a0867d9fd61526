from pathlib import Path

from bench.parse.run import parse_run
from bench.workflow import job

with job(snakemake.log[0]):
    parse_run(
        Path(snakemake.output.summary).parent,
        requests=Path(snakemake.output.requests),
        telemetry=Path(snakemake.output.telemetry),
        wide=Path(snakemake.output.wide),
        summary=Path(snakemake.output.summary),
    )
