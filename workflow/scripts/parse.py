from pathlib import Path

from bench.parse.session import parse_session
from bench.runs.files import read
from bench.runs.paths import Paths
from bench.runs.store import SessionIndex
from bench.workflow import job

with job(snakemake.log[0]) as say:
    runs = Path(Paths.RUNS) / snakemake.wildcards.deployment
    records = snakemake.params.records or read(SessionIndex, Path(snakemake.input.index)).runs
    parse_session(runs, records, Path(snakemake.output.parsed), code=snakemake.params.code, say=say)
