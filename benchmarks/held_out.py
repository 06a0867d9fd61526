"""How far off predictions are of loads of other kinds than those that a model was calibrated on, on real engines.

    make figures CONFIG=benchmarks/held_out.yaml     # measures; about half an hour on a quiet machine
    python -m benchmarks.held_out results

A model is calibrated on the bursts of each deployment, and another one on its closed loops and the bursts of long prompts. Every other
load (closed loops, Poisson arrivals, other lengths, conversations, retrieval, shared prefixes) is predicted by both and held against
what was measured. A load is beyond saturation where at least one request waited at the median scrape of its second half.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from bench.findings.predicted import REPORTED
from bench.predict.calibrate import MeasuredRun, calibrate
from bench.predict.limits import Limits
from bench.predict.sources import measured_runs, read_limits
from bench.predict.study import self_judged
from bench.runs.summary import read_summary
from benchmarks.what_if import SHOWN, Compared, compared

_FROM = {"bursts": ("burst", "long"), "closed loops": ("closed", "long")}
_UNDER, _BEYOND = "all below saturation", "all beyond saturation"


def held_out(runs: Sequence[MeasuredRun], limits: Limits, deployment: str) -> dict[str, list[Compared]]:
    """Each load against its predictions, by what the model was calibrated on."""
    found = {}
    for name, workloads in _FROM.items():
        known = [run for run in runs if run.condition[0] in workloads]
        model = calibrate(known, limits) if known else None
        if model is None:
            print(f"{deployment}: too few valid runs of {' and '.join(workloads)}")
            continue
        seconds = sum(float(run.row["duration_s"]) for run in known)
        print(f"{deployment}: calibrated on {name}, {len(known)} runs, {seconds:.0f} s under load")
        model = self_judged(model, known)
        found[name] = compared(model, [run for run in runs if run.condition[0] not in workloads], limits, deployment)
    return found


def _saturated(runs: Sequence[MeasuredRun]) -> set[tuple[str, float]]:
    """The conditions beyond saturation."""
    waiting: dict[tuple[str, float], list[float]] = {}
    for run in runs:
        waiting.setdefault(run.condition, []).append(run.row["waiting_standing"] or 0.0)
    return {condition for condition, values in waiting.items() if np.median(values) >= 1}


def _groups(rows: Sequence[Compared], saturated: set[tuple[str, float]]) -> Iterable[tuple[str, list[Compared]]]:
    """The rows of each workload, then those below and beyond saturation."""
    for workload in dict.fromkeys(row.workload for row in rows):
        yield workload, [row for row in rows if row.workload == workload]
    yield _UNDER, [row for row in rows if (row.workload, row.level) not in saturated]
    yield _BEYOND, [row for row in rows if (row.workload, row.level) in saturated]


def _print(found: dict[str, list[Compared]], saturated: set[tuple[str, float]]) -> None:
    print(f"\n| calibrated on | load | {' | '.join(SHOWN[metric] for metric in REPORTED)} | 90 % intervals hold | refused |")
    print(f"|---|---|{'--:|' * (len(REPORTED) + 2)}")
    for name, rows in found.items():
        for load, group in _groups(rows, saturated):
            given = [row for row in group if row.predicted is not None]
            cells = [_cell([row for row in given if row.metric == metric]) for metric in REPORTED]
            held = [row.low <= row.measured <= row.high for row in given if row.low and row.high]
            holds = f"{100 * np.mean(held):.0f} %" if held else "–"
            refused = {(row.workload, row.level) for row in group if row.refused}
            loads = {(row.workload, row.level) for row in group}
            print(f"| {name} | {load} | {' | '.join(cells)} | {holds} | {len(refused)} of {len(loads)} |")


def _cell(rows: Sequence[Compared]) -> str:
    """The mean error of predictions, and in brackets the mean difference between two measurements of one load."""
    if not rows:
        return "–"
    error = np.mean([abs(row.predicted / row.measured - 1) for row in rows if row.predicted])
    apart = [row.apart for row in rows if row.apart is not None]
    return f"{100 * error:.1f} %" + (f" ({100 * np.mean(apart):.1f} %)" if apart else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="folder with the results of benchmarks/held_out.yaml")
    parser.add_argument("--each", action="store_true", help="print each load, too")
    parser.add_argument("--json", type=Path, help="where all numbers go, too")
    options = parser.parse_args()
    table = read_summary(options.results / "summary.parquet")
    everything = {}
    for deployment in table["deployment"].unique(maintain_order=True):
        limits = read_limits(options.results, deployment)
        runs = measured_runs(table, options.results, deployment, limits)
        found = held_out(runs, limits, deployment)
        if options.each:
            for name, rows in found.items():
                for row in rows:
                    known = row.predicted is not None
                    predicted = f"{row.predicted:.3g} ({row.low:.3g} to {row.high:.3g})" if known else row.refused or "unknown"
                    print(
                        f"{name}: {row.workload}, {row.level:g}: {SHOWN[row.metric]} {row.measured:.3g}, predicted {predicted}"
                    )
        _print(found, _saturated(runs))
        everything[deployment] = {name: [asdict(row) for row in rows] for name, rows in found.items()}
    if options.json:
        options.json.write_text(json.dumps(everything, indent=2) + "\n")


if __name__ == "__main__":
    main()
