from pathlib import Path

from bench.figures import Results
from bench.report import write_manifest
from bench.words.closing import closing_lines
from bench.workflow import job

with job(snakemake.log[0]) as say:
    results = Results.read(Path(snakemake.input.summary), Path(snakemake.input.timeseries))
    write_manifest(
        Path(snakemake.output.manifest),
        figures=[Path(path) for path in snakemake.input.figures],
        page=Path(snakemake.input.page),
        results=results,
    )
    for line in closing_lines(results.runs, figures=len(snakemake.input.figures)):
        say(line)
