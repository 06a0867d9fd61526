"""Simulated servers of known capacity, through the whole pipeline: what it makes of them, against the truth.

python -m benchmarks.capacity                              # 200 servers; some minutes on two cores
python -m benchmarks.capacity --limits                     # without files and causes: a third of the time
python -m benchmarks.capacity --source . --source ../other # another checkout's code beside this one's
"""

from __future__ import annotations

import hashlib
import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.capacity.evaluate import evaluate_ladder, evaluate_study
from benchmarks.capacity.files import write_study
from benchmarks.capacity.fleet import drawn_case
from benchmarks.capacity.judge import COLUMNS, cell, judge, rows
from benchmarks.capacity.ladder import write_ladder
from benchmarks.harness import RESULTS, Referee, print_table

HERE = Path(__file__).parent
_WRITERS = ("server.py", "truth.py", "fleet.py", "files.py", "ladder.py")


def judged(number: int, seed: int, studies: Path, causes: bool) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """One server: what it is, what is found of its study, which is written if it is not there, and the verdict on that."""
    folder = studies / f"s{number:03}"
    if not folder.exists():
        case = drawn_case(number, seed, causes=causes)
        unfinished = studies / f".s{number:03}"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        (write_study if causes else write_ladder)(case, unfinished)
        unfinished.rename(folder)
    try:
        found = (evaluate_study if causes else evaluate_ladder)(folder)
    except Exception as error:  # the next server may be well
        found = {"error": f"{type(error).__name__}: {error}"[:500]}
    known = json.loads((folder / "server.json").read_text())
    return known, found, judge(known, found)


def studies_of(seed: int) -> Path:
    """Where the studies of this code and seed lie; those of earlier code are removed."""
    code = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in _WRITERS)).hexdigest()[:12]
    folder = RESULTS / "capacity" / "studies" / f"seed{seed}" / code
    for other in folder.parent.iterdir() if folder.parent.exists() else ():
        if other != folder:
            shutil.rmtree(other)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def main() -> None:
    referee = Referee(__doc__, seed=1, servers=200)
    referee.option("--limits", action="store_true", help="leave files and causes out")
    options = referee.options()
    studies = studies_of(options.seed) / ("limits" if options.limits else "causes")
    one = partial(judged, seed=options.seed, studies=studies, causes=not options.limits)
    cases, found, verdicts = zip(*referee.spread(one, range(options.servers)), strict=True)
    table = rows(cases, verdicts)
    columns = {name: text for name, text in COLUMNS.items() if any(row[name] is not None for row in table.values())}
    print_table(["", *columns.values()], ([name, *(cell(each, row[each]) for each in columns)] for name, row in table.items()))
    if errors := [verdict for verdict in verdicts if verdict["error"]]:
        print(f"\n{len(errors)} servers failed; the first, {errors[0]['number']}: {errors[0]['error']}")
    referee.keep({"seed": options.seed, "table": table, "cases": cases, "verdicts": verdicts, "results": found})


if __name__ == "__main__":
    main()
