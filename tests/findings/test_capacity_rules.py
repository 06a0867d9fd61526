"""From levels to C_max and what is carried there: ends that are established or not, failures, overload, and shares of requests by hand."""

import math

import numpy as np
import polars as pl
import pytest

from bench.cli import main
from bench.findings.capacity import words as capacity
from bench.findings.capacity.judging import Level, judged_levels
from bench.findings.capacity.points import limit_ends, operating_points
from bench.findings.capacity.words import margin_title, misses_text
from bench.findings.sizing import OperatingPoint
from bench.parse.windows import level_values
from bench.statistics.limit import Belief
from bench.statistics.percentiles import percentile
from bench.study.slo import parse_slo
from tests.support.capacity import TTFT, again, by_level, curve, missed_by, point
from tests.support.planted import frame, parsed, poisson, queue, rate_row, short_row, steady_row, table

NEEDS = ("unsettled_at", "unsettled", "unsettled_needs_s")


def test_c_max_is_the_highest_level_below_the_first_that_misses(summary):
    row = point(curve(summary, [0.5, 1.0, 3.0, 1.9]))
    assert (row["kind"], row["c_max"], row["missed_at"]) == ("found", 2, 4)
    assert (row["operate_at"], row["usable_rps"], row["missed"][0]["reached_s"]) == (2, 4.0, 3.0)
    assert (missed_by(row), row["runs"], row["requests"]) == (["ttft_p99_s"], 1, 400)
    for limit, kind, c_max in (("100ms", "below", None), ("9s", "above", 8)):
        row = point(curve(summary, [0.5, 1.0, 3.0, 4.0]), f"ttft_p99={limit}")
        assert (row["kind"], row["c_max"], row["usable_rps"] is None) == (kind, c_max, kind == "below"), limit
    # Every SLO has to be met.
    runs = curve(summary, [0.1] * 3, levels=(1, 2, 4), tpot=[0.01, 0.2, 0.3])
    assert point(runs, [*TTFT, parse_slo("tpot_p95=100ms")])["c_max"] == 1
    # 2 % of 400 are slower than the limit of a P99, which leaves room for 1 %; of a P95 they are few.
    rows = by_level(summary, "slow", {1: 0, 2: 8})
    assert (point(rows)["missed_at"], point(rows, "ttft_p95=2s")["kind"]) == (2, "above")
    # Of 10 the P90 is the ninth, as in tables and figures.
    ten = point([steady_row(summary, 1, requests=10, ttft=[0.1] * 8 + [4.0, 5.0])], "ttft_p90=2s")
    assert ten["missed"][0]["reached_s"] == 4


def test_the_first_level_that_misses_is_named_with_what_it_misses(summary):
    """4 seems to miss on few requests, 8 meets, and so does what 8 meets at 4; at 16 one of two SLOs is missed."""
    rows = [steady_row(summary, 4, requests=20, slow=4), steady_row(summary, 8, requests=2000, slow=150),
            steady_row(summary, 16, requests=400, slow=100)]  # fmt: skip
    row = point(rows, [parse_slo("ttft_p90=1s"), parse_slo("e2e_p90=1s")])
    assert (row["kind"], row["c_max"], row["missed_at"], missed_by(row)) == ("found", 8, 16, ["ttft_p90_s"])


def test_what_cannot_be_judged_decides_nothing_and_says_why(summary):

    runs = curve(summary, [0.1, 0.1, 9.0], levels=(1, 2, 4), wrong_output_tokens=[0, 0, 1])
    assert (point(runs)["kind"], point(runs)["highest"]) == ("above", 2)
    assert point(curve(summary, [0.1, 0.1], levels=(1, 2), wrong_output_tokens=[1, 1]))["kind"] == "unknown"
    # A latency that no answer has is no verdict.
    row = point([steady_row(summary, 1), steady_row(summary, 2, ttft=None)])
    assert (row["kind"], row["c_max"], row["unjudged"]) == ("unjudged", None, None)
    assert (row["missed_at"], missed_by(row)) == (2, ["ttft_p99_s"])
    # All of 800 were streamed, and 41 had fewer chunks than tokens: that answers are not streamed is no reason.
    for slo, told, why in (
        ("ttft_p99=2s", {"stream": False}, "stream"), ("ttft_p99=2s", {"held_back_answers": 400}, "held_back"),
        ("tpot_p99=2s", {"unknown_streamed": 41}, "hidden"), ("tpot_p99=2s", {"output_tokens": 1.0}, "single"),
        ("tpot_p99=2s", {"unknown_streamed": 400, "uncounted_outputs": 400}, "uncounted"),
    ):  # fmt: skip
        counts = dict.fromkeys(("held_back_answers", "unknown_streamed", "uncounted_outputs"), 0)
        row = point([{**steady_row(summary, 800, ttft=None, tpot=None), "stream": True, **counts, **told}], [parse_slo(slo)])
        assert (row["unjudged"], row["missed_at"]) == (why, 800), (slo, told)


def test_a_failed_request_exceeds_every_limit(summary):
    """3 % fail at 2, and nothing is slow: a P99 is missed by that, as is a P95 where a further 3 % are slow."""
    assert point(by_level(summary, "failed", {1: 0, 2: 12}))["missed_at"] == 2
    row = point([steady_row(summary, 1), steady_row(summary, 2, requests=1000, failed=8, slow=60)], "ttft_p95=2s")
    assert (row["missed_at"], missed_by(row)) == (2, ["ttft_p95_s"])
    row = point([steady_row(summary, 1), steady_row(summary, 2, failed=400, rps=0.0)])
    assert (row["c_max"], row["high"], row["usable_rps"]) == (1, 2, 2.0)  # where everything fails, nothing is carried
    # 20 of 100 fail, and what is answered is quick: no time shows it.
    fails = point([steady_row(summary, 1, requests=100, failed=20)], "ttft_p95=2s")
    assert ("ttft_p95_s", 0.2, None) in [(miss["by"], miss["share"], miss["reached_s"]) for miss in fails["missed"]]
    # 32 and 48 in flight refuse half.
    runs = frame(by_level(summary, "failed", {8: 0, 16: 0, 24: 0, 32: 200, 48: 200}))
    assert runs["valid"].all()
    row = operating_points(runs, TTFT).row(0, named=True)
    assert (row["kind"], row["c_max"], row["missed_at"]) == ("found", 24, 32) and 24 < row["high"] <= 32
    assert "failed" in missed_by(row)
    # Where no request may fail it is enough that none did.
    none = operating_points(frame(curve(summary, [0.5, 1.0, 9.0], levels=(1, 2, 4))), TTFT, 0.0).row(0, named=True)
    assert none["c_max"] == 2 and 1 <= none["low"] <= 2 < none["high"] <= 4
    # 1 % may, unless said otherwise.
    slo = parse_slo("ttft_p90=2s")
    for failed, c_max in ((4, 2), (5, 1)):
        runs = frame(by_level(summary, "failed", {1: 0, 2: failed}))
        assert operating_points(runs, [slo])["c_max"].to_list() == [c_max], failed


def test_refusals_come_through_parse_and_aggregate():
    """A server that refuses every other request of 12/s, and none of 6/s."""
    runs = []
    for rate, failed in ((6.0, set()), (12.0, set(range(0, 1200, 2)))):
        sent = poisson(rate, 1200, 1)
        runs.append(parsed(table(sent, queue(sent, 0.04), failed=failed), rate=rate, slos=TTFT, run=f"r{rate}"))
    row = point(runs)
    assert row["c_max"] == 6 and 5.5 < row["low"] < row["high"] < 12
    assert "failed" in missed_by(row)


def test_how_sure_a_share_of_failures_is(summary):
    """9 of 1,000 fail at 8, where 1 % may: it is the estimate, and nothing to be sure of."""
    row = point(by_level(summary, "failed", {4: 0, 8: 9, 16: 300}, requests=1000), "ttft_p95=2s")
    assert 4 <= row["low"] < 8 == row["c_max"] < row["high"] < 16
    assert row["requests"] == 1000
    # 1 of 400 fails at each: alone up to 1.4 %, 2 of 800 up to 0.9 %, so that more is known of all levels but the highest.
    row = point(by_level(summary, "failed", dict.fromkeys((2, 4, 6, 8), 1)), "ttft_p95=2s")
    assert row["c_max"] == 8 >= row["low"] >= 6
    # Few requests without a failure are enough where nothing fails above either.
    row = point(by_level(summary, "slow", {4: 0, 8: 0, 16: 60}, requests=100), "ttft_p90=2s")
    assert (row["c_max"], row["low"], row["high"]) == (8, 8, 16)
    row = point(by_level(summary, "failed", {4: 0, 8: 0, 16: 60}, requests=100), "ttft_p90=2s")
    assert row["c_max"] == 8 > (row["low"] or 0) and row["high"] <= 16


@pytest.mark.long(part="truth")
def test_the_lower_end_of_a_server_that_refuses_ever_more_is_a_load_that_it_carries(summary):
    """Of the load x it refuses (x ÷ 10)^5 %: 1 % at 10/s, 0.8 % at 9.5 and 1.3 % at 10.5, which 1,500 requests hardly tell apart."""
    draw = np.random.default_rng(4)
    ends = []
    for _ in range(40):
        rows = []
        for rate in (7.0, 8.0, 9.0, 9.5, 10.0, 10.5, 11.0, 13.0):
            lost = draw.random(1500) < 0.01 * (rate / 10) ** 5
            judged = [{"ok": not fails, "ttft": 0.1, "tpot": 0.01, "e2e": 0.5} for fails in lost.tolist()]
            rows.append({**rate_row(summary, rate, requests=1500), "judged": judged})
        ends.append(point(rows, "ttft_p95=2s")["low"])
    known = [low for low in ends if low is not None]
    assert len(known) >= 36
    assert sum(low > 10 for low in known) <= 2  # 5 %


def test_a_level_whose_requests_pile_up_is_not_carried(summary):
    """Its latencies meet the SLO still: the queue has only begun to grow."""
    row = point([rate_row(summary, 5), rate_row(summary, 10, growth=0.34, growth_error=0.04, rps=6.6)])
    assert (row["c_max"], missed_by(row)) == (5, ["growth"])
    assert 5 < row["low"] < 6.6 < row["high"] < 10  # more than 34 % may stay where requests share the server
    assert row["missed"][0]["growth"] == 0.34
    assert row["usable_high"] >= 6.6
    # 5 ± 3 % of what comes stays: by that alone perhaps, and by 40 % at 20 not likely.
    row = point(
        [rate_row(summary, 5), rate_row(summary, 10, growth=0.05, growth_error=0.03), rate_row(summary, 20, growth=0.4)]
    )
    assert row["c_max"] == 10 > row["low"] > 5


def test_levels_without_a_steady_state_decide_nothing_and_say_how_long_it_takes(summary):
    short = short_row(steady_row(summary, 8), 47.2)
    row = point([steady_row(summary, 4), short])
    assert (row["kind"], row["c_max"], row["high"]) == ("above", 4, None)
    assert [row[key] for key in NEEDS] == [8, "short", 48]
    alone = point([short])
    assert [alone[key] for key in ("kind", "c_max", "usable_rps", "unsettled_needs_s")] == ["unsettled", None, None, 48]
    # In the middle it hides no upper end.
    row = point([steady_row(summary, 4), short, steady_row(summary, 16)])
    assert (row["kind"], row["highest"], row["unsettled_at"]) == ("above", 16, 8)
    # The longest of what runs need is asked for.
    rows = again(short_row(steady_row(summary, 8), needs) for needs in (20.0, 47.2, None))
    assert [point(part)["unsettled_needs_s"] for part in (rows, rows[2:])] == [48, None]
    assert (point(rows)["missed_at"], point(rows)["highest"]) == (8, 8)


def test_which_requests_and_levels_establish_an_end(summary):
    row = point(curve(summary, [0.1, 0.1, 0.1, 3.0], requests=[1000] * 4))
    assert (row["c_max"], row["low"], row["high"], capacity.narrowed(row)) == (4, 4, 8, "")
    assert row["usable_low"] < row["usable_rps"] == 8 < row["usable_high"]
    # Few requests establish no lower end.
    row = point(curve(summary, [0.1, 3.0], levels=(4, 8), requests=[60] * 2))
    assert (row["c_max"], row["low"], row["usable_low"]) == (4, None, None)
    assert (row["requests"], capacity.narrowed(row)) == (
        60,
        "More requests or rounds at 4 requests in flight would raise the lower end.",
    )
    # No upper end without a level that significantly misses; 3 of 100 are no proof for a P99: 0.6 to 8.5 %.
    row = point(curve(summary, [0.1] * 4))
    assert (row["kind"], row["high"], row["usable_high"]) == ("above", None, None)
    assert "Levels above 8 requests in flight would establish the upper end." in capacity.narrowed(row)
    near = point([steady_row(summary, 4), steady_row(summary, 8, requests=100, slow=3)])
    assert (near["kind"], near["missed_at"], near["high"]) == ("found", 8, 16)
    assert "More requests at 8 requests in flight, or levels above it, would lower the upper end." in capacity.narrowed(near)
    # The curve goes on a little beyond its loads, where nothing was carried, nor too much; further off is not known.
    levels = [Level(load, []) for load in (5.0, 10.0)]
    assert limit_ends(Belief(np.array([4.5, 12.34])), levels, whole=False) == (4.5, 12.3)
    assert limit_ends(Belief(np.array([4.5, 12.34])), levels, whole=True) == (4, 13)
    assert limit_ends(Belief(np.array([11.0, 12.0])), levels, whole=False) == (10, 12)
    assert limit_ends(Belief(np.array([3.0, 4.0])), levels, whole=False) == (3, 5)
    assert limit_ends(Belief(np.array([0.0, math.inf])), levels, whole=False) == (None, None)
    # 2 % miss at 8 where a P95 allows 5 %, 20 % at 16: of 1,000 requests each, both are sure, and the limit lies between.
    row = point(by_level(summary, "slow", {4: 0, 8: 20, 16: 200}, requests=1000), "ttft_p95=2s")
    assert row["low"] in (7, 8) and row["c_max"] == 8 and 10 < row["high"] <= 16


def test_misses_in_clusters_are_less_sure_than_as_many_apart(summary):
    """15 of 1,000 miss, where 5 % may: apart they surely meet the limit; as one cluster, of one bad moment, not."""
    assert point([steady_row(summary, 4, requests=1000, slow=15)], "ttft_p95=2s")["low"] == 4
    row = point([steady_row(summary, 4, requests=1000, ttft=[9.0] * 15 + [0.1] * 985)], "ttft_p95=2s")
    assert (row["low"] or 0) < 4


def test_levels_are_judged_together_and_failures_at_each_alone(summary):
    """By chance 4 looks worse than 8: together they are judged by both, and both meet."""
    slow = {9.0: 4, 9.5: 6, 10.0: 8, 10.5: 30, 11.0: 0, 11.5: 120}
    for counts, requests, c_max in (
        ({1: 0, 2: 0, 4: 40, 8: 4}, 1000, 8),
        # 30 of 300 at 10.5 are too many for a P95; none at 11 shows that they were so many by chance.
        ({load: slow[load] for load in (9.0, 9.5, 10.0, 10.5)}, 300, 10),
        (slow, 300, 11),
    ):
        assert point(by_level(summary, "slow", counts, requests=requests), "ttft_p95=2s")["c_max"] == c_max, counts
    # Nothing above a sure miss counts.
    row = point([steady_row(summary, 1), steady_row(summary, 2, ttft=9.0), *(steady_row(summary, n) for n in (4, 8, 16, 32))])
    assert row["c_max"] in (None, 1) and row["missed_at"] <= 2 and row["low"] in (None, 1)
    # 6 % of 1,000 at 4 are over a P95 and no sure miss, none of 200 at 8 is: what 8 carries, 4 does.
    alone = [steady_row(summary, 4, requests=1000, slow=60)]
    row = point([*alone, steady_row(summary, 8, requests=200)], "ttft_p95=2s")
    assert (row["kind"], row["c_max"], point(alone, "ttft_p95=2s")["kind"]) == ("above", 8, "below")
    # It refuses 30 % from 11 on, and no request misses anything below: 10.5 is carried, however near 11 is.
    for requests, limit in ((100, "ttft_p95=2s"), (300, "ttft_p99=2s")):
        refused = {10.0: 0, 10.5: 0, 11.0: round(0.3 * requests), 11.5: round(0.3 * requests)}
        row = point(by_level(summary, "failed", refused, requests=requests), limit)
        assert (row["c_max"], row["missed_at"], row["high"]) == (10.5, 11, 11), requests
    # 0.9 % fail at 10.5, where 1 % may, whatever does at the loads about it.
    for loop in (steady_row, rate_row):
        found = point(by_level(summary, "failed", {10.0: 16, 10.5: 18, 11.0: 60}, loop, requests=2000), "ttft_p50=2s")
        assert (found["c_max"], found["missed_at"]) == (10.5, 11), loop


def test_a_burst_is_judged_and_sizes_no_fleet(summary, tmp_path, capsys):
    burst = {"arrival": "burst", "steady": None, "steady_from_s": None, "steady_requests_per_s": None}
    rows = [steady_row(summary, level, ttft=ttft, **burst) for level, ttft in ((4, 0.1), (8, 0.1), (16, 9.0))]
    runs = frame(rows)
    row = operating_points(runs, TTFT).row(0, named=True)
    assert (row["basis"], row["c_max"], row["missed_at"]) == ("burst", 8, 16)
    assert (row["usable_rps"], row["usable_low"], row["usable_high"]) == (None, None, None)
    assert OperatingPoint.of(row, runs.row(0, named=True)) is None
    runs.write_parquet(tmp_path / "summary.parquet")
    assert main(["fleet", str(tmp_path), "--slo", "ttft_p99=2s", "--peak-rps", "10"]) == 2
    assert "a burst does not show what an instance sustains in the long run" in capsys.readouterr().err


def test_the_percentile_of_a_miss_is_that_of_tables_and_figures(summary):
    """Of 40 requests P95 is the 38th: two that take longer are no percentile over the limit, and too few to tell."""
    slow = [3.0, *[0.5] * 19] * 2
    burst = steady_row(summary, 20, requests=40, e2e=slow) | {"arrival": "burst"}
    (level,), _ = judged_levels([burst], [parse_slo("e2e_p95=1s")], 0.01)
    (missed,) = level.missed
    assert missed.reached_s == percentile(pl.Series(slow), 0.95) == 0.5
    assert "too close to tell: E2E P95 ≤ 1 s is met with a probability of 49 % (measured: 500 ms)" in misses_text([missed.miss])
    # Of two runs one did not become steady: the sentence has the other's 3 s, as the table of levels.
    steady = steady_row(summary, 8, ttft=3.0)
    short = {**short_row(steady_row(summary, 8, ttft=9.0), None), "repeat": 2, "run": "r2"}
    runs = frame([steady_row(summary, 4, ttft=0.1), steady, short])
    row = operating_points(runs, TTFT).row(0, named=True)
    assert (row["missed_at"], row["missed"][0]["reached_s"]) == (8, 3.0)
    assert level_values(runs, ["ttft_p99_s"])["ttft_p99_s"].to_list() == [0.1, 3.0]
    assert level_values(frame([short]), ["ttft_p99_s"])["ttft_p99_s"].to_list() == [9.0]  # the one that there is
    # One of two runs at 12 is over the limit, by a little: the sentence says what the table of levels has.
    tails = {2: (0.3, 0.31), 5: (0.4, 0.41), 8: (0.6, 0.62), 12: (0.9, 1.01), 20: (3.0, 3.1)}
    row = point(
        [row for level, both in tails.items() for row in again(steady_row(summary, level, ttft=x) for x in both)], "ttft_p90=1s"
    )
    assert row["c_max"] == 12
    assert "They exceed TTFT P90 ≤ 1 s (measured: 1.01 s), though all runs together put the limit higher" in capacity.evidence(
        row
    )
    assert (
        capacity.it_misses(point(curve(summary, [0.5, 2.00004], levels=(1, 2))))
        == "misses TTFT P99 ≤ 2 s (measured: 2.00004 s)"
    )
    # A latency of seconds is given in seconds, also beside a limit of milliseconds.
    row = point(curve(summary, [0.1, 3.52], levels=(1, 2)), "ttft_p99=500ms")
    assert capacity.it_misses(row) == "misses TTFT P99 ≤ 500 ms (measured: 3.52 s)"


def test_where_no_load_misses_the_highest_one_is_named_first(summary):
    row = point(curve(summary, [0.1, 0.2, 0.3], levels=(1, 2, 4)))
    for low, limit in (
        (4.0, "4 or more requests in flight"),
        (3.0, "3 or more requests in flight"),
        (None, "not established"),
    ):
        changed = {**row, "low": low, "high": None}
        assert (changed["kind"], capacity.limit(changed)) == ("above", limit)
        assert capacity.first_miss(changed) == "none up to 4 requests in flight"


def test_a_limit_that_is_met_is_not_named_as_missed(summary):
    """Of 40 requests at 8 none has a TTFT over 2 s, and one in 20 takes longer than 1 s: that is within P95 ≤ 1 s, and too few to tell."""
    slos = [parse_slo("e2e_p95=1s"), parse_slo("ttft_p99=2s")]
    alone, with_another = (
        point([steady_row(summary, 8, requests=40, e2e=[1.2, *[0.5] * 19] * 2, ttft=ttft) | {"arrival": "burst"}], slos)
        for ttft in (0.5, 3.0)
    )
    assert (alone["kind"], alone["missed"][0]["close"], capacity.too_close(alone)) == ("below", True, True)
    assert capacity.sustains(alone) == "perhaps 8 requests in flight, the lowest load that can be judged"
    assert capacity.first_miss(alone).startswith("at 8 requests in flight: too close to tell: E2E P95 ≤ 1 s is met")
    assert margin_title([alone], slos) is None
    titles = [margin_title([with_another] * n + [alone] * m, [*slos, *TTFT]) for n, m in ((1, 0), (2, 0), (3, 0), (2, 1))]
    assert [title and title.partition(" first")[2] for title in titles] == [
        "",
        " on both curves",
        " on all 3 curves",
        " on 2 of 3 curves",
    ]
    assert (missed_by(with_another), capacity.it_misses(with_another)) == (
        ["ttft_p99_s"],
        "misses TTFT P99 ≤ 2 s (measured: 3 s)",
    )
