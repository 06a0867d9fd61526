from pathlib import Path

from bench.findings.analysis import FINDINGS, TABLES, Analysis, write_analysis
from bench.findings.ceilings import servers_of
from bench.models.config_json import geometry_of_model
from bench.parse.windows import of_windows
from bench.predict.calibration import Reliefs
from bench.runs.files import read_known
from bench.runs.summary import read_summary
from bench.study.read import plan_of
from bench.workflow import job

with job(snakemake.log[0]):
    plan = plan_of(snakemake.config)
    folder = Path(snakemake.output.findings).parent
    found = Analysis(
        of_windows(read_summary(Path(snakemake.input.summary)))[0],
        plan.config.decision,
        plan.device,
        servers_of(plan.deployments.values(), geometry_of_model),
        (read_known(Reliefs, Path(snakemake.input.reliefs)) or Reliefs()).by_curve(),
        folder,
        TABLES,
    )
    write_analysis(found, folder, FINDINGS)
