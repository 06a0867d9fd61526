"""The order in which runs are measured: rounds that are drawn from the seed, and sessions that alternate."""

from collections import Counter
from itertools import groupby

import pytest

from bench.study.plan import Plan
from bench.study.read import load_config
from bench.study.specs import alternating, session_of


def plan_of(content, **study):
    content["study"] |= study
    return Plan.of(load_config(content, source="test"))


@pytest.fixture
def several(content):
    """Two ladders of a deployment, of three and of two repeats, and another deployment with the first of them."""
    content["deployments"]["b"] = content["deployments"]["a"]
    content["workloads"]["long"] = {**content["workloads"]["short"], "output_tokens": 64}
    content["study"]["ladders"] = [
        {"deployment": "a", "workload": "short", "concurrency": [1, 2, 4, 8, 16], "repeats": 3},
        {"deployment": "a", "workload": "long", "concurrency": [1, 2, 4], "repeats": 2},
        {"deployment": "b", "workload": "short", "concurrency": [1, 2, 4, 8, 16], "repeats": 3},
    ]
    return content


def loads(runs):
    return [(run.workload_name, run.level) for run in runs]


def test_a_round_has_every_level_of_every_ladder_once(several):
    plan = plan_of(several)
    runs = plan.runs_of("a")
    assert [plan.place_of(run).position for run in runs] == list(range(1, 22))
    rounds = [(number, list(group)) for number, group in groupby(runs, key=lambda run: plan.place_of(run).round)]
    assert [(number, len(group)) for number, group in rounds] == [(1, 8), (2, 8), (3, 5)]  # the shorter ladder: the first two
    for number, group in rounds:
        assert max(Counter(loads(group)).values()) == 1
        assert {run.repeat for run in group} == {number}
    assert {run.key for run in runs} == {run.key for run in plan.runs if run.deployment.name == "a"}


def test_deployments_that_share_loads_measure_them_in_the_same_order(several):
    plan = plan_of(several)
    short = [run for run in plan.runs_of("a") if run.workload_name == "short"]
    assert loads(short) == loads(plan.runs_of("b"))


def test_the_order_of_rounds_is_drawn_from_the_seed(several):
    first, again = (plan_of(several).runs_of("a") for _ in range(2))
    assert loads(first) == loads(again)
    orders = [loads(run for run in first if run.repeat == number) for number in (1, 2)]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1]) != orders[0]
    several["measurement"] = {"seed": 1}
    assert loads(plan_of(several).runs_of("a")) != loads(first)


def test_the_order_of_the_whole_is_that_of_its_parts(several):
    whole = plan_of(several)
    several["select"] = ["a/*_c0002_*", "a/*_c0016_*"]
    part = plan_of(several)
    wanted = {run.key for run in part.runs}
    assert [run.key for run in part.runs_of("a")] == [run.key for run in whole.runs_of("a") if run.key in wanted]
    assert [part.place_of(run) for run in part.runs] == [whole.place_of(run) for run in part.runs]
    del several["select"]
    several["study"]["ladders"][0]["concurrency"] = [1, 2, 3, 4, 8, 16]
    more = [run.key for run in plan_of(several).runs_of("a") if run.level != 3]
    assert more == [run.key for run in whole.runs_of("a")]


def test_rounds_are_dealt_to_sessions_with_the_same_levels(several):
    several["study"]["ladders"][1]["repeats"] = 3
    for ladder in several["study"]["ladders"]:
        ladder["repeats"] = 4
    plan = plan_of(several, sessions=2)
    halves = [plan.runs_of("a", session) for session in (1, 2)]
    assert [sorted({run.repeat for run in half}) for half in halves] == [[1, 3], [2, 4]]
    assert Counter(loads(halves[0])) == Counter(loads(halves[1]))
    assert [plan.place_of(run).position for half in halves for run in half] == list(range(1, 33))
    assert [session_of(number, 3) for number in range(1, 8)] == [1, 2, 3, 1, 2, 3, 1]
    assert {session_of(number, 1) for number in range(1, 8)} == {1}


def test_sessions_of_all_deployments_alternate(several):
    assert alternating({"a": (1, 2, 3), "b": (1, 2, 3), "c": (1, 3)}) == [
        *(("a", 1), ("b", 1), ("c", 1)), *(("b", 2), ("a", 2)), *(("a", 3), ("b", 3), ("c", 3)),
    ]  # fmt: skip
    several["study"]["ladders"][1]["repeats"] = 3
    assert plan_of(several, sessions=2).sessions == [("a", 1), ("b", 1), ("b", 2), ("a", 2)]
    several["select"] = ["b/*_r2_*"]  # the facts of a deployment are those of its first session, whatever is selected
    assert plan_of(several).sessions == [("b", 1), ("b", 2)]
