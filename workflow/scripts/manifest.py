from pathlib import Path

from bench.findings.tables import Tables
from bench.findings.trust import closing_lines
from bench.report.page import write_manifest
from bench.workflow import job

with job(snakemake.log[0]) as say:
    figures = [Path(path) for path in snakemake.input.figures]
    results = Tables.read(Path(snakemake.input.summary), Path(snakemake.input.timeseries))
    closing = closing_lines(results.runs, figures=len(figures))
    write_manifest(
        Path(snakemake.output.manifest),
        figures=figures,
        page=Path(snakemake.input.page),
        runs=results.runs,
        closing=closing,
    )
    for line in closing:
        say(line)
