"""Parse, aggregate and draw many runs of a minute each: ours against pandas, prometheus_client's parser and matplotlib.

The runs are made up. Each stage is a process of its own; its time and memory include its imports.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.engine import prepare_engine, write_launch
from bench.models import write_checkpoint
from bench.records.files import write_record
from bench.study import Plan, RunSpec, load_config
from benchmarks.client.peers import ROOT, environment
from benchmarks.made import made_facts, made_study, make_run
from benchmarks.process import Cost, cost_of
from benchmarks.tables.check import check_same

PEER = ("pandas==3.1.1", "pyarrow==26.0.1", "matplotlib==3.11.2", "prometheus-client==0.26.0")
STAGES = ("parse", "aggregate", "figures")
# Those that both draw; ours has more where a study varies more.
FIGURES = ("kv-saturation", "peak-throughput", "latencies", "saturation-by-kv-bytes", "memory-pressure", "throughput-over-time")


def make_results(results: Path, plan: Plan) -> None:
    """What the study's rules leave before `parse`: launches, facts, and the raw files of every run."""
    parts = results.parent / "parts"
    for name, engine in plan.config.engines.items():
        prepare_engine(name, engine, parts / name / "engine.json", print)
    for name, model in plan.config.models.items():
        write_checkpoint(name, model, parts / name / "checkpoint.json")
    for name, spec in plan.deployments.items():
        folder = results / "deployments" / name
        folder.mkdir(parents=True)
        write_launch(
            spec,
            plan.longest_request(name),
            engine=parts / spec.deployment.engine / "engine.json",
            checkpoint=parts / spec.deployment.model / "checkpoint.json",
            launch=folder / "launch.json",
        )
        write_record(made_facts(spec), folder / "deployment.json")
    for run in plan.runs:
        folder = results / "runs" / run.key
        folder.mkdir(parents=True)
        make_run(run, folder)


def copy_results(results: Path, copy: Path, runs: Sequence[RunSpec], *files: str) -> Path:
    """`results` of some runs: those of their `files` that are named, by links, and the deployments."""
    shutil.copytree(results / "deployments", copy / "deployments")
    for run in runs:
        (copy / "runs" / run.key).mkdir(parents=True)
        for name in files:
            (copy / "runs" / run.key / name).hardlink_to(results / "runs" / run.key / name)
    return copy


def ours(stage: str, results: Path, *names: str) -> Cost:
    """Our stage, in a process of its own."""
    return cost_of([sys.executable, "-m", "benchmarks.tables.ours", stage, str(results), *names], cwd=ROOT)


def theirs(stage: str, results: Path, *names: str) -> Cost:
    """The peer's stage, in a process of its own."""
    script = str(Path(__file__).with_name("peer.py"))
    return cost_of([str(environment(*PEER) / "python"), script, stage, str(results), *names], cwd=ROOT)


def medians(costs: Sequence[Cost]) -> dict[str, float]:
    """Medians: seconds of the process, those without Python's start and imports where the stage has its own, CPU, memory."""
    return {
        "wall_s": round(statistics.median(cost.wall_s for cost in costs), 2),
        "inside_s": round(statistics.median(float(cost.said.splitlines()[-1]) for cost in costs), 2),
        "cpu_s": round(statistics.median(cost.cpu_s for cost in costs), 2),
        "peak_mib": round(max(cost.peak_mib for cost in costs)),
    }


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Everything, in the order of the report."""

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    raw = ("run.json", "requests.jsonl", "telemetry.jsonl.gz")
    parsed = ("run.json", "requests.parquet", "telemetry.parquet", "summary.json")
    plan = Plan.of(load_config(made_study(options.runs, options.a_deployment), source="the made study"))
    say(f"making {options.runs} runs")
    results = folder / "results"
    make_results(results, plan)
    size = sum(path.stat().st_size for path in results.glob("runs/*/*/*"))
    say("ours, all runs")
    whole = {stage: medians([ours(stage, results)]) for stage in STAGES}
    drawn = len(list((results / "figures").glob("*.svg")))
    say("the peer's aggregate and figures of all runs, from the tables that ours parsed")
    copy = copy_results(results, folder / "whole", plan.runs, *parsed)
    for path in copy.glob("runs/*/*/summary.json"):  # the names of metrics are no column
        summary = {key: value for key, value in json.loads(path.read_text()).items() if not isinstance(value, list | dict)}
        path.unlink()
        path.write_text(json.dumps(summary))
    peer = {"aggregate": medians([theirs("aggregate", copy)]), "figures": medians([theirs("figures", copy, *FIGURES)])}
    whole["the same figures"] = medians([ours("figures", results, *FIGURES)])
    some = plan.runs[:: max(1, len(plan.runs) // options.peer_runs)][: options.peer_runs]
    costs: dict[str, dict[str, list[Cost]]] = {who: {stage: [] for stage in STAGES} for who in ("ours", "peer")}
    for repeat in range(options.repeats):
        say(f"both, {len(some)} runs, {repeat + 1} of {options.repeats}")
        places = {who: copy_results(results, folder / who / str(repeat), some, *raw) for who in costs}
        for stage in STAGES:
            names = FIGURES if stage == "figures" else ()
            costs["ours"][stage].append(ours(stage, places["ours"], *names))
            costs["peer"][stage].append(theirs(stage, places["peer"], *names))
        samples = check_same(places["ours"], places["peer"])
    alone = copy_results(results, folder / "alone", some[:1], *raw)
    say("a run in a process of its own")
    one = medians([ours("parse", alone) for _ in range(5)])
    return {
        "runs": len(plan.runs),
        "raw_mib": round(size / 2**20),
        "ours": {**whole, "figures_drawn": drawn},
        "peer": peer,
        "subset": {
            "runs": len(some),
            "samples": samples,
            **{who: {stage: medians(list_) for stage, list_ in stages.items()} for who, stages in costs.items()},
        },
        "one_run_alone": one,
    }


def table(result: dict[str, Any]) -> str:
    """The result to read."""
    runs, subset = result["runs"], result["subset"]
    some = subset["runs"]
    lines = [
        f"{runs} runs, {result['raw_mib']} MiB of raw files. "
        f"Both sides' tables of {some} runs are equal ({subset['samples']:,} samples).",
        "",
        "| stage | runs | ours: seconds | CPU s | peak MiB | pandas: seconds | CPU s | peak MiB | ÷ ours |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]

    def row(stage: str, count: int, mine: dict[str, float], its: dict[str, float] | None) -> str:
        peer = (
            f"{its['wall_s']} | {its['cpu_s']} | {its['peak_mib']} | {its['wall_s'] / mine['wall_s']:.1f}"
            if its
            else "– | – | – | –"
        )
        return f"| {stage} | {count} | {mine['wall_s']} | {mine['cpu_s']} | {mine['peak_mib']} | {peer} |"

    for stage in STAGES:
        name = f"{len(FIGURES)} figures" if stage == "figures" else stage
        lines.append(row(name, some, subset["ours"][stage], subset["peer"][stage]))
    whole, peer = result["ours"], result["peer"]
    lines.append(row("parse", runs, whole["parse"], None))
    lines.append(row("aggregate", runs, whole["aggregate"], peer["aggregate"]))
    lines.append(row(f"{len(FIGURES)} figures", runs, whole["the same figures"], peer["figures"]))
    lines.append(row(f"all {whole['figures_drawn']} figures of ours", runs, whole["figures"], None))
    its = subset["peer"]["parse"]["wall_s"] / some * runs
    alone = result["one_run_alone"]
    start = alone["wall_s"] - alone["inside_s"]
    lines += [
        "",
        f"pandas would parse {runs} runs in {its:,.0f} s, {its / whole['parse']['wall_s']:.1f} times as long: "
        f"its time for {some}, in a line.",
        f"A run parsed in a process of its own, as a job of the workflow is: {alone['wall_s']} s, {start:.2f} of them Python's start, "
        f"and peak {alone['peak_mib']} MiB; in one process with the others {whole['parse']['inside_s'] / runs:.2f} s.",
    ]  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    """Make the runs, measure, remove them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=150, help="runs, an even number (default: %(default)s)")
    parser.add_argument("--peer-runs", type=int, default=5, help="of these, how many both sides parse (default: %(default)s)")
    parser.add_argument(
        "--a-deployment", type=int, default=50, help="runs of each deployment, an even number (default: %(default)s)"
    )
    parser.add_argument("--repeats", type=int, default=3, help="times that both sides do the few (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()
    if options.runs % 2 or options.a_deployment % 2 or not 1 <= options.peer_runs <= options.runs or options.a_deployment < 2:
        parser.error("--runs and --a-deployment are even, 2 or more; --peer-runs is at most --runs")
    environment(*PEER)
    with tempfile.TemporaryDirectory() as name:
        result = measure(Path(name).resolve(), options)
    print(json.dumps(result, indent=2) if options.json else table(result))


if __name__ == "__main__":
    main()
