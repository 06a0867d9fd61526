"""How a deployment is started."""

from bench.models.config_json import geometry_of_model
from bench.servers.launch import resolve_launch
from bench.study.plan import Plan
from bench.study.read import load_config
from tests.support import records
from tests.support.study import ROOT


def exports(text):
    return dict(line.removeprefix("export ").split("=", 1) for line in text.splitlines() if line.startswith("export "))


K8S = (ROOT / "tests/data/environment/kubernetes_env.sh").read_text()


def spec_of(content, *, source="command", device="cuda", **deployment):
    engine = {"source": source} | ({"backend": device} if device else {})
    content["engines"]["e"] = engine | ({"command": ["true"]} if source == "command" else {"base_url": "http://127.0.0.1:1"})
    content["deployments"]["a"] |= deployment
    return Plan.of(load_config(content, source="t")).deployments["a"]


def launched(spec):
    """The launch of a spec whose model's config.json is in the configuration."""
    return resolve_launch(spec, records.engine(), checkpoint_of(spec))


def checkpoint_of(spec):
    geometry = geometry_of_model(spec.model)
    return records.checkpoint(config=spec.model.config, parameters=geometry.parameters, weight_bytes=geometry.stored)
