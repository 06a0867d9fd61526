"""How much a machine's speed wanders: the reference load, sent to a real server over and over.

    snakemake --cores 1 results/deployments/tiny-mha/launch.json
    python -m benchmarks.wander --launch results/deployments/tiny-mha/launch.json --minutes 5

What a short load shows of a longer time: the standard deviation of one load's time, of the mean of five in a row and of a minute's, and
how alike two loads are that lie so many seconds apart. Needs a quiet machine.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.load.client import Load
from bench.load.target import Target
from bench.measure.reference import reference_load
from bench.runs.files import read
from bench.runs.launch import Launch
from bench.servers.server import Server
from bench.study.read import load_workload

_REQUESTS, _PROMPT, _OUTPUT = 8, 24, 32
_IN_A_ROW, _MINUTE_S = 5, 60.0
_APART_S = (1, 2, 5, 10, 20, 30)
_FEWEST_PAIRS = 10


def times(launch: Launch, seconds: float, log: Path) -> npt.NDArray[np.float64]:
    """When each reference load was sent (s, from the first one on) and how long it took (s): two columns."""
    asked = {"arrival": "closed", "num_requests": _REQUESTS, "prompt_tokens": _PROMPT, "output_tokens": _OUTPUT}
    load = Load(
        workload=load_workload(asked, source="benchmarks.wander"),
        level=1.0,
        seed="wander",
        schedule_seed="wander",
        vocabulary=launch.vocabulary or Load.vocabulary,
    )
    found = []
    with Server(launch, cores=1, workers=1, log=log, ready_timeout_s=300.0, say=print) as server:
        target = Target(server.base_url, launch.served_name, "none", {})
        began = time.monotonic()
        while (at := time.monotonic() - began) < seconds:
            reference = reference_load(target, load, _REQUESTS, (1, None), lambda: None)
            if reference is not None:
                for took in reference.seconds:
                    found.append((at, took))
                    at += took
    if not found:
        raise SystemExit(f"{launch.served_name} answered no reference load.")
    return np.array(found)


def _means(at: npt.NDArray[np.float64], logs: npt.NDArray[np.float64], window_s: float) -> dict[int, float]:
    """The mean of each window that has any, by its number."""
    number = (at // window_s).astype(int)
    return {int(each): float(logs[number == each].mean()) for each in np.unique(number)}


def _alike(means: dict[int, float], lag: int) -> float:
    """Correlation of windows that lie `lag` apart; nan where there are too few."""
    pairs = [(mean, means[number + lag]) for number, mean in means.items() if number + lag in means]
    return float(np.corrcoef(*zip(*pairs, strict=True))[0, 1]) if len(pairs) >= _FEWEST_PAIRS else math.nan


def main() -> None:
    """Print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launch", type=Path, required=True, help="launch.json of a deployment")
    parser.add_argument("--minutes", type=float, default=5.0, help="how long (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = times(read(Launch, options.launch), 60 * options.minutes, Path(folder) / "server.log")
    at, logs = found[:, 0], np.log(found[:, 1])
    rows = logs[: len(logs) // _IN_A_ROW * _IN_A_ROW].reshape(-1, _IN_A_ROW)
    print(f"{len(logs)} reference loads, {np.exp(np.median(logs)):.3f} s in the median")
    print("standard deviation of a load's time, of the mean of five in a row, of a minute's:", end=" ")
    minutes = np.array(list(_means(at, logs, _MINUTE_S).values()))
    print(", ".join(f"{part.std():.1%}" for part in (logs, rows.mean(axis=1), minutes)))
    print(f"that five in a row suggest for their mean: {(rows.std(axis=1, ddof=1) / np.sqrt(_IN_A_ROW)).mean():.1%}")
    seconds = _means(at, logs, 1.0)
    apart = [f"{lag} s {_alike(seconds, lag):.2f}" for lag in _APART_S]
    print(f"correlation of two seconds that lie apart by: {', '.join(apart)}")


if __name__ == "__main__":
    main()
