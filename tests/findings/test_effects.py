"""Verdicts from pairs whose ln ratios are given, what stops a release, and failures that outweigh latencies, by hand."""

import math
from types import SimpleNamespace

import polars as pl
import pytest
from scipy import stats

from bench.analysis import blind, regressions, unseen
from bench.analysis.effects import effects
from bench.analysis.failures import failures
from bench.analysis.gate import needed, sight
from bench.analysis.power import Noise, sessions_for
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
    assert (told["levels"], told["pairs"], told["sessions"], told["repeats"], told["loads"]) == (3, 12, 4, 1, [1, 2, 4])
    # 8 of 10 are found where the noncentral t lies so far above its bar.
    away = math.log1p(told["could_see"]) / (1.1 * error)
    assert stats.nct.sf(stats.t.ppf((1 + told["confidence"]) / 2, 3), 3, away) == pytest.approx(0.8, abs=1e-6)
    # Levels regions and trends have their share of the five per cent.
    sessions = [{level: [log + level / 100] for level in (1, 2, 4, 8)} for log in (0.0, 0.02, 0.05, 0.01)]
    told = effects(pairs(*sessions))
    alpha = 1 - row(told, scope="all")["confidence"]
    assert 0.02 < alpha < 0.05
    for scope, part, count in (("level", 0.05, 4), ("region", 0.05, 3), ("trend", 0.2, 1)):
        assert [1 - each for each in told.filter(scope=scope)["confidence"]] == [pytest.approx(part * alpha)] * count
    # Two deployments are two families, which share it.
    two = effects(pl.concat([pairs(*sessions), pairs(*sessions, deployment="b")]))
    assert [1 - each for each in two.filter(scope="all")["confidence"]] == [pytest.approx(alpha / 2)] * 2


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


def test_trends_and_regions_of_a_ladder():
    # A trend is the factor of a doubling.
    for logs, ratio in (
        ({1: 0.0, 2: 0.1, 4: 0.2}, 0.1),
        ({1: 0.0, 2: 0.1, 8: 0.3}, 0.1),
        ({8: 0.3, 1: 0.0, 2: 0.1}, 0.1),  # in any order
        ({1: 0.0, 2: 0.0, 4: 0.3}, 0.15),  # least squares: half of the ends' difference
    ):
        told = row(effects(pairs({level: [log] for level, log in logs.items()})), scope="trend")
        assert math.log(told["ratio"]) == pytest.approx(ratio), logs
        assert (told["loads"], told["levels"], told["pairs"]) == (sorted(logs), 3, 3), logs
        assert (told["workload"], told["axis"], told["level"]) == ("short", "concurrency", None), logs
    # The regions of a ladder.
    for levels, regions, trend in (
        ((1, 2), [], False),
        ((1, 2, 4), [], True),
        ((0, 2, 4), [], False),
        ((1, 2, 4, 8), [[1, 2], [4], [8]], True),
        ((16, 1, 2, 4, 8), [[1, 2], [4, 8], [16]], True),
    ):
        told = effects(pairs({level: [level / 100] for level in levels}))
        assert told.filter(scope="region")["loads"].to_list() == regions, levels
        expected = ["low loads", "middle loads", "high loads"][: len(regions)]
        assert told.filter(scope="region")["region"].to_list() == expected, levels
        assert told.filter(scope="trend").height == trend, levels
        for low in told.filter(scope="region").iter_rows(named=True):
            assert math.log(low["ratio"]) == pytest.approx(sum(low["loads"]) / 100 / len(low["loads"])), levels
        assert told.filter(scope="level")["level"].to_list() == list(levels), levels
    # A metric that some levels lack is judged at the others.
    tokens = pairs({level: [level / 100] for level in (1, 2, 4, 8)})
    some = pairs({4: [0.1, 0.1], 8: [0.3, 0.3]}, metric=TTFT)
    told = effects(pl.concat([tokens, some])).filter(metric=TTFT)
    assert told.filter(scope="level")["level"].to_list() == [4, 8]
    assert told.filter(scope="region").select("region", "loads").rows() == [("middle loads", [4]), ("high loads", [8])]
    assert told.filter(scope="trend").is_empty()  # two levels are left
    whole = row(told, scope="all")
    assert (math.log(whole["ratio"]), whole["levels"], whole["pairs"], whole["repeats"]) == (pytest.approx(0.2), 2, 4, 2)


def sure(effect, metric=TOKENS):
    """Six sessions that differ by a thousandth, with these ln ratios by level."""
    return effects(
        pairs(*({x: [log + off / 1e3] for x, log in effect.items()} for off in (-2, -1, 0, 0.5, 1, 2)), metric=metric)
    )


def test_what_the_levels_show_together():
    for effect, verdict, pooled, trend in (
        ({1: 0.3, 2: 0.3, 4: 0.3}, "better", "better", "no evidence"),
        ({1: -0.3, 2: -0.3, 4: -0.3}, "worse", "worse", "no evidence"),
        ({1: 0.3, 2: 0.0, 4: -0.3}, "mixed", "no evidence", "worse as load grows"),
        ({1: -0.3, 2: 0.0, 4: 0.3}, "mixed", "no evidence", "better as load grows"),
        ({1: 0.0, 2: 0.0, 4: 0.0}, "no evidence", "no evidence", "no evidence"),
    ):
        told = sure(effect)
        whole = row(told, scope="all")
        assert (whole["verdict"], whole["pooled"], row(told, scope="trend")["verdict"]) == (verdict, pooled, trend), effect
        opposite = {"better": "worse", "worse": "better"}
        latency = row(sure(effect, metric=TTFT), scope="all")  # less is better
        assert latency["pooled"] == opposite.get(pooled, pooled), effect
    # One session: its pooled effect is within what sessions may differ by.
    logs = {1: [0.0, 0.002, 0.001], 2: [0.001, 0.0, 0.002], 4: [0.002, 0.001, 0.0], 8: [-0.9, -0.901, -0.899]}
    for sign, side in ((1, "worse"), (-1, "better")):
        told = effects(pairs({x: [sign * log for log in repeats] for x, repeats in logs.items()}), spread=0.2)
        assert dict(told.filter(scope="level").select("level", "verdict").iter_rows())[8] == side
        assert (row(told, scope="all")["pooled"], row(told, scope="all")["verdict"]) == ("no evidence", f"{side} at some loads")
    # A trend alone changes with the load.
    logs = {level: [0.02 * math.log2(level) - 0.05 + off for off in (-0.001, 0.001)] for level in (1, 2, 4, 8, 16, 32)}
    told = effects(pairs(logs))
    expected = ("better as load grows", "changes with load")
    assert (row(told, scope="trend")["verdict"], row(told, scope="all")["verdict"]) == expected
    # What metrics cost each other.
    # The spread of one metric may be known.
    both = pl.concat([pairs({1: [0.1, 0.1], 2: [0.1, 0.11]}, metric=metric) for metric in (TOKENS, TTFT)])
    told = effects(both, spread=0.2, spreads={TTFT: (0.05, 3.0)}).filter(scope="all")
    assert dict(told.select("metric", "spread").iter_rows()) == {TOKENS: pytest.approx(0.2), TTFT: pytest.approx(0.05)}
    assert told["spread_assumed"].all()
    # The same numbers twice are one test; the same of other sessions are two.
    first = [{1: [x / 100], 2: [y / 100]} for x, y in ((1, -3), (-2, 1), (3, 2), (-1, 0), (0, -1), (-2, 2), (2, -2), (-1, 1))]
    wrong = [
        1 - row(effects(pl.concat([pairs(*first), pairs(*second, metric=TTFT)])), scope="all", metric=TOKENS)["confidence"]
        for second in (first, first[2:] + first[:2])
    ]
    assert wrong[0] > 1.05 * wrong[1]
    # A metric that never changes is no error.
    flat = [{1: [0.0], 2: [0.0]}] * 4
    moved = [{1: [0.0], 2: [0.1]}, {1: [0.1], 2: [0.1]}, {1: [0.05], 2: [0.0]}, {1: [0.0], 2: [0.1]}]
    told = effects(pl.concat([pairs(*flat), pairs(*moved, metric=TTFT)]))
    assert row(told, scope="all", metric=TOKENS)["ratio"] == 1


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
        (effect(TTFT, 1.11, 1.3, scope="trend", verdict="worse"), 0, False),
        (effect(TTFT, 1.11, 1.3, scope="region"), 0, True),
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
    assert needed({"noise": None}, 10, 1) is None
    # What half of that which a comparison sees would take.
    found = comparison((TOKENS, 0.125, 0.02), (TTFT, 0.5, 0.02))
    takes = sessions_for(0.0625, Noise(0.02, 0.05), 2, 1.0, 2)
    assert sight(found) == {"deployment": "a", "metric": TOKENS, "could_see": 12.5, "sessions": takes}
    assert sight(comparison((TOKENS, 0.001, 0.02)))["sessions"] is None  # more than 100
    assert sight(comparison((TOKENS, None, None))) is None
    assert sight(SimpleNamespace(overall=found.overall.clear())) is None
    # A level of which nothing is compared is unseen unless it surely fails more.
    levels = pl.DataFrame({"deployment": "a", "workload": "w", "axis": "concurrency", "level": [1.0, 2.0, 4.0]})
    failed = [{**row, "verdict": verdict} for row, verdict in zip(levels.to_dicts(), ("worse", "better"), strict=False)]
    assert [row["level"] for row in unseen(SimpleNamespace(uncompared=levels.to_dicts(), failures=failed))] == [2, 4]


def comparison(*rows, absent=()):
    """`overall` of a comparison: the metric, what it could see, and whether its noise is known."""
    overall = [
        {"deployment": "a", "metric": metric, "could_see": seen, "noise": noise, "spread": 0.05, "levels": 2, "repeats": 1.0,
         "spread_assumed": False}
        for metric, seen, noise in rows
    ]  # fmt: skip
    return SimpleNamespace(overall=pl.DataFrame(overall), absent=list(absent))


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
