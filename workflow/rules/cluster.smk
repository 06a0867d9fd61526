# What a session's job asks for, of a SLURM cluster too, and what comes before the first one. All else is in src/bench/measure/slurm.py.
import re

from bench.measure.slurm import refuse_untaken, refuse_wrong_profile, session_needs
from bench.runs.files import read
from bench.runs.launch import Launch


def on_slurm():
    """Whether this process submits jobs to SLURM. The jobs read these rules too."""
    return hasattr(workflow.executor_settings, "status_command")


def cores_of(wildcards):
    """Cores of a session: here all, so that nothing runs beside it."""
    return workflow.resource_settings.cores or session_needs(PLAN, wildcards.deployment).cores


def memory_of(wildcards, input):
    """Memory of a session's job (MB), from the memory plan of its launch."""
    Path(input.launch).stat()  # not there yet: Snakemake asks again when it is
    return session_needs(PLAN, wildcards.deployment, launch=read(Launch, Path(input.launch))).memory_mb


def given(name):
    """What the profile gives every session of a resource, `set-resources` first; None if it gives none, empty if a rule alone can work it out."""
    settings = workflow.resource_settings
    own = (settings.overwrite_resources or {}).get("measure", {}).get(name) or (settings.default_resources or {}).get(name)
    text = None if own is None or own.raw is None else str(own.raw).strip("'\"")  # a value is known to a rule alone
    return text if text is None or re.fullmatch(r"(?!None$)[\w.,:-]+", text) else ""


def prepare_slurm(sessions):
    """Before the first job is submitted; it refuses jobs that would stay pending for ever, or be waited for so."""
    own = workflow.executor_settings
    partition = "" if own.partition_config else given("slurm_partition")
    refuse_untaken(PLAN, sessions, gpu_model=given("gpu_model"), partition=partition)
    refuse_wrong_profile(own.status_command)
