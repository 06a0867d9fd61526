"""From levels to C_max and what is carried there: ends that are established or not, failures, overload, and shares of requests by hand."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.analysis import operating_points
from bench.analysis.bottleneck import bottleneck
from bench.analysis.proportions import Share, isotonic, lent, requests_needed
from bench.analysis.sensitivity import sensitivity
from bench.analysis.sizing import OperatingPoint
from bench.cli import main
from bench.study import Slo, parse_slo
from tests.conftest import bare_summary
from tests.planted import frame, parsed, poisson, queue, rate_row, short_row, steady_row, table

TTFT = [parse_slo("ttft_p99=2s")]


def point(rows, slos=TTFT):
    return operating_points(frame(rows), slos).row(0, named=True)


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
    assert (row["operate_at"], row["usable_rps"], row["missed"]) == (2, 4.0, "TTFT P99 ≤ 2 s (3 s)")
    assert (row["missed_by"], row["runs"], row["requests"]) == ("ttft_p99_s", 1, 400)


def test_a_narrow_miss_has_the_digits_that_show_it(summary):
    assert point(curve(summary, [0.5, 2.00004], levels=(1, 2)))["missed"] == "TTFT P99 ≤ 2 s (2.00004 s)"


def test_where_no_request_may_fail_it_is_enough_that_none_did(summary):
    rows = frame(curve(summary, [0.5, 1.0, 9.0], levels=(1, 2, 4)))
    none = operating_points(rows, TTFT, 0.0).row(0, named=True)
    assert (none["c_max"], none["low"], none["low_needs"]) == (2, 2, None)


@pytest.mark.parametrize(("limit", "kind", "c_max"), [("100ms", "below", None), ("9s", "above", 8)])
def test_c_max_outside_of_what_was_measured(summary, limit, kind, c_max):
    row = point(curve(summary, [0.5, 1.0, 3.0, 4.0]), [parse_slo(f"ttft_p99={limit}")])
    assert (row["kind"], row["c_max"], row["usable_rps"] is None) == (kind, c_max, kind == "below")


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
    assert (row["kind"], row["c_max"]) == ("unjudged", None)
    assert row["c_max_text"] == "TTFT P99 ≤ 2 s cannot be judged: no answer at 2 has that latency"


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
    assert (row["kind"], row["c_max"], row["missed_at"], row["high"]) == ("found", 24, 32, 32)
    assert "200 of 400 requests fail" in row["missed"]
    found = bottleneck(runs, row, TTFT)
    assert found.cause == "refusals"
    assert "refuses or fails 200 of 400 requests" in found.why


def test_a_failed_request_exceeds_every_limit(summary):
    """3 % fail at 2, and nothing is slow: a P99 is missed by that, as is a P95 where a further 3 % are slow."""
    assert point([steady_row(summary, 1), steady_row(summary, 2, failed=12)])["missed_at"] == 2
    rows = [steady_row(summary, 1), steady_row(summary, 2, requests=1000, failed=8, slow=60)]
    row = point(rows, [parse_slo("ttft_p95=2s")])
    assert (row["missed_at"], row["missed_by"]) == (2, "ttft_p95_s")


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
    assert (row["c_max"], row["high"]) == (6, 12)
    assert "requests fail" in row["missed"]


def test_a_share_of_failures_that_is_small_by_chance_is_no_lower_end(summary):
    """9 of 1,000 fail at 8, where 1 % may: 0.4 to 1.7 %, by Clopper and Pearson. It is the estimate, and nothing to be sure of."""
    rows = [steady_row(summary, level, requests=1000, failed=failed) for level, failed in ((4, 0), (8, 9), (16, 300))]
    row = point(rows, [parse_slo("ttft_p95=2s")])
    assert (row["low"], row["c_max"], row["high"]) == (4, 8, 16)
    assert "requests at 8 in place of 1,000" in row["low_needs"]


def test_levels_above_bound_the_failures_of_a_level(summary):
    """1 of 400 fails at each: alone up to 1.4 %, 2 of 800 up to 0.9 %, so that all levels but the highest have enough."""
    rows = [steady_row(summary, level, failed=1) for level in (2, 4, 6, 8)]
    row = point(rows, [parse_slo("ttft_p95=2s")])
    assert (row["c_max"], row["low"]) == (8, 6)


def test_few_requests_without_a_failure_are_enough_where_nothing_fails_above_either(summary):
    slo = [parse_slo("ttft_p90=2s")]
    never = [steady_row(summary, level, requests=100, slow=slow) for level, slow in ((4, 0), (8, 0), (16, 60))]
    assert (point(never, slo)["low"], point(never, slo)["high"]) == (8, 16)
    refusing = [steady_row(summary, level, requests=100, failed=failed) for level, failed in ((4, 0), (8, 0), (16, 60))]
    row = point(refusing, slo)
    assert (row["c_max"], row["low"], row["high"]) == (8, None, 16)
    assert row["low_needs"] == f"With {requests_needed(0.01)} requests at 8 in place of 100 the lower end would be there."


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
    assert (row["c_max"], row["high"], row["missed_by"]) == (5, 10, "growth")
    assert row["missed"] == "steadiness (requests pile up: 34% of those that come stay)"
    assert row["usable_high"] >= 6.6


def test_a_level_that_is_not_steady_decides_nothing_and_says_how_long_it_takes(summary):
    row = point([steady_row(summary, 4), short_row(steady_row(summary, 8), 47.2)])
    assert (row["kind"], row["c_max"], row["high"]) == ("above", 4, None)
    assert (
        row["high_needs"]
        == "The upper end is not known: at 8 its load did not become steady in the time that it lasted: let its load last 48 s."
    )
    alone = point([short_row(steady_row(summary, 8), 47.2)])
    assert (alone["kind"], alone["c_max"], alone["usable_rps"], alone["c_max_text"]) == (
        "unsettled", None, None, "no steady state",
    )  # fmt: skip
    assert "let its load last 48 s" in alone["missed"]


# How sure, on both sides


def test_enough_requests_establish_both_ends(summary):
    row = point(curve(summary, [0.1, 0.1, 0.1, 3.0], requests=[1000] * 4))
    assert (row["c_max"], row["low"], row["high"], row["low_needs"], row["high_needs"]) == (4, 4, 8, None, None)
    assert row["c_max_text"] == "4 (at least 4, below 8)"
    assert row["usable_low"] < row["usable_rps"] == 8 < row["usable_high"]


def test_few_requests_establish_no_lower_end_and_say_how_many_would(summary):
    row = point(curve(summary, [0.1, 0.1, 0.1, 3.0], requests=[60] * 4))
    assert (row["c_max"], row["low"], row["usable_low"]) == (4, None, None)
    needs = requests_needed(0.01)
    assert row["low_needs"] == f"With {needs:,} requests at 4 in place of 60 the lower end would be there."
    assert "the lower end is not established" in row["c_max_text"]


def test_no_upper_end_without_a_level_that_surely_misses(summary):
    row = point(curve(summary, [0.1] * 4))
    assert (row["kind"], row["high"], row["usable_high"]) == ("above", None, None)
    assert row["high_needs"] == "Levels above 8 would establish the upper end."
    # 3 of 100 are more than a P99 leaves room for, and no proof: 0.6 to 8.5 %.
    near = point([steady_row(summary, 4), steady_row(summary, 8, requests=100, slow=3)])
    assert (near["kind"], near["missed_at"], near["high"]) == ("found", 8, None)
    assert near["high_needs"] == "More requests at 8, or levels above it, would establish the upper end."


def test_both_ends_of_a_planted_share(summary):
    """2 % miss at 8 where a P95 allows 5 %, 9 % at 16: of 1,000 requests each, both are sure."""
    rows = [steady_row(summary, level, requests=1000, slow=slow) for level, slow in ((4, 0), (8, 20), (16, 90))]
    row = point(rows, [parse_slo("ttft_p95=2s")])
    assert (row["low"], row["c_max"], row["high"]) == (8, 8, 16)


def test_misses_in_clusters_are_less_sure_than_as_many_apart(summary):
    """15 of 1,000 miss, where 5 % may: apart they surely meet the limit; as one cluster, of one bad moment, not."""
    slo = [parse_slo("ttft_p95=2s")]
    apart = steady_row(summary, 4, requests=1000, slow=15)
    together = steady_row(summary, 4, requests=1000, ttft=[9.0] * 15 + [0.1] * 985)
    assert point([apart], slo)["low"] == 4
    row = point([together], slo)
    assert row["low"] is None
    needed, have = (int(word.replace(",", "")) for word in row["low_needs"].split() if word[0].isdigit() and len(word) > 1)
    assert have == 1000 < needed  # of requests that resemble their neighbours as much


def test_repeats_that_differ_widen_the_interval_of_the_rate(summary):
    def width(rates):
        rows = [{**steady_row(summary, 4, rps=rps), "repeat": i, "run": f"r{i}"} for i, rps in enumerate(rates)]
        row = point([*rows, *({**steady_row(summary, 8, ttft=9.0), "repeat": i, "run": f"m{i}"} for i in range(3))])
        assert row["usable_rps"] == pytest.approx(8)
        return row["usable_rps"] - row["usable_low"]

    # Student's t of 2 degrees of freedom: 4.303 × 1 ÷ √3.
    assert width([7.0, 8.0, 9.0]) == pytest.approx(4.303 / 3**0.5, rel=1e-3)
    assert width([8.0, 8.0, 8.0]) < 0.3


def test_more_load_never_helps(summary):
    """By chance 4 looks worse than 8: together they are judged by both, and both meet."""
    slo = [parse_slo("ttft_p95=2s")]
    slow = {1: 0, 2: 0, 4: 40, 8: 4}
    rows = [steady_row(summary, level, requests=1000, slow=count) for level, count in slow.items()]
    assert point(rows, slo)["c_max"] == 8


def test_nothing_above_a_sure_miss_counts(summary):
    row = point([steady_row(summary, 1), steady_row(summary, 2, ttft=9.0), *(steady_row(summary, n) for n in (4, 8, 16, 32))])
    assert (row["c_max"], row["high"], row["low"]) == (1, 2, 1)


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


@pytest.mark.parametrize("share", [0.01, 0.05, 0.3])
def test_the_interval_holds_the_true_share(share):
    draw = np.random.default_rng(1)
    inside = 0
    for _ in range(400):
        low, high = Share.of([draw.random(300) < share for _ in range(3)]).interval()
        inside += low <= share <= high
    assert inside >= 0.93 * 400


@pytest.mark.parametrize("size", [5, 10])
def test_the_interval_holds_the_true_share_of_requests_that_miss_in_clusters(size):
    """Of `size` neighbours all miss or none: as in a queue that is long for a while."""
    draw = np.random.default_rng(2)
    inside = plain = 0
    for _ in range(400):
        runs = [np.repeat(draw.random(600 // size) < 0.05, size) for _ in range(3)]
        low, high = Share.of(runs).interval()
        inside += low <= 0.05 <= high
        low, high = Share(sum(run.sum() for run in runs), 1800).interval()
        plain += low <= 0.05 <= high
    assert inside >= 0.93 * 400
    assert plain < 0.85 * 400  # as if they were independent


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
    assert isotonic([1, 2, 3], [1, 1, 1]) == [1, 2, 3]
    assert isotonic([3, 1, 2], [1, 1, 1]) == [2, 2, 2]
    assert isotonic([0, 0.04, 0.01, 0.5], [1, 1, 3, 1]) == [0, pytest.approx(0.0175), pytest.approx(0.0175), 0.5]
    assert isotonic([], []) == []


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.1, 10)), min_size=1, max_size=12))
def test_smoothing_keeps_the_mean_and_never_falls(values):
    shares, weights = zip(*values, strict=True)
    smoothed = isotonic(shares, weights)
    assert all(b >= a - 1e-12 for a, b in itertools.pairwise(smoothed))
    assert np.average(smoothed, weights=weights) == pytest.approx(np.average(shares, weights=weights), abs=1e-9)


def test_loads_near_each_other_lend_their_requests():
    """Shares on a line of log odds over log load stay on it, and each rests on more requests than its own."""
    loads = [8.0, 8.8, 9.6, 10.4, 11.2]
    true = [1 / (1 + np.exp(3 - 4 * np.log(load / 8))) for load in loads]
    shares, rests = lent(loads, true, [2000.0] * 5)
    assert shares == pytest.approx(true, rel=0.05)
    assert rests[2] > 2000 and min(rests) >= 2000
    # One that is far off by chance is drawn to its neighbours.
    odd = [*true[:2], 3 * true[2], *true[3:]]
    assert true[2] < lent(loads, odd, [2000.0] * 5)[0][2] < 0.75 * odd[2]


def test_loads_far_from_each_other_keep_their_own():
    assert lent([1.0, 2.0, 4.0], [0.0, 0.5, 0.1], [10.0, 20.0, 30.0]) == ([0.0, 0.5, 0.1], [10.0, 20.0, 30.0])
