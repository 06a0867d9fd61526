"""A configuration file becomes a list of runs, each with a name, a path and a digest."""

from bench.study.config import Architecture, Config, Deployment, Engine, Model
from bench.study.load import load_config, load_file, load_workload
from bench.study.paths import Paths
from bench.study.plan import DeploymentSpec, Plan, RunSpec
from bench.study.workload import Workload

__all__ = [
    "Architecture",
    "Config",
    "Deployment",
    "DeploymentSpec",
    "Engine",
    "Model",
    "Paths",
    "Plan",
    "RunSpec",
    "Workload",
    "load_config",
    "load_file",
    "load_workload",
]
