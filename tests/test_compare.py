"""Two sets of runs against each other: by hand, with planted effects, and as a user runs it."""

import json
import math

import numpy as np
import polars as pl
import pytest
from benchmarks.compare import BY, draw, rates
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtr, stdtrit

from bench.analysis import METRICS, beyond, compare, compare_with_baseline, regressions, summary_frame
from bench.analysis.compare import CONFIGURATION, overall
from bench.cli import main
from bench.errors import BenchError
from bench.figures import figures_of
from bench.study import Plan, load_config
from bench.study.config import Thresholds

TOKENS = "throughput_tokens_per_s"


def runs(summary, values, *, deployment="a", workload="short", metric=TOKENS, facts=None, **changes):
    """Summary rows: `values` has a list of repeats a level; `changes` hold for all."""
    rows = [
        {**summary, "deployment": deployment, "workload": workload, "run": f"{workload}_{level}_{i}", "level": float(level),
         "concurrency": level, "repeat": i, metric: value, **changes}
        for level, repeats in values.items() for i, value in enumerate(repeats, 1)
    ]  # fmt: skip
    launch, fact = facts or ({"model": "m"}, {"engine_version": "1"})
    return summary_frame(rows, {deployment: launch}, {deployment: fact}, Thresholds())


def only(frame, **where):
    return frame.filter(**where).row(0, named=True)


def test_difference_interval_and_verdict_by_hand(summary):
    # Levels' mean log ratios: ln 0.9, ln 0.92, ln 0.88 on average of two repeats each; t(2) at 95 % = 4.303.
    before = {1: [10, 10], 2: [20, 20], 4: [40, 40]}
    after = {1: [9.0, 9.0], 2: [20 * 0.92 * 1.1, 20 * 0.92 / 1.1], 4: [40 * 0.88 / 1.05, 40 * 0.88 * 1.05]}
    found = compare(runs(summary, before), runs(summary, after), [TOKENS])
    logs = np.log([0.9, 0.92, 0.88])
    mean, half = logs.mean(), 4.3027 * logs.std(ddof=1) / math.sqrt(3)
    row = only(found.overall)
    assert (row["levels"], row["pairs"], row["verdict"], row["confidence"]) == (3, 6, "worse", pytest.approx(0.95))
    assert [row["ratio"], row["low"], row["high"]] == pytest.approx(np.exp([mean, mean - half, mean + half]), rel=1e-4)
    # A level: ln 1.1 to either side of ln 0.92, t(1) = 12.706.
    level = only(found.configurations, level=2.0)
    half = 12.706 * math.log(1.1)
    assert (level["pairs"], level["verdict"]) == (2, "no evidence")
    assert [level["ratio"], level["low"], level["high"]] == pytest.approx(
        [0.92, 0.92 * math.exp(-half), 0.92 * math.exp(half)], rel=1e-3
    )


def test_less_is_better_of_a_latency(summary):
    before, after = {1: [1.0], 2: [2.0], 4: [4.0]}, {1: [0.9], 2: [1.81], 4: [3.6]}
    latencies = [runs(summary, values, metric="ttft_p50_s") for values in (before, after)]
    assert only(compare(*latencies, ["ttft_p50_s"]).overall)["verdict"] == "better"
    assert only(compare(*latencies[::-1], ["ttft_p50_s"]).overall)["verdict"] == "worse"


def test_a_set_against_itself_shows_nothing(summary):
    same = runs(summary, {1: [10, 11], 2: [20, 23]})
    found = compare(same, same)
    assert only(found.overall, metric=TOKENS)["ratio"] == only(found.overall, metric=TOKENS)["low"] == 1
    assert set(found.overall["verdict"]) == set(found.configurations["verdict"]) == {"no evidence"}
    assert found.alone.is_empty() and not found.differences
    assert (found.overall["metric"].to_list(), found.absent) == ([TOKENS], [])


def test_a_single_pair_has_no_interval_and_a_single_level_that_of_its_repeats(summary):
    one = compare(runs(summary, {4: [10]}), runs(summary, {4: [5]}), [TOKENS])
    row = only(one.overall)
    assert (row["ratio"], row["low"], row["confidence"], row["verdict"]) == (pytest.approx(0.5), None, None, "no evidence")
    three = compare(runs(summary, {4: [10, 10, 10]}), runs(summary, {4: [5, 5.1, 4.9]}), [TOKENS])
    row, level = only(three.overall), only(three.configurations)
    assert (row["levels"], row["pairs"], row["verdict"]) == (1, 3, "worse")
    assert (row["low"], row["high"]) == (pytest.approx(level["low"]), pytest.approx(level["high"]))


def test_invalid_runs_are_kept_out_and_what_has_no_counterpart_is_told(summary):
    ours, theirs = runs(summary, {1: [10, 10], 2: [20], 8: [80]}), runs(summary, {1: [9, 9], 2: [18], 4: [40]})
    bad = (pl.col("level") == 1) & (pl.col("repeat") == 2)
    found = compare(ours, theirs.with_columns(valid=~bad), [TOKENS])
    assert (found.runs, found.invalid, found.matched) == ((4, 4), (0, 1), 2)
    assert found.alone.select("side", "level", "repeat").sort("side", "level").rows() == [
        ("baseline", 1, 2), ("baseline", 8, 1), ("candidate", 4, 1)]  # fmt: skip


def test_runs_without_a_repeat_of_their_own_are_repeats_in_their_order(summary):
    """`bench workload` calls each run the first."""
    ours, theirs = (runs(summary, {4: values}).with_columns(repeat=1) for values in ([10, 20, 30], [11, 22, 33, 44]))
    found = compare(ours, theirs, [TOKENS])
    assert found.pairs["log_ratio"].to_list() == pytest.approx([math.log(1.1)] * 3)
    assert found.alone["side"].to_list() == ["candidate"]


def test_lengths_loads_and_kinds_of_load_are_never_mixed(summary):
    ours = runs(summary, {1: [10], 2: [20]}, workload="long-p128")
    assert compare(ours, runs(summary, {1: [9], 2: [18]}, workload="long-p256"), [TOKENS]).matched == 0
    assert compare(ours, ours.with_columns(axis=pl.lit("request_rate")), [TOKENS]).matched == 0
    both = pl.concat([ours, ours.with_columns(axis=pl.lit("request_rate"))])
    assert compare(both, both, [TOKENS]).overall["levels"].to_list() == [4]


def test_deployments_are_matched_by_name_unless_each_side_has_one(summary):
    a, b, c = (runs(summary, {1: [x], 2: [x]}, deployment=name) for name, x in (("a", 10.0), ("b", 20.0), ("c", 30.0)))
    assert compare(a, b, [TOKENS]).overall["ratio"].to_list() == pytest.approx([2])
    several = compare(pl.concat([a, b]), pl.concat([b, c]), [TOKENS])
    assert several.overall["ratio"].to_list() == pytest.approx([1])
    assert several.alone.select("side", "deployment").unique().sort("side").rows() == [("baseline", "a"), ("candidate", "c")]
    with pytest.raises(BenchError, match=r"the baseline has the deployments a, b, the candidate c: none in common\. Name"):
        compare(pl.concat([a, b]), c)


def test_a_study_compares_each_deployment_that_shares_a_load(summary):
    a, b = runs(summary, {1: [10], 2: [20]}), runs(summary, {2: [22], 3: [30]}, deployment="b")
    c = runs(summary, {9: [1]}, deployment="c")
    study = pl.concat([a, b, c]).with_columns(baseline=pl.col("deployment") == "a")
    found = compare_with_baseline(study, [TOKENS])
    assert list(found) == ["b"]
    assert (found["b"].matched, found["b"].overall["ratio"].to_list()) == (1, pytest.approx([1.1]))
    assert compare_with_baseline(study.with_columns(baseline=False)) == {}


def test_a_verdict_lies_outside_of_what_sessions_of_the_baseline_differ_by(summary):
    levels = (1, 2, 4, 8)

    def measured(name, factor, **marks):
        values = {level: [10 * level * factor * (1 + 0.001 * level)] for level in levels}
        return runs(summary, values, deployment=name).with_columns(**{key: pl.lit(value) for key, value in marks.items()})

    again = [measured(name, factor, replica=True) for name, factor in (("again", 0.98), ("third", 1.01))]
    study = pl.concat([measured("a", 1.0, baseline=True), *again, measured("near", 0.95), measured("far", 0.7)])
    found = compare_with_baseline(study, [TOKENS])
    told = {name: only(comparison.overall)["verdict"] for name, comparison in found.items()}
    assert told == {"again": "no evidence", "third": "no evidence", "near": "no evidence", "far": "worse"}
    # By hand: t(2) at 95 % = 4.3027.
    logs = np.log([1.0, 0.98, 1.01])
    half = 4.3027 * logs.std(ddof=1) * math.sqrt(4 / 3)
    row = only(found["far"].overall)
    assert [row["same_low"], row["same_high"]] == pytest.approx(np.exp([logs.mean() - half, logs.mean() + half]), rel=1e-4)
    alone = compare_with_baseline(study.with_columns(replica=pl.lit(False)), [TOKENS])
    assert {only(comparison.overall)["verdict"] for comparison in alone.values()} == {"worse", "better"}  # intervals alone
    assert only(alone["far"].overall)["same_low"] is None


@pytest.mark.parametrize("sessions", [2, 3])
def test_sessions_that_differ_make_no_verdict_where_the_baseline_has_several(summary, sessions):
    dice = np.random.default_rng(sessions)
    false = 0
    for _ in range(25):
        off = np.exp(0.05 * dice.standard_normal(sessions + 1))  # no effect, but every session is off by 5 %
        measured = [
            runs(summary, {level: [10 * level * x * math.exp(0.002 * dice.standard_normal())] for level in (1, 2, 4, 8)})
            for x in off
        ]
        again = [compare(measured[0], other, [TOKENS]) for other in measured[1:-1]]
        found = compare(measured[0], measured[-1], [TOKENS])
        false += only(beyond(found, again).overall)["verdict"] != "no evidence"
    assert false / 25 <= 0.2  # 5 % by chance; by intervals alone, nine of ten


def test_deployments_that_are_the_baseline_under_another_name_are_replicas(content):
    content["deployments"]["b"] = {**content["deployments"]["a"]}
    content["deployments"]["c"] = {**content["deployments"]["a"], "max_num_seqs": 3}
    ladder = content["study"]["ladders"][0]
    content["study"] |= {"ladders": [{**ladder, "deployment": name} for name in "abc"], "baseline": "a"}
    assert Plan.of(load_config(content, source="test")).replicas == ["b"]
    content["study"].pop("baseline")
    assert Plan.of(load_config(content, source="test")).replicas == []


@pytest.mark.parametrize(("slower", "told"), [(1.5, True), (1.05, False), (1 / 1.5, True)])
def test_a_machine_that_was_slower_is_named(summary, slower, told):
    values = {level: [10.0] for level in (1, 2, 4, 8)}
    same, other = (
        runs(summary, values, client_reads=1000).with_columns(client_cpu_s=factor * (1 + 0.01 * pl.col("level")))
        for factor in (1.0, slower)
    )
    lines = [line for line in compare(same, other, [TOKENS]).differences if line.startswith("machine")]
    assert bool(lines) is told
    assert all(f"50% more CPU time beside the {'candidate' if slower > 1 else 'baseline'}" in line for line in lines)


def test_what_should_be_alike_and_is_not_is_named(summary):
    ours = runs(summary, {1: [10], 2: [20], 4: [40], 8: [80]}, seed=0)
    other = (
        {"model": "m2", "tensor_parallel": 2},
        {"engine_version": "2", "kv_tokens": 640, "hardware": {"cpu": "x", "cores": 2, "gpus": []}},
    )
    theirs = runs(summary, {1: [10], 2: [20], 4: [40], 8: [80]}, seed="abc", prompt_tokens=64, facts=other)
    assert compare(ours, theirs).differences == [
        "model: m → m2", "hardware: unknown → x, 2 cores", "tensor_parallel: unknown → 2", "engine_version: 1 → 2",
        "kv_tokens: unknown → 640", "prompt_tokens: 32 → 64 (short at 1, short at 2, short at 4 and 1 more)",
        "seed: 0 → abc (short at 1, short at 2, short at 4 and 1 more)",
    ]  # fmt: skip


def pairs_of(logs):
    """Pairs with one repeat a level, from a row of log ratios a metric."""
    names = list(METRICS)[: len(logs)]
    rows = [(name, float(level), value) for name, row in zip(names, logs, strict=True) for level, value in enumerate(row)]
    frame = pl.DataFrame(rows, schema=["metric", "level", "log_ratio"], orient="row")
    return frame.with_columns(pl.lit(name).alias(name) for name in CONFIGURATION if name != "level")


@given(st.lists(st.lists(st.floats(-0.125, 0.125, width=16), min_size=4, max_size=4), min_size=1, max_size=6))
def test_verdicts_are_those_of_holms_steps_and_of_the_intervals(logs):
    """Against the textbook: the k-th smallest p against α / (m − k + 1), until one is above."""
    told = overall(pairs_of(logs))
    spread = [np.std(row, ddof=1) for row in logs]
    t = [abs(np.mean(row)) / (s / 2) if s else math.inf if any(row) else 0.0 for row, s in zip(logs, spread, strict=True)]
    p = 2 * stdtr(3, -np.array(t))
    rejected = set()
    for k, i in enumerate(np.argsort(p)):
        if p[i] > 0.05 / (len(p) - k):
            break
        rejected.add(list(METRICS)[i])
    close = {name for name, value in zip(METRICS, p, strict=False) if min(abs(value - 0.05 / k) for k in range(1, 7)) < 1e-6}
    assert set(told.filter(pl.col("verdict") != "no evidence")["metric"]) - close == rejected - close
    outside = (told["low"] > 1) | (told["high"] < 1)
    assert outside.to_list() == (told["verdict"] != "no evidence").to_list()


def test_metrics_that_say_the_same_are_told_the_same(summary):
    ours = runs(summary, {1: [10, 11], 2: [20, 23], 4: [40, 39]}).with_columns(throughput_requests_per_s=pl.col(TOKENS) / 64)
    theirs = ours.with_columns(pl.col(TOKENS, "throughput_requests_per_s") * (1 - 0.01 * pl.col("level")))
    tokens, requests = compare(ours, theirs).overall.drop("metric", "verdict", "same_low", "same_high").rows()
    assert tokens == pytest.approx(requests, rel=1e-9)


def test_the_more_metrics_are_looked_at_the_more_a_verdict_takes():
    noise = [0.01, -0.01, 0.02, -0.02]
    logs = [[-0.04 + x for x in noise], *([[0.3 * x for x in noise]] * 5)]
    assert overall(pairs_of(logs[:1]))["verdict"].to_list() == ["worse"]
    row = only(overall(pairs_of(logs)), metric=TOKENS)
    assert (row["verdict"], row["confidence"]) == ("no evidence", pytest.approx(1 - 0.05 / 6))
    half = stdtrit(3, 1 - 0.05 / 12) * np.std(logs[0], ddof=1) / 2
    assert row["low"] == pytest.approx(math.exp(np.mean(logs[0]) - half))


# Rates over repeated draws: see benchmarks/compare.py, and its table in docs/metrics.md.
CELL = {"draws": 600, "levels": 6, "repeats": 3, "noise": 0.02, "shared": 0.5}


def test_a_planted_regression_is_found_and_none_where_there_is_none():
    dice = np.random.default_rng(7)
    false, _ = rates(overall(draw(dice, **CELL), by=BY))
    assert false <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / CELL["draws"])
    planted = draw(dice, **CELL, percent=5)
    assert rates(overall(planted, by=BY))[1] >= 0.80
    assert rates(overall(planted.filter(metric=TOKENS), by=BY))[1] >= 0.97
    assert rates(overall(draw(dice, **CELL, percent=-5), by=BY))[1] == 0  # an improvement is no regression


def test_what_repeats_of_a_level_share_makes_no_verdicts():
    alike = draw(np.random.default_rng(7), **{**CELL, "shared": 1.0})
    assert rates(overall(alike, by=BY))[0] <= 0.08
    assert rates(overall(alike.with_columns(level=pl.lit(0.0)), by=BY))[0] > 0.2  # each pair for itself would


def test_what_differs_between_two_sessions_cannot_be_told_from_an_effect():
    apart = draw(np.random.default_rng(7), **CELL, session=0.02)
    assert rates(overall(apart, by=BY))[0] > 0.5


def test_worse_by_more_than_a_percentage():
    steady = [0.001, -0.001, 0.002, -0.002]
    told = overall(pairs_of([[math.log(0.93) + x for x in steady], steady, [math.log(1.07) + x for x in steady]]))
    assert regressions(told)["metric"].to_list() == [TOKENS, "ttft_p50_s"]
    assert regressions(told, 6)["metric"].to_list() == [TOKENS, "ttft_p50_s"]
    assert regressions(told, 8).is_empty()


def test_a_figure_of_it_where_a_baseline_shares_a_load():
    row = {"workload": "w", "family": "w", "axis": "concurrency", "level": 1.0}
    ours, theirs = {**row, "deployment": "a", "baseline": True}, {**row, "deployment": "b", "baseline": False}
    assert "comparison" in figures_of([ours, theirs])
    assert "comparison" not in figures_of([ours, {**theirs, "level": 2.0}])
    assert "comparison" not in figures_of([{**ours, "baseline": False}, theirs])


# The command.

STEADY = {1: [10.0, 10.1], 2: [20.0, 20.2], 4: [40.0, 40.4], 8: [80.0, 80.8]}
SLOWER = {level: [0.9 * x for x in values] for level, values in STEADY.items()}


@pytest.fixture
def study(tmp_path, monkeypatch, summary):
    """A folder with a study's results, of the deployments a and b."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    table = pl.concat([runs(summary, STEADY), runs(summary, SLOWER, deployment="b")])
    table.write_parquet("results/summary.parquet")
    return tmp_path


@pytest.mark.parametrize(
    ("names", "status"),
    [
        (("a", "b"), 1),
        (("b", "a"), 0),
        (("results:a", "results:b"), 1),
        (("results/summary.parquet:a", ".:b"), 1),
        (("results", "results/summary.parquet"), 0),
    ],
)
def test_sets_by_any_name_and_the_exit_status(study, capsys, names, status):  # noqa: ARG001
    assert main(["compare", *names]) == 0
    if status:
        with pytest.raises(SystemExit) as ended:
            main(["compare", *names, "--fail-on-regression"])
        assert ended.value.code == 1
        assert f"regression: {TOKENS} is worse" in capsys.readouterr().err
    else:
        assert main(["compare", *names, "--fail-on-regression"]) == 0


def test_a_regression_within_the_percentage_passes(study, capsys):  # noqa: ARG001
    assert main(["compare", "a", "b", "--fail-on-regression", "12"]) == 0
    with pytest.raises(SystemExit):
        main(["compare", "a", "b", "--fail-on-regression=8"])
    assert "is worse by more than 8 %" in capsys.readouterr().err


def test_the_table_says_what_was_compared(study, capsys, summary):  # noqa: ARG001
    other = runs(summary, {**SLOWER, 16: [1.0]}, deployment="c", facts=({"model": "m"}, {"engine_version": "2"}))
    bad = (pl.col("level") == 8) & (pl.col("repeat") == 2)
    other.with_columns(valid=~bad, tpot_p50_s=0.01).write_parquet("c.parquet")
    main(["compare", "a", "c.parquet", "--runs"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:6] == [
        "baseline   a: 8 runs",
        "candidate  c.parquet: 9 runs, 1 of them invalid and left out",
        "compared   7 pairs of runs at 4 levels",
        "alone      short at 8, repeat 2: baseline only",
        "alone      short at 16, repeat 1: candidate only",
        "absent     tpot_p50_s: no pair has a value of it on both sides",
    ]
    text = "\n".join(lines)
    assert "differs    engine_version: 1 → 2" in text
    assert "−10.0 %   −10.0 to −10.0 %      worse" in text
    assert "the interval lies on one side of 0. It is of 95 % confidence.\n" in text
    assert "What differs between one start of a server and the next" in text
    assert "interval (95 % each)" in text
    assert "– (a single one)" in next(line for line in lines if line.startswith("short at 8"))


def test_a_single_level_and_many_without_a_counterpart_say_so(study, capsys, summary):  # noqa: ARG001
    runs(summary, {1: [9.0, 9.0]}).write_parquet("one.parquet")
    main(["compare", "a", "one.parquet"])
    text = capsys.readouterr().out
    assert "A single level: the interval knows its repeats alone" in text
    assert "and 1 more runs without a counterpart" in text


def test_the_result_for_another_program(study, capsys):  # noqa: ARG001
    main(["compare", "a", "b", "--json", "--metric", TOKENS, "--metric", TOKENS])
    told = json.loads(capsys.readouterr().out)
    assert (told["pairs"], told["regressions"], told["baseline"]) == (8, [TOKENS], {"source": "a", "runs": 8, "invalid": 0})
    assert [row["verdict"] for row in told["overall"]] == ["worse"]
    assert [row["level"] for row in told["configurations"]] == [1, 2, 4, 8]


def test_folders_of_parsed_runs(tmp_path, capsys, summary):
    for side, factor in (("old", 1.0), ("new", 0.8)):
        for level in (1, 2, 4):
            folder = tmp_path / side / "runs" / str(level)
            folder.mkdir(parents=True)
            told = {**summary, "run": str(level), "level": float(level), TOKENS: factor * level * 10}
            (folder / "summary.json").write_text(json.dumps(told))
        (tmp_path / side / "deployment.json").write_text(json.dumps({"deployment": "a", "engine_version": side}))
    assert main(["compare", str(tmp_path / "old"), str(tmp_path / "new")]) == 0
    text = capsys.readouterr().out
    assert "differs    engine_version: old → new" in text
    assert "−20.0 %" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a", "c"), "c: no such file or folder; and results/summary.parquet has no deployment 'c'. There are: a, b."),
        (("results:c", "a"), "results has no deployment 'c'. There are: a, b."),
        (("a", "text"), "text: is no summary table: "),
        (("a", "old.parquet"), "old.parquet: lacks axis, level: an older version wrote it"),
        (("a", "empty"), "empty: neither summary.parquet, nor results/summary.parquet, nor a summary.json at any depth."),
        (("a", "b", "--metric", "watts"), "--metric watts: not among those that are compared: throughput_tokens_per_s, "),
        (("a", "b", "--metric", "ttft_p50_s"), "ttft_p50_s: no pair of runs has a value on both sides."),
        (("a", "invalid.parquet"), "invalid.parquet: each of its 8 runs is invalid; `bench runs` says why"),
        (("a", "long.parquet"), "long.parquet has no run with the workload, load and repeat of one in a: the baseline has short at 1, 2, 4, 8; "
                                "the candidate has long at 1, 2, 4, 8."),
        (("results", "long.parquet"), "the baseline has the deployments a, b, the candidate c: none in common."),
        (("a", "one.parquet", "--fail-on-regression"), "--fail-on-regression: a single pair of runs has no interval"),
    ],
)  # fmt: skip
def test_what_the_user_can_mend_is_one_line_and_status_2(study, capsys, summary, arguments, message):
    mine = runs(summary, STEADY)
    mine.drop("axis", "level").write_parquet("old.parquet")
    mine.with_columns(valid=False).write_parquet("invalid.parquet")
    runs(summary, STEADY, workload="long", deployment="c").write_parquet("long.parquet")
    runs(summary, {1: [5.0]}).write_parquet("one.parquet")
    (study / "empty").mkdir()
    (study / "text").write_text("no table")
    assert main(["compare", *arguments]) == 2
    told = capsys.readouterr()
    assert message in told.err
    assert not told.out


def test_a_deployment_needs_a_study_to_be_one_of(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "a", "b"]) == 2
    assert (
        "a: no such file or folder; and no deployment of results/summary.parquet, which is not here." in capsys.readouterr().err
    )


@pytest.mark.parametrize("wrong", ["a", "-1", "nan", "inf"])
def test_a_percentage_that_is_none(study, capsys, wrong):  # noqa: ARG001
    with pytest.raises(SystemExit) as ended:
        main(["compare", f"--fail-on-regression={wrong}", "a", "b"])
    assert ended.value.code == 2
    assert f"{wrong!r} is no percentage of 0 or more. Put the option behind A and B" in capsys.readouterr().err
