"""Where a search begins, by a closed loop of a few seconds: on planted servers whose limits are known."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.find_scale import Planted, closed_loop

from bench.load.client import Load
from bench.load.target import Target
from bench.search.measured import sender
from bench.search.placing import Aim
from bench.search.probe import Reply, probe
from bench.study.read import load_workload
from bench.study.slo import parse_slo
from tests.support.fake_server import fake_server

SERVERS = [Planted(0.2, 1), Planted(0.5, 4), Planted(2, 8), Planted(6.1, 1), Planted(40, 16), Planted(500, 64)]


def aim(*slos, held, **changed):
    given = Aim([parse_slo(slo) for slo in slos], 0.01, held, 0.1, None, 4096.0)
    return replace(given, **changed)


@pytest.mark.long(part="truth")
def test_a_load_begins_near_the_limit_after_seconds():
    for server, percentile in list(zip(SERVERS, itertools.cycle([90, 99]))):
        found = probe(aim(f"ttft_p{percentile}={server.limit_s}s", held=False), closed_loop(server))
        assert found.seconds <= 80, server
        assert 0.2 * server.highest(percentile / 100) <= found.load <= 1.15 * server.highest(percentile / 100)
        assert found.rate <= 1.05 * server.capacity
        if server.capacity > 2:  # else a closed loop would take minutes
            assert found.prior.middle == pytest.approx(server.highest(percentile / 100), rel=0.35), server
            assert found.prior.most >= 0.95 * server.highest(percentile / 100)
    for server in SERVERS:
        found = probe(aim(f"ttft_p90={server.limit_s}s", held=True), closed_loop(server))
        assert found.seconds <= 50, server
        assert found.load == int(found.load), server
        # A percentile of a few answers is one of them, so that a probe may stop early.
        assert 0.4 * server.most() <= found.load <= 1.5 * server.most()


def test_a_probe_stops_where_answers_take_long_or_fail():
    """A server that answers after 50 s."""
    server = Planted(0.1, 4)
    found = probe(aim("ttft_p90=100s", held=False), closed_loop(server))
    assert found.seconds <= 50
    assert 0 < found.load <= server.capacity
    fine = closed_loop(Planted(100, 64))

    def refusing(in_flight, count, timeout_s):
        replies = fine(in_flight, count, timeout_s)
        return [replace(each, outcome="http_error") if in_flight > 5 and i % 8 else each for i, each in enumerate(replies)]

    found = probe(aim("ttft_p90=10s", held=True), refusing)
    assert (found.load, found.in_flight) == (4, 4)  # refusals are no throughput
    cut = [Reply(0.0, 45.0, "cut", {"ttft": None}, ())]
    found = probe(aim("ttft_p90=2s", held=True), lambda *_: cut)
    assert (found.alone.latency_s, found.alone.cut) == (45.0, True)


def test_bounds_hold():
    server = Planted(500, 64)
    assert probe(aim("ttft_p90=10s", held=True, highest=7.0), closed_loop(server)).load <= 7
    dead = [Reply(0.0, 1.0, "disconnect", {"ttft": None}, ())]
    assert probe(aim("ttft_p90=1s", held=True), lambda *_: dead).load == 1
    assert probe(aim("ttft_p90=1s", held=False), lambda *_: []).load == 1
    server = Planted(40, 16)
    slo = f"ttft_p90={server.limit_s}s"
    single, turns = (probe(aim(slo, held=False, turns=n), closed_loop(server)).load for n in (1, 4))
    assert turns == pytest.approx(single / 4, rel=0.1)


def test_over_http_the_loop_is_closed_and_shows_throughput_though_its_first_answers_are_short():
    """Each answer takes 0.2 s, of 8 tokens; eight are in flight at once, so 40 a second."""
    with fake_server(first_s=0.025, gap_s=0.025) as server:
        workload = load_workload(
            {"arrival": "gamma", "burstiness": 0.5, "prompt_tokens": 4, "output_tokens": 8, "num_requests": 1}, source="a test"
        )
        send = sender(Target(server.base_url, "m", "none"), Load(workload, 1.0, "seed"))
        replies = send(8, 16, 30.0)
        assert (len(replies), server.peak) == (16, 8)
        assert {len(each.tokens_s) for each in replies[8:]} == {8}
        assert all(
            each.outcome == "ok" and each.latencies["ttft"] < 1 and each.latencies["tpot"] > 0.02 for each in replies[8:]
        )
        # One in flight carries 5 a second, whatever part of an answer the first request has left.
        assert probe(aim("ttft_p90=10s", held=True, highest=1.0), send).rate <= 5.2
        cut = send(2, 2, 0.05)
        assert {each.outcome for each in cut} <= {"cut", "ok"}
        assert "cut" in {each.outcome for each in cut}
    assert math.isfinite(cut[0].latencies["ttft"])


def single(latencies):
    """A server that answers one request after the other, each in the next of these seconds."""
    times = itertools.chain(latencies, itertools.repeat(latencies[-1]))

    def send(_in_flight, count, _timeout_s):
        took = [next(times) for _ in range(count)]
        return [Reply(0.0, each, "ok", {"ttft": each, "tpot": None}, (each,)) for each in took]

    return send


def test_that_no_load_meets_an_slo_is_said_once_chance_no_longer_explains_single_requests():
    for percentile, requests in [(50, 7), (90, 2), (99, 2)]:
        found = probe(aim(f"ttft_p{percentile}=1s", held=False), single([2.0, 3.0] * 10))
        assert (found.alone.latency_s, found.alone.requests, found.alone.cut) == (2.0, requests, False), percentile
        assert probe(aim(f"ttft_p{percentile}=1s", held=False), single([2.0] * (requests - 1) + [0.5] * 20)).alone is None


def test_all_further_single_requests_together_take_no_longer_than_a_probe():
    """A P50 takes seven that miss, and no more than three of 20 s fit."""
    allowed = []

    def send(_in_flight, _count, timeout_s):
        allowed.append(timeout_s)
        took = min(20.0, timeout_s)
        return [Reply(0.0, took, "ok" if took == 20 else "cut", {"ttft": took if took == 20 else None}, (took,))]

    found = probe(aim("ttft_p50=1s", held=True), send)
    assert (found.alone, found.seconds, allowed) == (None, 65.0, [45.0, 45.0, 25.0, 5.0])


@pytest.mark.long(part="truth")
def test_of_servers_that_just_meet_it_alone_no_more_than_one_in_a_hundred_is_said_to_miss():
    for percentile in [50, 90, 95, 99]:
        draws = np.random.default_rng(percentile)
        said = 0
        for _ in range(2000):
            missed = draws.random(60) > percentile / 100
            said += probe(aim(f"ttft_p{percentile}=1s", held=True, highest=1.0), single(0.5 + missed)).alone is not None
        assert said <= 2000 * 0.01 + 3 * math.sqrt(2000 * 0.01), percentile
