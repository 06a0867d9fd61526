"""A machine that was slower in one round than in the others is found by its reference loads, and one that was not is left alone."""

import math
import random
from functools import partial

import pytest
from benchmarks.drift import NOISES, rates, rounds_of

from bench.aggregate import summary_frame
from bench.analysis.validity import Reason
from bench.drift import drift_reasons
from bench.study.config import Thresholds
from bench.words.verdicts import reason_text

THRESHOLDS = Thresholds()


def made(seconds, *, deployment="a", noise=0.02, load="8 requests", rounds=None):
    """Two runs of each round, whose reference took `seconds`."""
    return [
        {
            "deployment": deployment,
            "run": f"r{number}-{level}",
            "round": rounds[number] if rounds else number + 1,
            "reference_s": value,
            "reference_noise": noise,
            "reference_started": f"2026-01-01T00:{number:02}:00.000+00:00",
            "reference_load": load,
        }
        for number, value in enumerate(seconds)
        for level in (1, 2)
    ]


def in_words(runs):
    """Why each run does not compare."""
    drifts = drift_reasons(runs, THRESHOLDS)
    return {key: reason_text(Reason("machine", "drift", drift=drift)) for key, drift in drifts.items()}


def test_each_run_of_a_slower_round_has_the_reason():
    reason = "the machine was 23 % slower in round 2 than in the others (reference load 1.42 s against 1.15 s)"
    assert in_words(made([1.15, 1.42, 1.16, 1.14])) == {("a", "r1-1"): reason, ("a", "r1-2"): reason}


def test_a_faster_round_is_none_of_the_others_either():
    (reason, _) = in_words(made([1.5, 1.2, 1.5, 1.5])).values()
    assert reason == "the machine was 25 % faster in round 2 than in the others (reference load 1.2 s against 1.5 s)"


@pytest.mark.parametrize("seconds", [[1.5, 1.2], [1.2, 1.5]])
def test_of_two_rounds_the_slower_one_drifted(seconds):
    found = in_words(made(seconds))
    slow = seconds.index(1.5)
    assert {run for _, run in found} == {f"r{slow}-1", f"r{slow}-2"}
    assert f"25 % slower in round {slow + 1} than in round {2 - slow} (" in next(iter(found.values()))


def test_parts_of_a_round_are_told_apart_by_the_time():
    found = in_words(made([1.2, 1.5, 1.2, 1.2], rounds=[1, 1, 2, 3]))
    assert {reason.partition(" than ")[0] for reason in found.values()} == {
        "the machine was 25 % slower in round 1 from 00:01:00 UTC on"
    }


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        ([], "there is no run"),
        (made([1.2]), "a single round has nothing to be compared with"),
        (made([1.2, 1.3]), "the threshold is 10 %, and two rounds allow no less than their noise"),
        (made([1.2, 1.5, 1.2], noise=0.3), "the noise explains it"),
        (made([1.2, 1.2]) + made([2.4, 2.4], deployment="b"), "deployments have references of their own"),
        (made([1.2, 1.2]) + made([2.4, 2.4], load="12 requests"), "another reference load does not compare"),
        ([{**run, "reference_s": None} for run in made([1.2, 2.4])], "no reference was measured"),
        ([{"deployment": "a", "run": "r"}], "a run of `bench workload` has no reference"),
    ],
)
def test_what_is_no_drift(runs, why):
    assert drift_reasons(runs, THRESHOLDS) == {}, why


def test_the_threshold_is_the_studys():
    runs = made([1.2, 1.5, 1.2, 1.2])
    assert len(drift_reasons(runs, Thresholds(drift=0.2))) == 2
    assert drift_reasons(runs, Thresholds(drift=0.3)) == {}


# With a noise of 0.05 the moderated one is 0.05, whatever its weight. Student's t: two-sided, at 1 % over all rounds.
@pytest.mark.parametrize(
    ("count", "t", "against"),
    [
        (2, 3.055, 1.0),  # 3 · 2 + 6 degrees, at 1 %: what it is compared with is one reference
        (3, 3.47, 0.25),  # 15 degrees, at 0.33 %
        (5, 3.55, 0.125),  # 21 degrees, at 0.2 %: 0.5 / 4
    ],
)
def test_the_bound_by_hand(count, t, against):
    bound = t * 0.05 * math.sqrt(0.2157 * (1 + against))
    for share, drifted in ((0.98, 0), (1.02, 2)):
        runs = made([1.0] * (count - 1) + [math.exp(share * bound)], noise=0.05)
        assert len(drift_reasons(runs, Thresholds(drift=0.0001))) == drifted, share


def test_the_noise_is_moderated_by_hand():
    # Three rounds without noise: s² = 6 · 0.05² / 15; the bound of t of 15 at 0.33 % and √(0.2157 · 1.25).
    bound = 3.47 * math.sqrt(6 * 0.05**2 / 15) * math.sqrt(0.2157 * 1.25)
    for share, drifted in ((0.98, 0), (1.02, 2)):
        runs = made([1.0, 1.0, math.exp(share * bound)], noise=0.0)
        assert len(drift_reasons(runs, Thresholds(drift=0.0001))) == drifted, share
    # One noisy reference of three: 3 · 0.2² more.
    bound = 3.47 * math.sqrt((3 * 0.2**2 + 6 * 0.05**2) / 15) * math.sqrt(0.2157 * 1.25)
    for share, drifted in ((0.98, 0), (1.02, 2)):
        runs = [{**run, "reference_noise": 0.2 * (run["round"] == 1)} for run in made([1.0, 1.0, math.exp(share * bound)])]
        assert len(drift_reasons(runs, Thresholds(drift=0.0001))) == drifted, share


def test_a_run_of_a_round_that_drifted_is_invalid(summary):
    runs = [{**summary, **run} for run in made([1.2, 1.5, 1.2, 1.2])]
    frame = summary_frame(runs, {}, {}, THRESHOLDS)
    assert frame["valid"].to_list() == [True, True, False, False, *[True] * 4]
    assert frame["counts_valid"].all()  # what the server counted holds on a slower machine too
    assert frame["reasons"][2].to_list() == [
        "the machine was 25 % slower in round 2 than in the others (reference load 1.5 s against 1.2 s)"
    ]
    assert frame["reference_s"].to_list() == [run["reference_s"] for run in runs]


def mixed(generator: random.Random, *, count: int, drift: float, hiccups: bool):
    return rounds_of(generator, count, generator.choice(NOISES), drift, hiccups=hiccups)


@pytest.mark.parametrize("hiccups", [False, True])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_how_often_it_is_wrong(count, hiccups):
    """Wanted: false alarms in 1 % of studies without drift, misses in 5 % of those with a drift of 25 %, at a noise of 2 to 8 %.

    So many studies tell rates of twice as much from these; benchmarks/drift.py has the rates themselves.
    """
    alarms = rates(700, partial(mixed, count=count, drift=0.0, hiccups=hiccups))["alarms"]
    misses = rates(700, partial(mixed, count=count, drift=0.25, hiccups=hiccups))["misses"]
    assert (alarms <= 0.015, misses <= 0.05) == (True, True), (alarms, misses)
