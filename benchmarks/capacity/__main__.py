"""Simulated servers of known capacity, through the whole pipeline: what it makes of them, against the truth.

python -m benchmarks.capacity                              # 200 servers; some minutes on two cores
python -m benchmarks.capacity --limits                     # without files and causes: a third of the time
python -m benchmarks.capacity --source . --source ../other # another checkout's code beside this one's
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from threading import Thread
from typing import Any

from benchmarks.capacity.files import write_study
from benchmarks.capacity.fleet import drawn_case
from benchmarks.capacity.judge import COLUMNS, judge, rows
from benchmarks.capacity.ladder import write_ladder

HERE = Path(__file__).parent
RESULTS = HERE.parent / ".results" / "capacity"
_WRITERS = ("server.py", "truth.py", "fleet.py", "files.py", "ladder.py")


def prepared(number: int, seed: int, studies: Path, causes: bool = True) -> Path:
    """The folder of one server's study, written if it is not there."""
    folder = studies / f"s{number:03}"
    if not folder.exists():
        case = drawn_case(number, seed, RESULTS / "truths", causes=causes)
        unfinished = studies / f".s{number:03}"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        (write_study if causes else write_ladder)(case, unfinished)
        unfinished.rename(folder)
    return folder


def studies_of(seed: int) -> Path:
    """Where the studies of this code and seed lie; those of earlier code are removed."""
    code = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in _WRITERS)).hexdigest()[:12]
    folder = RESULTS / "studies" / f"seed{seed}" / code
    if folder.parent.exists():
        for other in folder.parent.iterdir():
            if other != folder:
                shutil.rmtree(other)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def evaluated(folders: Sequence[Path], source: Path, jobs: int, *, causes: bool = True) -> dict[int, dict[str, Any]]:
    """What `source`'s code finds in each folder, by the server's number."""
    environment = {**os.environ, "PYTHONPATH": str(source.resolve() / "src"), "POLARS_MAX_THREADS": "1"}
    results: dict[int, dict[str, Any]] = {}

    def run(share: Sequence[Path]) -> None:
        command = [sys.executable, "-P", str(HERE / "evaluate.py"), *["--limits"] * (not causes), *map(str, share)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=source) as process:
            assert process.stdout  # noqa: S101 - it is a pipe
            for line in process.stdout:
                result = json.loads(line)
                results[result["name"]] = result
                _progress(f"evaluated by {source}", len(results), len(folders))

    threads = [Thread(target=run, args=(folders[first::jobs],)) for first in range(min(jobs, len(folders)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def _progress(text: str, done: int, of: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done} of {of} {text}\033[K", end="" if done < of else "\n", file=sys.stderr, flush=True)
    elif done % 20 == 0 or done == of:
        print(f"{done} of {of} {text}", file=sys.stderr, flush=True)


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "–"
    if name in ("servers", "never"):
        return str(value)
    return f"{value:+.1%}" if name == "worst" else f"{value:.1%}"


def _print(title: str, table: Mapping[str, Mapping[str, Any]]) -> None:
    columns = {name: text for name, text in COLUMNS.items() if any(row[name] is not None for row in table.values())}
    print(f"{title}\n\n| | {' | '.join(columns.values())} |\n|---|{'--:|' * len(columns)}")
    for name, row in table.items():
        print(f"| {name} | {' | '.join(_cell(column, row[column]) for column in columns)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limits", action="store_true", help="leave files and causes out")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: %(default)s)")
    parser.add_argument(
        "--source", type=Path, action="append", help="a checkout whose code judges (default: this one); repeatable"
    )
    parser.add_argument("--json", type=Path, help="write everything, server by server")
    options = parser.parse_args()
    began = time.monotonic()
    studies = studies_of(options.seed) / ("limits" if options.limits else "causes")
    folders = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for folder in pool.map(
            prepared, range(options.servers), repeat(options.seed), repeat(studies), repeat(not options.limits)
        ):
            folders.append(folder)
            _progress("servers ready", len(folders), options.servers)
    ready = time.monotonic()
    cases = [json.loads((folder / "server.json").read_text()) for folder in folders]
    content: dict[str, Any] = {"seed": options.seed, "cases": cases, "prepared_s": ready - began, "sources": {}}
    for source in options.source or [HERE.parent.parent]:
        started = time.monotonic()
        results = evaluated(folders, source, options.jobs, causes=not options.limits)
        lost = {"error": "the evaluation ended early"}
        verdicts = [judge(case, results.get(case["number"], lost)) for case in cases]
        table = rows(cases, verdicts)
        took = time.monotonic() - started
        content["sources"][str(source)] = {"table": table, "verdicts": verdicts, "results": results, "seconds": took}
        _print(f"\n{source}: evaluated in {took:.0f} s" if options.source else "", table)
        if errors := [verdict for verdict in verdicts if verdict["error"]]:
            print(f"\n{len(errors)} servers failed; the first, {errors[0]['number']}: {errors[0]['error']}")
    if options.json:
        options.json.write_text(json.dumps(content, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
