"""Verdicts from pairs whose ln ratios are given, what stops a release, and failures that outweigh latencies, by hand."""

import math
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from scipy import stats

from bench.findings.comparison.compare import failures
from bench.findings.comparison.effects import Noise, Ratio, effects, sessions_for
from bench.findings.comparison.gate import blind, regressions, unseen
from tests.support.planted import summary_rows

TOKENS, TTFT = "throughput_tokens_per_s", "ttft_p50_s"


def pairs(*sessions, metric=TOKENS, deployment="a", workload="short", axis="concurrency"):
    """One frame of pairs: each session has, by level, the ln ratios of its repeats."""
    rows = [
        {"deployment": deployment, "workload": workload, "axis": axis, "level": float(level), "session": s, "repeat": i, "nth": 0,
         "metric": metric, "log_ratio": log}
        for s, levels in enumerate(sessions, 1) for level, repeats in levels.items() for i, log in enumerate(repeats, 1)
    ]  # fmt: skip
    return pl.DataFrame(rows)


def row(frame, **where):
    (found,) = frame.filter(**where).iter_rows(named=True)
    return found


FOUR = [
    dict(zip((1, 2, 4), ([x], [y], [z]), strict=True))
    for x, y, z in ((0.1, 0.2, 0.3), (0.0, 0.2, 0.1), (0.2, 0.1, 0.3), (0.1, 0.1, 0.2))
]


def test_an_interval_by_hand():
    """Means of the sessions 0.2, 0.1, 0.2, 0.4 / 3: their standard deviation over √4, and Student's t of 3."""
    told = row(effects(pairs(*FOUR)), scope="all")
    means = [0.2, 0.1, 0.2, 0.4 / 3]
    error = stats.tstd(means) / 2
    assert math.log(told["ratio"]) == pytest.approx(sum(means) / 4)
    half = stats.t.ppf((1 + told["confidence"]) / 2, 3) * error
    expected = (pytest.approx(sum(means) / 4 - half), pytest.approx(sum(means) / 4 + half))
    assert (math.log(told["low"]), math.log(told["high"])) == expected
    assert (told["levels"], told["pairs"], told["sessions"], told["repeats"]) == (3, 12, 4, 1)
    # 8 of 10 are found where the noncentral t lies so far above its bar.
    away = math.log1p(told["could_see"]) / (1.1 * error)
    assert stats.nct.sf(stats.t.ppf((1 + told["confidence"]) / 2, 3), 3, away) == pytest.approx(0.8, abs=1e-6)
    # A level by what its session shares and by its own part of the rest.
    cells = np.array([[x[0] for x in levels.values()] for levels in FOUR])
    left = cells - cells.mean(axis=0) - cells.mean(axis=1, keepdims=True) + cells.mean()
    own = np.maximum((left**2).sum() / 6, (left**2).sum(axis=0) / 3 * 3 / 2) / 4
    for i, level in enumerate((1.0, 2.0, 4.0)):
        told = row(effects(pairs(*FOUR)), scope="level", level=level)
        one, two = error**2, own[i] - own.sum() / 9
        freedom = (one + two) ** 2 / (one**2 / 3 + two**2 / 6)
        half = stats.t.ppf((1 + told["confidence"]) / 2, freedom) * math.sqrt(one + two)
        assert math.log(told["high"] / told["ratio"]) == pytest.approx(half, rel=1e-6), level
        assert math.log(told["ratio"]) == pytest.approx(cells[:, i].mean()), level
    # One metric has 3 % over all loads and 2 % over its levels; deployments share them.
    for names, share in ((["a"], 1), (["a", "b"], 2)):
        quiet = [{1: [off], 2: [-off], 4: [0.0]} for off in (0.01, -0.02, 0.01, 0.0)]
        told = effects(pl.concat([pairs(*quiet, deployment=name) for name in names]))
        assert [1 - each for each in told.filter(scope="all")["confidence"]] == [pytest.approx(0.03 / share)] * share
        assert [1 - each for each in told.filter(scope="level")["confidence"]] == [pytest.approx(0.02 / 3 / share)] * 3 * share


def test_what_is_significant_leaves_more_to_the_rest():
    """Holm's method: each of three metrics has a third of the 3 %; with one that is surely off, the others have a half."""
    quiet = [
        [{1: [log], 2: [-log]} for log in (0.0, 0.01, -0.02, 0.01)],
        [{1: [log], 2: [log]} for log in (0.03, -0.02, 0.01, 0.0)],
    ]
    sure = [{1: [0.5 + off], 2: [0.5 - off]} for off in (0.0, 0.001, -0.001, 0.0005)]
    metrics = (TOKENS, TTFT, "e2e_p50_s")
    for first, left in ((quiet[0], 3), (sure, 2)):
        told = effects(pl.concat([pairs(*each, metric=metric) for each, metric in zip((first, *quiet), metrics, strict=True)]))
        assert [1 - each for each in told.filter(scope="all")["confidence"]] == [pytest.approx(0.03 / left)] * 3, left
        assert row(told, scope="all", metric=TOKENS)["pooled"] == ("better" if left == 2 else "no evidence")


def test_the_noise_of_a_run_by_hand():
    for sessions, noise in (
        # Off the level's mean by ∓ 0.01 and ∓ 0.03, of which the repeats share ∓ 0.02: 4e-4 with 1 degree · (1/2 + 0.5²).
        ([{1: [0.01, 0.03], 2: [0.02, 0.08]}], math.sqrt(3e-4)),
        # A repeat is missing: nothing is shared; 2e-4 · (1 / 1.5 + 0.5²), and 1.5 runs a cell.
        ([{1: [0.01, 0.03], 2: [0.02]}], math.sqrt(2e-4 * (1 / 1.5 + 0.25) * 1.5 / 2)),
        # One level has no ladder to share it: 2e-4 with 1 degree.
        ([{1: [0.01, 0.03]}], math.sqrt(2e-4 * 0.75)),
        # Three repeats of two levels: off by (−1, 0, 1) and (−3, 0, 3) hundredths, shared 2: 4e-4 with 2 degrees, 3 runs a cell.
        ([{1: [0.01, 0.02, 0.03], 2: [0.01, 0.04, 0.07]}], math.sqrt(2e-4 * (1 / 3 + 0.25) * 3 / 2)),
        # Without repeats: off the line over the log of the load by −0.01, 0.02, −0.01.
        ([{1: [0.0], 2: [0.03], 4: [0.0]}], math.sqrt(6e-4 / 2)),
        # The same twice, of curves of their own: four levels off a line by ∓ 0.01, ± 0.03: 2e-3 with 2 degrees.
        ([{1: [0.01], 2: [-0.03], 4: [0.03], 8: [-0.01]}], math.sqrt(2e-3 / 2 / 2)),
        # Two sessions of one level: 2e-4 with 2 degrees · (1/2 + 0.5²).
        ([{1: [0.01, 0.03]}, {1: [0.05, 0.05]}], math.sqrt(1e-4 * 0.75)),
    ):
        assert row(effects(pairs(*sessions)), scope="all")["noise"] == pytest.approx(noise), sessions
    # Where nothing tells the noise there is no interval.
    for sessions in (
        [{1: [0.1]}],
        [{1: [0.1], 2: [0.2]}],  # two levels lie on a line
        [{0: [0.1], 2: [0.2], 4: [0.3]}],  # the log of no load
        [{1: [0.1]}, {1: [0.3]}],
    ):
        told = row(effects(pairs(*sessions)), scope="all")
        assert (told["low"], told["high"], told["confidence"], told["could_see"], told["noise"]) == (None,) * 5, sessions
        assert told["verdict"] == "no evidence", sessions
    # Two curves without repeats tell the noise together.
    logs = {1: [0.0], 2: [0.03], 4: [0.0]}
    both = pl.concat([pairs(logs), pairs({1: [0.0], 2: [0.0], 4: [0.0]}, workload="long")])
    assert row(effects(both), scope="all")["noise"] == pytest.approx(math.sqrt(6e-4 / 2 / 2))  # 6e-4 with 2 degrees


def test_a_metric_that_some_levels_lack_is_judged_at_the_others():
    tokens = pairs({level: [level / 100] for level in (1, 2, 4, 8)})
    told = effects(pl.concat([tokens, pairs({4: [0.1, 0.1], 8: [0.3, 0.3]}, metric=TTFT)])).filter(metric=TTFT)
    assert told.filter(scope="level")["level"].to_list() == [4, 8]
    whole = row(told, scope="all")
    assert (math.log(whole["ratio"]), whole["levels"], whole["pairs"], whole["repeats"]) == (pytest.approx(0.2), 2, 4, 2)
    # A session that lacks a level does not shift the others.
    offs, levels = (0.0, 0.1, -0.2, 0.05), {1: 0.3, 2: 0.1, 4: -0.1}
    sessions = [{level: [log + off] for level, log in levels.items()} for off in offs]
    del sessions[1][4]
    logs = dict(effects(pairs(*sessions)).filter(scope="level").select("level", pl.col("ratio").log()).iter_rows())
    assert [logs[level] - logs[1] for level in (2, 4)] == pytest.approx([-0.2, -0.4])


def sure(effect, metric=TOKENS):
    """Six sessions that differ by a thousandth, with these ln ratios by level."""
    return effects(
        pairs(*({x: [log + off / 1e3] for x, log in effect.items()} for off in (-2, -1, 0, 0.5, 1, 2)), metric=metric)
    )


def test_what_the_levels_show_together():
    for effect, verdict, pooled in (
        ({1: 0.3, 2: 0.3, 4: 0.3}, "better", "better"),
        ({1: -0.3, 2: -0.3, 4: -0.3}, "worse", "worse"),
        ({1: 0.3, 2: 0.0, 4: -0.3}, "mixed", "no evidence"),
        ({1: 0.0, 2: 0.0, 4: 0.0}, "no evidence", "no evidence"),
    ):
        whole = row(sure(effect), scope="all")
        assert (whole["verdict"], whole["pooled"]) == (verdict, pooled), effect
        opposite = {"better": "worse", "worse": "better"}
        latency = row(sure(effect, metric=TTFT), scope="all")  # less is better
        assert latency["pooled"] == opposite.get(pooled, pooled), effect
    # One session: its pooled effect is within what sessions may differ by.
    logs = {1: [0.0, 0.002, 0.001], 2: [0.001, 0.0, 0.002], 4: [0.002, 0.001, 0.0], 8: [-0.9, -0.901, -0.899]}
    for sign, side in ((1, "worse"), (-1, "better")):
        told = effects(pairs({x: [sign * log for log in repeats] for x, repeats in logs.items()}), spread=0.2)
        assert dict(told.filter(scope="level").select("level", "verdict").iter_rows())[8] == side
        assert (row(told, scope="all")["pooled"], row(told, scope="all")["verdict"]) == ("no evidence", f"{side} at some loads")
    # Two sessions widen the spread that is assumed, and never narrow it.
    for off, spread in ((0.1, 0.02**0.5), (0.01, 0.1)):
        told = row(effects(pairs({1: [-off], 2: [0.2 - off]}, {1: [off], 2: [0.2 + off]})), scope="all")
        assert (told["spread"], told["spread_assumed"]) == (pytest.approx(spread), True), off
    # A metric that never changes is no error.
    assert row(effects(pairs(*[{1: [0.0], 2: [0.0]}] * 4)), scope="all")["ratio"] == 1


def effect(metric, low, high, *, scope="level", verdict="worse", pooled=None):
    return {"metric": metric, "scope": scope, "low": low, "high": high, "verdict": verdict, "pooled": pooled}


def test_a_regression_is_worse_by_more_than_the_percentage():
    for row, percent, stops in (
        (effect(TOKENS, 0.8, 0.89), 10, True),
        (effect(TOKENS, 0.8, 0.91), 10, False),
        (effect(TOKENS, 0.8, 0.91), 0, True),
        (effect(TTFT, 1.11, 1.3), 10, True),
        (effect(TTFT, 1.09, 1.3), 10, False),
        (effect(TTFT, 1.09, 1.3), 0, True),
        (effect(TTFT, 0.95, 0.99), 10, False),
        (effect(TTFT, 1.11, 1.3, verdict="better"), 10, False),
        # Of all levels the pooled verdict counts, and not what a single level shows.
        (effect(TTFT, 1.11, 1.3, scope="all", verdict="worse at some loads", pooled="worse"), 10, True),
        (effect(TTFT, 1.11, 1.3, scope="all", verdict="worse", pooled="no evidence"), 10, False),
        (effect(TOKENS, 0.7, 0.75), 25, False),  # as much as the percentage is not more
        (effect(TTFT, 1.25, 1.3), 25, False),
    ):
        assert regressions(pl.DataFrame([row]), percent).height == stops, (row, percent)
    # A metric in which so much could be overlooked.
    found = comparison((TOKENS, 0.125, 0.02), (TTFT, None, None), absent=["e2e_p50_s"])
    takes = sessions_for(0.1, Noise(0.02, 0.05), 2, 1.0, 2)
    assert blind(found, 10) == [{"deployment": "a", "metric": TOKENS, "could_see": 12.5, "sessions": takes},
                                {"deployment": "a", "metric": TTFT, "could_see": None, "sessions": None},
                                {"deployment": None, "metric": "e2e_p50_s", "could_see": None, "sessions": None}]  # fmt: skip
    assert [row["metric"] for row in blind(found, 12.5)] == [TTFT, "e2e_p50_s"]  # as much is seen
    assert [row["metric"] for row in blind(found, 12.45)] == [TOKENS, TTFT, "e2e_p50_s"]
    # Not where the interval excludes it, unless the machine got faster meanwhile.
    for metric, low, high, machine, excluded in (
        (TTFT, 0.6, 0.8, None, True), (TTFT, 0.9, 1.09, None, True), (TTFT, 0.9, 1.11, None, False),
        (TOKENS, 0.91, 1.3, None, True), (TOKENS, 0.89, 1.3, None, False), (TTFT, 0.6, 0.8, Ratio(0.7, 0.6, 0.8), False),
    ):  # fmt: skip
        assert (blind(comparison((metric, 0.3, 0.02), low=low, high=high, machine=machine), 10) == []) is excluded, (
            metric,
            high,
        )
    # A level of which nothing is compared is unseen unless it surely fails more.
    levels = pl.DataFrame({"deployment": "a", "workload": "w", "axis": "concurrency", "level": [1.0, 2.0, 4.0]})
    failed = [{**row, "verdict": verdict} for row, verdict in zip(levels.to_dicts(), ("worse", "better"), strict=False)]
    assert [row["level"] for row in unseen(SimpleNamespace(uncompared=levels.to_dicts(), failures=failed))] == [2, 4]


def comparison(*rows, absent=(), low=None, high=None, machine=None):
    """`overall` of a comparison: the metric, what it could see, and whether its noise is known."""
    overall = [
        {"deployment": "a", "metric": metric, "could_see": seen, "noise": noise, "spread": 0.05, "levels": 2, "repeats": 1.0,
         "spread_assumed": False, "low": low, "high": high}
        for metric, seen, noise in rows
    ]  # fmt: skip
    return SimpleNamespace(overall=pl.DataFrame(overall), absent=list(absent), machine=machine)


def sent(*runs, level=4.0, **more):
    """Runs of one level: how many requests failed, of how many."""
    rows = [{"failed": failed, "requests": requests} for failed, requests in runs]
    place = {"deployment": "a", "workload": "w", "axis": "concurrency", "level": level, **more}
    return summary_rows([{**row, **place} for row in rows])


def test_counts_shares_and_p_of_a_level_by_hand():
    # Of 8 requests 3 failed, all of the candidate's 4: 4 · 1 / C(8, 3).
    (row,) = failures(sent((0, 4)), sent((3, 4))).rows(named=True)
    assert (row["failed_baseline"], row["requests_baseline"], row["failed"], row["requests"]) == (0, 4, 3, 4)
    assert (row["share_baseline"], row["share"], row["p"]) == (0, 0.75, pytest.approx(4 / 56))
    assert (row["verdict"], row["alike"]) == ("no evidence", False)
    # 2 of 2 and 1 of 3: (C(2, 2) · C(3, 1)) / C(5, 3), on either side.
    for sides in ([sent((2, 2)), sent((1, 3))], [sent((1, 3)), sent((2, 2))]):
        assert failures(*sides)["p"].to_list() == [pytest.approx(0.3)]
    assert failures(sent((1, 4)), sent((1, 4)))["p"].to_list() == [pytest.approx(1 - 6 / 28)]  # 1 or 2 of 4, of 2 of 8
    assert failures(sent((0, 4)), sent((0, 4))).is_empty()
    # Requests that fail together count as fewer.
    for ours, theirs, p in (
        # One run of two lost all: χ² = 2 · 32² / 16 = 128 with 2 degrees, so 64 requests are one: 1 of 2 against 0 of 2.
        ([(0, 64), (0, 64)], [(64, 64), (0, 64)], 0.5),
        # As many in each run: less than chance, and no request counts for more than one.
        ([(0, 4), (0, 4)], [(2, 4), (2, 4)], math.comb(8, 4) / math.comb(16, 4)),
        # 4, 0 and 2 of 4: χ² = 4 + 4 + 0 with 4 − 2 degrees, so 4 are one: 1.5, that is 2, of 3 against 0 of 1.
        ([(0, 4)], [(4, 4), (0, 4), (2, 4)], 3 / 6),
    ):
        assert failures(sent(*ours), sent(*theirs))["p"].to_list() == [pytest.approx(p)], ours
    # Shares differ by one per cent or are alike.
    for ours, theirs, verdict, alike in (
        ((0, 1000), (9, 1000), "no evidence", True),
        ((0, 1000), (10, 1000), "worse", False),
        ((10, 1000), (0, 1000), "better", False),
        ((500, 1000), (505, 1000), "no evidence", True),
        ((0, 128), (6, 128), "no evidence", False),  # p: about 1 / 2⁶ = 0.016
        ((0, 128), (7, 128), "worse", False),  # about 1 / 2⁷ = 0.008
    ):
        assert failures(sent(ours), sent(theirs)).select("verdict", "alike").rows() == [(verdict, alike)], (ours, theirs)
    # The more levels the more a verdict takes.
    ours, theirs = (pl.concat([sent((0, 128), level=1.0), sent(run, level=2.0)]) for run in ((0, 128), (7, 128)))
    assert failures(ours, theirs).select("level", "verdict").rows() == [(2, "no evidence")]  # 0.007 is above 0.01 / 2
    theirs = pl.concat([sent((0, 128), level=1.0), sent((9, 128), level=2.0)])
    assert failures(ours, theirs)["verdict"].to_list() == ["worse"]
    # What says nothing of the server is no failure.
    ours = sent((0, 4), (0, 4)).with_columns(faults=pl.Series([[], []], dtype=pl.List(pl.String)))
    theirs = sent((4, 4), (1, 4)).with_columns(faults=pl.Series([["content"], ["machine"]]))
    assert failures(ours, theirs).select("failed", "requests").rows() == [(1, 4)]
    assert failures(ours, theirs.with_columns(faults=pl.lit(None, pl.List(pl.String))))["failed"].to_list() == [5]
    assert failures(sent((0, 4)), sent((0, 0), (1, 1))).select("failed", "requests").rows() == [(1, 1)]
    assert failures(sent((0, 4)), sent((None, 4), (1, 2))).select("failed", "requests").rows() == [(1, 2)]
    assert failures(sent((None, 4)), sent((4, 4))).is_empty()
    assert failures(sent((0, 4), level=1.0), sent((4, 4), level=2.0)).is_empty()
