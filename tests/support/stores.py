"""Copies of the project, and stores that are filled with made runs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from bench.runs.files import write_record
from bench.runs.paths import Paths
from bench.runs.store import Store
from bench.study.plan import Plan
from bench.study.read import load_config
from tests.support.made import made_facts, made_study, make_run

ROOT = Path(__file__).resolve().parents[2]


def copy_project(folder: Path, root: Path = ROOT) -> None:
    """The tracked and new files of a checkout, with what is compiled of its library: each copy would compile it again."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.splitlines()
    compiled = [str(path.relative_to(root)) for path in (root / "src").rglob("__pycache__/*.pyc")]
    for name in (*listed, *compiled):
        if (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name)


def write_study(folder: Path, runs: int, a_deployment: int, decision: dict[str, Any] | None = None) -> Plan:
    """Make a study of `runs` runs the copy's own; its plan."""
    content = made_study(runs, a_deployment) | ({"decision": decision} if decision else {})
    (folder / "config/config.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return Plan.of(load_config(content, source="the made study"))


def fill_store(plan: Plan, folder: Path, series: int) -> None:
    """Every run and every deployment's facts, as finished sessions leave them."""
    store = Store(folder / Paths.RUNS)
    for spec in plan.deployments.values():
        facts = folder / Paths.facts(spec.name)
        facts.parent.mkdir(parents=True, exist_ok=True)
        write_record(made_facts(spec), facts)
    for run in plan.runs:
        with store.adding(run) as place:
            make_run(run, place, series=series)
