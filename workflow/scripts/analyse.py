from pathlib import Path

from bench.analyse import analyse, servers_of, write_analysis
from bench.analysis.windows import of_windows
from bench.models import geometry_of_model
from bench.records.summary import read_summary
from bench.study import Plan, load_config
from bench.workflow import job

with job(snakemake.log[0]):
    plan = Plan.of(load_config(snakemake.config, source="the workflow's configuration"))
    runs = of_windows(read_summary(Path(snakemake.input.summary)))[0]
    found = analyse(runs, plan.config.decision, plan.device, servers_of(plan.deployments.values(), geometry_of_model))
    write_analysis(found, Path(snakemake.output[0]).parent)
