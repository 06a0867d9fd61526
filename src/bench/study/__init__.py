"""A configuration file becomes a list of runs, each with a name, a path and a digest."""

from bench.study.begin import TEMPLATES, begin
from bench.study.config import Config
from bench.study.decision import Decision
from bench.study.deployment import Deployment, Engine
from bench.study.paths import Paths
from bench.study.plan import Plan
from bench.study.read import load_config, load_file, load_workload, read_workload
from bench.study.slo import Slo, applying, parse_slo
from bench.study.specs import DeploymentSpec, RunSpec
from bench.study.workload import Workload

__all__ = [
    "TEMPLATES",
    "Config",
    "Decision",
    "Deployment",
    "DeploymentSpec",
    "Engine",
    "Paths",
    "Plan",
    "RunSpec",
    "Slo",
    "Workload",
    "applying",
    "begin",
    "load_config",
    "load_file",
    "load_workload",
    "parse_slo",
    "read_workload",
]
