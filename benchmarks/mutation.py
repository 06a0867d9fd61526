"""Do the tests notice when a line that decides is wrong? A sample of mutants of each module, made and run by cosmic-ray.

Each group of modules has the tests that should notice. Annotations are left alone: nothing reads them. A mutant whose tests do
not end is neither caught nor survived.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support.stores import ROOT, copy_project

from benchmarks.client.peers import environment

COSMIC_RAY = "cosmic-ray==8.7.0"
# s that a mutant's tests may take, and how many times what they take without a mutant if that is more; convention
_TIMEOUT_S, _TIMES = 120, 5
_FINDINGS, _MODELS, _PARSE, _STATISTICS = (f"src/bench/{room}" for room in ("findings", "models", "parse", "statistics"))
# Module by module, the quickest tests first: the first that fails ends a mutant.
GROUPS: dict[str, tuple[list[str], list[str]]] = {
    "capacity": (
        [f"{_STATISTICS}/{name}.py" for name in ("limit", "observation", "percentiles")]
        + [f"{_PARSE}/{name}.py" for name in ("observation", "slo", "windows")]
        + [f"{_FINDINGS}/capacity/{name}.py" for name in ("points", "judging")],
        ["statistics/test_percentiles", "findings/test_slo", "statistics/test_belief", "findings/test_capacity_rules",
         "findings/test_carried", "search/test_search", "findings/test_sizing", "findings/test_decisions"],
    ),
    "sizing": (
        [f"{_FINDINGS}/{name}.py" for name in ("sizing", "economics", "causes", "saturation", "advice")],
        ["report/test_words", "findings/test_causes", "findings/test_analysis", "findings/test_sizing", "findings/test_decisions",
         "servers/test_parallel", "findings/test_regions"],
    ),
    "compare": (
        [f"{_FINDINGS}/comparison/{name}.py" for name in ("compare", "effects", "gate")]
        + [f"{_STATISTICS}/levels.py"],
        ["statistics/test_noise", "findings/test_effects", "findings/test_regions",
         "findings/test_compare_command", "findings/test_compare"],
    ),
    "verdicts": (
        [*(f"{_PARSE}/{name}.py" for name in ("validity", "table", "drift")), "src/bench/study/precision.py"],
        ["findings/test_analysis", "study/test_precision", "parse/test_aggregate", "parse/test_drift"],
    ),
    "curves": (
        [f"{_FINDINGS}/{name}.py" for name in ("regions", "factors", "lengths")],
        ["findings/test_slo", "findings/test_decisions", "findings/test_regions", "findings/test_lengths", "findings/test_factors"],
    ),
    "words": (
        [f"{_FINDINGS}/{name}.py" for name in ("capacity/words", "comparison/words")] + ["src/bench/runs/sentences.py"],
        ["report/test_words", "findings/test_findings", "findings/test_decisions", "findings/test_regions",
         "findings/test_causes", "findings/test_capacity_rules", "findings/test_compare"],
    ),
    "models": (
        [*(f"{_MODELS}/{name}.py" for name in ("geometry", "decoder", "config_json", "checkpoint_record")),
         *(f"src/bench/servers/{name}.py" for name in ("memory", "needed", "plan", "roofline", "stages"))],
        ["models/test_models", "models/test_roofline", "models/test_capacity",
         "cli/test_bench_plan", "models/test_catalogue", "models/test_model_facts", "servers/test_needed", "servers/test_parallel"],
    ),
    "parse": (
        [f"{_PARSE}/{name}.py" for name in ("steady", "load", "latency", "server", "run", "scrapes", "exposition", "devices")]
        + [f"{_STATISTICS}/percentiles.py"],
        ["parse/test_steady", "parse/test_load_figures", "parse/test_in_flight",
         "statistics/test_percentiles", "parse/test_parse",
         "parse/test_devices", "servers/test_engine_metrics", "parse/test_exposition"],
    ),
    "answers": (
        [*(f"src/bench/load/{name}.py" for name in ("response", "answer")), f"{_PARSE}/stream.py"],
        ["load/test_answers_read", "load/test_streamed_tokens", "load/test_records", "runs/test_reading"],
    ),
    "servers": (
        ["src/bench/servers/metrics.py", "src/bench/measure/exposition.py", "src/bench/load/introduction.py"],
        ["parse/test_expositions", "measure/test_metrics_address", "load/test_introduction"],
    ),
    "traces": (["src/bench/workloads/trace.py"], ["workloads/test_trace"]),
}  # fmt: skip
_SAMPLE = """
import ast, functools, pathlib, random, sys
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import WorkerOutcome, WorkResult

database, count, seed = sys.argv[1], int(sys.argv[2]), sys.argv[3]

@functools.cache
def annotations(path):
    found = []
    for node in ast.walk(ast.parse(pathlib.Path(path).read_text())):
        for each in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if each is not None:
                found.append(((each.lineno, each.col_offset), (each.end_lineno, each.end_col_offset)))
    return found

with use_db(database, WorkDB.Mode.open) as db:
    items = sorted(db.work_items, key=lambda item: str(item.mutations))
    def live(item):
        at = item.mutations[0]
        return not any(begin <= at.start_pos < end for begin, end in annotations(at.module_path))
    live = [item for item in items if live(item)]
    kept = {item.job_id for item in random.Random(seed).sample(live, min(count, len(live)))}
    db.set_multiple_results(
        [item.job_id for item in items if item.job_id not in kept],
        WorkResult(output="not in the sample", worker_outcome=WorkerOutcome.SKIPPED),
    )
print(len(live))
"""


def groups_of(checkout: Path) -> dict[str, tuple[list[str], list[str]]]:
    """The groups as another checkout lists them: its test files may have other names."""
    command = [sys.executable, "-c", "import json; from benchmarks.mutation import GROUPS; print(json.dumps(GROUPS))"]
    paths = {"PYTHONPATH": f"{checkout / 'src'}:{checkout}"}
    done = subprocess.run(command, cwd=checkout, env=paths, check=True, stdout=subprocess.PIPE, text=True)
    listed: dict[str, tuple[list[str], list[str]]] = json.loads(done.stdout)
    return listed


def run(group: str, modules: list[str], tests: list[str], sample: int, seed: str, checkout: Path = ROOT) -> dict[str, Any]:
    """Mutate a sample of `modules` in a copy of the project; how many there are, how many were tried, and those not caught.

    Args:
        checkout: Whose tests judge, with all that they need but the library, which is this project's.
    """
    binaries = environment(COSMIC_RAY)
    with tempfile.TemporaryDirectory(prefix="mutation-") as name:
        folder = Path(name).resolve()
        copy_project(folder, checkout)
        if checkout != ROOT:
            shutil.rmtree(folder / "src")
            shutil.copytree(ROOT / "src", folder / "src")
        command = (
            f"env PYTHONPATH={folder}/src:{folder} PYTHONDONTWRITEBYTECODE=1 {sys.executable} -m pytest -x -q "
            f"-p no:cacheprovider --timeout 0 -m 'not engine and not long' {' '.join(tests)}"
        )
        began = time.monotonic()
        sound = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True)  # noqa: S602 - ours, as written above
        if sound.returncode:
            raise SystemExit(f"{group}: the tests fail without any mutant:\n{sound.stdout[-3000:]}{sound.stderr[-1000:]}")
        timeout = max(_TIMEOUT_S, _TIMES * (time.monotonic() - began))
        config = {"module-path": modules, "timeout": timeout, "excluded-modules": [], "test-command": command}
        lines = [f"{key} = {json.dumps(value)}" for key, value in config.items()]
        (folder / "mutation.toml").write_text(
            "\n".join(["[cosmic-ray]", *lines, "[cosmic-ray.distributor]", 'name = "local"', ""])
        )

        def call(*arguments: str) -> str:
            return subprocess.run(arguments, cwd=folder, check=True, capture_output=True, text=True).stdout

        call(str(binaries / "cosmic-ray"), "init", "mutation.toml", "mutants.sqlite")
        possible = int(call(str(binaries / "python"), "-c", _SAMPLE, "mutants.sqlite", str(sample), seed))
        began = time.monotonic()
        call(str(binaries / "cosmic-ray"), "exec", "mutation.toml", "mutants.sqlite")
        spent = time.monotonic() - began
        tried = [json.loads(line) for line in call(str(binaries / "cosmic-ray"), "dump", "mutants.sqlite").splitlines()]
    done = [result for _, result in tried if result and result["worker_outcome"] == "normal"]
    timed_out = [result["diff"] for result in done if result["output"] == "timeout"]
    survived = [result["diff"] for result in done if result["test_outcome"] == "survived"]
    return {
        "group": group,
        "possible": possible,
        "tried": len(done),
        "caught": len(done) - len(survived) - len(timed_out),
        "survived": survived,
        "timed_out": timed_out,
        "s_per_mutant": round(spent / max(1, len(done)), 1),
    }


def main() -> None:
    """Print each group's share, and the diffs of the mutants that were not caught."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"{', '.join(GROUPS)} (default: all)")
    parser.add_argument("--module", help="of the groups' modules only those whose path contains this")
    parser.add_argument("--sample", type=int, default=60, help="mutants of each group (default: %(default)s)")
    parser.add_argument("--seed", default="1", help="of the sample (default: %(default)s)")
    parser.add_argument(
        "--tests", type=Path, metavar="CHECKOUT", default=ROOT, help="whose tests judge (default: this checkout's)"
    )
    parser.add_argument("--json", type=Path, help="write the results there")
    options = parser.parse_args()
    if unknown := [group for group in options.groups if group not in GROUPS]:
        parser.error(f"no group {', '.join(unknown)}. There are: {', '.join(GROUPS)}")
    checkout = options.tests.resolve()
    listed = GROUPS if checkout == ROOT else groups_of(checkout)
    chosen = {}
    for group in options.groups or GROUPS:
        modules = [module for module in GROUPS[group][0] if (options.module or "") in module]
        if modules:
            chosen[group] = (modules, [f"tests/{test}.py" for test in listed[group][1]])
    missing = {ROOT / module for modules, _ in chosen.values() for module in modules}
    missing |= {checkout / test for _, tests in chosen.values() for test in tests}
    if missing := {file for file in missing if not file.is_file()}:
        parser.error("GROUPS names files that do not exist: " + ", ".join(sorted(map(str, missing))))
    results = []
    for group, (modules, tests) in chosen.items():
        found = run(group, modules, tests, options.sample, options.seed, checkout)
        results.append(found)
        for what in ("survived", "timed_out"):
            for diff in found[what]:
                print(what.replace("_", " ") + ":", diff, sep="\n", end="\n\n")
        print(
            f"{group}: {found['caught']} of {found['tried']} caught, {len(found['survived'])} survived, "
            f"{len(found['timed_out'])} timed out ({found['possible']:,} possible; {found['s_per_mutant']} s each)",
            flush=True,
        )
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
