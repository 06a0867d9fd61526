"""Steps read from stamps, and the schedule that they show, on planted engines that say the wrong thing of it."""

from dataclasses import replace
from itertools import product

import numpy as np
import polars as pl
import pytest

from bench.predict.calibrate import as_shown, calibrate
from bench.predict.judge import held_out
from bench.predict.reliefs import likely
from bench.predict.state import Limits
from bench.predict.steps import intervals
from bench.predict.way import Against
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


@pytest.mark.long(part="truth")
def test_whether_a_server_schedules_ahead_is_what_its_steps_show():
    for ahead, limits in product((False, True), (LIMITS, PARTS, FULL)):
        runs = busy(replace(limits, ahead=ahead), noise=0.05)
        for told in (False, True):
            assert as_shown(runs, replace(limits, ahead=told))[0].ahead is ahead, (limits, told)
    assert calibrate(runs, replace(FULL, ahead=False), draws=1).limits.ahead


def test_a_schedule_has_less_against_it_where_both_counts_exist_and_differ_by_more_than_chance():
    for one, other, fewer in [
        ((0, 40), (27, 40), True), ((3, 40), (5, 40), False), ((60, 400), (68, 400), False),
        ((120, 4000), (180, 4000), True), ((0, 1), (27, 40), False), ((0, 0), (27, 40), False),
        ((0, 40), (0, 0), False), ((0, 0), (0, 0), False),
    ]:  # fmt: skip
        assert Against(*one).fewer_than(Against(*other)) is fewer
        assert not Against(*other).fewer_than(Against(*one))


def test_few_requests_whose_stamps_jitter_do_not_turn_a_schedule_around():
    """Random arrivals, 40 at 2/s, whose tokens reach the client up to some 10 ms late."""
    for ahead in [False, True]:
        limits = replace(LIMITS, ahead=ahead)
        wrong = 0
        for seed in range(4):
            run = run_of(drawn(40, seed=seed, rate=2.0), arrival="poisson", limits=limits, seed=seed, noise=0.05)
            wrong += as_shown([late(run, 0.01, seed)], limits)[0].ahead is not ahead
        assert not wrong, ahead


def late(run, jitter_s, seed):
    """The run with tokens that come later than they were sent, in their order."""
    random = np.random.default_rng(seed)

    def shifted(times):
        return np.maximum.accumulate(np.array(times) + np.abs(random.normal(0, jitter_s, len(times)))).tolist()

    times = [shifted(times) for times in run.requests["token_times_s"].to_list()]
    return replace(run, requests=run.requests.with_columns(token_times_s=pl.Series(times, dtype=pl.List(pl.Float64))))


def test_a_flag_counts_whatever_the_steps_show():
    stated = replace(LIMITS, ahead=True, settled=True)
    assert as_shown(busy(LIMITS), stated)[0].ahead
    assert not as_shown(busy(LIMITS), replace(stated, settled=False))[0].ahead
    # A burst meets no engine that works.
    for told in [False, True]:
        limits = replace(LIMITS, ahead=told)
        assert as_shown([run_of(drawn(30, seed=1))], limits) == (limits, Against(0, 0)), told


def test_a_prediction_without_a_run_has_the_schedule_that_all_runs_show(monkeypatch):
    """A burst alone does not show it."""
    runs, asked = [run_of(drawn(30, seed=1), name="b"), *busy(LIMITS)[:1]], []
    monkeypatch.setattr(
        "bench.predict.judge.calibrate", lambda others, limits, **_: asked.append((len(others), as_shown(others, limits)[0]))
    )
    held_out([runs[0], replace(runs[1], row=runs[1].row | {"level": 4.0})], replace(LIMITS, ahead=True))
    assert [(count, limits.ahead) for count, limits in asked] == [(1, False)] * 2


@pytest.mark.long(part="truth")
def test_of_several_budgets_those_are_likely_that_fewest_prompts_contradict():
    for tokens, prompts, expected in [
        (96, (20, 200), [96]),
        (512, (20, 200), [512, 2048]),  # whose steps have fewer tokens than either
        (512, (300, 600), [512]),
        (2048, (300, 600), [2048]),
    ]:
        runs = busy(replace(LIMITS, tokens=tokens), prompts=prompts)
        found = likely({replace(LIMITS, tokens=each): runs for each in (96, 512, 2048)})
        assert [limits.tokens for limits in found] == expected
    # Every step of the planted engine fills a budget of one token, so that each prompt may have waited for the next.
    runs = busy(LIMITS, noise=0.05)
    none, true = (replace(LIMITS, tokens=each) for each in (1, 512))
    assert as_shown(runs, none)[1].of == 0
    assert list(likely({none: runs, true: runs})) == [none, true]
    # Few prompts leave out none by chance.
    few = [run_of(drawn(12, seed=5, rate=4.0, prompts=(300, 600)), arrival="poisson")]
    assert len(likely({replace(LIMITS, tokens=each): few for each in (512, 2048)})) == 2
