# The study's plan, and the input functions that the rules share. Everything else is in src/bench.
import sys
from functools import cache
from pathlib import Path

from snakemake.exceptions import WorkflowError

# The library of this checkout, for the workflow and its jobs, whichever environment runs them.
sys.path.insert(0, str(Path(workflow.basedir) / "src"))

from bench.errors import BenchError
from bench.figures import figures_of
from bench.study import Paths as paths
from bench.study import Plan, load_config
from bench.study.plan import PROTOCOL, digest
from bench.workflow import announce_workflow, end_jobs_on_sigterm

announce_workflow(Path(workflow.basedir) / "src")


onstart:
    end_jobs_on_sigterm()
    if workflow.local_exec:
        # Snakemake's limit of jobs a second is meant for clusters. Here each round of scheduling would bring another one a second later,
        # for ever: more with every job that ends, on the cores that are measured.
        workflow.scheduler.job_rate_limiter = None


try:
    PLAN = Plan.of(
        load_config(
            config,
            source=", ".join(map(str, workflow.configfiles)) or "--config",
            files=[Path(file) for file in workflow.configfiles],
        )
    )
except BenchError as error:
    raise WorkflowError(f"the configuration is refused\n{error}")

# Whether it is a pack's study. Snakemake would draw what a summary has already, and be silent about runs that cannot be had.
PACKED = any(
    Path(file).match("results/packs/*/study.yaml") for file in workflow.configfiles
)
if absent := [run.key for run in PLAN.runs if PACKED and not run.record.exists()]:
    raise WorkflowError(
        f"{len(absent)} of {len(PLAN.runs)} runs are not in the pack, such as {absent[0]}, and a pack's study measures nothing. "
        "Unpack one that has them, or narrow SELECT."
    )

RUNS = [(run.deployment.name, run.name) for run in PLAN.runs]
FIGURES = figures_of(PLAN.rows)


wildcard_constraints:
    engine="[a-z0-9.-]+",
    model="[a-z0-9.-]+",
    deployment="[a-z0-9.-]+",
    run="[a-z0-9._-]+",
    figure="[a-z0-9-]+",


@cache
def library(*parts):
    """Digest of the files of src/bench that decide a rule's result: a change in one of them runs the rule again.

    A parameter and no input: Snakemake would look at each file for every one of thousands of jobs.
    """
    root = Path(workflow.basedir) / "src/bench"
    files = [
        file
        for part in parts
        for file in (
            [root / part]
            if (root / part).suffix
            else sorted(f for f in (root / part).glob("*") if f.is_file())
        )
    ]
    return digest({str(f.relative_to(root)): f.read_text() for f in files})


def of_runs(pattern):
    """`pattern` for every run of the study."""
    return [pattern.format(deployment=d, run=r) for d, r in RUNS]


def of_deployments(pattern):
    """`pattern` for every deployment of the study."""
    return [pattern.format(deployment=d) for d in PLAN.deployments]


def engine_of(wildcards):
    """The engine's record of a deployment."""
    return paths.ENGINE.format(
        engine=PLAN.deployments[wildcards.deployment].deployment.engine
    )


def locks_of(wildcards):
    """The digest of each lock of an engine."""
    specs = PLAN.deployments.values()
    return next(dict(s.locks) for s in specs if s.deployment.engine == wildcards.engine)


def checkpoint_of(wildcards):
    """The checkpoint's record of a deployment; none where the server is not ours to start."""
    spec = PLAN.deployments[wildcards.deployment]
    if spec.engine.source == "external":
        return []
    return paths.CHECKPOINT.format(model=spec.deployment.model)


def gpus_of(deployment):
    """GPUs that a session needs."""
    spec = PLAN.deployments[deployment]
    managed = spec.engine.source != "external"
    return (
        spec.deployment.tensor_parallel
        if managed and spec.engine.device == "cuda"
        else 0
    )


def cores_of(deployment):
    """Cores of a session: on this machine all that there are, so that nothing else runs beside a measurement."""
    spec = PLAN.deployments[deployment].deployment
    return workflow.resource_settings.cores or spec.cores * spec.tensor_parallel + 2
