"""How far what-ifs are off: settings of a server that were changed for real, predicted from another server alone.

    make figures CONFIG=benchmarks/what_if.yaml     # measures; about a quarter of an hour on a quiet machine
    python -m benchmarks.what_if results

Each deployment of that study differs from `base` in one setting. A model is calibrated on the runs of `base`; the loads of the other
deployments are replayed on it with their scheduler's limits, and the numbers are held against what they measured.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from bench.errors import BenchError
from bench.findings.predicted import REPORTED, doubt_text
from bench.predict.calibrate import Calibrated, MeasuredRun, calibrate, planned_again
from bench.predict.limits import Limits
from bench.predict.predict import predict
from bench.predict.sources import measured_runs, read_limits
from bench.predict.study import measured, self_judged
from bench.runs.summary import read_summary

SHOWN = {
    "throughput_tokens_per_s": "tokens/s",
    "ttft_p50_s": "TTFT P50",
    "ttft_p99_s": "TTFT P99",
    "tpot_p50_s": "TPOT P50",
    "itl_p99_s": "ITL P99",
}


@dataclass(frozen=True)
class Compared:
    """A number of a load on a changed server: measured (the median of its runs) and predicted, with its 90 % interval.

    Attributes:
        apart: the largest difference between two runs of the load, as a share; None of one run. refused: why it is not predicted.
    """

    deployment: str
    workload: str
    level: float
    metric: str
    measured: float
    apart: float | None
    predicted: float | None
    low: float | None
    high: float | None
    refused: str | None


def compared(model: Calibrated, runs: Sequence[MeasuredRun], limits: Limits, deployment: str) -> list[Compared]:
    """Each load of a deployment against its prediction."""
    found = []
    for condition in dict.fromkeys(run.condition for run in runs):
        same = [run for run in runs if run.condition == condition]
        plans = [planned_again(run) for run in same]
        answer = predict(model, lambda number, plans=plans: plans[number % len(plans)], held=same[0].held, limits=limits)  # type: ignore[misc]
        refused = "; ".join(map(doubt_text, answer.doubts)) or None
        numbers = [measured(run) for run in same]
        for metric in REPORTED:
            values = [each[metric] for each in numbers if metric in each]
            if not values:
                continue
            interval = None if refused else answer.numbers.get(metric)
            found.append(
                Compared(
                    deployment,
                    *condition,
                    metric,
                    measured=float(np.median(values)),
                    apart=max(values) / min(values) - 1 if len(values) > 1 else None,
                    predicted=interval and interval.value,
                    low=interval and interval.low,
                    high=interval and interval.high,
                    refused=refused,
                )
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="folder with the results of benchmarks/what_if.yaml")
    parser.add_argument("--base", default="base", help="deployment that the model is calibrated on")
    parser.add_argument("--json", type=Path, help="where all numbers go, too")
    options = parser.parse_args()
    table = read_summary(options.results / "summary.parquet")
    limits = read_limits(options.results, options.base)
    runs = measured_runs(table, options.results, options.base, limits)
    model = calibrate(runs, limits) if runs else None
    if model is None:
        raise BenchError(f"{options.results}: {options.base} has too few valid runs to calibrate a model.")
    model = self_judged(model, runs)
    found = []
    for deployment in table["deployment"].unique(maintain_order=True):
        if deployment != options.base:
            changed = read_limits(options.results, deployment)
            found += compared(model, measured_runs(table, options.results, deployment, changed), changed, deployment)
    print("| deployment | load | number | base measured | measured | predicted (90 %) | off by | two runs |")
    print("|---|---|---|--:|--:|--:|--:|--:|")
    before: dict[tuple[str, float, str], list[float]] = defaultdict(list)
    for run in runs:
        for metric, value in measured(run).items():
            before[(*run.condition, metric)].append(value)
    for row in found:
        off = "refused" if row.predicted is None else f"{100 * (row.predicted / row.measured - 1):+.0f} %"
        predicted = row.refused if row.predicted is None else f"{row.predicted:.3g} ({row.low:.3g} to {row.high:.3g})"
        apart = "–" if row.apart is None else f"{100 * row.apart:.0f} %"
        base = before.get((row.workload, row.level, row.metric))
        print(
            f"| {row.deployment} | {row.workload}, {row.level:g} | {SHOWN[row.metric]} | {f'{np.median(base):.3g}' if base else '–'} "
            f"| {row.measured:.3g} | {predicted} | {off} | {apart} |"
        )
    for metric in REPORTED:
        rows = [row for row in found if row.metric == metric and row.predicted is not None]
        if rows:
            errors = [abs(row.predicted / row.measured - 1) for row in rows if row.predicted]
            holds = np.mean([row.low <= row.measured <= row.high for row in rows if row.low and row.high])
            apart = [row.apart for row in rows if row.apart is not None]
            print(
                f"{SHOWN[metric]}: off by {100 * np.mean(errors):.1f} % in the mean of {len(rows)} loads, "
                f"the interval holds {100 * holds:.0f} %; two runs differ by {100 * np.mean(apart):.1f} %"
            )
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in found], indent=2) + "\n")


if __name__ == "__main__":
    main()
