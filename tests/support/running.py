"""A study of a server that runs already: a burst of two, measured in the working directory."""

import json
from pathlib import Path
from typing import Any

from bench.measure.session import measure
from bench.parse.run import parse_run
from bench.runs.files import write_record
from bench.runs.store import Store
from bench.servers.launch import resolve_launch
from bench.study.plan import Plan
from bench.study.read import load_config
from tests.support import records


def study_of(content: dict[str, Any], url: str, *, warmup: int = 3, **engine: Any) -> dict[str, Any]:
    """The configuration, changed to that of this server."""
    content["engines"]["e"] = {"source": "external", "base_url": url, **engine}
    content["deployments"]["a"] = {"model": "m", "engine": "e"}
    content["study"]["ladders"][0]["concurrency"] = [2]
    content["measurement"] = {"warmup_requests": warmup, "reference_requests": 0, **content.get("measurement", {})}
    return content


def session(content: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Measure it: the run's summary, the deployment's facts, and what was said."""
    here, said = Path.cwd(), list[str]()
    plan = Plan.of(load_config(content, source="t"))
    launch, facts = here / "launch.json", here / "a/deployment.json"
    write_record(resolve_launch(plan.deployments["a"], records.engine(source="external", command=None), None), launch)
    (run,) = plan.runs
    measure(plan, "a", [run], launch=launch, facts=facts, store=Store(), say=said.append)
    files = {key: here / "parsed" / key for key in ("requests", "telemetry", "wide", "summary")}
    return parse_run(run.record.parent, **files), json.loads(facts.read_text()), said
