from pathlib import Path

from bench.runs.files import write_record
from bench.search.tuning import tune
from bench.search.tuning_words import tuning_lines
from bench.study.read import plan_of
from bench.workflow import job

with job(snakemake.log[0]) as say:
    found = tune(plan_of(snakemake.config).config, say)
    for line in tuning_lines(found):
        say(line)
    write_record(found, Path(snakemake.output.tuning))
