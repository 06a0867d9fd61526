"""What stops a release, and failures that outweigh latencies, by hand."""

import math
from types import SimpleNamespace

import polars as pl
import pytest

from bench.analysis import blind, regressions, unseen
from bench.analysis.failures import failures
from bench.analysis.gate import needed, sight
from bench.analysis.power import Noise, sessions_for
from tests.support.planted import summary_rows

TOKENS, TTFT = "throughput_tokens_per_s", "ttft_p50_s"


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
    assert blind(found, 10) == [
        {"deployment": "a", "metric": TOKENS, "could_see": 12.5, "sessions": takes},
        {"deployment": "a", "metric": TTFT, "could_see": None, "sessions": None},
        {"deployment": None, "metric": "e2e_p50_s", "could_see": None, "sessions": None},
    ]
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
    failed = levels.head(2).with_columns(verdict=pl.Series(["worse", "better"]))
    assert unseen(SimpleNamespace(uncompared=levels, failures=failed))["level"].to_list() == [2, 4]


def comparison(*rows, absent=()):
    """`overall` of a comparison: the metric, what it could see, and whether its noise is known."""
    overall = [
        {"deployment": "a", "metric": metric, "could_see": seen, "noise": noise, "spread": 0.05, "levels": 2, "repeats": 1.0,
         "spread_assumed": False}
        for metric, seen, noise in rows
    ]  # fmt: skip
    return SimpleNamespace(overall=pl.DataFrame(overall), absent=list(absent))


# Failures


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
