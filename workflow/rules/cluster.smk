# What a session's job asks of a SLURM cluster, and how the workflow follows it there. Everything else is in src/bench/measure/slurm.
from contextlib import contextmanager

from bench.measure.slurm.configuration import keep_configuration
from bench.measure.slurm.gpu_types import gpu_types
from bench.measure.slurm.partitions import partition_for
from bench.measure.slurm.partitions import partitions
from bench.measure.slurm.partitions import refusal
from bench.measure.slurm.status import has_accounting
from bench.measure.slurm.status import left_jobs
from bench.measure.slurm.status import show_preempted_as_cancelled
from bench.models.accelerators import accelerators
from bench.runs.files import read
from bench.runs.launch import Launch

# What the profile says of every job.
GIVEN = workflow.resource_settings.default_resources or {}


def on_slurm():
    """Whether this process submits jobs to SLURM. The jobs read these rules too."""
    return hasattr(workflow.executor_settings, "status_command")


@cache
def known_partitions():
    """The cluster's partitions."""
    with in_words():
        return partitions()


@contextmanager
def in_words():
    """An error of SLURM's programs as one of the workflow: Snakemake shows others with a traceback."""
    try:
        yield
    except BenchError as error:
        raise WorkflowError(f"nothing was submitted: {error}")


def memory_of(wildcards, input):
    """Memory of a session's job (MB), from the memory plan of its launch."""
    Path(input.launch).stat()  # not there yet: Snakemake asks again when it is
    launch = read(Launch, Path(input.launch))
    return needs(wildcards.deployment, launch=launch).memory_mb


def minutes_of(wildcards, attempt):
    """Wall time of a session's job (minutes), from its runs; more in each attempt."""
    return needs(wildcards.deployment, int(wildcards.session), attempt=attempt).minutes


def gpus_of_session(wildcards):
    """GPUs of a session's job."""
    return gpus_of(wildcards.deployment)


def further_options(wildcards):
    """Options of sbatch that are no resources of the plugin."""
    # A server that computes on the CPU wants its node for itself; SLURM gives GPUs to one job alone.
    return "" if gpus_of(wildcards.deployment) else "--exclusive"


def types_of(deployment):
    """The cluster's types of GPU that may be the one that the study names; none where it names none."""
    name = PLAN.config.decision.accelerator
    if name is None or not gpus_of(deployment):
        return []
    return gpu_types(name, known_partitions(), accelerators(PLAN.config.hardware))


def type_of(deployment):
    """The type of GPU of a session's job, where it is clear."""
    types = types_of(deployment)
    return types[0] if len(types) == 1 else None


def gpu_model_of(wildcards):
    """Type of GPU of a session's job, found on the cluster."""
    return type_of(wildcards.deployment) if on_slurm() else None


def partition_of(wildcards):
    """Partition of a session's job, found on the cluster."""
    if not on_slurm() or workflow.executor_settings.partition_config:
        return None
    deployment, session = wildcards.deployment, int(wildcards.session)
    kind = None if "gpu_model" in GIVEN else type_of(deployment)
    return partition_for(needs(deployment, session, gpu_type=kind), known_partitions())


def placed():
    """Partition and type of GPU of a session's job, where the profile gives none for every job."""
    found = {"gpu_model": gpu_model_of, "slurm_partition": partition_of}
    return {name: value for name, value in found.items() if name not in GIVEN}


def given(name):
    """What the profile gives every session of a resource: `set-resources`, else `default-resources`. None where it gives nothing, or an
    expression that differs from session to session.
    """
    own = (workflow.resource_settings.overwrite_resources or {}).get("measure", {})
    value = own.get(name) or GIVEN.get(name)
    value = getattr(value, "value", value)
    return value if isinstance(value, str) and "wildcards" not in value else None


def refuse_what_no_partition_takes():
    """End before a job is submitted that would stay pending for ever."""
    refused = []
    for deployment, session in unmeasured_sessions(PLAN, STORE):
        kind = given("gpu_model") or type_of(deployment)
        asked = needs(deployment, session, gpu_type=kind)
        wanted = given("slurm_partition")
        if reason := refusal(asked, known_partitions(), wanted) or unclear(
            deployment, kind
        ):
            refused.append(f"{deployment}: {reason}")
    if refused:
        raise WorkflowError(
            "nothing was submitted: no partition can take these sessions, each of which is one job. Name another partition "
            "in the profile, or change what the deployment asks for.\n"
            + "\n".join(dict.fromkeys(refused))
        )


def refuse_to_measure_twice():
    """End where jobs of an earlier workflow, which was killed, still measure."""
    sessions = {
        f"{deployment}_{session}"
        for deployment, session in unmeasured_sessions(PLAN, STORE)
    }
    with in_words():
        left = left_jobs(Path(workflow.workdir_init))
    if twice := {job: name for job, name in left.items() if name in sessions}:
        raise WorkflowError(
            f"nothing was submitted: jobs of an earlier workflow still run or wait here: {', '.join(map(' '.join, twice.items()))}. "
            f"Wait for them, or end them: scancel {' '.join(twice)}"
        )


def unclear(deployment, kind):
    """Why it is not known which of the cluster's GPUs the study means."""
    known = sorted({each for part in known_partitions() for each in part.gpu_types})
    name = PLAN.config.decision.accelerator
    if kind or name is None or not known or not gpus_of(deployment):
        return None
    types = types_of(deployment)
    return (
        f"decision.accelerator is {name}, and the cluster's types of GPU are {', '.join(known)}, of which "
        + (
            " and ".join(types) + " could be meant"
            if types
            else "none is that (a MIG slice is not the GPU)"
        )
        + "; give the session one with gpu_model"
    )


def prepare_slurm():
    """Before the first job is submitted."""
    settings = workflow.executor_settings
    if not has_accounting():
        settings.no_account, settings.status_command = True, "squeue"
    # A preempted job is one that failed: submitted again by this workflow, and not by SLURM too.
    settings.requeue, settings.no_requeue = False, True
    show_preempted_as_cancelled(Path(".snakemake/slurm/bin"))
    keep_configuration(Path(".snakemake/slurm"))
    refuse_to_measure_twice()
    refuse_what_no_partition_takes()
