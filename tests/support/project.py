"""A copy of the project in which workflows run, are watched and ended."""

import fcntl
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import chdir, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import vl_convert
import yaml

from bench.measure.progress import SessionProgress
from bench.runs.files import read
from bench.runs.paths import Paths
from bench.servers.deployment import Engine
from bench.servers.environment import prepare_engine
from tests.support.command import bench
from tests.support.forked import snakemake
from tests.support.server import eventually
from tests.support.stores import copy_project, fill_store, write_study
from tests.support.study import CONTENT, ROOT

BIN = Path(sys.executable).parent
_STARTS_S = 1.0  # a run's load processes take less
# What is tested is the path; a busy machine must not make its runs invalid.
LENIENT = {
    **dict.fromkeys(("client_delay_p99_s", "scrape_gap_s"), 60.0),
    **{
        "client_cpu_share": 10.0,
        "count_error": 10.0,
        "other_share": 1.0,
        "drift": 1e6,  # two servers on a core compute ten times as long at times
    },
}


def external(url: str, **more: Any) -> dict[str, Any]:
    """A study of a server that runs already, as short as it can be. Args: more: its parts."""
    brief = {"warmup_requests": 3, "reference_requests": 0}
    own = {"engines": {"e": {"source": "external", "base_url": url}}, "measurement": brief, "thresholds": LENIENT}
    return {**CONTENT, **own, **more}


def built(name: str, engine: dict[str, Any]) -> Path:
    """The record of an engine, whose environment is built if it is not there: by one process of the tests, since all of them share it."""
    record = Path(Paths.ENGINE.format(engine=name))
    return _built(record, lambda: prepare_engine(name, Engine.model_validate(engine), record, print))


def _built(record: Path, prepare: Callable[[], None]) -> Path:
    (ROOT / record).parent.mkdir(parents=True, exist_ok=True)
    with (ROOT / record.parents[1] / ".lock").open("w") as lock, chdir(ROOT):
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not record.exists():
            prepare()
    return record


def copied_project(folder: Path) -> None:
    """A copy of the project, with the libraries that its report draws with: to bundle them takes a second."""
    copy_project(folder)
    (folder / "results").mkdir()
    bundle = folder / f"results/.vega-{vl_convert.__version__}.js"
    bundle.write_text(vl_convert.javascript_bundle())


def drawn_project(factory: pytest.TempPathFactory) -> Path:
    """A project with a made study of two levels, twice, drawn to its end once for all files and processes of the tests: to copy.

    Returns:
        Its folder; `first.out` in it is what the workflow said.
    """
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / "drawn"
    with (shared / "drawn.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            making = shared / "drawn.part"
            copied_project(making)
            fill_store(write_study(making, 4, 4, {"slo": ["ttft_p99=10s"], "peak_rps": 10}), making, series=20)
            done = snakemake("--nolock", "--cores", "1", "--printshellcmds", "results/figures/all", folder=making)
            assert done.returncode == 0, done.stderr[-3000:]
            (making / "first.out").write_text(done.stdout + done.stderr)
            making.rename(folder)
    return folder


@pytest.fixture(scope="session")
def drawn_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project that is drawn: for tests to read, or to copy."""
    return drawn_project(tmp_path_factory)


class Project:
    """A copy of the project's tracked and new files, with a configuration of its own."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        self.folder = folder
        self.config = json.loads(json.dumps(config))
        copied_project(folder)
        # An engine's environment is built once, in the project itself, and shared.
        (folder / "results/engines").mkdir()
        for name in (name for name, engine in config["engines"].items() if engine["source"] == "lock"):
            built(name, config["engines"][name])
            (folder / "results/engines" / name).symlink_to(ROOT / "results/engines" / name)
        (folder / ".venv").symlink_to(BIN.parent)
        for name in ("requirements.lock", "pyproject.toml"):
            os.utime(
                folder / name, (0, 0)
            )  # this environment is the tests' own: make must not set it up anew, whatever the times

    def command(self, *arguments: str, target: str = "results/figures/all") -> list[str]:
        (self.folder / "config/config.yaml").write_text(yaml.safe_dump(self.config, sort_keys=False))
        # --printshellcmds shows the listing of jobs, which otherwise stands in Snakemake's log alone.
        return [str(BIN / "snakemake"), "--nolock", "--cores", "1", "--printshellcmds", *arguments, target]

    def start(self, target: str = "") -> subprocess.Popen:
        """`make figures` in the background, or Snakemake to a target; what it says goes to a file, since a full pipe would stop it."""
        command = self.command(target=target)
        with (self.folder / "workflow.out").open("w") as out:
            return subprocess.Popen(
                command if target else ["make", "figures"],
                cwd=self.folder,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def said(self) -> str:
        return (self.folder / "workflow.out").read_text()

    def run(self, *arguments: str, target: str = "results/figures/all", status: int = 0) -> list[str]:
        """Run the workflow; the jobs that it ran, or with `--dry-run` would run, as `rule` or `rule:wildcards`."""
        _, *words = self.command(*arguments, target=target)
        done = snakemake(*words, folder=self.folder)
        self.output = done.stdout + done.stderr
        assert done.returncode == status, self.output[-6000:]
        return [
            rule + (f":{wildcards}" if wildcards else "")
            for rule, wildcards in re.findall(
                r"^(?:local)?(?:rule|checkpoint) (\w+):\n(?:    (?!wildcards).*\n)*(?:    wildcards: (.*)\n)?",
                self.output,
                re.M,
            )
        ]

    def server_starts(self, deployment: str) -> int:
        log = self.folder / f"results/deployments/{deployment}/server.log"
        return log.read_text(errors="replace").count("\n--- ") if log.exists() else 0

    def records(self) -> dict[str, float]:
        """When each run was measured, by its name."""
        return {
            path.parent.name.rsplit("_", 1)[0] + "@" + path.parent.parent.name: json.loads(path.read_text())["clock_start_s"]
            for path in self.folder.glob("results/runs/[!.]*/*/run.json")
        }

    def stored(self) -> int:
        return len(list(self.folder.glob("results/runs/[!.]*/*/run.json")))

    def stored_at(self) -> dict[str, float]:
        """When each run in the store was measured, by its digest."""
        records = (json.loads(path.read_text()) for path in self.folder.glob("results/runs/[!.]*/*/run.json"))
        return {record["digest"]: record["clock_start_s"] for record in records}

    def processes(self) -> list[psutil.Process]:
        """What runs in this folder, or serves a model of it."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.pid != os.getpid() and (
                    Path(process.cwd()) == self.folder or str(self.folder) in " ".join(process.cmdline())
                ):
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        return found

    def servers(self, program: str) -> list[psutil.Process]:
        """Servers of this folder that run `program`, without their guards."""
        commands = []
        for process in self.processes():
            with suppress(psutil.Error, OSError):  # it ended meanwhile
                commands.append((process, process.cmdline()))
        return [
            process
            for process, command in commands
            if any(program in part for part in command) and "guard.py" not in str(command)
        ]

    def bench(self, *arguments: str) -> None:
        done = bench(*arguments, cwd=self.folder)
        assert done.returncode == 0, done.stderr

    def watched(self) -> list[SessionProgress]:
        """How far each session is."""
        return [read(SessionProgress, path) for path in self.folder.glob("results/deployments/**/progress.json")]

    def wait_for_stored(self, count: int, workflow: subprocess.Popen) -> None:
        assert eventually(lambda: workflow.poll() is not None or self.stored() >= count, within=300), self.stored()
        assert self.stored() >= count, self.said()[-6000:]

    def wait_for_load(self, workflow: subprocess.Popen) -> None:
        """Until requests of a run under way are in flight."""

        def flying() -> bool:
            return any(session.run and time.time() > session.since + _STARTS_S for session in self.watched())

        assert eventually(lambda: workflow.poll() is not None or flying(), within=120)
        assert workflow.poll() is None, self.said()[-6000:]

    def nothing_left(self) -> bool:
        return eventually(lambda: not self.processes(), within=45)
