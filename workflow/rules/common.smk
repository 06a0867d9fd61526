# The study's plan, and the input functions that the rules share. Everything else is in src/bench.
import os
import sys
from functools import cache
from pathlib import Path

from snakemake.exceptions import WorkflowError

# The library beside these rules, for the workflow and its jobs, whichever environment runs them. Where the rules are used from a wheel
# or a URL there is none: it is installed then.
SOURCES = (
    Path(workflow.current_basedir.get_path_or_uri(secret_free=True)).parents[1] / "src"
)
if SOURCES.is_dir():
    sys.path.insert(0, str(SOURCES))

try:
    import bench
except ModuleNotFoundError:
    raise WorkflowError(
        "Saturate's library is not installed where Snakemake is. Install saturate-bench there, of the version that this workflow has."
    )

from bench.errors import BenchError
from bench.findings.registry import figures_of
from bench.findings.registry import module_of
from bench.findings.registry import used_by
from bench.beside.quality.graded_set import graded_sets
from bench.beside.quality.graded_set import set_checksums
from bench.measure.slurm.needs import needs_of
from bench.runs.checksums import checksum
from bench.runs.grades import failed_gradings
from bench.runs.paths import Paths as paths
from bench.runs.paths import TABLES
from bench.runs.store import Store
from bench.study.last import remember_study
from bench.study.plan import Plan
from bench.study.plan import PROTOCOL
from bench.study.read import load_config
from bench.study.state import measured
from bench.study.state import unended_searches
from bench.study.state import unmeasured_sessions
from bench.report.measuring import measuring_lines
from bench.workflow import announce_workflow
from bench.workflow import code_of
from bench.workflow import end_jobs_on_sigterm

announce_workflow(SOURCES)


SOURCE = ", ".join(map(str, workflow.configfiles)) or "--config"
try:
    PLAN = Plan.of(
        load_config(
            config, source=SOURCE, files=[Path(file) for file in workflow.configfiles]
        ),
        source=SOURCE,
    )
except BenchError as error:
    raise WorkflowError(f"The configuration is refused:\n{error}") from None

STORE = Store()
PACKED = PLAN.config.packed
if PACKED and (absent := [run.key for run in PLAN.runs if not STORE.holds(run)]):
    raise WorkflowError(
        f"the pack lacks {len(absent)} of its {len(PLAN.runs)} runs, such as {absent[0]}, and a pack's study measures nothing. "
        "Unpack one that has them, or narrow SELECT."
    )

TUNED = [paths.TUNING] if PLAN.tuned or (PACKED and Path(paths.TUNING).exists()) else []
FIGURES = figures_of(PLAN.rows, tuned=bool(TUNED))
ANALYSED = expand(paths.ANALYSED, table=TABLES)
CALIBRATED = [paths.CALIBRATION] if "predicted-loads" in FIGURES else []
# Of a pack only what its user had graded, with `bench grade --keep`; until then, no file that it names is read.
GRADED_SETS = (
    []
    if PACKED and not Path(paths.GRADES).exists()
    else graded_sets(
        [PLAN.config.workloads[each.workload] for each in PLAN.config.study.ladders],
        lambda line: workflow.is_main_process and print(line, file=sys.stderr),
    )
)
GRADED = (
    [paths.GRADES] if (Path(paths.GRADES).exists() if PACKED else GRADED_SETS) else []
)
# What a pack has was measured elsewhere: no session of it is waited for.
SESSIONS = [] if PACKED else PLAN.sessions
INDEXES = [str(paths.session(*session)) for session in SESSIONS]
# Sessions of which nothing is measured.
NEW = {
    (deployment, session)
    for deployment, session in SESSIONS
    if not PLAN.searches_of(deployment, session)
    and not paths.session(deployment, session).exists()
    and not any(STORE.holds(run) for run in PLAN.listed_of(deployment, session))
}


onstart:
    end_jobs_on_sigterm()
    if len(workflow.configfiles) == 1 and "study" in workflow.globals["config"]:
        remember_study(Path(os.path.relpath(workflow.configfiles[0])))


@cache
def check_sessions():
    """Say what is going to be measured, and end here if it cannot be, before any job runs. On a cluster the nodes are other machines."""
    for line in (
        measuring_lines(PLAN, STORE.holds, unended_searches(PLAN, STORE))
        if unmeasured_sessions(PLAN, STORE)
        else ()
    ):
        print(line, file=sys.stderr)
    if workflow.dryrun:
        from bench.measure.preflight import misfits

        for fault in misfits(PLAN, STORE):
            print(f"Cannot be measured here: {fault}", file=sys.stderr)
    if workflow.dryrun or workflow.touch:
        return
    if on_slurm():
        prepare_slurm()
    elif workflow.local_exec:
        from bench.measure.preflight import faults

        if found := faults(PLAN, STORE):
            raise WorkflowError(
                "nothing was started: this study cannot be measured here\n"
                + "\n".join(found)
            )


def preflight(wildcards):
    """No file: an input function is asked while the workflow is planned, and only where a session is part of it."""
    # With its limit of jobs a second, Snakemake looks for jobs once a second for every job that has ended, on cores that are measured.
    workflow.scheduling_settings.max_jobs_per_timespan = None
    if workflow.is_main_process:
        check_sessions()
    return []


wildcard_constraints:
    engine="[a-z0-9.-]+",
    model="[a-z0-9.-]+",
    deployment="[a-z0-9.-]+",
    session="[0-9]+",
    run="[a-z0-9._-]+",
    figure="[a-z0-9-]+",


def uses_of(wildcards):
    """The keys of the decision from which a figure is drawn."""
    return used_by(wildcards.figure)


def code_of_figure(wildcards):
    """Digest of the code that decides a figure."""
    return code_of("figure", module_of(wildcards.figure))


@cache
def plan_of(_moments):
    """The plan with what searches have measured by now. It refuses indexes that promise more than there is: their sessions would not start."""
    plan = Plan.of(PLAN.config)
    for deployment, session in SESSIONS:
        if (deployment, session) not in NEW and not measured(
            plan, deployment, session, STORE
        ):
            raise WorkflowError(
                f"{paths.session(deployment, session)} stands for a session that lacks a run, an answer or its facts. Remove this file, "
                "and run again: what is there is kept."
            )
    return plan


def of_runs(pattern):
    """`pattern` for every run of the study.

    Of a session that was begun before, once it has ended: searches choose runs, and a run that drifted is measured again. The runs of a
    new one are those that the study lists, so that a dry run shows them.
    """

    def files(wildcards):
        for deployment, session in SESSIONS:
            if (deployment, session) not in NEW:
                checkpoints.measure.get(deployment=deployment, session=session)
        moments = tuple(
            Path(index).stat().st_mtime_ns for index in INDEXES if Path(index).exists()
        )
        return [
            pattern.format(deployment=run.deployment.name, run=run.name)
            for run in plan_of(moments).runs
        ]

    return files


def session_before(wildcards):
    """What a session waits for: the one before it. Nothing where each deployment has one session: any order will do."""
    if PLAN.config.study.sessions == 1:
        return []
    place = PLAN.sessions.index((wildcards.deployment, int(wildcards.session)))
    return [INDEXES[place - 1]] if place else []


@cache
def sessions_of_runs():
    """The session of each run that the study lists; searches have theirs in the first one."""
    return {
        (run.deployment.name, run.name): PLAN.place_of(run).session
        for run in PLAN.listed
    }


def index_of_run(wildcards):
    """The index that lists a run; none of a pack."""
    number = sessions_of_runs().get((wildcards.deployment, wildcards.run), 1)
    return [] if PACKED else str(paths.session(wildcards.deployment, number))


def record_of_run(wildcards):
    """SHA-256 of a run's record, None before it is measured: another one means that it was measured again.

    Snakemake compares a parameter only if its function asks for wildcards alone.
    """
    record = Path(paths.RECORD.format(**wildcards))
    return checksum(record) if record.exists() else None


def engine_of(wildcards):
    """The engine's record of a deployment."""
    return paths.ENGINE.format(
        engine=PLAN.started[wildcards.deployment].deployment.engine
    )


def own_locks(engine):
    """The locks of an engine that lie in this folder; those that come with the workflow would be other files after each upgrade of it."""
    return [lock for lock in PLAN.config.engines[engine].locks if Path(lock).exists()]


def locks_of(wildcards):
    """The digest of each lock of an engine."""
    specs = PLAN.started.values()
    return next(dict(s.locks) for s in specs if s.deployment.engine == wildcards.engine)


def checkpoint_of(wildcards):
    """The checkpoint's record of a deployment; none where the server is not ours to start."""
    spec = PLAN.started[wildcards.deployment]
    if spec.engine.source == "external":
        return []
    return paths.CHECKPOINT.format(model=spec.deployment.model)


def fingerprint_of(wildcards):
    """What identifies the files of a model that is given by its path; none for others."""
    specs = PLAN.started.values()
    return next(
        (s.checkpoint for s in specs if s.deployment.model == wildcards.model), None
    )


def gpus_of(deployment):
    """GPUs that a session needs: those of the server that it starts."""
    spec = PLAN.started[deployment]
    return 0 if spec.engine.source == "external" else spec.gpus


BESIDE_LOAD = 1.5  # a search's time, reference loads and what lies between runs included, ÷ that under load


def needs(deployment, session=None, **known):
    """What a session's job needs of a node."""
    runs = [] if session is None else PLAN.listed_of(deployment, session)
    searches = [] if session is None else PLAN.searches_of(deployment, session)
    # A search may take its whole budget, whose seconds are those under load.
    start_s = PLAN.config.measurement.ready_timeout_s + sum(
        BESIDE_LOAD * search.settings.seconds for search in searches
    )
    return needs_of(PLAN.deployments[deployment], runs, start_s=start_s, **known)


def cores_of(wildcards):
    """Cores of a session: on this machine all that there are, so that nothing else runs beside a measurement.

    With `--resources gpu=N` those that it needs, where it has GPUs: such sessions run side by side, on GPUs of their own.
    """
    here, needed = (
        workflow.resource_settings.cores,
        needs(wildcards.deployment).cores,
    )
    beside = gpus_of(wildcards.deployment) and "gpu" in workflow.global_resources
    return here if here and not beside else needed


include: "cluster.smk"
