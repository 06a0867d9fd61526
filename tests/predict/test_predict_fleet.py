"""Fleets of replayed servers: against single replays, by brute force, and on step times that are planted."""

from dataclasses import replace
from itertools import product
from typing import get_args

import numpy as np
import polars as pl
import pytest

from bench.errors import BenchError
from bench.predict.asked import Traffic, read_traffic
from bench.predict.calibrate import ensemble_interval, members, typical
from bench.predict.calibration import Interval
from bench.predict.carried import rates_carried
from bench.predict.fleet import FleetReplay, Router, Scaling, latency, replay, replay_fleet
from bench.predict.instances import Served, fewest_instances, hours, served
from bench.predict.limits import Limits
from bench.predict.server import ReplayedServer, Seen
from bench.predict.study import self_judged
from bench.study.read import load_workload
from bench.study.slo import parse_slo
from bench.workloads.schedule import PlannedRequest, schedule
from tests.support.predict import LIMITS, TRUE, drawn, planned

FULL = Limits(tokens=128, sequences=64, blocks=40, block_size=16)  # preempts
COLUMNS = (
    "sent_s", "admitted_s", "first_token_s", "end_s",
)  # fmt: skip


def on_fleet(plans, number, router, limits=LIMITS, **options):
    return replay_fleet(plans, lambda _, now: ReplayedServer(limits, TRUE, now=now), number, router, **options)


def assert_same(found, truth):
    assert found["index"].to_list() == truth["index"].to_list()
    for column in COLUMNS:
        assert found[column].to_numpy() == pytest.approx(truth[column].to_numpy(), abs=1e-6), column


def test_a_fleet_of_one_is_its_server():
    plans = planned(drawn(60, seed=1, rate=6.0))
    for name, plain in {"plenty": LIMITS, "slots": replace(LIMITS, sequences=4), "full": FULL}.items():
        for router, ahead in product(get_args(Router), (False, True)):
            limits = replace(plain, ahead=ahead)
            found = on_fleet(plans, 1, router, limits, overhead_s=0.001).requests.sort("index")
            truth = replay(plans, limits, TRUE, overhead_s=0.001).requests.sort("index")
            assert_same(found, truth)
            assert found["preemptions"].to_list() == truth["preemptions"].to_list(), (name, router, ahead)


def test_requests_go_in_turn_or_to_the_fewest():
    plans = planned(drawn(90, rate=12.0))
    found = on_fleet(plans, 3, "round-robin").requests.sort("index")
    for number in range(3):
        truth = replay(plans[number::3], LIMITS, TRUE).requests.sort("index")
        assert_same(found.filter(found["instance"] == number), truth)
    # By brute force, over what is in flight when each comes.
    table = on_fleet(planned(drawn(300, rate=40.0)), 4, "least-requests").requests.sort("sent_s")
    rows = table.select("sent_s", "end_s", "instance").rows()
    assert len(rows) == 300
    for i, (sent, _, chosen) in enumerate(rows):
        there = [sum(end > sent for _, end, number in rows[:i] if number == each) for each in range(4)]
        assert there[chosen] == min(there)
    assert {number for *_, number in rows} == set(range(4))
    plans = planned(drawn(2000, rate=60.0))
    slowest = {
        router: on_fleet(plans, 4, router, replace(LIMITS, sequences=8))
        .requests.select(pl.col("admitted_s") - pl.col("sent_s"))["admitted_s"]
        .quantile(0.99)
        for router in ("least-requests", "power-of-two", "random")
    }
    assert slowest["least-requests"] < slowest["power-of-two"] < slowest["random"]


def test_conversations_stay_where_their_prefix_is_which_is_computed_once_an_instance():
    # Turns in turn on two instances: the third comes back to the first one, which has not seen the second.
    turns = [PlannedRequest(0, 0, 32, 16, 0.0), PlannedRequest(1, 0, 64, 16, None, (0,), 1.0, reusable_tokens=32),
             PlannedRequest(2, 0, 96, 16, None, (1,), 1.0, reusable_tokens=64)]  # fmt: skip
    cached = Limits(tokens=512, sequences=32, blocks=400, block_size=16, cached=True)
    served = {router: on_fleet(turns, 2, router, cached).seen.cached for router in ("session", "round-robin")}
    assert served == {"session": 32 + 64, "round-robin": 32}
    # What all prompts share is computed once an instance.
    workload = {
        "arrival": "poisson", "num_requests": 60, "prompt_tokens": 160, "output_tokens": 4, "cache": "shared",
        "shared_prefix": 0.5,
    }  # fmt: skip
    plans = schedule(load_workload(workload, source="test"), 0.5, "s")
    made = []

    def make(_, now):
        made.append(ReplayedServer(Limits(512, 32, 4000, 16, cached=True), TRUE, now=now))
        return made[-1]

    replay_fleet(plans, make, 3, "round-robin")
    assert [each.seen.cached for each in made] == [19 * 80] * 3


def test_instances_follow_the_rate():
    """Ten times the rate for ten minutes: the fleet grows to 70 % load within a look and a start, and shrinks again."""
    traffic = Traffic((0.0, 600.0, 601.0, 1200.0, 1201.0, 1800.0), (1.0, 1.0, 10.0, 10.0, 1.0, 1.0))
    workload = load_workload({"arrival": "poisson", "num_requests": 1, "prompt_tokens": 64, "output_tokens": 16}, source="test")
    plans = traffic.plans(workload, "s")
    assert len(plans) == pytest.approx(600 + 6000 + 600, rel=0.01)
    found = on_fleet(plans, 1, "least-requests", scaling=Scaling(2.0, start_up_s=30.0))
    assert found.requests.height == len(plans)

    def ready_at(moment):
        return [ready for at, ready in found.history if at <= moment][-1]

    assert (ready_at(590), ready_at(1790)) == (1, 1)
    assert ready_at(600 + 60 + 30 + 61) == 8  # ⌈10 ÷ 2 ÷ 0.7⌉
    last = float(found.requests["end_s"].max())
    spans = zip(found.history, [*found.history[1:], (last, 0)], strict=True)
    ready = sum(there * max(0.0, min(end, last) - begin) for (begin, there), (end, _) in spans)
    assert ready + 7 * 30.0 <= found.paid_s == pytest.approx(ready + 7 * 30.0, rel=0.05)  # from the decision on


def test_a_fleet_is_paid_for_until_its_time_is_over():
    found = on_fleet(planned(drawn(20, rate=6.0)), 2, "round-robin", until_s=1000.0)
    assert found.paid_s == 2000.0
    scaled = on_fleet(planned(drawn(20, rate=6.0)), 3, "round-robin", scaling=Scaling(1.0), until_s=1000.0)
    assert scaled.history[-1][1] == 1
    assert scaled.paid_s < 1300


def test_instances_follow_the_rate_of_conversations_within_a_band():
    scaling = Scaling(2.0)
    assert scaling.wanted(7.0, 5) == 5  # 70 %
    assert scaling.wanted(8.5, 5) == 7  # 85 %
    assert scaling.wanted(4.0, 5) == 3  # 40 %
    assert scaling.wanted(0.0, 5) == 1
    content = {
        "arrival": "poisson", "num_requests": 1, "prompt_tokens": 64, "output_tokens": 16,
        "turns": {"count": 4, "new_tokens": 8, "think_s": 1.0},
    }  # fmt: skip
    plans = Traffic((0.0, 1200.0), (2.0, 2.0)).plans(load_workload(content, source="test"), "s")
    assert len(plans) == 4 * 2400
    found = on_fleet(plans, 3, "session", scaling=Scaling(1.0), until_s=1200.0)
    assert max(ready for _, ready in found.history) <= 4
    assert found.requests.height == len(plans)


def test_traffic_has_its_rate_over_time():
    moments = np.linspace(0, 86_400, 289)
    day = Traffic(tuple(moments), tuple(6 - 4 * np.cos(2 * np.pi * moments / 86_400)))
    assert (day.peak, day.requests) == (10.0, pytest.approx(6.0 * 86_400, rel=1e-3))
    workload = load_workload({"arrival": "poisson", "num_requests": 1, "prompt_tokens": 8, "output_tokens": 2}, source="test")
    due = np.array([plan.due_s for plan in day.scaled(0.05).plans(workload, "s")])
    assert len(due) == pytest.approx(0.05 * 6 * 86_400, rel=0.01)
    assert (np.diff(due) >= 0).all()
    for begin, end in ((0, 21_600), (21_600, 43_200)):
        moments = np.linspace(begin, end, 1000)
        expected = 0.05 * np.trapezoid(np.interp(moments, day.moments, day.rates), moments)
        assert ((due >= begin) & (due < end)).sum() == pytest.approx(expected, abs=5 * np.sqrt(expected))
    # A minute's peak of a day is not lost.
    day = Traffic((0.0, 43_200.0, 43_201.0, 43_260.0, 43_261.0, 86_400.0), (0.1, 0.1, 20.0, 20.0, 0.1, 0.1))
    workload = load_workload({"arrival": "poisson", "num_requests": 1, "prompt_tokens": 8, "output_tokens": 2}, source="test")
    due = [plan.due_s for plan in day.plans(workload, "s")]
    assert sum(43_200 <= moment <= 43_261 for moment in due) == pytest.approx(1200, rel=0.1)


def test_traffic_is_read_and_begins_at_0_or_is_refused(tmp_path):
    file, header = tmp_path / "day.csv", "seconds,requests_per_s\n"
    file.write_text(f"{header}1.7e9,1\n1700003600,4.5\n")
    assert read_traffic(file) == Traffic((0.0, 3600.0), (1.0, 4.5))
    rows = ("0,1\n", "0,1\n0,2\n", "0,0\n9,0\n", "0,-1\n9,2\n", "0,x\n9,2\n")
    for text in ("", "s,r\n0,1\n9,2\n", *(header + each for each in rows)):
        file.write_text(text)
        with pytest.raises(BenchError, match=r"day\.csv"):
            read_traffic(file)


WORKLOAD = load_workload({"arrival": "poisson", "num_requests": 1, "prompt_tokens": 90, "output_tokens": 30}, source="test")


def within(table, slo):
    return latency(table, slo.metric) <= slo.limit_s


def highest(slos, low, high, requests=3000):
    """The highest rate of the planted server, by its true step times and so many requests."""
    many = WORKLOAD.model_copy(update={"num_requests": requests})
    while high / low > 1.02:
        middle = np.sqrt(low * high)
        table = replay(schedule(many, middle, "truth"), LIMITS, TRUE).requests.sort("sent_s").slice(300)
        good = all(within(table, slo).mean() >= slo.share for slo in slos)
        low, high = (middle, high) if good else (low, middle)
    return low


@pytest.mark.long(part="truth")
def test_planted_limits_of_traffic_that_was_not_measured_lie_within_their_intervals(model):
    for texts in [["ttft_p95=300ms"], ["tpot_p90=25ms"], ["ttft_p99=1s", "e2e_p50=800ms"]]:
        slos = [parse_slo(text) for text in texts]
        found = ensemble_interval(rates_carried(members(model, count=8), WORKLOAD, slos))
        truth = highest(slos, 0.5, 60.0)
        assert found.low * 0.95 <= truth <= found.high * 1.05, texts
        assert found.value == pytest.approx(truth, rel=0.15), texts


def assert_fewest_are_found(ensemble, rate, limit, seeds):
    slo = parse_slo(f"ttft_p95={limit}")
    for seed in seeds:
        plans = planned(drawn(400, seed=100 + seed, rate=rate))
        replayed = (on_fleet(plans, number, "least-requests").requests for number in range(1, 20))
        truth = next(number for number, table in enumerate(replayed, 1) if within(table, slo).mean() >= slo.share)
        found = ensemble_interval(fewest_instances(ensemble, plans, [slo], "least-requests"))
        assert np.floor(found.low) <= truth <= np.ceil(found.high), (rate, seed)
        assert abs(found.value - truth) <= 1, (rate, seed)


def test_the_fewest_instances_for_recorded_requests_are_found(model):
    assert_fewest_are_found(members(model, count=2), 20, "300ms", [0])


@pytest.mark.long(part="truth")
def test_the_fewest_instances_are_within_their_interval(runs, model):
    """From a calibration with 5 % noise: the interval holds the number that the planted step times take, in each of three traces."""
    ensemble = members(self_judged(model, runs), count=6)
    for rate, limit in [(20, "300ms"), (60, "150ms"), (8, "150ms")]:
        assert_fewest_are_found(ensemble, rate, limit, range(3))


def test_each_hour_is_held_against_the_limits(model):
    """By hand: of two requests in the first hour one is late; the one in the second is not."""
    member = typical(model)
    table = pl.DataFrame(
        {
            "sent_s": [0.0, 1.0, 3700.0],
            "first_token_s": [0.5, 3.0, 3700.5],
            "end_s": [1.0, 4.0, 3701.0],
            "output_tokens": [2] * 3,
        }
    )
    replay = FleetReplay(table, 0.0, (), Seen())
    for share, meets in ((50, True), (90, False)):
        found = served(replay, member, [parse_slo(f"ttft_p{share}=1s")])
        assert found == Served(within=pytest.approx(2 / 3), worst=0.5, meets=meets)


def test_an_hour_takes_as_many_as_carry_it_by_what_so_many_carry_each():
    """One alone sustains 8.2/s, of four each 10.5: what a pooled queue gives is not promised to fewer."""
    traffic = Traffic((0.0, 3600.0, 7200.0, 10800.0), (8.0, 9.0, 35.0, 70.0))
    rates = {1: Interval(8.2, 8.0, 8.4), 4: Interval(10.5, 10.0, 11.0)}
    found = [(hour.peak, tuple(vars(hour.instances).values())) for hour in hours(traffic, rates)]
    assert found == [(9.0, (2, 2, 2)), (35.0, (4, 4, 4)), (70.0, (7, 7, 7))]


def test_what_never_fits_an_instance_is_refused():
    plans = [PlannedRequest(0, 0, 2000, 10, 0.0), PlannedRequest(1, 1, 20, 10, 0.1)]
    found = on_fleet(plans, 2, "round-robin", FULL)
    assert (found.seen.refused, found.requests["index"].to_list()) == ([0], [1])
