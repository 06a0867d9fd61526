from pathlib import Path

from bench.figures import Results
from bench.report import write_manifest
from bench.workflow import job

with job(snakemake.log[0]):
    write_manifest(
        Path(snakemake.output.manifest),
        figures=[Path(path) for path in snakemake.input.figures],
        page=Path(snakemake.input.page),
        results=Results.read(Path(snakemake.input.summary), Path(snakemake.input.timeseries)),
    )
