"""What a second device buys, on made runs: at the same total load, of deployments that are alike, and by pairs of valid runs alone."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from bench.analysis import device_gains
from tests.test_answers import WRONG, answered, noisy, study, text

TWO = {"one": {"tensor_parallel": 1}, "two": {"tensor_parallel": 2}}


def rows_of(summary, throughput, *, levels=(1, 2, 4, 8, 16), axis="concurrency", noise=0.001, full=None, wrong=()):
    """Args: throughput: of each deployment, by the level. full: from where on the first one's KV cache is. wrong: (deployment, level)."""
    random = np.random.default_rng(5)
    return [
        {**summary, "deployment": name, "workload": "w", "family": "w", "run": f"w_{level}_{session}", "axis": axis, "level": float(level),
         "session": session, "repeat": session, "preemptions": 0, "kv_usage_peak": 1.0 if i == 0 and full and level >= full else 0.5,
         "throughput_tokens_per_s": noisy(at(level), noise, random), **(WRONG if (name, level) in wrong else {})}
        for session in range(1, 5) for level in levels for i, (name, at) in enumerate(throughput.items())
    ]  # fmt: skip


@pytest.mark.parametrize(("axis", "unit"), [("request_rate", "requests/s"), ("time_scale", "times the trace's speed")])
def test_an_open_loop_shows_no_gain(summary, axis, unit):
    rows = rows_of(summary, {"one": lambda x: 10 * x, "two": lambda x: 10 * x}, axis=axis, full=8)
    found = answered(study(rows, launches=TWO))["devices"]
    assert found.lines[0].startswith("Speed: not known, because the throughput of an open loop is the load that it offers")
    assert f"full from 8 {unit} on" in found.lines[1]
    assert "separate" not in text(found)


@pytest.mark.parametrize(
    ("gain", "said", "do"),
    [
        (1.5, "more than 2 separate instances", "If an instance gets no more load than that, use 2 GPUs"),
        (1.1, "less than 2 separate instances", "While 1 GPU can hold the load, run 2 separate instances"),
    ],
)
def test_separate_instances_share_the_load(summary, gain, said, do):
    """Of √load, two instances with half of it give √2 times as much as one: a gain of 1.5 is more, though it is less than 2."""
    rows = rows_of(summary, {"one": lambda x: 10 * x**0.5, "two": lambda x: gain * 10 * x**0.5})
    found = answered(study(rows, launches=TWO))["devices"]
    assert said in found.lines[1] and "(2 to 16 in all)" in found.lines[1]
    assert any(line.startswith(do) for line in found.do)


def test_without_a_level_half_as_high_the_advice_is_conditional(summary):
    rows = rows_of(summary, {"one": lambda x: 10 * x, "two": lambda x: 12 * x}, levels=(1, 3, 7))
    found = answered(study(rows, launches=TWO))["devices"]
    assert "no run shows what 2 separate instances on 1 GPU each would give" in found.lines[1]
    assert found.do == (
        "If there is load for all of them (1 to 7 requests in flight each), 2 separate instances on 1 GPU each give more together.",
    )


def test_an_interval_around_one_establishes_nothing(summary):
    rows = rows_of(summary, {"one": lambda x: 10 * x, "two": lambda x: 10 * x}, noise=0.5)
    assert "is not established" in (line := answered(study(rows, launches=TWO))["devices"].lines[1])
    assert "about what" not in line


def test_deployments_are_paired_that_differ_in_nothing_else(summary):
    """FP8 doubles throughput; the second GPU does nothing."""
    throughput = {"one-fp8": lambda x: 20 * x, "one": lambda x: 10 * x, "two": lambda x: 10 * x}
    launches = {"one-fp8": {"tensor_parallel": 1}, **TWO}
    results = study(rows_of(summary, throughput), launches=launches)
    fp8 = pl.col("deployment") == "one-fp8"
    runs = results.runs.with_columns(kv_bytes_per_token=pl.when(fp8).then(64).otherwise(128))
    (gain,) = device_gains(runs)
    assert gain.deployments == ("one", "two") and gain.differences == ()
    assert gain.room.same.value == pytest.approx(1, abs=0.01)
    unlike = replace(results, runs=runs.filter(pl.col("deployment") != "one"))
    assert "What else differs may explain the gain: kv_bytes_per_token: 64 → 128." in answered(unlike)["devices"].sure[0]


def test_loads_are_those_of_pairs_that_are_compared(summary):
    rows = rows_of(summary, {"one": lambda x: 10 * x, "two": lambda x: 13 * x}, wrong={("two", 16), ("one", 1)})
    assert "(2 to 8): " in answered(study(rows, launches=TWO))["devices"].lines[1]
    lost = rows_of(summary, {"one": lambda x: 10 * x, "two": lambda x: 13 * x}, full=16, wrong={("two", 16)})
    assert answered(study(lost, launches=TWO))["devices"].lines[2] == (
        "Speed where the KV cache of 1 GPU is full: not known, no pair of runs is valid there."
    )
