"""What a setting changes, on made runs; what a second device buys: at the same total load, of deployments that are alike, by pairs of valid
runs alone."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from bench.analysis import setting_gains
from bench.figures.registry import load_figure
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
    (gain,) = setting_gains(runs)
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


SEQS = {
    "few": {"configured": {"max_num_seqs": 8, "dtype": "float32"}},
    "many": {"configured": {"max_num_seqs": 64, "dtype": "float32"}},
}


def of_settings(summary, throughput, launches, **more):
    return study(rows_of(summary, throughput, **more), launches=launches)


def test_what_a_setting_changes_at_what_load(summary):
    """Eight sequences in a step halve the throughput of loads beyond 8."""
    results = of_settings(
        summary, {"many": lambda x: 10 * x, "few": lambda x: 10 * min(x, 8) if x > 8 else 10 * x}, SEQS, full=16
    )
    (found,) = (each for name, each in answered(results).items() if name == "settings")
    assert found.question == "What does max_num_seqs change, and at what load?"
    assert found.lines[0].startswith("Memory: with max_num_seqs 8 ")
    both = answered(of_settings(summary, {"few": lambda x: 10 * min(x, 8), "many": lambda x: 10 * x}, SEQS, full=16))[
        "settings"
    ]
    assert both.lines[1].startswith(
        "Speed while the KV cache has room with max_num_seqs 8 (1 to 8): 1.00 times the throughput ("
    )
    assert both.lines[2].startswith("Speed where the KV cache is full with max_num_seqs 8 (16): 2.00 times the throughput (")
    assert [line.partition(",")[0] for line in both.do] == ["Where the KV cache is full with max_num_seqs 8"]
    assert "set max_num_seqs to 64: it changes throughput by +" in both.do[0]
    assert "instances" not in text(both)


def test_a_flag_that_one_deployment_has_is_a_setting_and_the_baselines_value_comes_first(summary):
    eager = {
        "without": {"configured": {"dtype": "float32"}},
        "with": {"configured": {"dtype": "float32", "flag_enforce_eager": "true"}},
    }
    rows = rows_of(summary, {"without": lambda x: 10 * x, "with": lambda x: 8 * x})
    found = answered(study(rows, launches=eager))["settings"]
    assert found.question == "What does enforce-eager change, and at what load?"
    assert "Speed at all loads measured (1 to 16): 0.80 times the throughput (" in found.lines[1]
    assert found.do == ("At all loads measured, leave enforce-eager at its default: true changes throughput by −20.0 %.",)
    based = study(rows, launches=eager, baseline="with")
    (gain,) = setting_gains(based.runs)
    assert gain.values == ("true", None) and gain.room.same.value == pytest.approx(1.25, rel=0.01)


def test_each_pair_is_compared_once_and_what_else_differs_is_told(summary):
    """Three deployments: one setting changed, then two; nothing is said of settings that are the same."""
    launches = {
        "a": {"configured": {"dtype": "float32", "max_num_seqs": 8, "prefix_caching": False}},
        "b": {"configured": {"dtype": "float32", "max_num_seqs": 64, "prefix_caching": False}},
        "c": {"configured": {"dtype": "float32", "max_num_seqs": 64, "prefix_caching": True, "flag_x": "1"}},
    }
    results = of_settings(summary, {name: lambda x: 10 * x for name in launches}, launches)
    gains = setting_gains(results.runs)
    assert [(gain.setting, gain.deployments) for gain in gains] == [
        ("max_num_seqs", ("a", "b")), ("prefix_caching", ("b", "c"))
    ]  # fmt: skip
    assert [each.variable for each in gains[1].differences] == ["flag_x"] and gains[1].beside == ("flag_x",)
    assert any("change it alone: x: default → 1 changed too" in line for line in answered(results)["settings"].do)
    assert answered(results)["settings"].question == "What do the settings change, and at what load?"
    # Servers of which nothing is known differ in no setting.
    unknown = of_settings(summary, {"a": lambda x: 10 * x, "b": lambda x: 10 * x}, {"a": {}, "b": {}})
    assert setting_gains(unknown.runs) == [] and "settings" not in answered(unknown)


def test_the_figure_of_a_setting_shows_the_pairs_of_the_answer(summary):
    results = of_settings(summary, {"few": lambda x: 10 * min(x, 8), "many": lambda x: 10 * x}, SEQS)
    drawn = load_figure("settings").draw(results).to_dict()
    ratios = {row["level"]: row["ratio"] for rows in drawn["datasets"].values() for row in rows if "ratio" in row}
    assert ratios == pytest.approx({1: 1, 2: 1, 4: 1, 8: 1, 16: 2}, rel=0.01)
    assert load_figure("settings").finding(results) == "max_num_seqs 64 brings 100 to 200 % of the throughput of 8"


def test_what_the_comparison_with_the_baseline_answers_is_not_answered_again(summary):
    rows = rows_of(summary, {"few": lambda x: 10 * min(x, 8), "many": lambda x: 10 * x})
    found = answered(study(rows, launches=SEQS, baseline="few"))
    assert "settings" not in found and "comparison" in found
    devices = rows_of(summary, {"one": lambda x: 10 * x, "two": lambda x: 15 * x})
    assert {"comparison", "devices"} <= answered(study(devices, launches=TWO, baseline="one")).keys()


def launch(**configured):
    return {"configured": {"dtype": "float32", **configured}}


def test_the_figure_pools_no_deployments_that_were_not_compared(summary):
    """64 without caching is beside 128 without it, 64 with it beside 256 with it."""
    speeds = {"plain": 10, "cached": 30, "plain128": 12, "cached256": 33}
    launches = {
        "plain": launch(max_num_seqs=64, prefix_caching=False), "cached": launch(max_num_seqs=64, prefix_caching=True),
        "plain128": launch(max_num_seqs=128, prefix_caching=False), "cached256": launch(max_num_seqs=256, prefix_caching=True),
    }  # fmt: skip
    results = of_settings(summary, {name: lambda x, s=s: s * x for name, s in speeds.items()}, launches)
    drawn = load_figure("settings").draw(results).to_dict()
    ratios = {row["series"]: row["ratio"] for rows in drawn["datasets"].values() for row in rows if "ratio" in row}
    assert ratios["plain · w · 128"] == pytest.approx(1.2, rel=0.01)
    assert ratios["cached · w · 256"] == pytest.approx(1.1, rel=0.01)


def test_engines_are_named_and_not_pooled(summary):
    launches = {
        f"{engine}{value}": {"engine": engine, **launch(max_num_seqs=value)} for engine in ("v", "l") for value in (64, 128)
    }
    speeds = {"v64": 10, "v128": 12, "l64": 10, "l128": 20}
    results = of_settings(summary, {name: lambda x, s=s: s * x for name, s in speeds.items()}, launches)
    lines = answered(results)["settings"].lines
    assert any(line.startswith("m · v · w, max_num_seqs 128 against 64: Speed") and "1.20 times" in line for line in lines)
    assert any(line.startswith("m · l · w, max_num_seqs 128 against 64: Speed") and "2.00 times" in line for line in lines)


def test_engines_side_by_side_take_devices(summary):
    """Data parallelism is twice the devices, and is compared with separate instances like tensor parallelism."""
    launches = {"one": {"data_parallel": 1, **launch()}, "two": {"data_parallel": 2, **launch(data_parallel=2)}}
    launches["one"]["configured"]["data_parallel"] = 1
    results = of_settings(summary, {"one": lambda x: 10 * x, "two": lambda x: 19 * x}, launches)
    found = answered(results)
    assert "settings" not in found and found["devices"].question == "What does a second GPU buy, and at what load?"
    assert "no run shows what 2 separate instances" in text(found["devices"]) or "separate instances" in text(found["devices"])


def test_as_many_devices_in_another_order_are_a_setting(summary):
    launches = {
        "tp": {"tensor_parallel": 2, "data_parallel": 1, **launch(tensor_parallel=2, data_parallel=1)},
        "dp": {"tensor_parallel": 1, "data_parallel": 2, **launch(tensor_parallel=1, data_parallel=2)},
    }
    found = answered(of_settings(summary, {"tp": lambda x: 10 * x, "dp": lambda x: 12 * x}, launches))
    assert "devices" not in found
    assert "data_parallel: 2 → 1" in text(found["settings"]) and not any("set " in line for line in found["settings"].do)


def test_texts_keep_their_letters_and_memory_its_unit(summary):
    launches = {"a": launch(flag_attention_backend="FLASHINFER"), "b": launch(flag_attention_backend="TRITON_ATTN")}
    found = answered(of_settings(summary, {"a": lambda x: 10 * x, "b": lambda x: 12 * x}, launches))["settings"]
    assert "set attention-backend to TRITON_ATTN" in found.do[0]
    launches = {
        "a": launch(kv_cache_memory=None),
        "b": launch(kv_cache_memory=8 * 2**30),
    }
    found = answered(of_settings(summary, {"a": lambda x: 10 * x, "b": lambda x: 12 * x}, launches))["settings"]
    assert "set kv_cache_memory to 8 GiB" in found.do[0]
