"""The posterior of a limit, by planted truth: what it holds, what widens it, and what no run can show."""

import math

import numpy as np
import pytest

from bench.analysis.limit import SPEEDS, Counts, growth_limit, limit_of, lowest

LOADS = (0.5, 0.75, 0.85, 0.9, 0.95, 1.0, 1.05, 1.12, 1.3)


def runs_of(truth, *, steep, allowed, draw, rounds=3, requests=500, loads=LOADS, speed=0.03):
    """A ladder of an open loop: ln odds of a miss rise by `steep` an e-fold, and rounds differ in speed."""
    odds = math.log(allowed / (1 - allowed))
    found = []
    for number in range(rounds):
        slower = draw.normal(0, speed)
        for load in loads:
            x = np.log(load / truth) + slower - SPEEDS  # had the machine been so much faster
            missing = 1 / (1 + np.exp(-odds - steep * x))
            found.append(Counts(load, number, (draw.random(requests)[:, None] < missing).sum(axis=0), requests))
    return found


def test_intervals_hold_a_planted_limit_and_narrow_with_the_slope():
    draw, held, widths = np.random.default_rng(3), 0, {}
    for steep in (8.0, 60.0):
        for _ in range(12):
            truth = math.exp(draw.uniform(math.log(0.7), math.log(1.2)))
            low, high = limit_of(runs_of(truth, steep=steep, allowed=0.05, draw=draw), 0.05, moves=True).interval
            held += low <= truth <= high
            widths.setdefault(steep, []).append(math.log(high / low))
    assert held >= 22
    assert np.median(widths[60.0]) < np.median(widths[8.0]) < 0.5


def test_a_cliff_may_lie_anywhere_between_two_loads():
    """Nothing misses at 4 and all does at 8: no load between them is known."""
    seen = [Counts(load, 1, np.full(len(SPEEDS), missed), 1000) for load, missed in ((2.0, 0), (4.0, 0), (8.0, 1000))]
    limit = limit_of(seen, 0.05, moves=False)
    low, high = limit.interval
    assert 3.9 < low < 4.5 and 7 < high < 8.1
    assert limit.lies_below(4) < 0.01 and limit.lies_below(8) > 0.99
    assert limit.share_at(2) < 0.01 and limit.share_at(8) > 0.8


@pytest.mark.parametrize(("allowed", "requests"), [(0.01, 368), (0.05, 72), (0.1, 36), (0.5, 6)])
def test_requests_without_a_miss_that_bound_a_percentile(allowed, requests):
    def below(count):
        seen = [Counts(load, 1, np.full(len(SPEEDS), missed), count) for load, missed in ((1, 0), (2, 0), (4, count))]
        return limit_of(seen, allowed, moves=False).lies_below(2)

    assert below(requests) < 0.025 < below(requests // 2)


def test_misses_in_clusters_and_rounds_that_differ_widen_the_interval():
    draw = np.random.default_rng(5)
    seen = runs_of(1.0, steep=20.0, allowed=0.05, draw=draw, speed=0.0)

    def width(runs):
        low, high = limit_of(runs, 0.05, moves=True).interval
        return high / low

    clustered = [Counts(run.load, run.round, run.misses, run.requests, 10.0) for run in seen]
    alone = [Counts(run.load, 1, run.misses, run.requests) for run in seen]
    assert width(seen) < width(clustered)
    assert 1.05 * width(seen) < width(alone)  # one round: all of it may be as much faster or slower


def test_a_limit_outside_of_what_was_measured_has_an_open_end():
    never = [Counts(load, 1, np.zeros(len(SPEEDS)), 500) for load in (1.0, 2.0)]
    always = [Counts(load, 1, np.full(len(SPEEDS), 500.0), 500) for load in (1.0, 2.0)]
    assert limit_of(never, 0.05, moves=False).interval[1] == math.inf
    assert limit_of(always, 0.05, moves=False).interval[0] == 0


def test_requests_pile_up_beyond_the_capacity():
    loads = np.array([8.0, 9.0, 11.0, 12.5])
    growth = np.maximum(0, 1 - 10 / loads)
    limit = growth_limit(loads, growth, np.full(4, 0.005), [1, 2, 3, 4])
    low, high = limit.interval
    assert 9 < low < 10 < high < 11
    assert limit.share_at(12.5) == pytest.approx(0.2, abs=0.02)


def test_the_least_of_several_limits_counts():
    loads = np.array([8.0, 9.0, 11.0, 12.5])
    ten, eleven = (growth_limit(loads, np.maximum(0, 1 - at / loads), np.full(4, 0.005), [1]) for at in (10, 11))
    assert lowest([eleven, ten]).interval == pytest.approx(ten.interval)
