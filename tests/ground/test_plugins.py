"""What a package of somebody else adds is there like what is ours, and is part of what a run measures."""

import json
import os
import subprocess
import sys

import pytest

from tests.support.fake_server import fake_server

PACKAGE = """
from bench.workloads.endpoints.choices import Completions


class Speech(Completions):
    name = "speech"
    path = "audio/speech"
    call = ""


def section(view):
    from bench.report.blocks import Section, Text
    return Section("speech", "Speech", [Text("Said aloud.")])


def queue(results):
    return None


from bench.report.figure import figure

figure("queue", title="Queue", question="?", reading="!")(queue)
"""
SHOWN = """
import json
from bench.errors import BenchError
from bench.findings.registry import figures_of, load_figure, module_of, sections
from bench.workflow import code_of
made = [each.__module__ for each in sections()]
try:
    title = load_figure("queue").title
except BenchError as error:
    title = str(error)
print(json.dumps([made[made.index("speech") + 1], "queue" in figures_of([]), title, code_of("figure", module_of("queue"))]))
"""
STUDY = {
    "study": {"title": "t", "ladders": [{"deployment": "a", "workload": "w", "concurrency": [1]}]},
    "models": {"m": {"catalogue": "llama-3.1-8b"}},
    "engines": {"e": {"source": "external", "base_url": "http://127.0.0.1:9"}},
    "deployments": {"a": {"model": "m", "engine": "e"}},
    "workloads": {"w": {"arrival": "burst", "prompt_tokens": 8, "output_tokens": 4, "endpoint": "speech"}},
}
PLAN = """
import json, sys
from bench.study.plan import Plan
from bench.study.read import load_config
(run,) = Plan.of(load_config(json.loads(sys.argv[1]), source="study")).runs
print(json.dumps([run.digest, run.definition["packages"]]))
"""
SEND = """
import json, sys
from bench.load.client import Load, run_load
from bench.load.target import Target
from bench.study.read import load_workload
content = {"arrival": "closed", "num_requests": 2, "prompt_tokens": 8, "output_tokens": 4, "endpoint": "speech"}
records = run_load(Target(sys.argv[1], "m"), Load(load_workload(content, source="w"), 1, "s", "s", 100)).records
print(json.dumps([record.status for record in records]))
"""


@pytest.fixture
def installed(tmp_path):
    """A function that installs the package in a version, and runs code beside it: what it printed, as JSON, or its error."""
    (tmp_path / "speech.py").write_text(PACKAGE)

    def run(version, code, *arguments, entry="speech:Speech", name="endpoint.speech"):
        folder = tmp_path / "speech.dist-info"
        folder.mkdir(exist_ok=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: speech\nVersion: {version}\n")
        (folder / "entry_points.txt").write_text(f"[saturate.plugins]\n{name} = {entry}\n")
        path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
        # Bytecode would be taken for current after a change of the same size within the same second.
        environment = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run([sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True)
        return json.loads(done.stdout) if done.returncode == 0 else done.stderr

    return run


def test_another_version_of_a_package_measures_something_else(installed):
    first, second = (installed(version, PLAN, json.dumps(STUDY)) for version in ("1.0", "1.1"))
    assert (first[1], second[1]) == (["speech==1.0"], ["speech==1.1"])
    assert first[0] != second[0]
    broken = installed("1.1", PLAN, json.dumps(STUDY), entry="speech:Absent")
    assert "speech==1.1: its endpoint 'speech' cannot be imported" in broken
    assert "its endpoint 'chat' has the name of a built-in one" in installed(
        "1.1", PLAN, json.dumps(STUDY), name="endpoint.chat"
    )


def test_its_requests_go_where_it_says(installed):
    with fake_server() as server:
        assert installed("1.0", SEND, server.base_url) == [200, 200]
        assert {path for path, _ in server.requests} == {"/v1/audio/speech"}


def test_its_sections_and_figures_stand_beside_ours_and_are_drawn_again_when_they_change(installed, tmp_path):
    shown = {"name": "section.speech = speech:section\nfigure.queue", "entry": "speech:queue"}
    *found, code = installed("1.0", SHOWN, **shown)
    assert found == ["bench.findings.runs", True, "Queue"]
    (tmp_path / "speech.py").write_text(PACKAGE.replace('"queue", title', '"other", title'))
    *_, said, changed = installed("1.0", SHOWN, **shown)
    assert changed != code and "speech==1.0: its entry point figure.queue draws no figure of that name" in said
