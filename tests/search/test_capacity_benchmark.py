"""The simulated servers of the capacity benchmark, against queues that can be worked out by hand, and their files in the pipeline."""

import math
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.capacity.server import Load, Server, simulate
from benchmarks.capacity.truth import Demand, Limit, drawn_load, latencies, long_run

STEP = Server(a_ms=10, b_ms=2, c_ms=0, d_ms=0.1)
ALONE = replace(STEP, slots=1)  # with answers of one token: a queue whose service takes 10 + 0.1 × prompt ms


def test_one_request_takes_the_sum_of_its_steps():
    trace = simulate(replace(STEP, wire_ms=1), Load([100], [5], [0.5]), seed=1)
    assert trace.first[0] - 0.5 == pytest.approx(0.001 + 0.010 + 0.1 * 0.1 + 0.001)
    assert trace.last[0] - trace.first[0] == pytest.approx(4 * (0.010 + 0.002))
    trace = simulate(replace(STEP, c_ms=1000), Load([100], [4], [0.0]), seed=1)  # 1 ms a token
    assert trace.last[0] - trace.first[0] == pytest.approx(3 * 0.012 + (100 + 101 + 102) * 0.001)
    slow, fast = (simulate(STEP, Load([100], [9], [0.0]), seed=1, speed=speed) for speed in (1.0, 1.25))
    assert slow.last[0] / fast.last[0] == pytest.approx(1.25)
    trace = simulate(STEP, Load([100, 100], [5, 5], [0.0, 1.0]), seed=1)
    assert latencies(trace, "ttft") == pytest.approx([0.020] * 2)
    assert (latencies(trace, "tpot"), latencies(trace, "e2e")) == (pytest.approx([0.012] * 2), pytest.approx([0.068] * 2))


def test_a_long_prompt_comes_in_chunks_of_what_decoding_leaves_of_the_budget():
    server = replace(STEP, budget=64, slots=8)
    trace = simulate(server, Load([10, 120], [20, 1], [0.0, 0.001]), seed=1, watch=True)
    assert np.diff(trace.gauges["prompt_tokens"])[:3].tolist() == [63, 57, 0]
    assert trace.segments[1] == [(3, 3)]


def test_a_constant_rate_below_the_service_never_waits_and_above_it_falls_behind_in_a_line():
    easy = simulate(ALONE, Load([100] * 50, [1] * 50, [0.025 * i for i in range(50)]), seed=1)
    assert easy.last - easy.sent == pytest.approx(0.020)
    late = simulate(ALONE, Load([100] * 50, [1] * 50, [0.015 * i for i in range(50)]), seed=1)
    assert late.last - late.sent == pytest.approx([0.020 + 0.005 * i for i in range(50)])


@pytest.mark.long(part="truth")
def test_waiting_for_one_server_of_constant_service_is_that_of_theory():
    """M/D/1: the mean by Pollaczek and Khinchine, the distribution by Crommelin."""
    for load in [0.5, 0.7]:
        service, count = 0.020, 100_000
        demand = Demand("poisson", 100, 1)
        trace = simulate(ALONE, drawn_load(demand, load / service, count, seed=3), seed=1)
        waits = trace.first - trace.sent - service
        assert waits.mean() == pytest.approx(load * service / (2 * (1 - load)), rel=0.04)
        limit, rate = 2.5 * service, load / service
        terms = [
            (rate * (k * service - limit)) ** k / math.factorial(k) * math.exp(-rate * (k * service - limit)) for k in range(3)
        ]
        run = long_run(ALONE, demand, Limit("ttft", 0.9, limit + service), rate, count=count, seed=3)
        assert run.within == pytest.approx((1 - load) * sum(terms), abs=0.01)
        assert run.stable, load


def test_a_request_waits_for_the_blocks_of_its_whole_prompt():
    """2,499 blocks of 16; ten requests of 4,000 + 100 tokens: nine hold 92.6 %, and the tenth waits."""
    trace = simulate(
        Server(10, 0, 0, 0, budget=40_000, blocks=2500), Load([4000] * 10, [100] * 10, [0.0] * 10), seed=1, watch=True
    )
    assert trace.gauges["running"].max() == 9
    assert trace.gauges["used"].max() / 2499 == pytest.approx(0.926, abs=5e-4)
    assert (trace.gauges["waiting"][50], trace.preemptions) == (1, 0)
    assert trace.first[9] > trace.last[:9].max()


def test_who_came_last_is_preempted_when_no_block_is_free_and_computes_its_tokens_again():
    server = Server(10, 0, 0, 0.1, blocks=11)
    trace = simulate(server, Load([64, 64], [48, 48], [0.0, 0.0]), seed=1, watch=True)
    counted, used = trace.gauges["preemptions"], trace.gauges["used"]
    # 4 blocks each, a fifth for the 65th token; for the 81st, in step 18, there is none.
    assert (counted[16], used[16], counted[17], used[17]) == (0, 10, 1, 6)
    assert trace.segments == [[(1, 48)], [(1, 17), (49, 79)]]
    assert np.diff(trace.gauges["prompt_tokens"])[47] == 64 + 17
