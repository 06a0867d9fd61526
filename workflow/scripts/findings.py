from pathlib import Path

from bench.analyse import causes_of, findings_of, read_analysis, servers_of, write_causes, write_findings
from bench.analysis.windows import of_windows
from bench.models.config_json import geometry_of_model
from bench.predict.relief_record import Reliefs, read_reliefs
from bench.runs.summary import read_summary
from bench.study.plan import Plan
from bench.study.read import load_config
from bench.workflow import job

with job(snakemake.log[0]):
    plan = Plan.of(load_config(snakemake.config, source="the workflow's configuration"))
    folder = Path(snakemake.output.findings).parent
    runs = of_windows(read_summary(Path(snakemake.input.summary)))[0]
    servers = servers_of(plan.deployments.values(), geometry_of_model)
    tables, reliefs = read_analysis(folder), read_reliefs(Path(snakemake.input.reliefs)) or Reliefs()
    write_causes(causes_of(tables, runs, plan.config.decision, reliefs.by_curve()), folder)
    found = findings_of(tables, runs, plan.config.decision, plan.device, servers)
    write_findings(found, folder)
