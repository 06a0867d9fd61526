from pathlib import Path

from bench.analyse import analyse, write_analysis
from bench.analysis.windows import of_windows
from bench.records.summary import read_summary
from bench.study import Decision
from bench.workflow import job

with job(snakemake.log[0]):
    runs = of_windows(read_summary(Path(snakemake.input.summary)))[0]
    found = analyse(runs, Decision(**snakemake.params.decision))
    write_analysis(found, Path(snakemake.output[0]).parent)
