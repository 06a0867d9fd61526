"""Steps read from stamps, and the schedule that they show, on planted engines that say the wrong thing of it."""

from dataclasses import replace
from itertools import product

import polars as pl

from bench.predict.limits import Limits
from bench.predict.steps import intervals
from tests.support.predict import LIMITS, TRUE, drawn, run_of

PARTS = replace(LIMITS, tokens=96)  # computes most prompts in parts
FULL = Limits(tokens=128, sequences=64, blocks=40, block_size=16)  # preempts


def busy(limits, *, noise=0.0, prompts=(20, 200)):
    """Random arrivals, of which most come while the engine works, and a closed loop."""
    poisson = run_of(drawn(200, seed=5, rate=4.0, prompts=prompts), name="p", arrival="poisson", limits=limits, noise=noise)
    closed = run_of(
        drawn(100, seed=6, prompts=prompts), name="c", arrival="closed", level=8.0, limits=limits, held=8, noise=noise
    )
    return [poisson, closed]


def test_a_step_took_what_was_computed_in_it():
    """Of those with prompts beside decodes, to the microsecond: 95 %, and 80 % where the schedule is said to be the other one."""
    for ahead, limits in product((False, True), (PARTS, FULL)):
        for run, (told, least) in product(busy(replace(limits, ahead=ahead)), ((ahead, 0.95), (not ahead, 0.8))):
            steps = intervals(run.requests, replace(limits, ahead=told)).filter(pl.col("decodes") > 0, pl.col("prefill") > 0)
            computed = steps.select("decodes", "firsts", "prefill", "context", "attended").iter_rows(named=True)
            off = [abs(took - TRUE.seconds(**each)) for took, each in zip(steps["took_s"], computed, strict=True)]
            assert sum(each < 1e-6 for each in off) >= least * len(off) > 100, limits
            assert steps["steps"].max() == 1, limits
