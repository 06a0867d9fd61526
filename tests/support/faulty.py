"""A small study to which faults are made to happen, and what makes them. It imports little: some tests start it as a process."""

import signal
import sys
import threading
import time
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import psutil
import yaml

from bench.measure.session import measure
from bench.runs.files import whole, write_record
from bench.runs.paths import Paths
from bench.runs.run import read_record
from bench.runs.store import Store
from bench.study.plan import Plan
from bench.study.read import load_config
from bench.study.state import run_states
from tests.support import records

ROOT = Path(__file__).parents[2]
EXPOSITION = ROOT / "tests/data/vllm-0.32.0.prom"
VERSION = {"/version": '{"version": "0.32.0"}'}
# What a session starts: it answers as vLLM does, and has a child that leaves its group and ignores SIGTERM, as a worker might.
ENGINE = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-S", "-c", "import os, signal, time; os.setsid(); signal.signal(15, signal.SIG_IGN); time.sleep(600)"])
print("child", child.pid, flush=True)
sys.path.insert(0, {str(ROOT)!r})
from tests.support.fake_server import fake_server
with fake_server(port=int(sys.argv[1]), metrics=open({str(EXPOSITION)!r}).read(), pages={VERSION!r}, gap_s=0.02):
    time.sleep(600)
"""


class Study:
    """Runs of a second or two, in the working directory."""

    def __init__(self, content, base_url=None, levels=(1, 2)):
        content["study"]["ladders"] = [{"deployment": "a", "workload": "loop", "concurrency": list(levels)}]
        content["workloads"] = {"loop": {"arrival": "closed", "prompt_tokens": 16, "output_tokens": 24, "num_requests": 4}}
        content["measurement"] = {"warmup_requests": 0, "reference_requests": 0, "request_timeout_s": 2.0}
        if base_url:
            content["engines"]["e"] = {"source": "external", "base_url": base_url}
        Path("study.yaml").write_text(yaml.safe_dump(content))
        Path("engine.py").write_text(ENGINE)
        self.plan = Plan.of(load_config(content, source="test"))
        self.launch, self.facts = Path(Paths.LAUNCH.format(deployment="a")), Paths.facts("a")
        self.launch.parent.mkdir(parents=True, exist_ok=True)
        argv = None if base_url else (sys.executable, "engine.py", "{port}")
        write_record(records.launch(device="cpu", argv=argv, base_url=base_url), self.launch)
        self.store, self.said = Store(owner="a"), []

    def session(self, act=None):
        """Measure what is missing; `act` is called in another thread when load is sent, in the second run where there are two."""
        runs = sum(not self.store.holds(run) for run in self.plan.runs)
        first = threading.Event()

        def say(text):
            self.said.append(text)
            if ": run 1 of" in text:
                first.set()

        when = lambda: (first.is_set() or runs == 1) and sending()  # noqa: E731
        with soon(act, when) if act else nullcontext():
            measure(self.plan, "a", self.plan.runs, launch=self.launch, facts=self.facts, store=self.store, say=say)

    def finished(self):
        """When each finished run was measured, by its digest; each is whole."""
        held = [run for run in self.plan.runs if self.store.holds(run)]
        assert all(whole(self.store.folder(run), run.record.name) for run in held)
        return {run.digest: read_record(self.store.record(run)).clock_start_s for run in held}

    def healed(self, kept):
        """Measure the rest; whether all is in place, and the runs `kept` are as they were."""
        self.session()
        assert self.finished().items() >= kept.items()
        assert not list(self.store.root.glob(".unfinished*"))
        assert {state for _, state in run_states(self.plan, self.store, ())} == {"measured"}
        return all(whole(run.record.parent, run.record.name) for run in self.plan.runs)


def below(*words):
    """Processes below this one whose command has one of `words`."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if any(word in part for part in process.cmdline() for word in words):
                found.append(process)
    return found


@contextmanager
def soon(act, when):
    """Call `act` in another thread as soon as `when` is true, while the context lasts."""
    over = threading.Event()

    def wait():
        while not over.wait(0.01):
            if when():
                act()
                return

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def sending():
    """Whether the load and the scraper of a run have begun."""
    return bool(below("bench.load") and list(Path(Paths.RUNS).glob(".unfinished*/telemetry*")))


def signalling(number, *words, last=False, for_s=0.0, after_s=0.4):
    """What sends a signal to the processes that have one of `words` in their command; to all, or to the last of them."""

    def act():
        time.sleep(after_s)
        found = below(*words)[-1 if last else 0 :]
        for process in found:
            process.send_signal(number)
        if for_s:
            time.sleep(for_s)
            for process in found:
                process.send_signal(signal.SIGCONT)

    return act
