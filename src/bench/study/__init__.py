"""A configuration file becomes a list of runs, each with a name, a path and a digest."""

from bench.study.config import Config, Deployment, Engine
from bench.study.decision import Decision
from bench.study.hardware import Device, device_named, devices
from bench.study.model import Architecture, Model
from bench.study.paths import Paths
from bench.study.plan import DeploymentSpec, Plan, RunSpec
from bench.study.published import CatalogueEntry, catalogue, catalogue_key, decoder_part
from bench.study.read import load_config, load_file, load_workload
from bench.study.slo import Slo, parse_slo
from bench.study.workload import Workload

__all__ = [
    "Architecture",
    "CatalogueEntry",
    "Config",
    "Decision",
    "Deployment",
    "DeploymentSpec",
    "Device",
    "Engine",
    "Model",
    "Paths",
    "Plan",
    "RunSpec",
    "Slo",
    "Workload",
    "catalogue",
    "catalogue_key",
    "decoder_part",
    "device_named",
    "devices",
    "load_config",
    "load_file",
    "load_workload",
    "parse_slo",
]
