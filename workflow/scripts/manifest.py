from pathlib import Path

from bench.figures import Results
from bench.report import write_manifest
from bench.workflow import job

with job(snakemake.log[0]) as say:
    results = Results.read(Path(snakemake.input.summary), Path(snakemake.input.timeseries))
    write_manifest(
        Path(snakemake.output.manifest),
        figures=[Path(path) for path in snakemake.input.figures],
        page=Path(snakemake.input.page),
        results=results,
    )
    if invalid := results.runs["valid"].not_().sum():
        say(
            f"{invalid} of {results.runs.height} runs are invalid: the report and `.venv/bin/bench runs` say why. Most often something "
            "else ran on this machine; `.venv/bin/bench discard --invalid` and the same make once more measure them again. Both take "
            "--configfile for a study that is not config/config.yaml."
        )
