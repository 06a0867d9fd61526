"""What the workflow's tests share."""

from tests.support.end_to_end import vllm_study
from tests.support.grown import llamacpp_study
from tests.support.project import drawn_study
from tests.support.slurm import project

__all__ = ["drawn_study", "llamacpp_study", "project", "vllm_study"]
