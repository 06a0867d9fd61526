"""A study on llama.cpp, measured again and again, each time with a fault: what was lost, wrong or left, and how it healed.

    python -m benchmarks.soak --minutes 60

Each cycle begins from nothing: `make figures` in a copy of the project, one fault drawn at random and made at a random moment, and
`make figures` again until the study is complete and valid (`bench runs --discard` where a message asks for it). What a cycle ends
with is compared with a reference that had no fault. docs/explanation/faults.md has the faults, each with its test.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import yaml
from tests.support.stores import copy_project

from bench.runs.checksums import whole

ROOT = Path(__file__).resolve().parent.parent
_BIN = Path(sys.executable).parent
_ENGINE = "llama-cpp"
_STOP_S = 3.0
_HANGS_S = 600.0  # a workflow that takes longer does not end
_RERUNS = 6
_SAMPLE_S = 0.5
# 4 KiB a token: 4 MiB hold four slots of 256 tokens.
_STUDY: dict[str, Any] = {
    "study": {
        "title": "A soak",
        "ladders": [
            {"deployment": "one", "workload": "burst", "concurrency": [2, 12]},
            {"deployment": "one", "workload": "closed", "concurrency": [2, 4]},
            {"deployment": "one", "workload": "paced", "request_rate": [8]},
        ],
    },
    "models": {
        "one": {
            "architecture": {
                "layers": 2, "hidden_size": 256, "heads": 4, "kv_heads": 4, "head_dim": 64, "intermediate_size": 512,
                "vocabulary": 512, "context": 512,
            }
        }
    },
    "engines": {_ENGINE: {"kind": "llama.cpp", "source": "lock", "locks": ["workflow/envs/llama-cpp-2026.10.11549.lock"]}},
    "deployments": {"one": {"model": "one", "engine": _ENGINE, "kv_cache_memory": "4MiB", "max_num_seqs": 4}},
    "workloads": {
        "burst": {"arrival": "burst", "prompt_tokens": 32, "output_tokens": 64},
        "closed": {"arrival": "closed", "prompt_tokens": 32, "output_tokens": 32, "num_requests": 80},
        "paced": {"arrival": "poisson", "duration_s": 12, "prompt_tokens": 64, "output_tokens": 16},
    },
    # A busy machine must not mark runs; what stands still for seconds must.
    "thresholds": {
        **{"schedule_delay_p99_s": 30.0, "count_error": 10.0, "other_share": 1.0, "drift": 10.0},
        **{"loop_lag_p99_s": 0.3, "scrape_gap_s": 2.0},
    },
    "measurement": {"request_timeout_s": 30.0},
}  # fmt: skip
# Processes by words of their commands, and who is sampled for memory.
_WHO = {
    "guard": "guard.py",
    "load": "bench.load",
    "scraper": "bench.measure.scraper",
    "server": "llama_server.py",
    "session": "measure.py",
    "snakemake": "snakemake",
    "make": "make",
}
_SAMPLED = ("load", "scraper", "session")


@dataclass
class Cycle:
    """One fault and what came of it.

    Attributes:
        fault: its name; None for the reference. at_s: when it was made, after the cycle's start; None where nothing could be hurt.
        heal_s: from then until the study was complete and valid. total_s: of the cycle. calls: of the workflow. discarded: runs.
        finished: runs at the end. lost: runs that had been finished and were gone, or measured again. wrong: runs that differ from the
            reference. unmarked: runs whose load stood still, and that are valid. left: processes that did not end. unclear: outputs
            with a traceback. hung: whether the workflow had to be ended.
    """

    fault: str | None
    at_s: float | None = None
    heal_s: float | None = None
    total_s: float = 0.0
    calls: int = 0
    discarded: int = 0
    finished: int = 0
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    unmarked: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    unclear: list[str] = field(default_factory=list)
    hung: bool = False

    @property
    def sound(self) -> bool:
        """Whether nothing went wrong but what was made to."""
        return not (self.lost or self.wrong or self.unmarked or self.left or self.unclear or self.hung)


class Soak:
    """The copy of the project, and what watches it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.results, self.store = folder / "results", folder / "results/runs"
        self.began = time.monotonic()
        self.seen: dict[tuple[str, float], str] = {}  # finished runs of this cycle: digest and start, and their names
        self.damaged: set[str] = set()  # digests of finished runs of this cycle that a fault has spoilt
        self.samples: list[dict[str, Any]] = []
        self.looking = threading.Lock()
        self.disk = False

    def prepare(self) -> None:
        """Copy the project; results get a small disk of their own where one can be mounted."""
        copy_project(self.folder)
        self.results.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", self.results], capture_output=True)
        self.disk = mounted.returncode == 0
        if not self.disk:
            print("No disk can be mounted here: none will be full.", flush=True)
        (ROOT / "results/engines" / _ENGINE).mkdir(parents=True, exist_ok=True)
        (self.results / "engines").mkdir()
        (self.results / "engines" / _ENGINE).symlink_to(ROOT / "results/engines" / _ENGINE)
        (self.folder / ".venv").symlink_to(_BIN.parent)
        for name in ("requirements.lock", "pyproject.toml"):
            os.utime(self.folder / name, (0, 0))  # make must not set up anew what is shared
        (self.folder / "config/config.yaml").write_text(yaml.safe_dump(_STUDY, sort_keys=False))

    def clear(self) -> None:
        """Remove all results but the engine."""
        with self.looking:
            for entry in self.results.iterdir():
                if entry.name != "engines":
                    shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
            self.seen.clear()
            self.damaged.clear()

    def unmount(self) -> None:
        """Give the disk back."""
        if self.disk:
            subprocess.run(["umount", "--lazy", self.results], check=False)

    # What runs.

    def processes(self, who: str | None = None) -> list[psutil.Process]:
        """What runs in this folder, or serves a model of it; of one kind, outermost first."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                command = process.cmdline()
                mine = Path(process.cwd()) == self.folder or str(self.folder) in " ".join(command)
                if process.pid != os.getpid() and mine and who in (None, _who(command)):
                    found.append(process)
        return found

    def start(self) -> subprocess.Popen[bytes]:
        """`make figures`, in the background."""
        with (self.folder / "workflow.out").open("ab") as out:
            return subprocess.Popen(
                ["make", "figures"], cwd=self.folder, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )

    def said(self) -> str:
        """What the workflows of this cycle printed."""
        out = self.folder / "workflow.out"
        return out.read_text(errors="replace") if out.exists() else ""

    def bench(self, *arguments: str) -> str:
        """The output of a command of `bench`."""
        done = subprocess.run([_BIN / "bench", *arguments], cwd=self.folder, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"bench {' '.join(arguments)}:\n{done.stdout}{done.stderr}")
        return done.stdout

    # What is there.

    def runs(self) -> dict[str, dict[str, Any]]:
        """The records of finished runs by digest; what cannot be read is left out."""
        records = {}
        for path in self.store.glob("*/*/run.json"):
            with suppress(OSError, ValueError):
                record = json.loads(path.read_text())
                records[record["digest"]] = record
        return records

    def watch(self, over: threading.Event) -> None:
        """Note finished runs, and the memory of those who measure, until `over`."""
        while not over.wait(_SAMPLE_S):
            with self.looking:
                for digest, record in self.runs().items():
                    self.seen[digest, record["clock_start_s"]] = record["definition"]["run"]
            now = time.monotonic() - self.began
            for who in _SAMPLED:
                for process in self.processes(who):
                    with suppress(psutil.Error):
                        sample = {"age_s": time.time() - process.create_time(), "rss_mib": process.memory_info().rss / 2**20}
                        self.samples.append({"at_s": now, "who": who, "pid": process.pid, **sample})


def _who(command: Sequence[str]) -> str | None:
    """Which kind of process a command is."""
    words = [Path(part).name for part in command[:6]]
    if "make" in words[:1]:
        return "make"
    # In this order: the guard's command ends in the server's, and `snakemake` in `make`.
    return next((who for who, end in _WHO.items() if any(word.endswith(end) for word in words)), None)


def contents(soak: Soak) -> dict[str, str]:
    """By run, a digest of what was asked and answered, without its times."""
    keys = ("index", "after", "outcome", "prompt_asked", "output_asked", "prompt_tokens", "completion_tokens")
    found = {}
    for record in soak.results.glob("runs/*/*/run.json"):
        with suppress(OSError, ValueError):  # what cannot be read differs
            lines = [json.loads(line) for line in (record.parent / "requests.jsonl").read_text().splitlines()]
            text = json.dumps([[line[key] for key in keys] for line in lines])
            found[record.parent.name] = hashlib.sha256(text.encode()).hexdigest()
    return found


# Faults. Each takes the soak, and returns what undoes it (None: nothing does) once it has been made; False where nothing was there.

_Undo = Callable[[], None] | None


@dataclass(frozen=True)
class Fault:
    """What can be made to happen.

    Attributes:
        make: makes it. stands: who stood still meanwhile.
        of_session: whether it hurts a session, and comes while there is one; others come at any time of a cycle.
    """

    make: Callable[[Soak, random.Random], _Undo | bool]
    stands: tuple[str, ...] = ()
    of_session: bool = True


def _signal(number: int, *who: str, for_s: float = 0.0) -> Callable[[Soak, random.Random], _Undo | bool]:
    def make(soak: Soak, _: random.Random) -> _Undo | bool:
        found = [process for each in who for process in soak.processes(each)]
        if not found or (for_s and not soak.processes("load")):
            return False
        for process in found:
            with suppress(psutil.Error):
                process.send_signal(number)
        if for_s:
            time.sleep(for_s)
            for process in found:
                with suppress(psutil.Error):
                    process.send_signal(signal.SIGCONT)
        return None

    return make


def _fill(soak: Soak, _: random.Random) -> _Undo | bool:
    if not soak.disk:
        return False
    filler = soak.results / "filler"
    with filler.open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    time.sleep(5)
    return lambda: filler.unlink(missing_ok=True)


def _damage(soak: Soak, draw: random.Random) -> _Undo | bool:
    """Cut a file of a finished run, while its session goes on."""
    finished = sorted((digest, record["definition"]) for digest, record in soak.runs().items())
    if not finished or not soak.processes("session"):
        return False
    digest, run = draw.choice(finished)
    file = soak.store / run["deployment"] / run["run"] / draw.choice(["run.json", "requests.jsonl", "telemetry.jsonl.gz"])
    soak.damaged.add(digest)
    os.truncate(file, file.stat().st_size // 2)
    return None


def _damage_table(soak: Soak, draw: random.Random) -> _Undo | bool:
    """Cut a file that was made of a run."""
    files = [
        file
        for name in ("requests.parquet", "telemetry.parquet", "summary.json")
        for file in soak.results.glob(f"runs/*/*/{name}")
    ]
    if not files:
        return False
    file = draw.choice(sorted(files))
    os.truncate(file, file.stat().st_size // 2)
    return lambda: file.unlink(missing_ok=True)


def _foreign(soak: Soak, draw: random.Random) -> _Undo | bool:
    """Files of somebody else, among the results and the runs."""
    soak.store.mkdir(parents=True, exist_ok=True)
    for place in (soak.store / f"notes-{draw.random()}", soak.results / f"runs-{draw.random()}"):
        place.write_text("mine")
    (soak.store / ".unfinished-other-x").mkdir(exist_ok=True)
    return None


def _second(soak: Soak, _: random.Random) -> _Undo | bool:
    """Another workflow in the same folder; it must be refused."""
    if not soak.processes("snakemake"):
        return False
    done = subprocess.run(["make", "figures"], cwd=soak.folder, capture_output=True, text=True)
    if done.returncode == 0 or "Another workflow runs in this folder" not in done.stderr:
        raise RuntimeError(f"a second workflow was not refused:\n{done.stdout}{done.stderr}")
    return None


_ABOVE = ("snakemake", "make")  # they live as long as a cycle

FAULTS: dict[str, Fault] = {
    **{f"{who} killed": Fault(_signal(signal.SIGKILL, who), of_session=who not in _ABOVE) for who in _WHO},
    **{f"{who} terminated": Fault(_signal(signal.SIGTERM, who), of_session=who not in _ABOVE) for who in _WHO},
    **{f"{who} stopped": Fault(_signal(signal.SIGSTOP, who, for_s=_STOP_S), (who,)) for who in ("load", "scraper", "server")},
    "all stopped": Fault(
        _signal(signal.SIGSTOP, "load", "scraper", "server", "session", for_s=_STOP_S), ("load", "scraper", "server")
    ),
    "disk full": Fault(_fill, of_session=False),
    "run damaged": Fault(_damage),
    "table damaged": Fault(_damage_table, of_session=False),
    "foreign files": Fault(_foreign, of_session=False),
    "second workflow": Fault(_second, of_session=False),
}


@dataclass(frozen=True)
class Usual:
    """How long a cycle without a fault took, and its session (s)."""

    cycle_s: float = 0.0
    session_s: float = 0.0


def cycle(soak: Soak, name: str | None, draw: random.Random, usual: Usual) -> Cycle:
    """Measure the study from nothing, with a fault; complete it, and look at what there is."""
    soak.clear()
    (soak.folder / "workflow.out").unlink(missing_ok=True)
    result = Cycle(name)
    begin = time.monotonic()
    workflow, result.calls = soak.start(), 1
    undo: _Undo | bool = None
    stood = (0.0, 0.0)
    if name:
        moment = _moment(soak, workflow, FAULTS[name], draw, usual)
        while workflow.poll() is None:
            time.sleep(0.05)
            if time.monotonic() < moment:
                continue
            at = time.monotonic()
            undo = FAULTS[name].make(soak, draw)
            if undo is not False:
                result.at_s, stood = at - begin, (at, time.monotonic())
                break
    result.hung |= not _ended(workflow, soak)
    _look_for_processes(soak, result)
    if callable(undo):
        undo()
    if name:
        result.unmarked += _unmarked(soak, FAULTS[name].stands, stood)
    while not _complete(soak, workflow, result):
        if result.calls > _RERUNS:
            result.wrong.append("the study did not become complete")
            break
        workflow, result.calls = soak.start(), result.calls + 1
        result.hung |= not _ended(workflow, soak)
        _look_for_processes(soak, result)
    result.total_s = time.monotonic() - begin
    result.heal_s = result.total_s - result.at_s if result.at_s is not None else None
    now = {(digest, record["clock_start_s"]) for digest, record in soak.runs().items()}
    result.finished = len(now)
    result.lost = [
        run for (digest, start), run in soak.seen.items() if (digest, start) not in now and digest not in soak.damaged
    ]
    if "Traceback" in soak.said():
        result.unclear = [soak.said()[soak.said().index("Traceback") - 300 :][:3000]]
    return result


def _moment(soak: Soak, workflow: subprocess.Popen[bytes], fault: Fault, draw: random.Random, usual: Usual) -> float:
    """When a fault is to be made. That of a session counts from the session's start: on a machine whose speed changes, a share of the
    cycle would often fall after its end.
    """
    if not fault.of_session:
        return time.monotonic() + draw.uniform(0.05, 0.95) * usual.cycle_s
    while workflow.poll() is None and not soak.processes("session"):
        time.sleep(0.1)
    return time.monotonic() + draw.uniform(0.05, 0.7) * usual.session_s


def _ended(workflow: subprocess.Popen[bytes], soak: Soak) -> bool:
    """Wait for the workflow; whether it ended by itself."""
    with suppress(subprocess.TimeoutExpired):
        workflow.wait(timeout=_HANGS_S)
        return True
    for process in soak.processes():
        with suppress(psutil.Error):
            process.kill()
    workflow.wait()
    return False


def _look_for_processes(soak: Soak, result: Cycle) -> None:
    end = time.monotonic() + 45
    while left := soak.processes():
        if time.monotonic() > end:
            for process in left:
                with suppress(psutil.Error):
                    result.left.append(" ".join(process.cmdline()))
                    process.kill()
            return
        time.sleep(0.2)


def _complete(soak: Soak, workflow: subprocess.Popen[bytes], result: Cycle) -> bool:
    """Whether the study is there and valid; what a message or a mark asks for is done."""
    listed = json.loads(soak.bench("runs", "--json"))
    rows = listed["runs"] if isinstance(listed, dict) else listed
    states = {row["run"]: row["state"] for row in rows}
    if workflow.returncode == 0 and set(states.values()) == {"measured"}:
        return True
    with soak.looking:
        if "invalid" in states.values():
            forgotten = json.loads(soak.bench("runs", "--discard", "invalid", "--json"))
        else:
            asked = [run for run in states if f"bench runs --discard {run}" in soak.said() and not _sound(soak, run)]
            forgotten = json.loads(soak.bench("runs", "--json", *(f"--discard=*{run}" for run in asked))) if asked else []
        result.discarded += len(forgotten)
        names = {key.rpartition("/")[2] for key in forgotten}
        for key in [key for key, run in soak.seen.items() if run in names]:
            del soak.seen[key]
    return False


def _sound(soak: Soak, run: str) -> bool:
    return all(whole(folder, "run.json") for folder in soak.results.glob(f"runs/*/{run}"))


def _unmarked(soak: Soak, who: Sequence[str], stood: tuple[float, float]) -> list[str]:
    """Runs in whose load somebody stood still for longer than the thresholds allow, and that are valid all the same."""
    summary = soak.results / "summary.parquet"
    if not who or not summary.exists():
        return []
    table = pl.read_parquet(summary)
    faults = dict(zip(table["digest"], table["faults"], strict=True))
    expected = {part for each in who for part in (["client"] if each == "load" else ["telemetry"])}
    found = []
    for digest, record in soak.runs().items():
        begin = record["clock_start_s"]
        inside = min(stood[1], begin + record["duration_s"]) - max(stood[0], begin)
        if inside > 2.5 and digest in faults and not expected <= set(faults[digest]):
            found.append(record["definition"]["run"])
    return found


def memory(samples: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Of each kind of process: how many, the largest (MiB), and how it grew from the soak's begin to its end, and while it lived."""
    result: dict[str, dict[str, float]] = {}
    if not samples:
        return result
    table = pl.DataFrame(samples).filter(pl.col("age_s") > 1.5)  # past its imports
    for (who,), mine in table.partition_by("who", as_dict=True).items():
        peaks = mine.group_by("pid").agg(pl.col("at_s").first(), pl.col("rss_mib").max())
        apart = mine.with_columns(
            x=pl.col("at_s") - pl.col("at_s").mean().over("pid"), y=pl.col("rss_mib") - pl.col("rss_mib").mean().over("pid")
        )
        square = (apart["x"] ** 2).sum()
        result[str(who)] = {
            "processes": len(peaks),
            "peak_mib": round(float(mine["rss_mib"].max()), 1),  # type: ignore[arg-type]
            "mib_an_hour": round(3600 * _slope(peaks["at_s"].to_list(), peaks["rss_mib"].to_list()), 2),
            "mib_a_minute_alive": round(60 * float((apart["x"] * apart["y"]).sum() / square), 3) if square else 0.0,
        }
    return result


def _slope(x: list[float], y: list[float]) -> float:
    return statistics.linear_regression(x, y).slope if len(set(x)) > 1 else 0.0


@contextmanager
def watched(soak: Soak) -> Iterator[None]:
    """Note what there is while the context lasts."""
    over = threading.Event()
    thread = threading.Thread(target=soak.watch, args=(over,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def table(cycles: Sequence[Cycle]) -> str:
    """The result by fault, to read."""
    lines = [
        "| fault | made | runs lost | wrong | valid but spoilt | processes left | seconds to heal, median | longest |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name in sorted({each.fault for each in cycles if each.fault}):
        mine = [each for each in cycles if each.fault == name and each.at_s is not None]
        heal = [each.heal_s for each in mine if each.heal_s is not None]
        counts = [sum(len(getattr(each, key)) for each in mine) for key in ("lost", "wrong", "unmarked", "left")]
        seconds = f"{statistics.median(heal):.0f} | {max(heal):.0f}" if heal else "– | –"
        lines.append(f"| {name} | {len(mine)} | {' | '.join(map(str, counts))} | {seconds} |")
    return "\n".join(lines)


def main() -> int:
    """Soak, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="for which cycles begin (default: %(default)g)")
    parser.add_argument("--seed", type=int, default=0, help="of the faults and their moments (default: %(default)s)")
    parser.add_argument("--fault", action="append", choices=FAULTS, help="only this one; may be given several times")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "benchmarks/.results/soak", help="emptied first (default: %(default)s)"
    )
    options = parser.parse_args()
    shutil.rmtree(options.folder, ignore_errors=True)
    project = options.folder.resolve() / "project"
    project.mkdir(parents=True)
    draw, soak = random.Random(options.seed), Soak(project)  # noqa: S311 - no secret
    cycles: list[Cycle] = []
    deck: list[str] = []
    try:
        soak.prepare()
        if not (ROOT / "results/engines" / _ENGINE / "engine.json").exists():
            cycle(soak, None, draw, Usual())  # builds it
        with watched(soak):
            reference = cycle(soak, None, draw, Usual())
            ages = [sample["age_s"] for sample in soak.samples if sample["who"] == "session"]
            usual = Usual(reference.total_s, max(ages, default=0.0))
            expected = contents(soak)
            print(f"without a fault: {len(expected)} runs in {reference.total_s:.0f} s", flush=True)
            begin = time.monotonic()
            while time.monotonic() - begin < 60 * options.minutes:
                if not deck:  # each once, in another order each time
                    deck = draw.sample(options.fault or list(FAULTS), len(options.fault or FAULTS))
                result = cycle(soak, deck.pop(), draw, usual)
                found = contents(soak)
                result.wrong += [run for run in expected if found.get(run) != expected[run]]
                cycles.append(result)
                told = "" if result.sound else f"  { ({k: v for k, v in asdict(result).items() if v}) }"
                healed = (
                    f"healed in {result.heal_s:.0f} s, {result.calls} calls" if result.heal_s is not None else "nothing to hurt"
                )
                print(f"{time.monotonic() - begin:6.0f} s  {result.fault}: {healed}{told}", flush=True)
    finally:
        soak.unmount()
    pl.DataFrame(soak.samples).write_parquet(options.folder / "memory.parquet")
    result = {
        "cycles": [asdict(each) for each in cycles],
        "runs_finished": sum(each.finished for each in cycles),
        "sound": all(each.sound for each in cycles),
        "memory": memory(soak.samples),
    }
    (options.folder / "soak.json").write_text(json.dumps(result, indent=2) + "\n")
    print(table(cycles))
    print(f"\n{result['runs_finished']} runs finished in {len(cycles)} cycles. Memory: {json.dumps(result['memory'])}")
    return 0 if result["sound"] else 1


if __name__ == "__main__":
    sys.exit(main())
