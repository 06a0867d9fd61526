"""What a search looks for beside SLOs: the load that fills the KV cache, the highest throughput, the end of proportional growth."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.targets import judged, of_curve, of_server

from bench.analysis.observation import GROWTH, Excess, Observation
from bench.search import Aim, Answer, Budget, Measured, Step, search
from bench.search.equilibrium import EquilibriumTarget
from bench.search.search import Look
from bench.search.targets import KvCacheTarget, first_with
from bench.search.throughput import RateTarget, ThroughputTarget
from bench.study.search import Search

AIM = Aim([], 0.01, True, 0.1, 1.0, 1.0, 256.0)
CURVE = (ThroughputTarget(), EquilibriumTarget())


def row(level, **columns):
    """A summary row of a run that could be judged."""
    steady = {"steady_why": None, "steady_from_s": 0.0, "steady_growth": None, "steady_growth_error": None}
    answers = [{"ok": True, "ttft": 0.1, "tpot": None, "e2e": 0.2}] * 50
    return {"level": level, "arrival": "closed", "judged": answers, "requests": 50, "duration_s": 5.0, **steady, **columns}


def flat(load, knee=20, each=50.0):
    """Throughput in proportion to the load up to `knee`, then flat."""
    return each * min(load, knee)


def measuring(columns):
    """Measures rows of these columns, made from the load."""
    noises.clear()
    return lambda load, requests, _: Measured(row(load, **{"requests": requests, **columns(load)}))


def looks(columns, *loads):
    """Runs at `loads`."""
    seen = Observation(1.0, {}, 50)
    return [Look(load, 50, 5.0, seen, row=row(load, **columns(load))) for load in loads]


noises = Counter()  # runs of each load so far: each has another noise


def noisy(load, sigma=0.01):
    noises[load] += 1
    rate = flat(load) * math.exp(sigma * np.random.default_rng([round(load), noises[load]]).standard_normal())
    return {"steady_tokens_per_s": rate, "steady_error": sigma}


def test_throughput_and_equilibrium_share_their_runs_and_go_on_from_each_other_s():
    both = search(AIM, Budget(40, 1e9), measuring(noisy), targets=CURVE)
    alone = [search(AIM, Budget(40, 1e9), measuring(noisy), targets=[target]) for target in CURVE]
    top, ends = both.answers["throughput"], both.answers["equilibrium"]
    assert top.why == ends.why == "found"
    assert top.low <= 18 <= top.high
    assert top.top == pytest.approx(1000, rel=0.03)
    assert ends.low <= 26 <= ends.high  # 20 ÷ 25.x is less than 80 %
    assert len(both.looks) < sum(len(found.looks) for found in alone)
    first = search(AIM, Budget(40, 1e9), measuring(noisy), targets=CURVE[:1])
    known = [Measured(look.row) for look in first.looks]
    again = search(AIM, Budget(40, 1e9), lambda *_: pytest.fail("measured again"), known, targets=CURVE[:1])
    assert again.answers == first.answers
    more = search(AIM, Budget(40, 1e9), measuring(noisy), known, targets=CURVE)
    assert (more.looks[: len(known)], more.answers["equilibrium"].why) == (first.looks, "found")


def test_loads_climb_until_more_load_adds_nothing():
    for highest in [3.0, 5.0, 7.0, 9.0]:
        assert ThroughputTarget().place([], AIM) == Step(1.0, near=False), highest
        step = ThroughputTarget().place(looks(noisy, 1, 2, 4, 8), AIM)
        assert (step.load, step.near) == (16, False), highest
        rising = search(AIM, Budget(40, 1e9), measuring(lambda load: {"steady_tokens_per_s": 10 * load}), targets=CURVE)
        assert [(found.why, found.low) for found in rising.answers.values()] == [("above", 256), ("above", 256)], highest
        # At 32 and 64 throughput is alike, and 40 % higher at 45.
        step = ThroughputTarget().place(
            looks(lambda load: {"steady_tokens_per_s": {64: 32}.get(load, load)}, 1, 2, 4, 8, 16, 32, 64), AIM
        )
        assert 32 < step.load < 64, highest
        # A low bound is reached in a few runs.
        found = search(
            replace(AIM, highest=highest),
            Budget(40, 1e9),
            measuring(lambda load: {"steady_tokens_per_s": 10 * load}),
            targets=CURVE[:1],
        )
        assert (found.answer.why, found.answer.low) == ("above", highest)
        assert len(found.looks) <= 6, highest


def test_one_request_alone_is_measured_as_often_as_the_loads_about_the_end_of_proportional_growth():
    found = search(AIM, Budget(30, 1e9), measuring(lambda load: noisy(load, 0.04)), targets=CURVE[1:])
    near = sum(20 < look.load < 33 for look in found.looks)
    assert sum(look.load == 1 for look in found.looks) >= near / 2 > 1
    with pytest.raises(ValueError, match="equilibrium compares with one request alone"):
        Search(targets=["equilibrium"], start=8, lowest=8)


def test_throughput_that_is_not_counted_or_has_fallen():
    found = search(AIM, Budget(40, 1e9), measuring(lambda _: {"steady_tokens_per_s": 0.0}), targets=CURVE)
    assert [(each.why, each.high) for each in found.answers.values()] == [("unmeasured", math.inf)] * 2
    assert len(found.looks) == 1

    def overwhelmed(load):
        return noisy(load) if load < 48 else {"steady_tokens_per_s": 0.0, "steady_error": None}

    found = search(AIM, Budget(40, 1e9), measuring(overwhelmed), targets=CURVE[:1])
    assert (found.answer.why, found.answer.low <= 18 <= found.answer.high) == ("found", True), found.answer


def test_an_end_that_nothing_bounds_stays_open_where_the_first_load_is_named():
    for low, high, why, expected in [
        (7.0, 9.0, "found", (9.0, 8.0, 10.0)),
        (0.0, 9.0, "runs", (9.0, 0.0, 10.0)),  # no load is known to lie below it
        (7.0, math.inf, "runs", (8.0, 7.0, math.inf)),
        (0.0, math.inf, "seconds", (8.0, 0.0, math.inf)),
        (0.0, 1.0, "below", (8.0, 0.0, 1.0)),
    ]:
        found = first_with(Answer(8.0, low, high, why), AIM)
        assert (found.limit, found.low, found.high) == expected


def cache(load, holds=40.0):
    """Each request takes 1 ÷ `holds` of the KV cache."""
    return {
        "kv_usage_peak": min(1.0, load / holds),
        "preemptions": 0,
        "steady_running": min(load, holds),
        "steady_in_flight": load,
    }


def test_the_load_that_fills_the_kv_cache_is_tried_as_soon_as_one_run_shows_what_a_request_takes():
    found = search(AIM, Budget(40, 1e9), measuring(cache), targets=[KvCacheTarget()])
    assert (found.answer.why, abs(found.answer.limit - 40) <= 2) == ("found", True), found.answer
    assert found.answer.low <= 40 <= found.answer.high
    assert 30 < found.looks[1].load <= 40
    assert len(found.looks) <= 8

    # A cache that no load fills is found out.
    def few_slots(load):
        return {"kv_usage_peak": min(load, 8) / 40, "preemptions": 0, "steady_running": min(load, 8), "steady_in_flight": load,
                "steady_waiting": max(0, load - 8), "running_peak": min(load, 8), "max_num_seqs": 8}  # fmt: skip

    found = search(AIM, Budget(40, 1e9), measuring(few_slots), targets=[KvCacheTarget()])
    assert (found.answer.why, found.answer.high) == ("never", math.inf)
    assert len(found.looks) <= 4


def test_the_kv_cache_is_known_by_counts_that_can_be_trusted_alone():
    found = search(AIM, Budget(40, 1e9), measuring(lambda _: {}), targets=[KvCacheTarget()])
    assert (found.answer, len(found.looks)) == (Answer(0.0, 0.0, math.inf, "unmeasured"), 3)

    # A run without it takes nothing from what others showed.
    def gaps(load):
        return {} if load == 40 else {"kv_usage_peak": min(1.0, load / 40), "preemptions": int(load > 40)}

    found = search(AIM, Budget(40, 1e9), measuring(gaps), targets=[KvCacheTarget()])
    assert found.answer.why != "unmeasured"
    assert found.answer.low <= 40 <= found.answer.high
    # Counts of a run whose latencies cannot be trusted show the cache.
    known = [Measured(row(load, kv_usage_peak=min(1.0, load / 40), preemptions=0, counts_valid=counted), ("the client was late",))
             for load, counted in ((16, True), (48, True), (20, False))]  # fmt: skip
    found = search(AIM, Budget(3, 1e9), lambda *_: pytest.fail("measured"), known, targets=[KvCacheTarget()])
    assert (found.answer.low, found.answer.high) != (0.0, math.inf)
    assert [seen is not None for seen in KvCacheTarget().shown(found.looks, AIM)] == [True, True, False]


def test_the_highest_rate_that_a_server_keeps_up_with_is_where_requests_pile_up():
    def columns(load):
        growth = max(0.0, 1 - 10 / load)
        return {
            "arrival": "poisson", "requests": 400, "judged": row(1)["judged"] * 8, "steady_growth": growth,
            "steady_growth_error": 0.005,
        }  # fmt: skip

    aim = Aim([], 0.01, False, 0.1, 1.0, 1 / 64, 256.0)
    found = search(aim, Budget(40, 1e9), lambda load, *_: Measured(row(load, **columns(load))), targets=[RateTarget()])
    assert found.answer.why == "found"
    assert found.answer.low <= 10.2 <= found.answer.high
    growing = Observation(4.0, {GROWTH: Excess(1.0, 0.1)}, 200, grows=True)
    (seen,) = RateTarget().shown([Look(4.0, 200, 5.0, growing)], aim)
    assert seen.excesses["throughput"].value == 1.0


@pytest.mark.long(part="truth")
def test_planted_truths_lie_within_their_intervals():
    """benchmarks/targets.py has a hundred and more."""
    found = [each for planted in (of_curve(1, 3), of_curve(3, 3), of_server(1, 3)) for each in judged(planted)]
    assert sum(each["holds"] for each in found) >= 4
    assert {each["target"] for each in found} == {"throughput", "equilibrium", "kv_cache"}
