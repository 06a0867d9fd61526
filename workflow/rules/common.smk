# The study's plan, and the input functions that rules share. Everything else is in src/bench.
import os
import sys
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from snakemake.exceptions import WorkflowError

# The library beside these rules, for the workflow and its jobs, whichever environment runs them. Where the rules are used from a wheel
# or a URL there is none: it is installed then.
SOURCES = Path(workflow.current_basedir.get_path_or_uri(secret_free=True)).parents[1] / "src"
if SOURCES.is_dir():
    sys.path.insert(0, str(SOURCES))

try:
    import bench
except ModuleNotFoundError:
    raise WorkflowError(
        "Saturate's library is not installed where Snakemake is. Install saturate-bench there, of the version that this workflow has."
    )

from bench.errors import BenchError
from bench.findings.registry import figures_of, module_of, used_by
from bench.measure.slurm import session_needs
from bench.plugins import plugin
from bench.report.measuring import measuring_lines
from bench.runs.checksums import checksum
from bench.runs.grades import failed_gradings
from bench.runs.paths import TABLES, Paths as paths
from bench.runs.store import Store
from bench.study.last import remember_study
from bench.study.plan import PROTOCOL, Plan
from bench.study.read import load_config
from bench.study.state import new_sessions, refuse_lacking, refuse_unmeasured, unended_searches, unmeasured_sessions
from bench.workflow import announce_workflow, code_of, end_jobs_on_sigterm

announce_workflow(SOURCES)


@contextmanager
def in_words(why=""):
    """A refusal of the library's as one of the workflow's: Snakemake shows others with a traceback."""
    try:
        yield
    except BenchError as error:
        raise WorkflowError(f"{why}{error}") from None


SOURCE = ", ".join(map(str, workflow.configfiles)) or "--config"
with in_words("The configuration is refused:\n"):
    PLAN = Plan.of(load_config(config, source=SOURCE, files=list(map(Path, workflow.configfiles))), source=SOURCE)

STORE = Store()
PACKED = PLAN.config.packed
# What a pack has was measured elsewhere: no session of it is waited for, and no file that it names is read to grade answers.
with in_words():
    refuse_lacking(PLAN, STORE)
SESSIONS = [] if PACKED else PLAN.sessions
INDEXES = [str(paths.session(*session)) for session in SESSIONS]
NEW = new_sessions(PLAN, STORE)
LAUNCHES = expand(paths.LAUNCH, deployment=PLAN.deployments)
GRADING = plugin("grading", "sets")  # it stands beside the library
GRADED_SETS = (
    [] if PACKED else GRADING.sets(PLAN.workloads, lambda line: workflow.is_main_process and print(line, file=sys.stderr))
)
GRADED = [paths.GRADES] if (Path(paths.GRADES).exists() if PACKED else GRADED_SETS) else []
TUNED = [paths.TUNING] if PLAN.tuned or (PACKED and Path(paths.TUNING).exists()) else []
FIGURES = figures_of(PLAN.rows, tuned=bool(TUNED))
ANALYSED = expand(paths.ANALYSED, table=TABLES)
CALIBRATED = [paths.CALIBRATION] if "predicted-loads" in FIGURES else []
DEVICE = PLAN.device.model_dump() if PLAN.device else None


onstart:
    end_jobs_on_sigterm()
    if len(workflow.configfiles) == 1 and "study" in workflow.globals["config"]:
        remember_study(Path(os.path.relpath(workflow.configfiles[0])))
    # With its limit of jobs a second, which no option takes away, Snakemake looks for jobs every second for each one that ended,
    # on cores that are measured.
    workflow.scheduler.job_rate_limiter = None
    starts = not workflow.touch and any(job.rule.name == "measure" for job in workflow.dag.needrun_jobs())
    if starts and (sessions := unmeasured_sessions(PLAN, STORE)):
        # What will be measured, and an end if it cannot be, before any job runs. On a cluster the nodes are other machines.
        for line in measuring_lines(PLAN, STORE.holds, unended_searches(PLAN, STORE)):
            print(line, file=sys.stderr)
        if on_slurm():
            with in_words("nothing was submitted: "):
                prepare_slurm(sessions)
        elif workflow.local_exec:
            from bench.measure.preflight import refuse_faults

            with in_words("nothing was started: this study cannot be measured here\n"):
                refuse_faults(PLAN, STORE)


wildcard_constraints:
    engine="[a-z0-9.-]+",
    model="[a-z0-9.-]+",
    deployment="[a-z0-9.-]+",
    session="[0-9]+",
    run="[a-z0-9._-]+",
    figure="[a-z0-9-]+",


@cache
def plan_of(_moments):
    """The plan with what searches have measured by now."""
    plan = Plan.of(PLAN.config)
    with in_words():
        refuse_unmeasured(plan, [session for session in SESSIONS if session not in NEW], STORE)
    return plan


def of_runs(pattern):
    """`pattern` for every run of the study.

    Of a session that was begun before, once it has ended: searches choose runs, and one that drifted is measured again. The runs
    of a new one are those that the study lists, so that a dry run shows them.
    """

    def files(wildcards):
        for deployment, session in SESSIONS:
            if (deployment, session) not in NEW:
                checkpoints.measure.get(deployment=deployment, session=session)
        moments = tuple(Path(index).stat().st_mtime_ns for index in INDEXES if Path(index).exists())
        return [pattern.format(deployment=run.deployment.name, run=run.name) for run in plan_of(moments).runs]

    return files


def record_of_run(wildcards):
    """SHA-256 of a run's record, None before it is measured: another one means that it was measured again."""
    record = Path(paths.RECORD.format(**wildcards))
    return checksum(record) if record.exists() else None


def cores_of(wildcards):
    """Cores of a session: here all, so that nothing runs beside it; with `--resources gpu=N` what it needs, if it has GPUs."""
    spec, here = PLAN.deployments[wildcards.deployment], workflow.resource_settings.cores
    beside = spec.gpus_started and "gpu" in workflow.global_resources
    return here if here and not beside else session_needs(PLAN, spec.name).cores


include: "cluster.smk"
