# The study's plan, and what rules share of it. Everything else is in src/bench.
import os
import sys
from contextlib import contextmanager
from pathlib import Path

from snakemake.exceptions import WorkflowError

# The library beside these rules, for the workflow and its jobs, whichever environment runs them. Where the rules are used from a wheel
# or a URL there is none: it is installed then.
PLACES = [Path(workflow.basedir) / "src", Path(workflow.basedir).parent / "src"]
SOURCES = PLACES[not (PLACES[0] / "bench").is_dir()]
if (SOURCES / "bench").is_dir():
    sys.path.insert(0, str(SOURCES))

try:
    import bench
except ModuleNotFoundError:
    raise WorkflowError(
        "Saturate's library is not installed where Snakemake is. Install saturate-bench there, of the version that this workflow has."
    )

from bench.errors import BenchError
from bench.findings.registry import figures_of, module_of, section_modules, used_by
from bench.plugins import plugin
from bench.report.measuring import measuring_lines
from bench.runs.files import checksum
from bench.runs.paths import TABLES, Paths as paths
from bench.runs.store import Store
from bench.study.plan import Plan
from bench.study.read import load_config
from bench.study.specs import PROTOCOL
from bench.study.state import refuse_lacking, remember_study, unended_searches, unmeasured_sessions, wanted
from bench.workflow import announce_workflow, code_of, end_jobs_on_sigterm, lock_folder
from bench.yaml_file import read_yaml

announce_workflow(SOURCES)


@contextmanager
def in_words(why=""):
    """A refusal of the library's as one of the workflow's: Snakemake shows others with a traceback."""
    try:
        yield
    except BenchError as error:
        raise WorkflowError(f"{why}{error}") from None


FILES = list(map(Path, workflow.configfiles))
SOURCE = ", ".join(map(str, FILES)) or "--config"
with in_words("The configuration is refused:\n"):
    PLAN = Plan.of(load_config(config, source=SOURCE, files=FILES), source=SOURCE)

STORE = Store()
PACKED = PLAN.config.packed
# What a pack has was measured elsewhere: no session of it is waited for, and no file that it names is read to grade answers.
with in_words():
    refuse_lacking(PLAN, STORE)
INDEXES = [] if PACKED else [str(paths.session(*session)) for session in PLAN.sessions]
PARSED = [paths.PARSED.format(deployment=deployment, session=session) for deployment, session in PLAN.sessions]
LAUNCHES = expand(paths.LAUNCH, deployment=PLAN.deployments)
GRADING = plugin("grading", "sets")  # it stands beside the library
GRADED_SETS = (
    [] if PACKED else GRADING.sets(PLAN.workloads, lambda line: workflow.is_main_process and print(line, file=sys.stderr))
)
GRADED = [paths.GRADES] if GRADED_SETS else []
TUNED = [paths.TUNING] if PLAN.tuned or (PACKED and Path(paths.TUNING).exists()) else []
FIGURES = figures_of(PLAN.rows)
ANALYSED = expand(paths.ANALYSED, table=TABLES)
CALIBRATED = [paths.CALIBRATION] if "predicted-loads" in FIGURES else []
DECISION = PLAN.config.decision.model_dump()
DEVICE = PLAN.device.model_dump() if PLAN.device else None


include: "cluster.smk"


onerror:
    # Snakemake notes a failed job's inputs as if it had ended well: where later files are there, it would not run again.
    for job in workflow.dag.needrun_jobs():
        if not all(map(os.path.exists, job.output)):
            workflow.persistence.cleanup(job)


onstart:
    with in_words():
        workflow.folder_lock = lock_folder()  # until this process ends
    end_jobs_on_sigterm()
    # With its limit of jobs a second, Snakemake looks for jobs every second for each one that ended, on cores that are measured. No
    # option takes the limit away: one of an hour keeps a finished workflow waiting for it.
    workflow.scheduler.job_rate_limiter = None
    if len(FILES) == 1 and config.get("study") == read_yaml(FILES[0]).get("study"):
        remember_study(Path(os.path.relpath(FILES[0])), config.get("scale"))
    # Another workflow that uses these rules may have put a prefix before their names.
    starting = set() if workflow.touch else {job.rule.name.rpartition("_")[2] for job in workflow.dag.needrun_jobs()}
    if "tune" in starting and on_slurm():
        raise WorkflowError(
            "nothing was submitted: a tuning starts its servers on one machine. On a node of the cluster: bench tune"
        )
    if "measure" in starting and (sessions := unmeasured_sessions(PLAN, STORE)):
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
    figure="[a-z0-9-]+",
