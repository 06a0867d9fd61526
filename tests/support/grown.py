"""One study of a real llama.cpp, the tutorial's, through all that it must survive: it begins, grows, loses its server, and is drawn."""

import copy
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from bench.measure.progress import SessionProgress
from tests.support.end_to_end import BRIEF, LENGTHS
from tests.support.project import LENIENT, Project
from tests.support.server import eventually
from tests.support.study import ROOT

TABLE = "results/summary.parquet"
LOADS: dict[str, dict[str, Any]] = {
    "paced": {"arrival": "poisson", "duration_s": 3, **LENGTHS},
    "stepped": {"arrival": "constant", "num_requests": 90, "step": {"factor": 4, "start_s": 2, "duration_s": 1}, **LENGTHS},
    "spread": {
        "arrival": "gamma", "burstiness": 0.5, "num_requests": 12, "output_tokens": 8,
        "prompt_tokens": {"distribution": "lognormal", "median": 60, "sigma": 0.5, "max": 200},
    },
    "replayed": {"arrival": "trace", "trace": "trace.csv"},
    "whole": {"arrival": "burst", "stream": False, **LENGTHS},
    "own": {"arrival": "burst", "prompts": "own.jsonl", "endpoint": "chat", "output_tokens": 8},
}  # fmt: skip
_LEVELS = {"request_rate": [10], "time_scale": [2], "concurrency": [2]}
_AXES = {"paced": "request_rate", "stepped": "request_rate", "spread": "request_rate", "replayed": "time_scale"}
_BLOCK = re.compile(r"^```(\w+)(?: title=\"my-study.yaml.*?\")\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def of_the_tutorial(page: str) -> dict[str, Any]:
    """What a page of the tutorial has its reader write into the study's file."""
    block = _BLOCK.search((ROOT / f"docs/tutorial/{page}.md").read_text())
    assert block
    content: dict[str, Any] = yaml.safe_load(block[2])
    return content


@dataclass(frozen=True)
class Step:
    """One workflow of the study: its jobs, what it said, and what there was after it."""

    jobs: list[str]
    said: str
    measured: dict[str, float]  # when, by the run's name
    starts: int  # of the first deployment's server
    summary: pl.DataFrame


class Grown(Project):
    """The project, with what each of its steps left."""

    def __init__(self, folder: Path) -> None:
        content = of_the_tutorial("own-model") | {"thresholds": LENIENT, "measurement": BRIEF}
        content["workloads"]["burst"]["output_tokens"] = 64  # half of what the reader sends, and a quarter
        content["workloads"]["chat"]["num_requests"] = 16
        super().__init__(folder, content)
        self.steps: dict[str, Step] = {}
        self.seen: list[SessionProgress] = []  # by who watched while the server was lost

    def step(self, name: str, *, target: str = TABLE, status: int = 0) -> None:
        self._keep(name, self.run(target=target, status=status), self.output)

    def _keep(self, name: str, jobs: list[str], said: str) -> None:
        summary = pl.read_parquet(self.folder / TABLE)
        self.steps[name] = Step(jobs, said, self.records(), self.server_starts("mine"), summary)

    def kept(self, name: str) -> Path:
        """A copy of what the step `name` left below `results/` beside its runs."""
        return self.folder / "kept" / name

    def grow(self) -> None:
        """A level more, a run discarded, and a model more, which gets every kind of load."""
        self.config["study"]["ladders"][0]["concurrency"] = [1, 4, 6, 8, 12]
        self.bench("runs", "--discard", "mine/chat_*_c0002_*")
        (self.folder / "trace.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,40,4\n0.5,50,5\n1.5,60,6\n")
        (self.folder / "own.jsonl").write_text(
            '{"prompt": "Why?"}\n{"messages": [{"role": "user", "content": "And why is that so?"}]}\n'
        )
        self.config["models"]["two"] = {"config": {**self.config["models"]["mine"]["config"], "num_key_value_heads": 1}}
        self.config["deployments"]["two"] = {**self.config["deployments"]["mine"], "model": "two"}
        self.config["workloads"] |= LOADS
        self.config["study"]["ladders"] += [
            {"deployment": "two", "workload": name, axis: _LEVELS[axis]}
            for name in LOADS
            for axis in [_AXES.get(name, "concurrency")]
        ]
        self.step("grown")
        self.kept("grown").mkdir(parents=True)
        for table in ("summary", "timeseries"):
            shutil.copy(self.folder / f"results/{table}.parquet", self.kept("grown"))

    def lose_the_server(self) -> None:
        """It is killed in the second of two further runs; somebody watches. `two` is done with."""
        self.config["workloads"]["long"] = {**self.config["workloads"]["chat"], "num_requests": 80}
        self.config["study"]["ladders"] = [
            *self.config["study"]["ladders"][:2],
            {"deployment": "mine", "workload": "long", "concurrency": [3, 5]},
        ]
        known, starts = self.stored(), self.server_starts("mine")
        workflow = self.start(TABLE)
        self.wait_for_stored(known + 1, workflow)
        self.wait_for_load(workflow)
        self.servers("llama_server.py")[0].send_signal(signal.SIGKILL)

        def seen() -> bool:
            """After the second start, a run that is measured and one that was."""
            self.seen += self.watched() if self.server_starts("mine") == starts + 2 else []
            return workflow.poll() is not None or any(each.run and each.done for each in self.seen)

        assert eventually(seen, within=300)
        assert workflow.wait(timeout=300) == 0, self.said()[-6000:]
        self.ended = self.watched()
        self.nothing_is_left = self.nothing_left()
        self._keep("lost", [], self.said())

    def fail_to_start(self) -> None:
        self.config["deployments"]["mine"]["flags"] = {"batch-size": 10**12}
        self.step("failed", status=1)

    def copied(self, folder: Path) -> "Grown":
        """The same study in a folder of its own, to go on from."""
        shutil.copytree(self.folder, folder, symlinks=True)
        other = copy.deepcopy(self)
        other.folder = folder
        return other

    def draw(self) -> None:
        """With the decision of the tutorial; then `make`, beside a cluster's profile in the environment, finds nothing to do."""
        self.config |= of_the_tutorial("decision")
        self.step("drawn", target="results/figures/all")
        profile = self.folder / "cluster/config.yaml"
        profile.parent.mkdir()
        profile.write_text((ROOT / "tests/data/environment/dry-run.yaml").read_text())
        environment = {**os.environ, "SNAKEMAKE_PROFILE": str(profile.parent)}
        self.made = subprocess.run(["make", "figures"], cwd=self.folder, capture_output=True, text=True, env=environment)


@pytest.fixture(scope="session")
def llamacpp_study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grown]:
    """The study after all of its steps, for tests that read what each of them left."""
    study = Grown(tmp_path_factory.mktemp("llamacpp").resolve())
    try:
        study.step("nothing")
        study.grow()
        study.lose_the_server()
        study.draw()
        yield study
    finally:
        for process in study.processes():
            process.kill()
