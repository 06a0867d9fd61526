from pathlib import Path

from bench.findings.analysis import TABLES, Analysis, write_analysis
from bench.parse.windows import of_windows
from bench.runs.summary import read_summary
from bench.study.decision import Decision
from bench.workflow import job

with job(snakemake.log[0]):
    runs = of_windows(read_summary(Path(snakemake.input.summary)))[0]
    write_analysis(Analysis(runs, Decision(**snakemake.params.decision)), Path(snakemake.output[0]).parent, TABLES)
