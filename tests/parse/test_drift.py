"""A machine that was slower in one round than in the others is found by its reference loads, and one that was not is left alone."""

import math
import random
from functools import partial

import pytest

from bench.parse.drift import drift_reasons
from bench.parse.table import summary_frame
from bench.parse.validity import reason_texts
from bench.study.config import Thresholds
from tests.support.drift import NOISES, rates, rounds_of

THRESHOLDS = Thresholds()


def made(seconds, *, deployment="a", noise=0.0, load="8 requests", rounds=None, each=2):
    """`each` runs of each round, whose references took `seconds` in the mean and differ by `noise` (standard deviation of two)."""
    return [
        {
            "deployment": deployment,
            "run": f"r{number}-{run + 1}",
            "round": rounds[number] if rounds else number + 1,
            "reference_s": value * math.exp(noise / math.sqrt(2) * (-1) ** run if each > 1 else 0.0),
            "reference_started": f"2026-01-01T00:{number:02}:{run:02}.000+00:00",
            "reference_since": f"2026-01-01T00:{number:02}:00.000+00:00",
            "reference_load": load,
        }
        for number, value in enumerate(seconds)
        for run in range(each)
    ]


def in_words(runs):
    """Why each run does not compare."""
    drifts = drift_reasons(runs, THRESHOLDS)
    return drifts


def test_each_run_of_a_round_that_differs_has_the_reason():
    reason = "the machine was 23 % slower in round 2 than in the others (reference load 1.42 s against 1.15 s)"
    assert in_words(made([1.15, 1.42, 1.16, 1.14])) == {("a", "r1-1"): reason, ("a", "r1-2"): reason}
    # A faster round is none of the others either.
    (reason, _) = in_words(made([1.5, 1.2, 1.5, 1.5])).values()
    assert reason == "the machine was 25 % faster in round 2 than in the others (reference load 1.2 s against 1.5 s)"
    # Of two rounds the slower one drifted.
    for seconds in [[1.5, 1.2], [1.2, 1.5]]:
        found = in_words(made(seconds))
        slow = seconds.index(1.5)
        assert {run for _, run in found} == {f"r{slow}-1", f"r{slow}-2"}, seconds
        assert f"25 % slower in round {slow + 1} than in round {2 - slow} (" in next(iter(found.values())), seconds
    # Parts of a round are told apart by the time.
    found = in_words(made([1.2, 1.5, 1.2, 1.2], rounds=[1, 1, 2, 3]))
    assert {reason.partition(" than ")[0] for reason in found.values()} == {
        "the machine was 25 % slower in round 1 from 00:01:00 UTC on"
    }


def test_what_is_no_drift():
    for runs, why in [
        ([], "there is no run"),
        (made([1.2]), "a single round has nothing to be compared with"),
        (made([1.2, 1.3]), "the threshold is 10 %, and two rounds allow no less than their noise"),
        (made([1.2, 1.5, 1.2], noise=0.3), "the noise explains it"),
        (made([1.2, 1.2]) + made([2.4, 2.4], deployment="b"), "deployments have references of their own"),
        (made([1.2, 1.2]) + made([2.4, 2.4], load="12 requests"), "another reference load does not compare"),
        ([{**run, "reference_s": None} for run in made([1.2, 2.4])], "no reference was measured"),
        ([{"deployment": "a", "run": "r"}], "a run of `bench workload` has no reference"),
    ]:
        assert drift_reasons(runs, THRESHOLDS) == {}, why
    runs = made([1.2, 1.5, 1.2, 1.2])
    assert len(drift_reasons(runs, Thresholds(drift=0.2))) == 2
    assert drift_reasons(runs, Thresholds(drift=0.3)) == {}


# Two references a round that differ by a noise of 0.05: the moderated one is 0.05, whatever its weight. What rounds differ by would allow
# less where they do not, so that here they do. Student's t: two-sided, at 0.5 % over all rounds.
def test_the_bound_by_hand():
    for count, t, others in [
        (2, 3.833, 1.0),  # 2 · 1 + 6 degrees, at 0.5 %: what it is compared with is one round
        (3, 4.422, 0.25),  # 9 degrees, at 0.17 %
        (5, 4.437, 0.125),  # 11 degrees, at 0.1 %: 0.5 / 4
    ]:
        bound = t * 0.05 * math.sqrt(0.5 * (1 + others))
        # as much as noise allows, and their median 1 or one of them
        apart = [math.exp(0.05 * (-1) ** i) for i in range(count - 1)]
        usual = min(apart) if count == 2 else sorted([*apart, 9.0])[count // 2]
        for share, drifted in ((0.98, 0), (1.02, 2)):
            runs = made([*apart, usual * math.exp(share * bound)], noise=0.05)
            assert len(drift_reasons(runs, Thresholds(drift=0.0001))) == drifted, share


def test_rounds_of_one_run_or_one_reference_show_the_noise_by_what_the_others_differ_by():
    """Of seven rounds six differ by nothing: s² = 6 · 0.05² / (6 + 5), t of 11 degrees at 0.5 % ÷ 7, and √(1 + 0.5 / 6)."""
    bound = 4.642 * math.sqrt(6 * 0.05**2 / 11) * math.sqrt(1 + 0.5 / 6)
    for share, drifted in ((0.98, 0), (1.02, 1)):
        runs = made([1.0] * 6 + [math.exp(share * bound)], each=1)
        assert len(drift_reasons(runs, Thresholds(drift=0.0001))) == drifted, share
    # As records of earlier versions have it, one load a round: K rounds of one reference each.
    seconds = [1.0] * 6 + [1.13]  # a difference that two references of their own would show, and one does not
    own = made(seconds)
    assert {run for _, run in drift_reasons(own, THRESHOLDS)} == {"r6-1", "r6-2"}
    assert drift_reasons([{**run, "reference_started": run["reference_since"]} for run in own], THRESHOLDS) == {}


def test_a_run_of_a_round_that_drifted_is_invalid(summary):
    runs = [{**summary, **run} for run in made([1.2, 1.5, 1.2, 1.2])]
    frame = summary_frame(runs, {}, {}, THRESHOLDS)
    assert frame["valid"].to_list() == [True, True, False, False, *[True] * 4]
    assert frame["counts_valid"].all()  # what the server counted holds on a slower machine too
    assert reason_texts(frame["reasons"][2]) == [
        "the machine was 25 % slower in round 2 than in the others (reference load 1.5 s against 1.2 s)"
    ]
    assert frame["reference_s"].to_list() == [run["reference_s"] for run in runs]


def mixed(generator: random.Random, *, count: int, drift: float, hiccups: bool):
    return rounds_of(generator, count, generator.choice(NOISES), drift, hiccups=hiccups)


@pytest.mark.long(part="truth")
def test_how_often_it_is_wrong():
    """Wanted: false alarms in 1 % of studies without drift, misses in 5 % of those with a drift of 25 %, at a noise of 2 to 8 %, in rounds of
    five runs.

    So many studies tell rates of twice as much from these; benchmarks/drift.py has the rates themselves.
    """
    for hiccups in [False, True]:
        for count in [2, 3, 4]:
            alarms = rates(700, partial(mixed, count=count, drift=0.0, hiccups=hiccups))["alarms"]
            misses = rates(700, partial(mixed, count=count, drift=0.25, hiccups=hiccups))["misses"]
            assert (alarms <= 0.02, misses <= 0.05) == (True, True), (alarms, misses)
