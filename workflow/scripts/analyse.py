from pathlib import Path

from bench.analyse import analyse, write_tables
from bench.analysis.windows import of_windows
from bench.records.searches import found_in
from bench.records.summary import read_summary
from bench.study import Decision, Paths
from bench.workflow import job

with job(snakemake.log[0]):
    runs = of_windows(read_summary(Path(snakemake.input.summary)))[0]
    searches = [Path(Paths.SEARCHES.format(deployment=Path(index).parent.name)) for index in snakemake.input.sessions]
    found = analyse(runs, Decision(**snakemake.params.decision), searches=found_in(searches))
    write_tables(found, Path(snakemake.output[0]).parent)
