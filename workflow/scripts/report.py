from pathlib import Path

from bench.figures import Results
from bench.report import commit_of, write_report
from bench.workflow import job

with job(snakemake.log[0]):
    write_report(
        Path(snakemake.output.page),
        title=snakemake.params.title,
        results=Results.read(Path(snakemake.input.summary), Path(snakemake.input.timeseries)),
        specs=[Path(path) for path in snakemake.input.specs],
        facts=[Path(path) for path in snakemake.input.facts],
        commit=commit_of(Path(snakemake.scriptdir)),
    )
