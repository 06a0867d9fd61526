"""Verdicts from pairs whose ln ratios are given, worked out by hand."""

import math

import polars as pl
import pytest
from scipy import stats

from bench.analysis.effects import effects

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
    {1: [0.1], 2: [0.2], 4: [0.3]},
    {1: [0.0], 2: [0.2], 4: [0.1]},
    {1: [0.2], 2: [0.1], 4: [0.3]},
    {1: [0.1], 2: [0.1], 4: [0.2]},
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


def test_levels_regions_and_trends_have_their_share_of_the_five_per_cent():
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


def test_what_metrics_cost_each_other():
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
