"""From levels to C_max and what is carried there: ends that are established or not, failures, overload, and shares of requests by hand."""

import itertools
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.analysis import operating_points
from bench.analysis.belief import NOMINAL, Belief
from bench.analysis.bottleneck import bottleneck
from bench.analysis.capacity import limit_ends, rates_within
from bench.analysis.judging import Level, Miss, judged_levels, noise_of, rate_of
from bench.analysis.level_values import level_values
from bench.analysis.proportions import Share, requests_needed
from bench.analysis.sensitivity import sensitivity, steps_of
from bench.analysis.sizing import OperatingPoint
from bench.cli import main
from bench.parse.percentiles import percentile
from bench.statistics import isotonic
from bench.study import Slo, parse_slo
from bench.words import capacity
from bench.words.capacity import misses
from bench.words.charts import margin_title
from tests.support.planted import frame, parsed, poisson, queue, rate_row, short_row, steady_row, summary_row, table
from tests.support.study import bare_summary

TTFT = [parse_slo("ttft_p99=2s")]
NEEDS = ("high_needs", "high_needs_at", "unsettled", "unsettled_needs_s")


T6, T9 = 2.4469, 2.2622  # Student's t of 6 and 9 degrees of freedom at 95 %


def with_session(error):
    """A relative half width, together with what one start of a server may be off from the next: 4 %, known as if from six."""
    return (error**2 + (T6 * 0.04) ** 2) ** 0.5


def point(rows, slos=TTFT):
    return operating_points(frame(rows), slos).row(0, named=True)


def missed_by(row):
    return [miss["by"] for miss in row["missed"]]


def curve(summary, ttft, *, levels=(1, 2, 4, 8), **more):
    """A closed loop with one TTFT a level; other columns are lists, one value a level."""
    return [
        steady_row(summary, level, ttft=ttft[i], **{key: values[i] for key, values in more.items()})
        for i, level in enumerate(levels)
    ]


# C_max


def test_c_max_is_the_highest_level_below_the_first_that_misses(summary):
    row = point(curve(summary, [0.5, 1.0, 3.0, 1.9]))
    assert (row["kind"], row["c_max"], row["missed_at"]) == ("found", 2, 4)
    assert (row["operate_at"], row["usable_rps"], row["missed"][0]["reached_s"]) == (2, 4.0, 3.0)
    assert (missed_by(row), row["runs"], row["requests"]) == (["ttft_p99_s"], 1, 400)


def test_the_first_level_that_misses_is_named_with_what_it_misses(summary):
    """4 seems to miss on few requests, 8 meets, and so does what 8 meets at 4; at 16 one of two SLOs is missed."""
    rows = [
        steady_row(summary, 4, requests=20, slow=4),
        steady_row(summary, 8, requests=2000, slow=150),
        steady_row(summary, 16, requests=400, slow=100),
    ]
    row = point(rows, [parse_slo("ttft_p90=1s"), parse_slo("e2e_p90=1s")])
    assert (row["kind"], row["c_max"], row["missed_at"], missed_by(row)) == ("found", 8, 16, ["ttft_p90_s"])


def test_a_narrow_miss_has_the_digits_that_show_it(summary):
    assert capacity.missed(point(curve(summary, [0.5, 2.00004], levels=(1, 2)))) == "TTFT P99 ≤ 2 s (2.00004 s)"


def test_a_latency_of_seconds_is_given_in_seconds_also_beside_a_limit_of_milliseconds(summary):
    assert (
        capacity.missed(point(curve(summary, [0.1, 3.52], levels=(1, 2)), [parse_slo("ttft_p99=500ms")]))
        == "TTFT P99 ≤ 500 ms (3.52 s)"
    )


def test_where_no_request_may_fail_it_is_enough_that_none_did(summary):
    rows = frame(curve(summary, [0.5, 1.0, 9.0], levels=(1, 2, 4)))
    none = operating_points(rows, TTFT, 0.0).row(0, named=True)
    assert none["c_max"] == 2 and 1 <= none["low"] <= 2 < none["high"] <= 4


def test_c_max_outside_of_what_was_measured(summary):
    for limit, kind, c_max in (("100ms", "below", None), ("9s", "above", 8)):
        row = point(curve(summary, [0.5, 1.0, 3.0, 4.0]), [parse_slo(f"ttft_p99={limit}")])
        assert (row["kind"], row["c_max"], row["usable_rps"] is None) == (kind, c_max, kind == "below"), limit


def test_every_slo_has_to_be_met(summary):
    runs = curve(summary, [0.1] * 3, levels=(1, 2, 4), tpot=[0.01, 0.2, 0.3])
    assert point(runs, [*TTFT, parse_slo("tpot_p95=100ms")])["c_max"] == 1


def test_a_percentile_counts_requests_and_not_the_mean_of_runs(summary):
    """2 % of 400 are slower than the limit of a P99, which leaves room for 1 %; of a P95 they are few."""
    rows = [steady_row(summary, 1), steady_row(summary, 2, slow=8)]
    assert point(rows)["missed_at"] == 2
    assert point(rows, [parse_slo("ttft_p95=2s")])["kind"] == "above"


def test_runs_whose_latencies_cannot_be_trusted_decide_nothing(summary):
    runs = curve(summary, [0.1, 0.1, 9.0], levels=(1, 2, 4), wrong_output_tokens=[0, 0, 1])
    assert (point(runs)["kind"], point(runs)["highest"]) == ("above", 2)
    assert point(curve(summary, [0.1, 0.1], levels=(1, 2), wrong_output_tokens=[1, 1]))["kind"] == "unknown"


def test_a_latency_that_no_answer_has_is_no_verdict(summary):
    row = point([steady_row(summary, 1), steady_row(summary, 2, ttft=None)])
    assert (row["kind"], row["c_max"], row["unjudged"]) == ("unjudged", None, None)
    assert (row["missed_at"], missed_by(row)) == (2, ["ttft_p99_s"])


def test_why_no_answer_has_a_latency_is_what_its_runs_show(summary):
    """All of 800 were streamed, and 41 had fewer chunks than tokens: "answers that are not streamed have no TTFT" is no reason."""
    for slo, told, why, words in (
        ("ttft_p99=2s", {"stream": False}, "stream", "as answers are not streamed"),
        ("ttft_p99=2s", {"held_back_answers": 400}, "held_back", "holds answers back"),
        ("tpot_p99=2s", {"unknown_streamed": 41}, "hidden", "as how many tokens their chunks carry is not known"),
        ("tpot_p99=2s", {"unknown_streamed": 400, "uncounted_answers": 400}, "uncounted", "as the server does not count their tokens"),
        ("tpot_p99=2s", {"output_tokens": 1.0}, "single", "as each has a single token"),
    ):  # fmt: skip
        counts = dict.fromkeys(("held_back_answers", "unknown_streamed", "uncounted_answers"), 0)
        row = point([{**steady_row(summary, 800, ttft=None, tpot=None), "stream": True, **counts, **told}], [parse_slo(slo)])
        assert (row["unjudged"], row["missed_at"]) == (why, 800), (slo, told)
        assert words in capacity.sustains(row, burst=False) and words in capacity.c_max(row), (slo, told)


def test_the_instance_is_operated_where_more_load_brings_no_more(summary):
    row = point(curve(summary, [0.1] * 4, rps=[2.0, 3.9, 4.0, 4.0]))
    assert (row["c_max"], row["operate_at"], row["usable_rps"]) == (8, 2, 3.9)


def test_an_open_loop_carries_no_more_than_it_offers(summary):
    """Realised rates differ from those asked by chance; the level is what was offered."""
    rows = [rate_row(summary, 2, rps=2.2), rate_row(summary, 4, rps=4.3)]
    assert point(rows)["usable_rps"] == 4


@settings(deadline=None)
@given(
    st.lists(st.lists(st.floats(0.01, 10), min_size=30, max_size=30), min_size=2, max_size=5),
    st.floats(0.01, 10),
    st.floats(1, 3),
    st.sampled_from(["p50", "p90", "p99"]),
)
def test_a_laxer_limit_never_lowers_c_max(ttft, limit, factor, percentile):
    summary = bare_summary()
    runs = frame([steady_row(summary, i + 1, requests=30, ttft=values) for i, values in enumerate(ttft)])
    slo = Slo("ttft", percentile, limit)
    found = sensitivity(runs, [slo], slo, [limit, limit * factor])
    c_max = dict(found.select("limit_s", "c_max").iter_rows())
    assert c_max.get(limit * factor, 0) >= c_max.get(limit, 0)


# Failures


def test_levels_that_refuse_are_levels_that_miss(summary):
    """32 and 48 in flight refuse half: C_max was `24 or more; no measured load misses`."""
    rows = [steady_row(summary, level, failed=failed) for level, failed in ((8, 0), (16, 0), (24, 0), (32, 200), (48, 200))]
    runs = frame(rows)
    assert runs["valid"].all()
    row = operating_points(runs, TTFT).row(0, named=True)
    assert (row["kind"], row["c_max"], row["missed_at"]) == ("found", 24, 32) and 24 < row["high"] <= 32
    assert "failed" in missed_by(row)
    found = bottleneck(runs, row, TTFT)
    assert found.cause == "refusals"
    assert (found.evidence, found.failed, found.requests) == ("refused", 200, 400)


def test_a_failed_request_exceeds_every_limit(summary):
    """3 % fail at 2, and nothing is slow: a P99 is missed by that, as is a P95 where a further 3 % are slow."""
    assert point([steady_row(summary, 1), steady_row(summary, 2, failed=12)])["missed_at"] == 2
    rows = [steady_row(summary, 1), steady_row(summary, 2, requests=1000, failed=8, slow=60)]
    row = point(rows, [parse_slo("ttft_p95=2s")])
    assert (row["missed_at"], missed_by(row)) == (2, ["ttft_p95_s"])


def test_a_level_where_everything_fails_carries_nothing(summary):
    row = point([steady_row(summary, 1), steady_row(summary, 2, failed=400, rps=0.0)])
    assert (row["c_max"], row["high"], row["usable_rps"]) == (1, 2, 2.0)


def test_refusals_come_through_parse_and_aggregate():
    """A server that refuses every other request of 12/s, and none of 6/s."""
    runs = []
    for rate, failed in ((6.0, set()), (12.0, set(range(0, 1200, 2)))):
        sent = poisson(rate, 1200, 1)
        runs.append(parsed(table(sent, queue(sent, 0.04), failed=failed), rate=rate, slos=TTFT, run=f"r{rate}"))
    row = point(runs)
    assert row["c_max"] == 6 and 5.5 < row["low"] < row["high"] < 12
    assert "failed" in missed_by(row)


def test_a_share_of_failures_that_is_small_by_chance_is_no_lower_end(summary):
    """9 of 1,000 fail at 8, where 1 % may: it is the estimate, and nothing to be sure of."""
    rows = [steady_row(summary, level, requests=1000, failed=failed) for level, failed in ((4, 0), (8, 9), (16, 300))]
    row = point(rows, [parse_slo("ttft_p95=2s")])
    assert 4 <= row["low"] < 8 == row["c_max"] < row["high"] < 16
    assert (row["low_needs"], row["requests"]) == ("requests", 1000)


def test_levels_above_bound_the_failures_of_a_level(summary):
    """1 of 400 fails at each: alone up to 1.4 %, 2 of 800 up to 0.9 %, so that more is known of all levels but the highest."""
    rows = [steady_row(summary, level, failed=1) for level in (2, 4, 6, 8)]
    row = point(rows, [parse_slo("ttft_p95=2s")])
    assert row["c_max"] == 8 >= row["low"] >= 6


def test_few_requests_without_a_failure_are_enough_where_nothing_fails_above_either(summary):
    slo = [parse_slo("ttft_p90=2s")]
    never = [steady_row(summary, level, requests=100, slow=slow) for level, slow in ((4, 0), (8, 0), (16, 60))]
    assert (point(never, slo)["c_max"], point(never, slo)["low"], point(never, slo)["high"]) == (8, 8, 16)
    refusing = [steady_row(summary, level, requests=100, failed=failed) for level, failed in ((4, 0), (8, 0), (16, 60))]
    row = point(refusing, slo)
    assert row["c_max"] == 8 > (row["low"] or 0) and row["high"] <= 16
    assert (row["low_needs"], row["low_needs_requests"]) == ("requests", requests_needed(0.01))


def test_the_lower_end_of_a_server_that_refuses_ever_more_is_a_load_that_it_carries(summary):
    """Of the load x it refuses (x ÷ 10)^5 %: 1 % at 10/s, 0.8 % at 9.5 and 1.3 % at 10.5, which 1,500 requests hardly tell apart."""
    draw = np.random.default_rng(4)
    beyond = 0
    for _ in range(40):
        rows = []
        for rate in (7.0, 8.0, 9.0, 9.5, 10.0, 10.5, 11.0, 13.0):
            lost = draw.random(1500) < 0.01 * (rate / 10) ** 5
            judged = [{"ok": not fails, "ttft": 0.1, "tpot": 0.01, "e2e": 0.5} for fails in lost.tolist()]
            rows.append({**rate_row(summary, rate, requests=1500), "judged": judged})
        found = point(rows, [parse_slo("ttft_p95=2s")])
        beyond += (found["low"] or 0) > 10
    assert beyond <= 2  # 5 %


# Overload, and levels without a steady state


def test_a_level_whose_requests_pile_up_is_not_carried(summary):
    """Its latencies meet the SLO still: the queue has only begun to grow."""
    row = point([rate_row(summary, 5), rate_row(summary, 10, growth=0.34, growth_error=0.04, rps=6.6)])
    assert (row["c_max"], missed_by(row)) == (5, ["growth"])
    assert 5 < row["low"] < 6.6 < row["high"] < 10  # more than 34 % may stay where requests share the server
    assert row["missed"][0]["growth"] == 0.34
    assert row["usable_high"] >= 6.6


def test_a_level_that_is_not_steady_decides_nothing_and_says_how_long_it_takes(summary):
    row = point([steady_row(summary, 4), short_row(steady_row(summary, 8), 47.2)])
    assert (row["kind"], row["c_max"], row["high"]) == ("above", 4, None)
    assert [row[key] for key in NEEDS] == ["unsettled", 8, "short", 48]
    alone = point([short_row(steady_row(summary, 8), 47.2)])
    assert [alone[key] for key in ("kind", "c_max", "usable_rps", "unsettled_needs_s")] == ["unsettled", None, None, 48]


# How sure, on both sides


def test_enough_requests_establish_both_ends(summary):
    row = point(curve(summary, [0.1, 0.1, 0.1, 3.0], requests=[1000] * 4))
    assert (row["c_max"], row["low"], row["high"], row["low_needs"], row["high_needs"]) == (4, 4, 8, None, None)
    assert row["usable_low"] < row["usable_rps"] == 8 < row["usable_high"]


def test_few_requests_establish_no_lower_end_and_say_how_many_would(summary):
    row = point(curve(summary, [0.1, 3.0], levels=(4, 8), requests=[60] * 2))
    assert (row["c_max"], row["low"], row["usable_low"]) == (4, None, None)
    assert (row["low_needs"], row["low_needs_requests"], row["requests"]) == ("requests", requests_needed(0.01), 60)


def test_no_upper_end_without_a_level_that_significantly_misses(summary):
    row = point(curve(summary, [0.1] * 4))
    assert (row["kind"], row["high"], row["usable_high"]) == ("above", None, None)
    assert (row["high_needs"], row["high_needs_at"]) == ("levels", 8)
    # 3 of 100 are more than a P99 leaves room for, and no proof: 0.6 to 8.5 %.
    near = point([steady_row(summary, 4), steady_row(summary, 8, requests=100, slow=3)])
    assert (near["kind"], near["missed_at"], near["high"]) == ("found", 8, None)
    assert (near["high_needs"], near["high_needs_at"]) == ("requests", 8)


def test_an_upper_end_beyond_the_highest_level_is_not_established_by_rounding():
    """10.04 has the three digits of 10, and was not measured."""
    levels = [Level(load, []) for load in (5.0, 10.0)]
    assert limit_ends(Belief(np.array([6, 10.04])), levels, whole=False) == (6, None)
    assert limit_ends(Belief(np.array([6, 9.996])), levels, whole=False) == (6, 10)


def test_both_ends_of_a_planted_share(summary):
    """2 % miss at 8 where a P95 allows 5 %, 20 % at 16: of 1,000 requests each, both are sure, and the limit lies between."""
    rows = [steady_row(summary, level, requests=1000, slow=slow) for level, slow in ((4, 0), (8, 20), (16, 200))]
    row = point(rows, [parse_slo("ttft_p95=2s")])
    assert row["low"] in (7, 8) and row["c_max"] == 8
    assert 10 < row["high"] <= 16


def test_misses_in_clusters_are_less_sure_than_as_many_apart(summary):
    """15 of 1,000 miss, where 5 % may: apart they surely meet the limit; as one cluster, of one bad moment, not."""
    slo = [parse_slo("ttft_p95=2s")]
    apart = steady_row(summary, 4, requests=1000, slow=15)
    together = steady_row(summary, 4, requests=1000, ttft=[9.0] * 15 + [0.1] * 985)
    assert point([apart], slo)["low"] == 4
    row = point([together], slo)
    assert (row["low"] or 0) < 4
    assert row["requests"] == 1000 < row["low_needs_requests"]  # of requests that resemble their neighbours as much


def test_repeats_that_differ_widen_the_interval_of_the_rate(summary):
    def width(rates):
        rows = [{**steady_row(summary, 4, rps=rps), "repeat": i, "run": f"r{i}"} for i, rps in enumerate(rates)]
        row = point([*rows, *({**steady_row(summary, 8, ttft=9.0), "repeat": i, "run": f"m{i}"} for i in range(3))])
        assert row["usable_rps"] == pytest.approx(8)
        return row["usable_rps"] - row["usable_low"]

    # 3 runs at 4 and 3 alike at 8: Student's t of 2 + 2 degrees of freedom, 2.776, × √(2 ÷ 4) ÷ √3, and what a session is off from the
    # next, 2.447 × 4 % of 8.
    between = 2.447 * 0.04 * 8
    assert width([7.0, 8.0, 9.0]) == pytest.approx(((2.776 * 0.5**0.5 / 3**0.5) ** 2 + between**2) ** 0.5, rel=1e-3)
    assert between < width([8.0, 8.0, 8.0]) < 1.1 * between


def test_sessions_narrow_the_interval_where_they_agree_and_widen_it_where_they_do_not(summary):
    def width(rates):
        rows = [{**steady_row(summary, 4, rps=rps), "session": i, "run": f"r{i}"} for i, rps in enumerate(rates, start=1)]
        row = point([*rows, steady_row(summary, 8, ttft=9.0)])
        return (row["usable_rps"] - row["usable_low"]) / row["usable_rps"]

    # Four alike: the variance of one, 0.0016, with a weight of 6, in 6 + 3 degrees of freedom, of which the mean has a quarter.
    between = 2.262 * (6 * 0.0016 / 9 / 4) ** 0.5
    assert width([8.0] * 4) == pytest.approx(between, rel=1e-3)  # 1 % of error in each run is less
    # Four that differ: they show it by themselves, Student's t of 3 degrees of freedom × 1.826 ÷ √4.
    assert width([6.0, 7.0, 9.0, 10.0]) == pytest.approx(3.182 * (10 / 3) ** 0.5 / 2 / 8, rel=1e-3)


def test_no_rate_is_below_0(summary):
    """Student's t of two degrees of freedom, 4.3 × 5 ÷ √3, is more than the rate, 8."""
    rows = [{**steady_row(summary, 4, rps=rps), "repeat": i, "run": f"r{i}"} for i, rps in enumerate([3.0, 8.0, 13.0])]
    assert point([*rows, steady_row(summary, 8, ttft=9.0)])["usable_low"] == 0


def test_two_runs_of_a_level_have_the_noise_of_all_levels(summary):
    """9.5 and 11.9 requests/s at 18: Student's t of one degree of freedom made it 0 to 25.9."""
    twice = [{**steady_row(summary, 18, rps=rps), "repeat": i, "run": f"r{i}"} for i, rps in enumerate([9.5, 11.9])]
    others = [steady_row(summary, 12, rps=10.2), steady_row(summary, 29, ttft=9.0, rps=10.8)]
    alone = point([*twice, *others])
    assert 6 < alone["usable_low"] < alone["usable_rps"] < alone["usable_high"] < 15
    # Levels with repeats of their own: five degrees of freedom.
    again = [{**row, "repeat": i, "run": f"{row['level']}{i}"} for row in others for i in range(3)]
    assert 8.5 < point([*twice, *again])["usable_low"] < point([*twice, *again])["usable_high"] < 12.5


def test_the_interval_of_a_rate_holds_the_planted_one():
    """Runs of several sessions, which differ by 3 % beside the noise; 10 requests/s at each level."""
    for layout, noise in (((1, 2, 1), 0.04), ((1, 2, 1), 0.1), ((2, 2, 2), 0.04), ((2, 2, 2), 0.2), ((3, 1), 0.1)):
        random = np.random.default_rng(5)
        held = []
        for _ in range(400):
            speeds = 1 + 0.03 * random.standard_normal(3)
            levels = [
                Level(
                    float(i),
                    [{"steady_requests_per_s": 10 * speeds[k] * math.exp(noise * random.standard_normal()), "steady_error": 0.01, "session": k + 1}
                     for k in range(count)],
                )
                for i, count in enumerate(layout)
            ]  # fmt: skip
            rate, error = rate_of(levels[layout.index(max(layout))].rows, None, noise_of(levels))
            held.append(abs(rate - 10) <= error)
        assert np.mean(held) >= 0.93, (layout, noise)


def test_more_load_never_helps(summary):
    """By chance 4 looks worse than 8: together they are judged by both, and both meet."""
    slo = [parse_slo("ttft_p95=2s")]
    slow = {1: 0, 2: 0, 4: 40, 8: 4}
    rows = [steady_row(summary, level, requests=1000, slow=count) for level, count in slow.items()]
    assert point(rows, slo)["c_max"] == 8


def test_nothing_above_a_sure_miss_counts(summary):
    row = point([steady_row(summary, 1), steady_row(summary, 2, ttft=9.0), *(steady_row(summary, n) for n in (4, 8, 16, 32))])
    assert row["c_max"] in (None, 1) and row["missed_at"] <= 2 and row["low"] in (None, 1)


# Bursts


def test_a_burst_is_judged_and_sizes_no_fleet(summary, tmp_path, capsys):
    burst = {"arrival": "burst", "steady": None, "steady_from_s": None, "steady_requests_per_s": None}
    rows = [steady_row(summary, level, ttft=ttft, **burst) for level, ttft in ((4, 0.1), (8, 0.1), (16, 9.0))]
    runs = frame(rows)
    row = operating_points(runs, TTFT).row(0, named=True)
    assert (row["basis"], row["c_max"], row["missed_at"]) == ("burst", 8, 16)
    assert (row["usable_rps"], row["usable_low"], row["usable_high"]) == (None, None, None)
    assert OperatingPoint.of(row, runs.row(0, named=True)) is None
    runs.write_parquet(tmp_path / "summary.parquet")
    assert main(["size", str(tmp_path), "--slo", "ttft_p99=2s", "--peak-rps", "10"]) == 2
    assert "a burst does not show what an instance carries in the long run" in capsys.readouterr().err


# Shares of requests


def test_the_interval_of_a_share_by_hand():
    """0 of n: the upper end is 1 − 0.025^(1 / n); all of n: the lower end is 0.025^(1 / n)."""
    assert Share(0, 100).interval() == (0.0, pytest.approx(1 - 0.025**0.01))
    assert Share(100, 100).interval() == (pytest.approx(0.025**0.01), 1.0)
    assert Share(0, 0).interval() == (0.0, 1.0)
    # Clopper and Pearson's 95 % interval of 10 of 100, from their charts and every table since.
    assert Share(10, 100).interval() == (pytest.approx(0.0490, abs=5e-5), pytest.approx(0.1762, abs=5e-5))


def test_requests_for_a_share_by_hand():
    """Without a miss, n requests show less than 1 % where 0.99^n ≤ 0.025: from 367.04 on."""
    exact = 368
    assert Share(0, exact).interval()[1] <= 0.01 < Share(0, exact - 1).interval()[1]
    assert exact <= requests_needed(0.01) <= 1.05 * exact
    assert requests_needed(0.01, spread=3.0) >= 3 * exact
    assert requests_needed(0.05, share=0.02) > requests_needed(0.05)
    assert requests_needed(0.01, share=0.0095) is None
    assert requests_needed(1e-8) is None  # more than anybody sends: 369 million


def test_the_interval_holds_the_true_share():
    for share in (0.01, 0.05, 0.3):
        draw = np.random.default_rng(1)
        inside = 0
        for _ in range(400):
            low, high = Share.of([draw.random(300) < share for _ in range(3)]).interval()
            inside += low <= share <= high
        assert inside >= 0.93 * 400, share


def test_the_interval_holds_the_true_share_of_requests_that_miss_in_clusters():
    """Of `size` neighbours all miss or none: as in a queue that is long for a while."""
    for size in (5, 10):
        draw = np.random.default_rng(2)
        inside = plain = 0
        for _ in range(400):
            runs = [np.repeat(draw.random(600 // size) < 0.05, size) for _ in range(3)]
            low, high = Share.of(runs).interval()
            inside += low <= 0.05 <= high
            low, high = Share(sum(run.sum() for run in runs), 1800).interval()
            plain += low <= 0.05 <= high
        assert inside >= 0.93 * 400, size
        assert plain < 0.85 * 400, size  # as if they were independent


def test_the_interval_holds_the_true_share_where_rounds_differ():
    """Three in four rounds miss nothing, and one misses 12 %: 3 % of all."""
    draw = np.random.default_rng(3)
    inside = 0
    for _ in range(400):
        runs = [draw.random(300) < (0.12 if draw.random() < 0.25 else 0.0) for _ in range(8)]
        low, high = Share.of(runs).interval()
        inside += low <= 0.03 <= high
    assert inside >= 0.88 * 400  # eight rounds, two of them bad in the mean, tell little


def test_a_series_that_never_falls_by_hand():
    assert isotonic([1, 2, 3], [1, 1, 1]).tolist() == [1, 2, 3]
    assert isotonic([3, 1, 2], [1, 1, 1]).tolist() == [2, 2, 2]
    assert isotonic([1, 3, 2], [1, 1, 1], rising=False).tolist() == [2, 2, 2]
    assert isotonic([0, 0.04, 0.01, 0.5], [1, 1, 3, 1]).tolist() == pytest.approx([0, 0.0175, 0.0175, 0.5])
    assert isotonic([], []).tolist() == []


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.1, 10)), min_size=1, max_size=12))
def test_smoothing_keeps_the_mean_and_never_falls(values):
    shares, weights = zip(*values, strict=True)
    smoothed = isotonic(shares, weights)
    assert all(b >= a - 1e-12 for a, b in itertools.pairwise(smoothed))
    assert np.average(smoothed, weights=weights) == pytest.approx(np.average(shares, weights=weights), abs=1e-9)


def test_a_level_is_judged_with_what_other_loads_show(summary):
    """30 of 300 at 10.5 are too many for a P95; none at 11 shows that they were so many by chance."""
    slo = [parse_slo("ttft_p95=2s")]
    slow = {9.0: 4, 9.5: 6, 10.0: 8, 10.5: 30, 11.0: 0, 11.5: 120}

    def c_max(loads):
        return point([steady_row(summary, load, requests=300, slow=slow[load]) for load in loads], slo)["c_max"]

    assert (c_max((9.0, 9.5, 10.0, 10.5)), c_max(slow)) == (10, 11)


def test_refusals_at_a_load_do_not_count_against_the_one_below(summary):
    """It refuses 30 % from 11 on, and no request misses anything below: 10.5 is carried, however near 11 is."""
    for requests, limit in ((100, "ttft_p95=2s"), (300, "ttft_p99=2s")):
        refused = {10.0: 0, 10.5: 0, 11.0: 0.3 * requests, 11.5: 0.3 * requests}
        rows = [steady_row(summary, level, requests=requests, failed=round(count)) for level, count in refused.items()]
        row = point(rows, [parse_slo(limit)])
        assert (row["c_max"], row["missed_at"], row["high"]) == (10.5, 11, 11), requests


def test_of_failures_the_share_that_was_seen_decides(summary):
    """0.9 % fail at 10.5, where 1 % may, whatever does at the loads about it."""
    for row in (steady_row, rate_row):
        failed = {10.0: 16, 10.5: 18, 11.0: 60}
        slo = [parse_slo("ttft_p50=2s")]
        found = point([row(summary, load, requests=2000, failed=count) for load, count in failed.items()], slo)
        assert (found["c_max"], found["missed_at"]) == (10.5, 11), row


def test_a_confidence_has_its_interval_and_a_spread_counts_as_fewer_requests():
    """0 of n at 40 %: 30 % are left on either side, and the upper end is 1 − 0.3^(1 / n)."""
    assert Share(0, 100).interval(0.4) == (0.0, pytest.approx(1 - 0.3**0.01))
    assert Share(20, 200, 2.0).interval() == Share(10, 100).interval()


def test_the_spread_of_misses_by_hand():
    for runs, spread in (
        # 10 parts of 40, one of which has all 40 misses of 400: (36² + 9 × 4²) ÷ (40 × 0.1 × 0.9) ÷ 9.
        ([[1] * 40 + [0] * 360], 1440 / 3.6 / 9),
        ([[1] * 20 + [0] * 20], 40),  # two parts of 20: (10² + 10²) ÷ (20 × 0.5 × 0.5)
        ([[1] * 19 + [0] * 19], 1),  # too few for two parts
        ([[1, 0] * 200], 1),  # as even as can be: never below that of independent requests
        # Parts of 20 with 10, 10, 0 and 0 of 5 expected, runs with 20 and 0 of 10: the runs differ by more.
        ([[1, 0] * 20, [0] * 40], 200 / 7.5),
        ([[1] * 9, []], 1),
    ):
        assert Share.of([np.array(run, dtype=bool) for run in runs]).spread == pytest.approx(spread), runs


# Each rule by itself


def test_the_rate_of_repeats_by_hand(summary):
    """Their errors in squares: √(1 + 4 + 4) is 3 %, ÷ 3 runs; Student's t of 9 degrees of freedom is 2.262. And what one session shows."""

    def rate(level, errors, *, offered=False):
        axis = {"axis": "request_rate", "arrival": "poisson"} if offered else {}
        rows = [summary_row(**steady_row(summary, level, rps=8.0, steady_error=error) | axis) for error in errors]
        ((found,), _) = judged_levels(rows, TTFT, 0.01)
        return found.rate, found.error

    assert rate(7.5, (0.01, 0.02, 0.02)) == (8, pytest.approx(8 * with_session(0.01 * T9), rel=1e-4))
    assert [rate(level, (0.01, 0.02, 0.02), offered=True)[0] for level in (7.5, 8.5)] == [7.5, 8]
    assert rate(7.5, (None,)) == (8, pytest.approx(8 * T6 * 0.04, rel=1e-4))


def test_a_queue_that_may_grow_asks_for_longer_runs(summary):
    """5 ± 3 % of what comes stays: by that alone perhaps, and by 40 % at 20 not likely."""
    row = point(
        [rate_row(summary, 5), rate_row(summary, 10, growth=0.05, growth_error=0.03), rate_row(summary, 20, growth=0.4)]
    )
    assert row["c_max"] == 10 > row["low"] > 5
    assert row["low_needs"] == "longer"


def test_as_many_digits_as_show_that_it_is_over_2():
    for value, words in (
        (3.14159, "3.14"),
        (2.04, "2.04"),
        (2.0004, "2.0004"),
        (2.0000001, "2.0000001"),
        (2.00000001, "2.00000001"),
    ):
        assert misses([Miss("ttft_p99_s", 2.0, value, 0.5, 200, 400)]) == f"misses TTFT P99 ≤ 2 s ({words} s)", value


def test_a_percentile_is_missed_by_failures_or_by_its_time(summary):
    """20 of 100 fail, and what is answered is quick: no time shows it."""
    fails = point([steady_row(summary, 1, requests=100, failed=20)], [parse_slo("ttft_p95=2s")])
    assert ("ttft_p95_s", 0.2, None) in [(miss["by"], miss["share"], miss["reached_s"]) for miss in fails["missed"]]
    # Of 10 the P90 is the ninth, as in tables and figures.
    slow = point([steady_row(summary, 1, requests=10, ttft=[0.1] * 8 + [4.0, 5.0])], [parse_slo("ttft_p90=2s")])
    assert slow["missed"][0]["reached_s"] == 4


def test_1_percent_may_fail_unless_said_otherwise(summary):
    for failed, c_max in ((4, 2), (5, 1)):
        slo = parse_slo("ttft_p90=2s")
        runs = frame([steady_row(summary, 1), steady_row(summary, 2, failed=failed)])
        assert operating_points(runs, [slo])["c_max"].to_list() == [c_max], failed
        assert sensitivity(runs, [slo], slo, [2.0])["c_max"].to_list() == [c_max], failed


def test_limits_move_one_slo_and_those_that_nothing_meets_have_no_row(summary):
    slos = [*TTFT, parse_slo("tpot_p95=100ms")]
    runs = frame(curve(summary, [0.5, 1.0, 3.0, 4.0], tpot=[0.01, 0.01, 0.01, 0.2]))
    found = sensitivity(runs, slos, slos[0], [0.1, 0.7, 3.5, 9.0])
    assert found.select("limit_s", "c_max", "usable_rps").rows() == [(0.7, 1, 2), (3.5, 4, 8), (9.0, 4, 8)]


def test_limits_are_tried_where_something_changes(summary):
    """At each level's value and 5 and 20 % above: the percentile of all requests that are judged, or else the mean of the runs."""
    rows = [
        {**steady_row(summary, 4, ttft=value), "repeat": i, "run": f"r{i}", "ttft_p99_s": 7.0, "steady_ttft_p99_s": value}
        for i, value in enumerate((0.1, 0.4))
    ]
    rows.append({**steady_row(summary, 8, ttft=2.0, failed=40), "ttft_p99_s": 7.0, "steady_ttft_p99_s": None})
    assert steps_of(frame(rows), TTFT[0]) == pytest.approx([0.4, 0.42, 0.48])  # at 8 too many failed
    runs = frame([{**row, "judged": None} for row in rows])
    assert steps_of(runs, TTFT[0]) == pytest.approx([0.25, 0.2625, 0.3])
    assert steps_of(runs.with_columns(steady_from_s=pl.lit(None, pl.Float64)), TTFT[0]) == pytest.approx([7.0, 7.35, 8.4])


def test_what_is_carried_is_the_mean_of_the_runs_of_one_level(summary):
    more = {
        "prompt_tokens": 30.0,
        "output_tokens": 20.0,
        "in_flight_peak": 5,
        "steady_in_flight": 3.8,
        "steady_tokens_per_s": 90.0,
    }
    one = {**steady_row(summary, 4, e2e=0.5, rps=7.0), **more, "repeat": 0, "run": "r0"}
    two = {**steady_row(summary, 4, e2e=0.7, rps=9.0), "repeat": 1, "run": "r1", "prompt_tokens": 34.0, "output_tokens": 10.0,
           "in_flight_peak": 4, "steady_in_flight": 3.6, "steady_tokens_per_s": None}  # fmt: skip
    row = point([one, two, steady_row(summary, 8, ttft=9.0)])
    told = {"runs": 2, "requests": 800, "usable_rps": 8, "latency_s": 0.6, "prompt_tokens": 32, "output_tokens": 15,
            "in_flight_peak": 4.5, "in_flight": 3.7, "tokens_per_s": 90}  # fmt: skip
    assert {name: row[name] for name in told} == pytest.approx(told)


def test_a_bursts_numbers_are_those_of_the_whole_run(summary):
    none = {"arrival": "burst", "steady": None, "steady_from_s": None, "steady_requests_per_s": None}
    whole = {"e2e_mean_s": 1.5, "client_in_flight_mean": 3.5, "throughput_tokens_per_s": 70.0}
    window = {"steady_e2e_mean_s": 9.0, "steady_in_flight": 9.0, "steady_tokens_per_s": 9.0}
    rows = [steady_row(summary, 4, **none, **whole, **window), steady_row(summary, 8, ttft=9.0, **none)]
    row = point(rows)
    assert (row["latency_s"], row["in_flight"], row["tokens_per_s"], row["operate_at"]) == (1.5, 3.5, 70, 4)
    empty = point([{**rows[0], "judged": []}])
    assert (empty["kind"], empty["unsettled"]) == ("unsettled", "empty")


def test_the_ends_of_the_rate_are_those_of_all_levels_on_their_side(summary):
    """1 % of error at 1, 20 % at 2: the lower end is 1's. Nothing above the first sure miss counts."""
    rows = curve(summary, [0.1, 0.1, 9.0, 9.0], rps=[4.0, 5.0, 3.0, 50.0], steady_error=[0.01, 0.2, 0.01, 0.01])
    row = point(rows)
    assert (row["operate_at"], row["usable_rps"], row["low"], row["high"]) == (2, 5, 2, 4)
    assert row["usable_low"] == pytest.approx(4 * (1 - with_session(0.01 * T9)), rel=1e-4)
    assert row["usable_high"] == pytest.approx(5 * (1 + with_session(0.2 * T9)), rel=1e-4)
    # Operated at 1, which carries nearly as much: no end is on the wrong side of it.
    near = point(
        curve(
            summary, [0.1, 0.1, 9.0], levels=(1, 2, 4), rps=[3.9, 4.0, 2.0], steady_error=[0.5, 0.01, 0.01], requests=[1000] * 3
        )
    )
    assert (near["operate_at"], near["usable_low"]) == (1, pytest.approx(4 * (1 - with_session(0.01 * T9)), rel=1e-4))
    # At 4 too few requests to be sure: what it carries is no lower end.
    unsure = point(curve(summary, [0.1, 0.1, 9.0], levels=(2, 4, 8), requests=[400, 60, 400]))
    assert (unsure["c_max"], unsure["low"], unsure["usable_rps"]) == (4, 2, 8)
    assert 4 * (1 - with_session(0.01 * T9)) < unsure["usable_low"] < 5


def test_the_interval_of_the_rate_has_both_of_its_errors_at_once():
    """A limit anywhere from 6 to 10, where a request in flight brings 2/s, and starts of the server that differ by 5 %: of rates drawn
    from both as often as an interval is to hold them, it holds so many. The worst of both together is wider.
    """
    random = np.random.default_rng(3)
    levels = [Level(load, [], rate=2 * load, error=0.05 * 2.2414 * 2 * load) for load in (4.0, 8.0, 16.0)]
    limits = np.sort(random.uniform(6, 10, 400))
    low, high = rates_within(limits, levels).interval
    planted = 2 * random.uniform(6, 10, 20_000) * (1 + 0.05 * random.standard_normal(20_000))
    assert np.mean((planted >= low) & (planted <= high)) == pytest.approx(NOMINAL, abs=0.005)
    assert 12 * (1 - 0.05 * 2.2414) < low < high < 20 * (1 + 0.05 * 2.2414)


def test_more_load_than_brings_the_most_takes_nothing_from_the_rate():
    levels = [Level(load, [], rate=rate) for load, rate in ((4.0, 8.0), (8.0, 12.0), (16.0, 6.0))]
    assert rates_within(np.array([4.0, 6.0, 8.0, 12.0, 16.0]), levels).interval == (8, 12)
    assert rates_within(np.array([2.0]), levels).interval == (4, 4)


def test_no_rate_is_beyond_what_the_server_gave():
    """Of 30/s it gave 19: a limit anywhere up to there is no rate of 28/s."""
    levels = [Level(17.7, [], rate=17.6, error=1.0, offered=17.7), Level(30.0, [], rate=19.0, error=1.0, offered=30.0)]
    low, high = rates_within(np.linspace(17.7, 30.0, 100), levels).interval
    assert 16 < low < high < 20.5


def test_the_interval_of_a_rate_ends_at_what_the_server_may_have_given(summary):
    """Of 20/s and of 30/s it gave 17 ± 3.8: that 20 were offered makes no 23.8 of them."""
    noisy = {"rps": 17.0, "steady_error": 0.1}
    row = point([rate_row(summary, 10), rate_row(summary, 20, **noisy), rate_row(summary, 30, ttft=9.0, **noisy)])
    assert (row["c_max"], row["usable_rps"]) == (20, 17)
    assert 17 < row["usable_high"] < 21.5


def test_97_percent_of_the_most_is_as_good(summary):
    assert point(curve(summary, [0.1] * 2, levels=(1, 2), rps=[3.89, 4.0]))["operate_at"] == 1
    assert point(curve(summary, [0.1] * 2, levels=(1, 2), rps=[3.87, 4.0]))["operate_at"] == 2


def test_an_open_loop_carries_what_it_is_offered_as_far_as_the_server_gave_it(summary):
    row = point([rate_row(summary, 5), rate_row(summary, 10, ttft=9.0, rps=9.9)])
    assert row["usable_rps"] == 5 < row["high"] < row["usable_high"] < 10.5
    row = point([rate_row(summary, 5), rate_row(summary, 10, ttft=9.0, rps=6.6)])
    assert row["usable_rps"] == 5 < row["usable_high"] < 7 < row["high"]
    conversations = point([rate_row(summary, 5, turns=3, rps=14.0), rate_row(summary, 10, turns=3, ttft=9.0, rps=6.6)])
    assert (conversations["unit"], conversations["usable_rps"]) == ("conversations/s", 14)
    assert conversations["usable_high"] == pytest.approx(14 * (1 + with_session(0.01 * T9)), rel=1e-4)


def test_the_unit_of_a_load(summary):
    for axis, turns, unit in (("concurrency", 1, "requests in flight"), ("users", 2, "users"), ("request_rate", 1, "requests/s"), ("request_rate", 2, "conversations/s"),
     ("time_scale", 1, "times the trace's speed")):  # fmt: skip
        assert point([steady_row(summary, 4, axis=axis, turns=turns)])["unit"] == unit, (axis, turns)


def test_the_lower_end_needs_what_the_hardest_limit_needs(summary):
    """Two runs of 60 without a miss are too few for a P99, and enough for a P95."""
    both = [*TTFT, parse_slo("ttft_p95=2s")]
    rows = [{**steady_row(summary, 4, requests=60), "repeat": i, "run": f"r{i}"} for i in range(2)]
    row = point(rows, both)
    assert (row["low_needs_requests"], row["requests"]) == (requests_needed(0.01), 120)
    # Of a cluster of 15 in 1,000, in ten parts of 100: (13.5² + 9 × 1.5²) ÷ (100 × 0.015 × 0.985) ÷ 9 times as many.
    together = point([steady_row(summary, 4, requests=1000, ttft=[9.0] * 15 + [0.1] * 985)], [parse_slo("ttft_p95=2s")])
    needed = requests_needed(0.05, share=0.015, spread=202.5 / 1.4775 / 9)
    assert (together["low_needs_requests"], together["requests"]) == (needed, 1000)


def test_a_level_too_near_its_limit_needs_other_levels(summary):
    """10 of 1,000 fail where 1 % may: no number of requests would be sure to show that it is less."""
    row = point([steady_row(summary, 4, requests=1000, failed=10)], [parse_slo("ttft_p50=2s")])
    assert (row["c_max"], row["low_needs"]) == (4, "rounds")


def test_no_level_below_the_lowest_is_asked_for():
    for low, c_max, words in (
        (None, 1, "more rounds would establish the lower end."),
        (None, 2, "more rounds or a lower level would establish the lower end."),
        (2, 8, "more rounds, or levels between 2 and 8, would raise the lower end."),
    ):
        row = {"low_needs": "rounds", "low": low, "c_max": c_max, "axis": "concurrency", "unit": "requests/s"}
        load = "1 request/s" if c_max == 1 else f"{c_max} requests/s"
        assert capacity.low_needs(row) == f"A load of {load} is too near the limit to be established: {words}", (low, c_max)


def test_a_level_that_significantly_meets_carries_those_below(summary):
    """6 % of 1,000 at 4 are over a P95 and no sure miss, none of 200 at 8 is: what 8 carries, 4 does."""
    slo = [parse_slo("ttft_p95=2s")]
    row = point([steady_row(summary, 4, requests=1000, slow=60), steady_row(summary, 8, requests=200)], slo)
    assert (row["kind"], row["c_max"]) == ("above", 8)
    assert point([steady_row(summary, 4, requests=1000, slow=60)], slo)["kind"] == "below"


def test_a_level_in_the_middle_that_is_not_steady_hides_no_upper_end(summary):
    row = point([steady_row(summary, 1), short_row(steady_row(summary, 2), 47.2), steady_row(summary, 4)])
    assert (row["kind"], row["highest"], row["high_needs"], row["high_needs_at"]) == ("above", 4, "levels", 4)


def test_the_longest_of_what_runs_need_is_asked_for(summary):
    rows = [
        {**short_row(steady_row(summary, 8), needs), "repeat": i, "run": f"r{i}"} for i, needs in enumerate((20.0, 47.2, None))
    ]
    assert [point(part)["unsettled_needs_s"] for part in (rows, rows[2:])] == [48, None]
    assert (point(rows)["missed_at"], point(rows)["highest"]) == (8, 8)


def test_the_percentile_of_a_miss_is_the_one_that_tables_and_figures_have(summary):
    """Of 40 requests P95 is the 38th: two that take longer are no percentile over the limit, and too few to tell."""
    slow = [3.0, *[0.5] * 19] * 2
    burst = steady_row(summary, 20, requests=40, e2e=slow) | {"arrival": "burst"}
    (level,), _ = judged_levels([burst], [parse_slo("e2e_p95=1s")], 0.01)
    (missed,) = level.missed
    assert missed.reached_s == percentile(pl.Series(slow), 0.95) == 0.5
    assert (
        misses([missed.miss])
        == "is too close to tell: E2E P95 ≤ 1 s is met with a probability of 49 % (500 ms there); send more requests"
    )


def test_a_limit_that_is_met_is_not_named_as_missed(summary):
    """Of 40 requests at 8 none has a TTFT over 2 s, and one in 20 takes longer than 1 s: that is within P95 ≤ 1 s, and too few to tell."""
    slow = [1.2, *[0.5] * 19] * 2
    slos = [parse_slo("e2e_p95=1s"), parse_slo("ttft_p99=2s")]
    alone, with_another = (
        point([steady_row(summary, 8, requests=40, e2e=slow, ttft=ttft) | {"arrival": "burst"}], slos) for ttft in (0.5, 3.0)
    )
    assert (alone["kind"], alone["missed"][0]["close"], capacity.too_close(alone)) == ("below", True, True)
    assert capacity.c_max(alone) == "too close to tell at 8 requests in flight, the lowest level"
    said = "No measured load is shown to be sustained: at 8 requests in flight, the lowest, it is too close to tell: E2E P95 ≤ 1 s is met"
    assert capacity.sustains(alone, burst=True).startswith(said)
    assert (capacity.with_texts(alone)["missed_by"], margin_title(pl.DataFrame([alone]), slos)) == (None, None)
    assert (missed_by(with_another), capacity.first_missed(with_another)) == (["ttft_p99_s"], "misses TTFT P99 ≤ 2 s (3 s)")


def test_a_level_counts_as_within_and_its_requests_exceed_the_limit(summary):
    """One of two runs at 12 is over the limit, by a little: the sentence says what the table of levels has."""
    tails = {2: (0.3, 0.31), 5: (0.4, 0.41), 8: (0.6, 0.62), 12: (0.9, 1.01), 20: (3.0, 3.1)}
    runs = [
        steady_row(summary, level, ttft=ttft, repeat=i, run=f"{level}_{i}")
        for level, both in tails.items()
        for i, ttft in enumerate(both)
    ]
    row = operating_points(frame(runs), [parse_slo("ttft_p90=1s")]).row(0, named=True)
    assert row["c_max"] == 12
    assert (
        "judged there. They exceed TTFT P90 ≤ 1 s (1.01 s), though all runs together put the limit higher"
        in capacity.evidence(row)
    )


def test_the_percentile_of_a_level_is_of_the_runs_that_judge_it(summary):
    """Of two runs one did not become steady: the sentence had 3 s, by the other, and the table of levels 9 s, by both."""
    steady, short = (
        steady_row(summary, 8, ttft=3.0),
        {**short_row(steady_row(summary, 8, ttft=9.0), None), "repeat": 2, "run": "r2"},
    )
    runs = frame([steady_row(summary, 4, ttft=0.1), steady, short])
    row = operating_points(runs, TTFT).row(0, named=True)
    assert (row["missed_at"], row["missed"][0]["reached_s"]) == (8, 3.0)
    assert level_values(runs, ["ttft_p99_s"])["ttft_p99_s"].to_list() == [0.1, 3.0]
    assert level_values(frame([short]), ["ttft_p99_s"])["ttft_p99_s"].to_list() == [9.0]  # the one that there is
