# What a session's job asks of a SLURM cluster, and what comes before the first one. All else is in src/bench/measure/slurm.py.
from bench.measure.slurm import has_accounting, put_programs, refuse_untaken
from bench.runs.files import read
from bench.runs.launch import Launch


def on_slurm():
    """Whether this process submits jobs to SLURM. The jobs read these rules too."""
    return hasattr(workflow.executor_settings, "status_command")


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


def given(name):
    """What the profile gives every session of a resource, `set-resources` first; None if it gives none, empty if one that differs."""
    own = (workflow.resource_settings.overwrite_resources or {}).get("measure", {}).get(name)
    own = own or (workflow.resource_settings.default_resources or {}).get(name)
    value = getattr(own, "value", own)
    return value if value is None or (isinstance(value, str) and "wildcards" not in value) else ""


def prepare_slurm(sessions):
    """Before the first job is submitted; it refuses jobs that would stay pending for ever, or measure what another one does."""
    own = workflow.executor_settings
    if not has_accounting():
        own.no_account, own.status_command = True, "squeue"
    # A preempted job is one that failed: submitted again by this workflow, and not by SLURM too, whichever profile is used.
    own.requeue, own.no_requeue = False, True
    put_programs(Path(".snakemake/slurm"))
    partition = "" if own.partition_config else given("slurm_partition")
    refuse_untaken(PLAN, sessions, Path(workflow.workdir_init), gpu_model=given("gpu_model"), partition=partition)
