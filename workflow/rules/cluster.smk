# What a session's job asks of a SLURM cluster, and what comes before the first one. All else is in src/bench/measure/slurm.
from bench.measure.slurm.configuration import keep_configuration
from bench.measure.slurm.partitions import partition_for, partitions
from bench.measure.slurm.refused import refuse_to_measure_twice, refuse_untaken, type_of
from bench.measure.slurm.status import has_accounting, show_preempted_as_cancelled
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
    with in_words("nothing was submitted: "):
        return partitions()


def memory_of(wildcards, input):
    """Memory of a session's job (MB), from the memory plan of its launch."""
    Path(input.launch).stat()  # not there yet: Snakemake asks again when it is
    return session_needs(PLAN, wildcards.deployment, launch=read(Launch, Path(input.launch))).memory_mb


def minutes_of(wildcards, attempt):
    """Wall time of a session's job (minutes), from its runs; more in each attempt."""
    return session_needs(PLAN, wildcards.deployment, int(wildcards.session), attempt=attempt).minutes


def further_options(wildcards):
    """Options of sbatch beside resources: a server that computes on the CPU wants its node for itself; SLURM gives GPUs to one job alone."""
    return "" if PLAN.started[wildcards.deployment].gpus_started else "--exclusive"


def gpu_model_of(wildcards):
    """Type of GPU of a session's job, found on the cluster."""
    return type_of(PLAN, wildcards.deployment, known_partitions()) if on_slurm() else None


def partition_of(wildcards):
    """Partition of a session's job, found on the cluster."""
    if not on_slurm() or workflow.executor_settings.partition_config:
        return None
    kind = None if "gpu_model" in GIVEN else gpu_model_of(wildcards)
    needs = session_needs(PLAN, wildcards.deployment, int(wildcards.session), gpu_type=kind)
    return partition_for(needs, known_partitions())


def placed():
    """Partition and type of GPU of a session's job, where the profile gives none for every job."""
    found = {"gpu_model": gpu_model_of, "slurm_partition": partition_of}
    return {name: value for name, value in found.items() if name not in GIVEN}


def given(name):
    """What the profile gives every session of a resource, `set-resources` first; None if it gives none, or one that differs."""
    own = (workflow.resource_settings.overwrite_resources or {}).get("measure", {}).get(name) or GIVEN.get(name)
    value = getattr(own, "value", own)
    return value if isinstance(value, str) and "wildcards" not in value else None


def prepare_slurm(sessions):
    """Before the first job is submitted; it refuses jobs that would stay pending for ever, or measure what another one does."""
    if not has_accounting():
        workflow.executor_settings.no_account, workflow.executor_settings.status_command = True, "squeue"
    # A preempted job is one that failed: submitted again by this workflow, and not by SLURM too, whichever profile is used.
    workflow.executor_settings.requeue, workflow.executor_settings.no_requeue = False, True
    show_preempted_as_cancelled(Path(".snakemake/slurm/bin"))
    keep_configuration(Path(".snakemake/slurm"))
    refuse_to_measure_twice(sessions, Path(workflow.workdir_init))
    refuse_untaken(PLAN, sessions, known_partitions(), gpu_model=given("gpu_model"), partition=given("slurm_partition"))
