"""Whether a level is on the frontier of speed and throughput, on made runs whose truth is known."""

import math

import numpy as np
import polars as pl
import pytest

from bench.analysis.pareto import speeds

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
