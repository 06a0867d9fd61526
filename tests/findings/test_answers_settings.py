"""What a setting changes, on made runs; what a second device buys: at the same total load, of deployments that are alike, by pairs of valid
runs alone."""

import polars as pl
import pytest

from bench.analysis.setting_gain import setting_gains
from bench.figures.registry import load_figure
from tests.support.answers import TWO, answered, rows_of, study, text


def gain_of(summary, throughput, launches=TWO, **more):
    (gain,) = setting_gains(study(rows_of(summary, throughput, **more), launches=launches).runs)
    return gain


def test_which_levels_show_a_gain(summary):
    # An open loop shows no gain.
    for axis in ("request_rate", "time_scale"):
        gain = gain_of(summary, {"one": lambda x: 10 * x, "two": lambda x: 10 * x}, axis=axis, full=8)
        assert (gain.axis, gain.room, gain.short, gain.full) == (axis, None, None, (8, None)), axis
    # Of √load, two instances with half of it give √2 times as much as one: a gain of 1.5 is more, though it is less than 2.
    for times, beside in ((1.5, "more"), (1.1, "less")):
        gain = gain_of(summary, {"one": lambda x: 10 * x**0.5, "two": lambda x, times=times: times * 10 * x**0.5})
        assert (gain.room.shared.beside(1), gain.room.shared_loads) == (beside, (2, 4, 8, 16)), times
    # Without a level half as high nothing is shared.
    gain = gain_of(summary, {"one": lambda x: 10 * x, "two": lambda x: 12 * x}, levels=(1, 3, 7))
    assert (gain.room.shared, gain.room.same.beside(2), gain.room.loads) == (None, "less", (1, 3, 7))
    # An interval around one establishes nothing.
    gain = gain_of(summary, {"one": lambda x: 10 * x, "two": lambda x: 10 * x}, noise=0.5)
    assert (gain.room.same.beside(1), gain.doubling) == ("unknown", None)
    # Loads are those of pairs that are compared.
    throughput = {"one": lambda x: 10 * x, "two": lambda x: 13 * x}
    assert gain_of(summary, throughput, wrong={("two", 16), ("one", 1)}).room.loads == (2, 4, 8)
    assert gain_of(summary, throughput, full=16, wrong={("two", 16)}).short.same is None


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
    (unlike,) = setting_gains(runs.filter(pl.col("deployment") != "one"))
    assert [(each.variable, each.baseline, each.candidate) for each in unlike.differences] == [("kv_bytes_per_token", 64, 128)]
    # What the comparison with the baseline answers is not answered again.
    rows = rows_of(summary, {"few": lambda x: 10 * min(x, 8), "many": lambda x: 10 * x})
    found = answered(study(rows, launches=SEQS, baseline="few"))
    assert "settings" not in found and "comparison" in found
    devices = rows_of(summary, {"one": lambda x: 10 * x, "two": lambda x: 15 * x})
    assert {"comparison", "devices"} <= answered(study(devices, launches=TWO, baseline="one")).keys()


SEQS = {"few": {"configured": {"max_num_seqs": 8, "dtype": "float32"}},
        "many": {"configured": {"max_num_seqs": 64, "dtype": "float32"}}}  # fmt: skip


def of_settings(summary, throughput, launches, **more):
    return study(rows_of(summary, throughput, **more), launches=launches)


def test_what_a_setting_changes_at_what_load(summary):
    """Eight sequences in a step halve the throughput of loads beyond 8."""
    gain = gain_of(summary, {"few": lambda x: 10 * min(x, 8), "many": lambda x: 10 * x}, SEQS, full=16)
    assert (gain.setting, gain.values, gain.times) == ("max_num_seqs", (8, 64), None)
    assert (gain.room.loads, gain.room.same.value) == ((1, 2, 4, 8), pytest.approx(1, rel=0.01))
    assert (gain.short.loads, gain.short.same.value) == ((16,), pytest.approx(2, rel=0.01))
    assert (gain.room.same.beside(1), gain.short.same.beside(1)) == ("unknown", "more")
    other = gain_of(summary, {"many": lambda x: 10 * x, "few": lambda x: 10 * min(x, 8)}, SEQS, full=16)
    assert other.values == (8, 64)  # the least value comes first, whatever is measured first
    # A flag that one deployment has is a setting and the baselines value comes first.
    eager = {"without": {"configured": {"dtype": "float32"}},
             "with": {"configured": {"dtype": "float32", "flag_enforce_eager": "true"}}}  # fmt: skip
    rows = rows_of(summary, {"without": lambda x: 10 * x, "with": lambda x: 8 * x})
    (gain,) = setting_gains(study(rows, launches=eager).runs)
    assert (gain.setting, gain.values, gain.room.same.beside(1)) == ("flag_enforce_eager", (None, "true"), "less")
    assert (gain.room.loads, gain.room.same.value) == ((1, 2, 4, 8, 16), pytest.approx(0.8, rel=0.01))
    based = study(rows, launches=eager, baseline="with")
    (gain,) = setting_gains(based.runs)
    assert gain.values == ("true", None) and gain.room.same.value == pytest.approx(1.25, rel=0.01)


def test_each_pair_is_compared_once_and_what_else_differs_is_told(summary):
    """Three deployments: one setting changed, then two; nothing is said of settings that are the same."""
    launches = {"a": {"configured": {"dtype": "float32", "max_num_seqs": 8, "prefix_caching": False}},
                "b": {"configured": {"dtype": "float32", "max_num_seqs": 64, "prefix_caching": False}},
                "c": {"configured": {"dtype": "float32", "max_num_seqs": 64, "prefix_caching": True, "flag_x": "1"}}}  # fmt: skip
    results = of_settings(summary, {name: lambda x: 10 * x for name in launches}, launches)
    gains = setting_gains(results.runs)
    assert [(gain.setting, gain.deployments) for gain in gains] == [
        ("max_num_seqs", ("a", "b")), ("prefix_caching", ("b", "c"))
    ]  # fmt: skip
    assert [each.variable for each in gains[1].differences] == ["flag_x"] and gains[1].beside == ("flag_x",)
    found = answered(results)["settings"]
    assert found.question == "What do the settings change, and at what load?"
    assert "From b to c these settings changed together: prefix_caching: false → true and x: default → 1." in found.sure
    assert not any("alone" in line for line in found.do)
    # Replicas are no setting of a server: what a fleet brings, its efficiency says.
    several = {name: {"configured": {**launches["a"]["configured"], "replicas": n}} for name, n in (("a", 1), ("b", 2))}
    assert setting_gains(of_settings(summary, {"a": lambda x: 10 * x, "b": lambda x: 20 * x}, several).runs) == []
    # Servers of which nothing is known differ in no setting.
    unknown = of_settings(summary, {"a": lambda x: 10 * x, "b": lambda x: 10 * x}, {"a": {}, "b": {}})
    assert setting_gains(unknown.runs) == [] and "settings" not in answered(unknown)


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
    # Engines are named and not pooled.
    launches = {
        f"{engine}{value}": {"engine": engine, **launch(max_num_seqs=value)} for engine in ("v", "l") for value in (64, 128)
    }
    speeds = {"v64": 10, "v128": 12, "l64": 10, "l128": 20}
    results = of_settings(summary, {name: lambda x, s=s: s * x for name, s in speeds.items()}, launches)
    gains = {gain.engine: gain.room.same.value for gain in setting_gains(results.runs)}
    assert gains == {"v": pytest.approx(1.2, rel=0.01), "l": pytest.approx(2, rel=0.01)}
    # Data parallelism is twice the devices, and is compared with separate instances like tensor parallelism.
    launches = {"one": {"data_parallel": 1, **launch()}, "two": {"data_parallel": 2, **launch(data_parallel=2)}}
    launches["one"]["configured"]["data_parallel"] = 1
    results = of_settings(summary, {"one": lambda x: 10 * x, "two": lambda x: 19 * x}, launches)
    found = answered(results)
    assert "settings" not in found and "devices" in found
    # As many devices in another order are a setting.
    launches = {"tp": {"tensor_parallel": 2, "data_parallel": 1, **launch(tensor_parallel=2, data_parallel=1)},
                "dp": {"tensor_parallel": 1, "data_parallel": 2, **launch(tensor_parallel=1, data_parallel=2)}}  # fmt: skip
    found = answered(of_settings(summary, {"tp": lambda x: 10 * x, "dp": lambda x: 12 * x}, launches))
    assert "devices" not in found
    assert "data_parallel: 2 → 1" in text(found["settings"]) and not any("set " in line for line in found["settings"].do)
    # Texts keep their letters and memory its unit.
    for name, values, said in (("flag_attention_backend", ("FLASHINFER", "TRITON_ATTN"), "with attention-backend TRITON_ATTN"),
                               ("kv_cache_memory", (None, 8 * 2**30), "with kv_cache_memory 8 GiB")):  # fmt: skip
        launches = {deployment: launch(**{name: value}) for deployment, value in zip("ab", values, strict=True)}
        found = answered(of_settings(summary, {"a": lambda x: 10 * x, "b": lambda x: 12 * x}, launches))["settings"]
        assert said in found.lines[0]
