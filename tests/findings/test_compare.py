"""Two sets of runs against each other: by hand, with planted effects, and as a user runs it."""

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from bench.errors import BenchError
from bench.findings.comparison.compare import compare, compare_with_baseline, failures, pair_up
from bench.findings.comparison.effects import ASSUMED_SPREAD
from bench.findings.comparison.gate import regressions, unseen
from bench.findings.comparison.words import difference_text, estimated_percent
from bench.findings.registry import figures_of
from tests.support import records
from tests.support.compare import TOKENS, Study, any_verdict, delayed, failing, halved, planted, rate, runs, worse


def differences(found):
    """What differs besides, in words."""
    return [difference_text(each) for each in found.differences]


def of(rows, *keys):
    return [tuple(row[key] for key in keys) for row in rows]


def only(frame, **where):
    return frame.filter(**where).row(0, named=True)


def in_sessions(summary, levels, ratios, noise=0.01, *, speed=(0.0,), seed=0):
    """A baseline and a candidate in len(`speed`) sessions; `ratios` by level; each session pair is off by its `speed`."""
    dice = np.random.default_rng(seed)

    def session(i, factors, off):
        speeds = {level: 10 * level * factors[level] * math.exp(off) for level in levels}
        told = {level: [speed * math.exp(noise * dice.standard_normal()) for _ in "ab"] for level, speed in speeds.items()}
        return runs(summary, told).with_columns(session=i)

    sides = (dict.fromkeys(levels, 1.0), [0.0] * len(speed)), (ratios, speed)
    return [pl.concat(session(i, factors, off) for i, off in enumerate(offs, 1)) for factors, offs in sides]


def test_one_session_by_hand(summary):
    """What sessions differ by is assumed."""
    before, after = {1: [10, 10], 2: [20, 20], 4: [40, 40]}, {1: [9.0, 9.9], 2: [18.0, 19.8], 4: [36.0, 39.6]}
    found = compare(runs(summary, before), runs(summary, after), [TOKENS])
    row, level = only(found.overall), only(found.configurations, level=2.0)
    assert (row["levels"], row["pairs"], row["sessions"], row["verdict"]) == (3, 6, 1, "no evidence")
    assert row["ratio"] == pytest.approx(math.sqrt(0.9 * 0.99))
    assert row["spread"] == pytest.approx(ASSUMED_SPREAD) and row["spread_assumed"]
    width = math.log(row["high"] / row["low"]) / 2
    assert width > 1.96 * ASSUMED_SPREAD
    assert math.log(level["high"] / level["low"]) / 2 > width
    # Less is better of a latency.
    before, after = {1: [1.0], 2: [2.0], 4: [4.0], 8: [8.0]}, {1: [0.5], 2: [1.02], 4: [2.0], 8: [4.1]}
    latencies = [runs(summary, values, metric="ttft_p50_s") for values in (before, after)]
    assert only(compare(*latencies, ["ttft_p50_s"]).overall)["verdict"] == "better"
    assert only(compare(*latencies[::-1], ["ttft_p50_s"]).overall)["verdict"] == "worse"
    # A single level has the interval of its repeats.
    three = compare(runs(summary, {4: [10, 10, 10]}), runs(summary, {4: [5, 5.1, 4.9]}), [TOKENS])
    row = only(three.overall)
    assert (row["levels"], row["pairs"], row["verdict"]) == (1, 3, "worse")


def test_a_set_against_itself_shows_nothing(summary):
    same = runs(summary, {1: [10, 11], 2: [20, 23], 4: [40, 44], 8: [80, 81]})
    found = compare(same, same)
    assert only(found.overall, metric=TOKENS)["ratio"] == 1
    assert set(found.effects["verdict"]) == {"no evidence"}
    assert not (found.alone or found.differences or found.failures or found.uncompared)
    assert (found.overall["metric"].to_list(), found.absent) == ([TOKENS], ())
    # What is not above nothing has no ratio and what one side lacks is absent.
    ours = runs(summary, {1: [0.0], 2: [20.0], 4: [None], 8: [40.0]}).with_columns(e2e_p50_s=1.0)
    theirs = runs(summary, {1: [10.0], 2: [0.0], 4: [9.0], 8: [80.0]}).with_columns(e2e_p50_s=pl.lit(None, pl.Float64))
    metrics = [TOKENS, "e2e_p50_s", "ttft_p50_s"]
    found = compare(ours, theirs, metrics)
    assert pair_up(ours, theirs, metrics)[3].select("level", "log_ratio").rows() == [(8, pytest.approx(math.log(2)))]
    assert found.absent == ("e2e_p50_s",)
    assert [row["level"] for row in found.uncompared] == [1, 2, 4]


def test_which_runs_are_a_pair(summary):
    # Invalid runs are kept out and what has no counterpart is told.
    ours, theirs = runs(summary, {1: [10, 10], 2: [20], 8: [80]}), runs(summary, {1: [9, 9], 2: [18], 4: [40]})
    bad = (pl.col("level") == 1) & (pl.col("repeat") == 2)
    found = compare(ours, theirs.with_columns(valid=~bad), [TOKENS])
    assert (found.runs, found.invalid, found.matched) == ((4, 4), (0, 1), 2)
    assert of(found.alone, "side", "level", "repeat") == [
        ("baseline", 1, 2), ("baseline", 8, 1), ("candidate", 4, 1)]  # fmt: skip
    # `bench workload` calls each run the first.
    ours, theirs = (runs(summary, {4: values}).with_columns(repeat=1) for values in ([10, 20, 30], [11, 22, 33, 44]))
    found = compare(ours, theirs, [TOKENS])
    assert pair_up(ours, theirs, [TOKENS])[3]["log_ratio"].to_list() == pytest.approx([math.log(1.1)] * 3)
    assert of(found.alone, "side") == [("candidate",)]
    # Lengths, loads and kinds of load are never mixed.
    ours = runs(summary, {1: [10], 2: [20]}, workload="long-p128")
    assert compare(ours, runs(summary, {1: [9], 2: [18]}, workload="long-p256"), [TOKENS]).matched == 0
    assert compare(ours, ours.with_columns(axis=pl.lit("request_rate")), [TOKENS]).matched == 0
    both = pl.concat([ours, ours.with_columns(axis=pl.lit("request_rate"))])
    assert compare(both, both, [TOKENS]).overall["levels"].to_list() == [4]
    # Runs of a session are paired with those of the same session.
    ours = pl.concat([runs(summary, {4: [10.0]}).with_columns(session=i) for i in (1, 2)])
    theirs = pl.concat([runs(summary, {4: [20.0 * i]}).with_columns(session=i) for i in (1, 2, 3)])
    found = compare(ours, theirs, [TOKENS])
    assert pair_up(ours, theirs, [TOKENS])[3].sort("session")["log_ratio"].to_list() == pytest.approx(
        [math.log(2), math.log(4)]
    )
    assert of(found.alone, "side", "session") == [("candidate", 3)]
    # Deployments are matched by name unless each side has one.
    a, b, c = (runs(summary, {1: [x], 2: [x]}, deployment=name) for name, x in (("a", 10.0), ("b", 20.0), ("c", 30.0)))
    assert compare(a, b, [TOKENS]).overall["ratio"].to_list() == pytest.approx([2])
    several = compare(pl.concat([a, b]), pl.concat([b, c]), [TOKENS])
    assert several.overall["ratio"].to_list() == pytest.approx([1])
    assert set(of(several.alone, "side", "deployment")) == {("baseline", "a"), ("candidate", "c")}
    with pytest.raises(BenchError, match=r"the baseline has the deployments a, b, the candidate c: none in common\. Name"):
        compare(pl.concat([a, b]), c)
    # A study compares each deployment that shares a load.
    a, b = runs(summary, {1: [10], 2: [20]}), runs(summary, {2: [22], 3: [30]}, deployment="b")
    c = runs(summary, {9: [1]}, deployment="c")
    study = pl.concat([a, b, c]).with_columns(baseline=pl.col("deployment") == "a")
    found = compare_with_baseline(study, [TOKENS])
    assert list(found) == ["b"]
    assert (found["b"].matched, found["b"].overall["ratio"].to_list()) == (1, pytest.approx([1.1]))
    assert compare_with_baseline(study.with_columns(baseline=False)) == {}
    # Pairs stand in the study's order, with rising levels.
    chat, code = (runs(summary, {8: [10.0, 11.0], 2: [5.0]}, workload=name) for name in ("code", "chat"))
    pairs = pair_up(pl.concat([chat, code]), pl.concat([code, chat]), [TOKENS])[3]
    order = [("code", 2, 1), ("code", 8, 1), ("code", 8, 2), ("chat", 2, 1), ("chat", 8, 1), ("chat", 8, 2)]
    assert pairs.select("workload", "level", "repeat").rows() == order


def test_a_setting_that_halves_throughput_from_twelve_on_is_found(summary):
    """One session, six levels, two repeats."""
    ratios = {level: 0.52 if level >= 12 else 1.0 for level in (2, 4, 6, 8, 12, 16)}
    for seed in range(3):
        found = compare(*in_sessions(summary, ratios, ratios, 0.03, speed=[0.05], seed=seed), [TOKENS])
        assert only(found.overall)["verdict"] == "worse at some loads", seed
        told = dict(found.configurations.select("level", "verdict").iter_rows())
        assert told == {level: "worse" if level >= 12 else "no evidence" for level in ratios}, seed
        assert not regressions(found.effects, 5).is_empty(), seed


def test_a_candidate_that_fails_half_of_its_requests_is_worse_and_never_better(summary):
    for valid in (True, False):
        shares = ({}, 1.0), ({16: 0.5, 32: 0.5}, 1.064)
        ours, theirs = (failing(summary, (4, 8, 16, 32), share, valid=valid, factor=x) for share, x in shares)
        found = compare(ours, theirs, [TOKENS])
        assert of(found.failures, "level", "verdict", "alike") == [(16, "worse", False), (32, "worse", False)], valid
        assert "better" not in set(found.effects["verdict"]), valid
        assert set(found.configurations["level"]) == {4, 8}, valid
        assert not unseen(found), valid  # what is surely worse there is seen
        assert of(compare(theirs, ours, [TOKENS]).failures, "verdict") == [("better",)] * 2, valid
    # Failures that both have are named and their runs compared.
    ours, theirs = failing(summary, (4, 8), {8: 0.25}), failing(summary, (4, 8), {8: 0.25})
    found = compare(ours, theirs, [TOKENS])
    assert of(found.failures, "level", "verdict", "alike") == [(8, "no evidence", True)]
    assert set(found.configurations["level"]) == {4, 8}
    # A run that crashed is one event, and not sixty-four.
    crashed = pl.when((pl.col("level") == 8) & (pl.col("repeat") == 2)).then(64).otherwise(0)
    ours = failing(summary, (4, 8), {})
    row = only(failures(ours, ours.with_columns(failed=crashed)))
    assert (row["failed"], row["requests"], row["verdict"], row["alike"]) == (64, 128, "no evidence", False)


def test_sessions_show_what_one_session_cannot(summary):
    speed = [0.03, -0.02, 0.01, -0.03, 0.02, 0.0]
    sides = in_sessions(summary, (1, 2, 4, 8), dict.fromkeys((1, 2, 4, 8), 0.9), speed=speed)
    found = only(compare(*sides, [TOKENS]).overall)
    assert (found["sessions"], found["verdict"], found["spread_assumed"]) == (6, "worse", False)
    assert found["spread"] == pytest.approx(np.std(speed, ddof=1), rel=0.3)
    alone = only(compare(*(side.filter(session=1) for side in sides), [TOKENS]).overall)
    assert (alone["verdict"], alone["spread_assumed"]) == ("no evidence", True)


def test_what_differs_besides_is_named(summary):
    # What should be alike and is not is named.
    ours = runs(summary, {1: [10], 2: [20], 4: [40], 8: [80]}, seed=0)
    facts = records.facts(engine_version="2", kv_tokens=640, hardware=replace(records.MACHINE, cpu="x"))
    other = {"seed": "abc", "prompt_tokens": 64, "facts": (records.launch(model="m2", tensor_parallel=2, gpus=2), facts)}
    theirs = runs(summary, {1: [10], 2: [20], 4: [40], 8: [80]}, **other)
    assert differences(compare(ours, theirs)) == [
        "model: m → m2", "hardware: Xeon, 2 cores → x, 2 cores", "tensor_parallel: unknown → 2", "gpus: 1 → 2",
        "engine_version: 1 → 2",
        "kv_tokens: unknown → 640", "prompt_tokens: 32 → 64 (short at 1, short at 2, short at 4 and 1 more)",
        "seed: 0 → abc (short at 1, short at 2, short at 4 and 1 more)",
    ]  # fmt: skip
    # A flag of one side alone too; nothing of a side whose version recorded no settings.
    rows = runs(summary, {1: [10], 2: [20]})
    known = {"dtype": pl.lit("float32"), "flag_x": pl.lit("1")}
    ours = rows.with_columns(**known, max_num_seqs=pl.lit(8))
    theirs = rows.with_columns(dtype=pl.lit("float32"), max_num_seqs=pl.lit(64), kv_cache_memory=pl.lit(1024))
    assert differences(compare(ours, theirs)) == ["kv_cache_memory: default → 1 KiB", "max_num_seqs: 8 → 64", "x: 1 → default"]
    older = rows.with_columns(flag_x=pl.lit("1"))
    assert differences(compare(older, theirs)) == []


@pytest.mark.long(part="truth")
def test_a_baseline_against_itself_has_no_verdict():
    draws = 40
    false = rate(np.random.default_rng(7), draws, Study(5, 1), any_verdict)
    assert false <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / draws)
    assert rate(np.random.default_rng(7), draws, Study(1, 2), any_verdict) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / draws)


@pytest.mark.long(part="truth")
def test_what_the_plan_names_is_found():
    study, draws = Study(6, 1), 24
    least = 0.8 - 3 * math.sqrt(0.8 * 0.2 / draws)
    dice = np.random.default_rng(7)
    for effect in (planted(math.log1p(study.visible)), delayed(study.visible)):
        assert rate(dice, draws, study, lambda told: worse(told, "tpot_p50_s"), effect) >= least
    assert rate(dice, draws, Study(4, 1), lambda told: worse(told, TOKENS), halved()) >= 0.9
    better = planted(-math.log1p(study.visible))
    assert rate(dice, draws, study, lambda told: worse(told, TOKENS), better) <= 0.05  # an improvement is no regression


def test_a_figure_of_it_where_a_baseline_shares_a_load():
    row = {"workload": "w", "family": "w", "axis": "concurrency", "level": 1.0}
    ours, theirs = {**row, "deployment": "a", "baseline": True}, {**row, "deployment": "b", "baseline": False}
    assert "comparison" in figures_of([ours, theirs])
    assert "comparison" not in figures_of([ours, {**theirs, "level": 2.0}])
    assert "comparison" not in figures_of([{**ours, "baseline": False}, theirs])


def test_a_percentile_without_its_bound_is_marked_as_an_estimate(summary):
    bounded, estimated = (runs(summary, {4: [0.5]}, metric="ttft_p99_s", ttft_p99_bound_s=bound) for bound in (0.9, None))
    marked = [compare(bounded, other, ["ttft_p99_s"]) for other in (bounded, estimated)]
    assert [found.estimates for found in marked] == [(), ("ttft_p99_s",)]
    assert [estimated_percent(found, found.overall.row(0, named=True)) for found in marked] == ["0.0 %", "~0.0 %"]
