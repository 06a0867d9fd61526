from pathlib import Path

from bench.commit import commit_of
from bench.findings.report import write_report
from bench.findings.tables import Tables
from bench.models.config_json import geometry_of_model
from bench.runs.paths import Paths
from bench.study.read import plan_of
from bench.workflow import job

with job(snakemake.log[0]):
    plan = plan_of(snakemake.config)
    write_report(
        Path(snakemake.output.page),
        summary=Path(snakemake.output.markdown),
        title=plan.config.study.title,
        results=Tables.read(
            Path(snakemake.input.summary),
            Path(snakemake.input.timeseries),
            plan.config.decision,
            plan.device,
            next(map(Path, snakemake.input.calibration), None),
            [Path(Paths.SEARCHES.format(deployment=name)) for name in plan.deployments if plan.searches_of(name)],
            Path(Paths.ANALYSIS),
            next(map(Path, snakemake.input.grades), None),
            next(map(Path, snakemake.input.tuning), None),
        ),
        specs=[Path(path) for path in snakemake.input.specs],
        facts=[Paths.facts(name) for name in plan.deployments],
        commit=commit_of(),
        of_study=plan.of_study,
        thresholds=plan.config.thresholds,
        geometries={spec.name: shape for spec in plan.deployments.values() if (shape := geometry_of_model(spec.model))},
    )
