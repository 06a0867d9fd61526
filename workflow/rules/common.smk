# The study's plan, and the input functions that the rules share. Everything else is in src/bench.
import os
import sys
from functools import cache
from pathlib import Path

from snakemake.common import NOTHING_TO_BE_DONE_MSG
from snakemake.exceptions import WorkflowError
from snakemake.logging import logger

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

from bench.cluster import needs_of
from bench.errors import BenchError
from bench.figures import figures_of
from bench.shipped import BENCH
from bench.study import Paths as paths
from bench.study import Plan, load_config
from bench.study.last import remember_study
from bench.study.paths import ANALYSES, DRAWN
from bench.study.plan import PROTOCOL, digest
from bench.study.precision import auto_lines, thin_levels
from bench.workflow import announce_workflow, end_jobs_on_sigterm

announce_workflow(SOURCES)


def sessions_to_measure():
    """The jobs of this workflow that measure, by deployment and session."""
    measuring = {session_name("measure_", d, n): (d, n) for d, n in PLAN.sessions}
    jobs = {job.rule.name: job for job in workflow.dag.needrun_jobs()}
    return {session: jobs[rule] for rule, session in measuring.items() if rule in jobs}


def work_text():
    """What is going to be measured: so many runs, and searches."""
    count = len(PLAN.searches)
    searches = [f"{count} search{'es' if count > 1 else ''}"] if count else []
    return " and ".join([f"{len(RUNS)} runs"] * bool(RUNS) + searches)


def refuse_what_would_fail():
    """Look for what would stop the sessions of this workflow, before any of its jobs runs. On a cluster the nodes are other machines."""
    preparing = {
        job.wildcards.engine
        for job in workflow.dag.needrun_jobs()
        if job.rule.name == "engine"
    }
    if sessions := list(sessions_to_measure()):
        from bench.measure.preflight import faults
        from bench.store import Store

        store = Store(Path(paths.STORE))
        if found := faults(PLAN, sessions, store, preparing=preparing):
            raise WorkflowError(
                "nothing was started: this study cannot be measured here\n"
                + "\n".join(found)
            )


onstart:
    end_jobs_on_sigterm()
    if workflow.local_exec and not workflow.touch:
        refuse_what_would_fail()
    if len(workflow.configfiles) == 1 and "study" in workflow.globals["config"]:
        remember_study(Path(os.path.relpath(workflow.configfiles[0])))
    print(
        f"“{PLAN.config.study.title}”, {work_text()} of {', '.join(PLAN.deployments)}. "
        f"`{BENCH} watch`, in another terminal, shows a session while it measures.",
        file=sys.stderr,
    )
    for line in (
        *auto_lines(PLAN),
        *thin_levels(PLAN.listed, PLAN.config.decision.slos),
    ):
        print(f"Note: {line}", file=sys.stderr)
    if workflow.local_exec:
        # Snakemake's limit of jobs a second is meant for clusters. Here each round of scheduling would bring another one a second later,
        # for ever: more with every job that ends, on the cores that are measured.
        workflow.scheduler.job_rate_limiter = None
    if on_slurm():
        prepare_slurm()


def made_lines():
    """Where the report is, if this workflow was asked for it. One that somebody removed is no reason for Snakemake to do anything."""
    from bench.words.closing import MADE

    asked = any(paths.REPORT in job.output for job in workflow.dag.jobs)
    return [MADE] if asked and Path(paths.REPORT).exists() else []


# Snakemake calls no hook in a dry run, which made nothing.
onsuccess:
    for line in made_lines():
        print(line)


# Snakemake calls the handlers of the main Snakefile alone. As a module, these follow them.
if not workflow.modifier.is_main_snakefile():
    for hook in ("onstart", "onsuccess"):
        ours, theirs = globals()[hook], getattr(workflow, f"_{hook}")
        setattr(
            workflow,
            f"_{hook}",
            lambda log, ours=ours, theirs=theirs: (theirs(log), ours()),
        )


try:
    PLAN = Plan.of(
        load_config(
            config,
            source=", ".join(map(str, workflow.configfiles)) or "--config",
            files=[Path(file) for file in workflow.configfiles],
        )
    )
except BenchError as error:
    sys.exit(
        f"The configuration is refused:\n{error}"
    )  # a WorkflowError would name this file before the user's

# Whether it is a pack's study. Snakemake would draw what a summary has already, and be silent about runs that cannot be had.
PACKED = any(
    Path(file).match("results/packs/*/study.yaml") for file in workflow.configfiles
)
if absent := [run.key for run in PLAN.runs if PACKED and not run.record.exists()]:
    sys.exit(
        f"{len(absent)} of {len(PLAN.runs)} runs are not in the pack, such as {absent[0]}, and a pack's study measures nothing. "
        "Unpack one that has them, or narrow SELECT."
    )

# What the configuration lists. Runs that searches find come with the checkpoint `found`.
RUNS = [(run.deployment.name, run.name) for run in PLAN.listed]
FIGURES = figures_of(PLAN.rows)
ANALYSED = expand(paths.ANALYSED, table=ANALYSES)
CALIBRATED = [paths.CALIBRATION] if "predicted-loads" in FIGURES else []
SEARCHED = [
    paths.SEARCHES.format(deployment=deployment)
    for deployment in PLAN.deployments
    if PLAN.searches_of(deployment)
    and (not PACKED or Path(paths.SEARCHES.format(deployment=deployment)).exists())
]


def with_closing_lines(record):
    """What ends a workflow, also where it had nothing to do: Snakemake has no hook for that."""
    if record.msg == NOTHING_TO_BE_DONE_MSG:
        from bench.words.closing import closing_lines_again

        runs = [run.digest for run in PLAN.runs]
        lines = closing_lines_again(Path(paths.SUMMARY), runs, figures=len(FIGURES))
        record.msg = "\n".join([record.msg, *lines, *made_lines()])
    return True


logger.addFilter(with_closing_lines)


wildcard_constraints:
    engine="[a-z0-9.-]+",
    model="[a-z0-9.-]+",
    deployment="[a-z0-9.-]+",
    run="[a-z0-9._-]+",


@cache
def library(*parts):
    """Digest of the files of src/bench that decide a rule's result: a change in one of them runs the rule again.

    A parameter and no input: Snakemake would look at each file for every one of thousands of jobs.
    """
    root = Path(bench.__file__).parent
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


def code_of_figure(figure):
    """Digest of the code that decides a figure."""
    chart = f"figures/charts/{figure.replace('-', '_')}.py"
    return library(
        *(
            "figures",
            "analyse",
            "analysis",
            "errors.py",
            "records",
            "statistics.py",
            "words",
        ),
        chart,
    )


@cache
def plan_of(_moment):
    """The plan with what searches have measured by now."""
    return Plan.of(PLAN.config)


def of_runs(pattern):
    """`pattern` for every run of the study; where it searches, once it is known which those are."""

    def files(plan):
        runs = plan.runs
        return [
            pattern.format(deployment=run.deployment.name, run=run.name) for run in runs
        ]

    def found(wildcards):
        known = Path(checkpoints.found.get().output.runs)
        return files(plan_of(known.stat().st_mtime_ns))

    return found if PLAN.searches and not PACKED else files(PLAN)


def of_deployments(pattern):
    """`pattern` for every deployment of the study."""
    return [pattern.format(deployment=d) for d in PLAN.deployments]


def session_name(start, deployment, session):
    """`start` and a deployment's name, with the session's number from the second on; no deployment has an underscore in its name."""
    return start + deployment + (f"_{session}" if session > 1 else "")


def facts_before(deployment, session):
    """What a session waits for: the facts of the session before it. Nothing where each deployment has one session: any order will do."""
    if PLAN.config.study.sessions == 1:
        return []
    place = PLAN.sessions.index((deployment, session))
    return [str(paths.facts(*PLAN.sessions[place - 1]))] if place else []


def search_params(deployment, session):
    """What decides the answers of a session's searches, as a parameter; none where it has no search, as ever."""
    searches = PLAN.searches_of(deployment, session)
    return {"search": [search.digest for search in searches]} if searches else {}


def engine_of(wildcards):
    """The engine's record of a deployment."""
    return paths.ENGINE.format(
        engine=PLAN.deployments[wildcards.deployment].deployment.engine
    )


def own_locks(engine):
    """The locks of an engine that lie in this folder; those that come with the workflow would be other files after each upgrade of it."""
    return [lock for lock in PLAN.config.engines[engine].locks if Path(lock).exists()]


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


def fingerprint_of(model):
    """What identifies the files of a model that is given by its path; none for others."""
    specs = PLAN.deployments.values()
    return next((s.checkpoint for s in specs if s.deployment.model == model), None)


def gpus_of(deployment):
    """GPUs that a session needs: those of the server that it starts."""
    spec = PLAN.deployments[deployment]
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


def cores_of(deployment):
    """Cores of a session: on this machine all that there are, so that nothing else runs beside a measurement.

    With `--resources gpu=N` those that it needs, where it has GPUs: such sessions run side by side, on GPUs of their own.
    """
    here, needed = workflow.resource_settings.cores, needs(deployment).cores
    beside = gpus_of(deployment) and "gpu" in workflow.global_resources
    return here if here and not beside else needed


include: "cluster.smk"
