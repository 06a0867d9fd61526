"""Do the tests notice when a line that decides is wrong? A sample of mutants of each module, made and run by cosmic-ray.

Each group of modules has the tests that should notice. Annotations are left alone: nothing reads them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.support.stores import copy_project

from benchmarks.client.peers import environment

COSMIC_RAY = "cosmic-ray==8.7.0"
_TIMEOUT_S = 120
_ANALYSIS, _MODELS, _PARSE = "src/bench/analysis", "src/bench/models", "src/bench/parse"
# Module by module, the quickest tests first: the first that fails ends a mutant.
GROUPS: dict[str, tuple[list[str], list[str]]] = {
    "capacity": (
        [f"{_ANALYSIS}/{name}.py" for name in ("belief", "capacity", "judging", "observation", "proportions", "slo", "speed",
                                              "windows", "sensitivity")],
        ["test_slo", "test_belief", "test_capacity_rules", "test_windows", "test_sizing", "test_decisions"],
    ),
    "sizing": (
        [f"{_ANALYSIS}/{name}.py" for name in ("sizing", "economics", "bottleneck", "saturation", "advice")],
        ["test_causes", "test_analysis", "test_sizing", "test_decisions", "test_parallel", "test_regions"],
    ),
    "compare": (
        [f"{_ANALYSIS}/{name}.py" for name in ("compare", "blocks", "effects", "failures", "gate", "power", "repeats", "levels")],
        ["test_noise", "test_effects", "test_gate", "test_repeats", "test_regions", "test_compare_command", "test_compare"],
    ),
    "verdicts": (
        [f"{_ANALYSIS}/validity.py", "src/bench/aggregate/table.py", "src/bench/drift.py", "src/bench/study/precision.py"],
        ["test_analysis", "test_precision", "test_aggregate", "test_drift"],
    ),
    "curves": (
        [f"{_ANALYSIS}/{name}.py" for name in ("regions", "knee", "bands", "factors", "importance", "predictions", "lengths")],
        ["test_slo", "test_decisions", "test_regions", "test_lengths", "test_factors"],
    ),
    "words": (
        [f"src/bench/words/{name}.py" for name in ("advice", "capacity", "causes", "comparison", "loads", "predictions",
                                                   "regions", "sizing", "verdicts")],
        ["test_words", "test_findings", "test_decisions", "test_regions", "test_causes", "test_capacity_rules", "test_compare"],
    ),
    "models": (
        [f"{_MODELS}/{name}.py" for name in ("geometry", "families", "memory", "plan", "roofline", "stages", "config_json")],
        ["test_models", "test_plan_examples", "test_roofline", "test_capacity", "test_bench_plan", "test_catalogue", "test_parallel"],
    ),
    "parse": (
        [f"{_PARSE}/{name}.py" for name in ("steady", "begun", "in_flight", "load", "recovery", "percentiles", "latency",
                                            "server", "run", "scrapes", "exposition", "devices")],
        ["test_steady", "test_load_figures", "test_in_flight", "test_recovery", "test_percentiles", "test_parse",
         "test_devices", "test_engine_metrics", "test_exposition"],
    ),
    "answers": (
        [*(f"src/bench/load/{name}.py" for name in ("events", "answer")), f"{_PARSE}/stream.py"],
        ["test_answers_read", "test_reading", "test_answers_lengths"],
    ),
    "servers": (
        ["src/bench/telemetry/series.py", "src/bench/measure/exposition.py", "src/bench/load/introduction.py"],
        ["test_expositions", "test_metrics_address", "test_introduction"],
    ),
    "traces": (["src/bench/study/trace.py"], ["test_trace"]),
}  # fmt: skip
_SAMPLE = """
import ast, json, pathlib, random, sys
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import WorkerOutcome, WorkResult

database, count, seed = sys.argv[1], int(sys.argv[2]), sys.argv[3]

def annotations(path):
    found = []
    for node in ast.walk(ast.parse(pathlib.Path(path).read_text())):
        for each in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if each is not None:
                found.append(((each.lineno, each.col_offset), (each.end_lineno, each.end_col_offset)))
    return found

with use_db(database, WorkDB.Mode.open) as db:
    items, known = sorted(db.work_items, key=lambda item: str(item.mutations)), {}
    def live(item):
        at = item.mutations[0]
        inside = known.setdefault(at.module_path, annotations(at.module_path))
        return not any(begin <= at.start_pos < end for begin, end in inside)
    live = [item for item in items if live(item)]
    kept = {item.job_id for item in random.Random(seed).sample(live, min(count, len(live)))}
    db.set_multiple_results(
        [item.job_id for item in items if item.job_id not in kept],
        WorkResult(output="not in the sample", worker_outcome=WorkerOutcome.SKIPPED),
    )
print(len(live))
"""


def run(group: str, modules: list[str], tests: list[str], sample: int, seed: str) -> dict[str, Any]:
    """Mutate a sample of `modules` in a copy of the project; how many there are, how many were tried, and those that survived."""
    binaries = environment(COSMIC_RAY)
    with tempfile.TemporaryDirectory(prefix="mutation-") as name:
        folder = Path(name).resolve()
        copy_project(folder)
        files = " ".join(f"tests/{test}.py" for test in tests if (folder / f"tests/{test}.py").exists())
        command = (
            f"env PYTHONPATH={folder}/src:{folder} PYTHONDONTWRITEBYTECODE=1 {sys.executable} -m pytest -x -q "
            f"-p no:cacheprovider -m 'not engine' {files}"
        )
        config = {"module-path": modules, "timeout": float(_TIMEOUT_S), "excluded-modules": [], "test-command": command}
        lines = [f"{key} = {json.dumps(value)}" for key, value in config.items()]
        (folder / "mutation.toml").write_text(
            "\n".join(["[cosmic-ray]", *lines, "[cosmic-ray.distributor]", 'name = "local"', ""])
        )
        sound = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True)  # noqa: S602 - ours, as written above
        if sound.returncode:
            raise SystemExit(f"{group}: the tests fail without any mutant:\n{sound.stdout[-3000:]}")

        def call(*arguments: str) -> str:
            return subprocess.run(arguments, cwd=folder, check=True, capture_output=True, text=True).stdout

        call(str(binaries / "cosmic-ray"), "init", "mutation.toml", "mutants.sqlite")
        possible = int(call(str(binaries / "python"), "-c", _SAMPLE, "mutants.sqlite", str(sample), seed))
        call(str(binaries / "cosmic-ray"), "exec", "mutation.toml", "mutants.sqlite")
        tried = [json.loads(line) for line in call(str(binaries / "cosmic-ray"), "dump", "mutants.sqlite").splitlines()]
    done = [(item, result) for item, result in tried if result and result["worker_outcome"] == "normal"]
    survived = [result["diff"] for _, result in done if result["test_outcome"] == "survived"]
    return {"group": group, "possible": possible, "tried": len(done), "caught": len(done) - len(survived), "survived": survived}


def main() -> None:
    """Print each group's share, and the survivors' diffs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"{', '.join(GROUPS)} (default: all)")
    parser.add_argument("--module", help="of the groups' modules only those whose path contains this")
    parser.add_argument("--sample", type=int, default=60, help="mutants of each group (default: %(default)s)")
    parser.add_argument("--seed", default="1", help="of the sample (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write the results there")
    options = parser.parse_args()
    if unknown := [group for group in options.groups if group not in GROUPS]:
        parser.error(f"no group {', '.join(unknown)}. There are: {', '.join(GROUPS)}")
    results = []
    for group in options.groups or GROUPS:
        modules, tests = GROUPS[group]
        chosen = [module for module in modules if (options.module or "") in module]
        if not chosen:
            continue
        found = run(group, chosen, tests, options.sample, options.seed)
        results.append(found)
        for diff in found["survived"]:
            print(diff, end="\n\n")
        print(f"{group}: {found['caught']} of {found['tried']} caught ({found['possible']:,} possible)", flush=True)
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
