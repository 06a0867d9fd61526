"""Engines whose step times are planted, and their runs."""

import numpy as np

from bench.parse.table import summary_frame
from bench.predict.calibrate import MeasuredRun
from bench.predict.limits import Limits
from bench.predict.step_time import StepTime
from bench.runs.files import write_record
from bench.study.config import Thresholds
from bench.workloads.schedule import PlannedRequest
from tests.support import records
from tests.support.naive_engine import serve

TRUE = StepTime(0.0, 0.008, 3e-4, (64.0,), (2e-4, 2.5e-4), 4e-7, 2e-9)
LIMITS = Limits(tokens=512, sequences=32, blocks=None)


def drawn(count, *, seed=1, prompts=(20, 200), outputs=(1, 60), rate=None):
    """Requests of random lengths, as (index, prompt, output, due)."""
    random = np.random.default_rng(seed)
    due = np.cumsum(random.exponential(1 / rate, count)) if rate else np.zeros(count)
    lengths = zip(random.integers(*prompts, count), random.integers(*outputs, count), due, strict=True)
    return [(i, int(p), int(o), float(d)) for i, (p, o, d) in enumerate(lengths)]


def planned(requests):
    return [PlannedRequest(i, i, p, o, d) for i, p, o, d in requests]


def run_of(requests, *, name="r", workload="w", arrival="burst", level=1.0, limits=LIMITS, held=None, seed=1, noise=0.0):
    """A measured run of the planted engine."""
    table = serve(
        requests,
        TRUE.seconds,
        tokens=limits.tokens,
        sequences=limits.sequences,
        blocks=limits.blocks,
        block_size=limits.block_size,
        held=held,
        random=np.random.default_rng(seed),
        noise=noise,
        planned_steps=2 if limits.ahead else 1,
    )
    return MeasuredRun(name, {"arrival": arrival, "level": level, "workload": workload}, table)


def training():
    """Bursts of three sizes and two closed loops."""
    bursts = [
        run_of(drawn(size, seed=size, outputs=(30, 60)), name=f"b{size}", level=float(size), seed=size, noise=0.05)
        for size in (1, 8, 30)
    ]
    loops = [
        run_of(
            drawn(12 * held, seed=held), name=f"c{held}", workload="chat", arrival="closed", level=float(held), held=held, seed=held, noise=0.05
        )
        for held in (4, 16)
    ]  # fmt: skip
    return bursts + loops


LOAD = ["--prompt-length", "100", "--output-length", "30"]


def written(folder, summary, runs, facts=None, **launched):
    rows = []
    for run in runs:
        place = folder / "runs/a" / run.name
        place.mkdir(parents=True)
        run.requests.write_parquet(place / "requests.parquet")
        rows.append({**summary, **run.row, "deployment": "a", "run": run.name, "family": run.row["workload"]})
    argv = ("serve", "--max-num-batched-tokens", "512", "--no-async-scheduling")
    launch = records.launch(**{"argv": argv, "max_num_seqs": 32, "slots": True, **launched})
    facts = facts or records.facts()
    (folder / "deployments/a").mkdir(parents=True)
    write_record(launch, folder / "deployments/a/launch.json")
    write_record(facts, folder / "deployments/a/deployment.json")
    summary_frame(rows, {"a": launch}, {"a": facts}, Thresholds()).write_parquet(folder / "summary.parquet")
    return folder
