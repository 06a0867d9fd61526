# What a session's job asks of a SLURM cluster, and how the workflow follows it there. Everything else is in src/bench/cluster.
from contextlib import contextmanager

from bench.cluster import (
    gpu_types,
    has_accounting,
    keep_configuration,
    left_jobs,
    partition_for,
    partitions,
    refusal,
)
from bench.published import accelerators
from bench.records.launch import read_launch

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


def memory_of(deployment):
    """Memory of a session's job (MB), from the memory plan of its launch."""

    def memory(wildcards, input):
        Path(input.launch).stat()  # not there yet: Snakemake asks again when it is
        return needs(deployment, launch=read_launch(Path(input.launch))).memory_mb

    return memory


def minutes_of(deployment, session):
    """Wall time of a session's job (minutes), from its runs; more in each attempt."""

    def minutes(wildcards, attempt):
        return needs(deployment, session, attempt=attempt).minutes

    return minutes


def whole_node(deployment):
    """Whether a session's job gets its node for itself: as the study says, else where the server computes on the CPU."""
    wish = PLAN.config.study.whole_node
    return not gpus_of(deployment) if wish is None else wish


def nodes_of(deployment):
    """Nodes and GPUs of a session's job. Of several nodes each has one task, and as many GPUs as the others: `further_options`."""
    count, gpus = PLAN.deployments[deployment].deployment.nodes, gpus_of(deployment)
    return (
        {"nodes": 1, "gpu": gpus}
        if count == 1
        else {"nodes": count, "tasks": count, "gpu": 0}
    )


def further_options(deployment):
    """Options of sbatch that are no resources of the plugin."""
    asked = needs(deployment)
    # A measurement wants its nodes for itself; SLURM gives GPUs to one job alone.
    options = ["--exclusive"] if whole_node(deployment) else []
    if asked.nodes > 1:
        options.append("--ntasks-per-node=1")
    if asked.nodes > 1 and asked.gpus:
        kind = type_of(deployment) if on_slurm() else None
        options.append(f"--gpus-per-node={f'{kind}:' if kind else ''}{asked.gpus}")
    return " ".join(options)


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


def placed(deployment, session):
    """Partition and type of GPU of a session's job, found on the cluster where the profile gives none."""

    several = PLAN.deployments[deployment].deployment.nodes > 1

    def gpu_model(wildcards):
        return type_of(deployment) if on_slurm() and not several else None

    def slurm_partition(wildcards):
        if not on_slurm() or workflow.executor_settings.partition_config:
            return None
        kind = None if "gpu_model" in GIVEN else type_of(deployment)
        return partition_for(
            needs(deployment, session, gpu_type=kind), known_partitions()
        )

    found = {"gpu_model": gpu_model, "slurm_partition": slurm_partition}
    return {name: value for name, value in found.items() if name not in GIVEN}


def refuse_what_no_partition_takes():
    """End before a job is submitted that would stay pending for ever."""
    refused = []
    for (deployment, session), job in sessions_to_measure().items():
        wanted, kind = map(job.resources.get, ("slurm_partition", "gpu_model"))
        several = PLAN.deployments[deployment].deployment.nodes > 1
        if several and kind:
            refused.append(
                f"{job.rule.name}: gpu_model is given in the profile, and GPUs of several nodes follow from decision.accelerator. "
                "Remove gpu_model for this session"
            )
            continue
        kind = type_of(deployment) if several else kind
        asked = needs(deployment, session, gpu_type=kind)
        if reason := refusal(asked, known_partitions(), wanted) or unclear(
            deployment, kind
        ):
            refused.append(f"{job.rule.name}: {reason}")
    if refused:
        raise WorkflowError(
            "nothing was submitted: no partition can take these sessions, each of which is one job. Name another partition "
            "in the profile, or change what the deployment asks for.\n"
            + "\n".join(refused)
        )


def refuse_to_measure_twice():
    """End where jobs of an earlier workflow, which was killed, still measure."""
    sessions = {job.rule.name for job in sessions_to_measure().values()}
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


def submit_preempted_again():
    """Take a preempted job as a failed one.

    The plugin leaves it to SLURM and waits; where SLURM ends such jobs in place of requeueing them, it would wait for ever. Jobs are
    submitted with --no-requeue, so that no session is started twice: by SLURM and by the workflow.
    """
    import snakemake_executor_plugin_slurm as plugin

    asked = plugin.query_job_status

    async def query(*arguments):
        states, seconds = await asked(*arguments)
        taken = {"PREEMPTED": "CANCELLED"}
        return (
            states and {job: taken.get(state, state) for job, state in states.items()},
            seconds,
        )

    plugin.query_job_status = query


def prepare_slurm():
    """Before the first job is submitted."""
    settings = workflow.executor_settings
    if not has_accounting():
        settings.no_account, settings.status_command = True, "squeue"
    settings.requeue, settings.no_requeue = False, True
    submit_preempted_again()
    keep_configuration(Path(".snakemake/slurm"))
    refuse_to_measure_twice()
    refuse_what_no_partition_takes()
