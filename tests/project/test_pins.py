"""Pins that stand in two places agree."""

import re
import tomllib

import yaml

from tests.support.study import ROOT

LOCKED = dict(re.findall(r"^([a-z0-9-]+)==([^ \\;]+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE))


def test_the_rules_environment_is_that_of_the_lock():
    content = yaml.safe_load((ROOT / "workflow/envs/bench.yaml").read_text())
    pins = dict(pin.split("==") for pin in content["dependencies"][-1]["pip"])
    assert pins == {name: LOCKED[name] for name in pins}


def test_the_lock_and_the_rules_environment_hold_all_that_the_project_needs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[<>=]", d)[0] for d in [*project["dependencies"], *project["optional-dependencies"]["dev"]]}
    assert needed <= set(LOCKED)
    content = yaml.safe_load((ROOT / "workflow/envs/bench.yaml").read_text())
    pins = {pin.split("==")[0] for pin in content["dependencies"][-1]["pip"]}
    assert {re.split(r"[<>=]", d)[0] for d in project["dependencies"]} == pins | {"snakemake"}
    beside = re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements-slurm.lock").read_text(), re.MULTILINE)
    assert {re.split(r"[<>=]", d)[0] for d in project["optional-dependencies"]["slurm"]} <= set(beside)
    assert not set(beside) & set(LOCKED)


def test_every_environment_is_locked_and_renewed():
    makefile = (ROOT / "Makefile").read_text()
    for wanted in (ROOT / "workflow/envs").glob("*.in"):
        pin = next(line for line in wanted.read_text().splitlines() if line.startswith(("vllm", "xllamacpp", "sglang")))
        assert f"\n{pin} \\\n    --hash=" in f"\n{wanted.with_suffix('.lock').read_text()}"
        assert pin.split("==")[1] in makefile
