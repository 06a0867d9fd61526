"""Whether a level is on the frontier of speed and throughput, on made runs whose truth is known."""

import math

import numpy as np
import polars as pl
import pytest

from bench.analysis.pareto import speeds
from tests.planted import answers

# What a user and a GPU get at each level; b's second is beaten by a's, and the last two are as good as each other.
TRUTH = {
    ("a", 1): (100, 100), ("a", 2): (80, 160), ("a", 4): (40, 200),
    ("b", 1): (90, 60), ("b", 2): (60, 110), ("b", 4): (20, 230), ("b", 8): (20, 230.0001),
}  # fmt: skip
ON = {key for key, (x, y) in TRUTH.items() if not any(c >= x and d >= y and (c, d) != (x, y) for c, d in TRUTH.values())}


def runs(seed=0, *, sessions=4, noise=0.03, start=0.02):
    random = np.random.default_rng(seed)
    starts = {(name, s): start * random.standard_normal(2) for name in "ab" for s in range(sessions)}
    rows = []
    for (name, level), values in TRUTH.items():
        for session in range(sessions):
            user, gpu = (
                math.log(v) + starts[name, session][i] + noise * random.standard_normal() for i, v in enumerate(values)
            )
            rows.append({"deployment": name, "workload": "w", "axis": "concurrency", "level": float(level), "session": session,
                         "valid": True, "tpot_p50_s": math.exp(-user), "throughput_tokens_per_s": 2 * math.exp(gpu), "gpus": 2})  # fmt: skip
    return pl.DataFrame(rows)


def told(frame):
    return {
        (row["deployment"], int(row["level"])): (row["unbeaten"], row["established"])
        for row in speeds(frame).iter_rows(named=True)
    }


def test_what_is_clear_is_established_and_equals_are_not():
    found = told(runs())
    assert {key for key, (on, sure) in found.items() if on and sure} == {("a", 1), ("a", 2), ("a", 4)} <= ON
    assert {key for key, (on, sure) in found.items() if not on and sure} == {("b", 1), ("b", 2)}
    assert not found["b", 4][1] and not found["b", 8][1]


@pytest.mark.parametrize("sessions", [2, 4])
def test_what_is_established_is_so(sessions):
    """At most 5 % of levels may be wrong; the two that are alike have no truth that could be shown."""
    claims, wrong = 0, 0
    for seed in range(200):
        for key, (on, sure) in told(runs(seed, sessions=sessions, noise=0.06)).items():
            claims += sure
            wrong += sure and (key not in ON if on else key in ON)
    assert claims > 400
    assert wrong <= 0.05 * 200 * len(TRUTH)


def test_single_runs_establish_nothing():
    assert not any(sure for _, sure in told(runs(sessions=1)).values())


def test_a_shared_start_is_no_evidence_of_one_deployment_over_another():
    """Two repeats in one session of each: starts are held to differ by 10 %, so 20 % more of both shows nothing."""
    rows = [
        {"deployment": name, "workload": "w", "axis": "concurrency", "level": 1.0, "session": 1, "valid": True,
         "tpot_p50_s": 0.01 / times, "throughput_tokens_per_s": 100.0 * times * (1 + 0.001 * repeat), "gpus": 1}
        for name, times in (("a", 1.0), ("b", 1.2)) for repeat in range(4)
    ]  # fmt: skip
    assert told(pl.DataFrame(rows)) == {("a", 1): (False, False), ("b", 1): (True, False)}


AT_A_4 = (pl.col("deployment") == "a") & (pl.col("level") == 4)
ALL_FAILED = pl.lit(pl.Series([answers(400, failed=400)]))


def altered(where, **columns):
    return runs().with_columns(pl.when(where).then(value).otherwise(name).alias(name) for name, value in columns.items())


@pytest.mark.parametrize(
    "frame",
    [
        altered(AT_A_4, tpot_p50_s=None, throughput_tokens_per_s=0.0).with_columns(judged=pl.when(AT_A_4).then(ALL_FAILED)),
        altered(AT_A_4, throughput_tokens_per_s=0.0),
        altered(AT_A_4, tpot_p50_s=math.inf),
    ],
    ids=["all 400 requests failed", "throughput 0", "no TPOT that ends"],
)
def test_a_level_that_answers_nothing_is_left_out(frame):
    found = told(frame)
    assert found.keys() == TRUTH.keys() - {("a", 4)}
    assert found["a", 1] == found["a", 2] == (True, True)


@pytest.mark.parametrize(
    "second", [{"tpot_p50_s": None}, {"throughput_tokens_per_s": None}, {"throughput_tokens_per_s": 0.0}], ids=str
)
def test_a_run_that_lacks_a_value_is_no_repeat(second):
    """One of two is left, which shows no noise; repeats of the others do."""
    found = told(altered(AT_A_4 & (pl.col("session") > 0), **second))
    assert found["a", 1] == found["a", 2] == (True, True)
    alone = altered(pl.col("session") > 0, **second).filter(pl.col("session") < 2)
    assert told(alone).keys() == TRUTH.keys()
    assert not any(sure for _, sure in told(alone).values())


def test_a_level_without_a_run_of_both_values_is_not_established():
    """Each value is known of another run, so nothing tells how far noise goes there, nor that another level is above it."""
    first = pl.col("session") < 2
    frame = altered(AT_A_4 & first, tpot_p50_s=None).with_columns(
        throughput_tokens_per_s=pl.when(AT_A_4 & ~first).then(None).otherwise("throughput_tokens_per_s")
    )
    found = told(frame)
    assert found["a", 4] == (True, False)
    assert found["a", 1] == (True, False)
    assert found["b", 1] == (False, True)
