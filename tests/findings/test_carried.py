"""What is carried at C_max: its rate and how sure that is, shares of requests, each by hand."""

import math

import numpy as np
import pytest

from bench.findings.capacity.judging import Level, judged_levels, most_given, noise_of, rate_of
from bench.findings.capacity.points import rates_within
from bench.statistics.limit import NOMINAL
from bench.statistics.percentiles import Share
from bench.statistics.textbook import isotonic
from tests.support.capacity import TTFT, again, curve, point
from tests.support.planted import rate_row, short_row, steady_row, summary_row

T6, T9 = 2.4469, 2.2622  # Student's t of 6 and 9 degrees of freedom at 95 %


def with_session(error):
    """A relative half width, together with what one start of a server may be off from the next: 4 %, known as if from six."""
    return (error**2 + (T6 * 0.04) ** 2) ** 0.5


def test_where_an_instance_is_operated_and_what_it_carries(summary):
    row = point(curve(summary, [0.1] * 4, rps=[2.0, 3.9, 4.0, 4.0]))
    assert (row["c_max"], row["operate_at"], row["usable_rps"]) == (8, 2, 3.9)

    assert point(curve(summary, [0.1] * 2, levels=(1, 2), rps=[3.89, 4.0]))["operate_at"] == 1
    assert point(curve(summary, [0.1] * 2, levels=(1, 2), rps=[3.87, 4.0]))["operate_at"] == 2
    # Realised rates differ from those asked by chance; the level is what was offered.
    rows = [rate_row(summary, 2, rps=2.2), rate_row(summary, 4, rps=4.3)]
    assert point(rows)["usable_rps"] == 4
    row = point([rate_row(summary, 5), rate_row(summary, 10, ttft=9.0, rps=9.9)])
    assert row["usable_rps"] == 5 < row["high"] < row["usable_high"] < 10.5
    row = point([rate_row(summary, 5), rate_row(summary, 10, ttft=9.0, rps=6.6)])
    assert row["usable_rps"] == 5 < row["usable_high"] < 7 < row["high"]
    # Of 20/s and of 30/s it gave 17 ± 3.8: that 20 were offered makes no 23.8 of them.
    noisy = {"rps": 17.0, "steady_error": 0.1}
    row = point([rate_row(summary, 10), rate_row(summary, 20, **noisy), rate_row(summary, 30, ttft=9.0, **noisy)])
    assert (row["c_max"], row["usable_rps"]) == (20, 17) and 17 < row["usable_high"] < 21.5
    # Two runs a level, whose batches vary by three times as much as the runs do: 20 at most, or 24 by the batches of the last.
    given = {
        10: ((10.0, 0.1), (10.2, 0.1)),
        20: ((18.1, 0.1), (18.8, 0.12)),
        30: ((19.8, 0.05), (20.0, 0.06)),
        40: ((18.3, 0.25), (17.6, 0.3)),
    }
    missing = {"ttft": 9.0, "growth": 0.4}
    rows = [
        rate_row(summary, level, repeat=i + 1, rps=rps, steady_error=error, **(missing if level > 20 else {}))
        for level, both in given.items() for i, (rps, error) in enumerate(both)
    ]  # fmt: skip
    row = point(rows)
    assert row["c_max"] == 20 and 20.0 < row["usable_high"] < 22.5
    conversations = point([rate_row(summary, 5, turns=3, rps=14.0), rate_row(summary, 10, turns=3, ttft=9.0, rps=6.6)])
    assert (conversations["unit"], conversations["usable_rps"]) == ("conversations/s", 14)
    assert conversations["usable_high"] == pytest.approx(14 * (1 + with_session(0.01 * T9)), rel=1e-4)


def test_how_far_repeats_and_sessions_differ_is_in_the_interval_of_the_rate(summary):
    def width(rows):
        row = point(rows)
        assert row["usable_rps"] == pytest.approx(8)
        return row["usable_rps"] - row["usable_low"]

    def repeats(*rates):
        return again(steady_row(summary, 4, rps=rps) for rps in rates)

    # 3 runs at 4 and 3 alike at 8: Student's t of 2 + 2 degrees of freedom, 2.776, × √(2 ÷ 4) ÷ √3, and what a session is off from the
    # next, 2.447 × 4 % of 8.
    missing, between = again([steady_row(summary, 8, ttft=9.0)] * 3), T6 * 0.04 * 8
    expected = ((2.776 * 0.5**0.5 / 3**0.5) ** 2 + between**2) ** 0.5
    assert width([*repeats(7.0, 8.0, 9.0), *missing]) == pytest.approx(expected, rel=1e-3)
    assert between < width([*repeats(8.0, 8.0, 8.0), *missing]) < 1.1 * between
    # Student's t of two degrees of freedom, 4.3 × 5 ÷ √3, is more than the rate.
    assert width([*repeats(3.0, 8.0, 13.0), missing[0]]) == 8

    def sessions(*rates):
        rows = [{**steady_row(summary, 4, rps=rps), "session": i, "run": f"r{i}"} for i, rps in enumerate(rates, start=1)]
        return [*rows, missing[0]]

    # Four alike: the variance of one, 0.0016, with a weight of 6, in 6 + 3 degrees of freedom, of which the mean has a quarter.
    assert width(sessions(8.0, 8.0, 8.0, 8.0)) / 8 == pytest.approx(T9 * (6 * 0.0016 / 9 / 4) ** 0.5, rel=1e-3)
    # Four that differ: they show it by themselves, Student's t of 3 degrees of freedom × 1.826 ÷ √4.
    assert width(sessions(6.0, 7.0, 9.0, 10.0)) == pytest.approx(3.182 * (10 / 3) ** 0.5 / 2, rel=1e-3)


@pytest.mark.long(part="truth")
def test_the_interval_of_a_rate_holds_the_planted_one():
    """Runs of several sessions, which differ by 3 % beside the noise; 10 requests/s at each level."""
    for layout, noise in (((1, 2, 1), 0.04), ((1, 2, 1), 0.1), ((2, 2, 2), 0.04), ((2, 2, 2), 0.2), ((3, 1), 0.1)):
        random = np.random.default_rng(5)
        held = []
        for _ in range(400):
            speeds = 1 + 0.03 * random.standard_normal(3)
            levels = []
            for i, count in enumerate(layout):
                rates = [10 * speeds[k] * math.exp(noise * random.standard_normal()) for k in range(count)]
                told = [{"steady_requests_per_s": x, "steady_error": 0.01, "session": k + 1} for k, x in enumerate(rates)]
                levels.append(Level(float(i), told))
            rate, error = rate_of(levels[layout.index(max(layout))].rows, None, noise_of(levels))
            held.append(abs(rate - 10) <= error)
        assert np.mean(held) >= 0.93, (layout, noise)


def test_the_most_that_a_server_may_have_given_by_hand(summary):
    """Runs 2 % off the mean of two: √(0.0016 ÷ 2) is 2.83 %, Student's t of 2 degrees of freedom is 4.303. Else 2.262 × the least batch
    error. A window too short for latencies counts.
    """

    def row(level, rps, error=0.3, **more):
        return summary_row(**rate_row(summary, level, rps=rps, steady_error=error, **more))

    pairs = [row(10, 9.8), row(10, 10.2), short_row(row(20, 19.6), 60), short_row(row(20, 20.4), 60)]
    assert most_given(pairs) == pytest.approx(20 * (1 + with_session(4.3027 * 0.02828 / 2**0.5)), rel=1e-4)
    single = [row(10, 10.0, error=0.01), short_row(row(20, 20.0), 60)]
    assert most_given(single) == pytest.approx(20 * (1 + with_session(T9 * 0.01)), rel=1e-4)
    # A pair's 12.5 % off its mean, and beside it once the 4 % by which servers differ: Student's t of 2 degrees of freedom.
    pair = [Level(10.0, [row(10, 7.0), row(10, 9.0)])]
    assert noise_of(pair) == pytest.approx(4.3027 * ((2 * 0.125**2 + 0.04**2) / 2) ** 0.5, rel=1e-4)
    assert most_given([*single, row(30, None, steady_from_s=None, steady_requests_per_s=None)]) == most_given(single)
    assert most_given([row(30, None, steady_from_s=None, steady_requests_per_s=None)]) == math.inf


def test_the_interval_of_a_share_by_hand():
    """0 of n: the upper end is 1 − 0.025^(1 / n); all of n: the lower end is 0.025^(1 / n)."""
    assert Share(0, 100).interval() == (0.0, pytest.approx(1 - 0.025**0.01))
    assert Share(100, 100).interval() == (pytest.approx(0.025**0.01), 1.0)
    assert Share(0, 0).interval() == (0.0, 1.0)
    # Clopper and Pearson's 95 % interval of 10 of 100, from their charts and every table since.
    assert Share(10, 100).interval() == (pytest.approx(0.0490, abs=5e-5), pytest.approx(0.1762, abs=5e-5))
    # 0 of n at 40 %: 30 % are left on either side, and the upper end is 1 − 0.3^(1 / n).
    assert Share(0, 100).interval(0.4) == (0.0, pytest.approx(1 - 0.3**0.01))
    assert Share(20, 200, 2.0).interval() == Share(10, 100).interval()
    # Without a miss, n requests show less than 1 % where 0.99^n ≤ 0.025: from 367.04 on.
    exact = 368
    assert Share(0, exact).interval()[1] <= 0.01 < Share(0, exact - 1).interval()[1]
    # The spread of misses by hand.
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
    # A series that never falls by hand.
    assert isotonic([1, 2, 3], [1, 1, 1]).tolist() == [1, 2, 3]
    assert isotonic([3, 1, 2], [1, 1, 1]).tolist() == [2, 2, 2]
    assert isotonic([1, 3, 2], [1, 1, 1], rising=False).tolist() == [2, 2, 2]
    assert isotonic([0, 0.04, 0.01, 0.5], [1, 1, 3, 1]).tolist() == pytest.approx([0, 0.0175, 0.0175, 0.5])
    assert isotonic([], []).tolist() == []
    # (1 + 3 × 3 + 3 + 7) ÷ 6: what rises to the 7 is one block; 5 before it and 2 after it stay.
    assert isotonic([5, 1, 3, 3, 7, 2], [1, 1, 3, 1, 1, 1], rising=False).tolist() == pytest.approx([5, *[20 / 6] * 4, 2])


@pytest.mark.long(part="truth")
def test_the_interval_holds_the_true_share():
    def alone(draw, share):
        return [draw.random(300) < share for _ in range(3)]

    def in_clusters(size):  # of `size` neighbours all miss or none, as in a queue that is long for a while
        return lambda draw, share: [np.repeat(draw.random(600 // size) < share, size) for _ in range(3)]

    def in_rounds(draw, share):  # three in four rounds miss nothing
        return [draw.random(300) < (4 * share if draw.random() < 0.25 else 0.0) for _ in range(8)]

    for seed, drawn, share, least, as_if_independent in (
        (1, alone, 0.01, 0.93, None), (1, alone, 0.05, 0.93, None), (1, alone, 0.3, 0.93, None),
        (2, in_clusters(5), 0.05, 0.93, 0.85), (2, in_clusters(10), 0.05, 0.93, 0.85),
        (3, in_rounds, 0.03, 0.88, None),  # eight rounds, two of them bad in the mean, tell little
    ):  # fmt: skip
        draw = np.random.default_rng(seed)
        found = [drawn(draw, share) for _ in range(400)]
        held = [low <= share <= high for low, high in (Share.of(runs).interval() for runs in found)]
        assert np.mean(held) >= least, (drawn, share)
        if as_if_independent:
            plain = [Share(sum(run.sum() for run in runs), sum(map(len, runs))).interval() for runs in found]
            assert np.mean([low <= share <= high for low, high in plain]) < as_if_independent, (drawn, share)


def test_what_is_carried_is_the_mean_of_the_runs_of_one_level(summary):
    one = {**steady_row(summary, 4, e2e=0.5, rps=7.0), "repeat": 0, "run": "r0", "prompt_tokens": 30.0, "output_tokens": 20.0,
           "in_flight_peak": 5, "steady_in_flight": 3.8, "steady_tokens_per_s": 90.0}  # fmt: skip
    two = {**steady_row(summary, 4, e2e=0.7, rps=9.0), "repeat": 1, "run": "r1", "prompt_tokens": 34.0, "output_tokens": 10.0,
           "in_flight_peak": 4, "steady_in_flight": 3.6, "steady_tokens_per_s": None}  # fmt: skip
    row = point([one, two, steady_row(summary, 8, ttft=9.0)])
    told = {"runs": 2, "requests": 800, "usable_rps": 8, "latency_s": 0.6, "prompt_tokens": 32, "output_tokens": 15,
            "in_flight_peak": 4.5, "in_flight": 3.7, "tokens_per_s": 90}  # fmt: skip
    assert {name: row[name] for name in told} == pytest.approx(told)
    # The numbers of a burst are those of the whole run.
    none = {"arrival": "burst", "steady": None, "steady_from_s": None, "steady_requests_per_s": None}
    whole = {"e2e_mean_s": 1.5, "client_in_flight_mean": 3.5, "throughput_tokens_per_s": 70.0}
    window = {"steady_e2e_mean_s": 9.0, "steady_in_flight": 9.0, "steady_tokens_per_s": 9.0}
    rows = [steady_row(summary, 4, **none, **whole, **window), steady_row(summary, 8, ttft=9.0, **none)]
    row = point(rows)
    assert (row["latency_s"], row["in_flight"], row["tokens_per_s"], row["operate_at"]) == (1.5, 3.5, 70, 4)
    empty = point([{**rows[0], "judged": []}])
    assert (empty["kind"], empty["unsettled"]) == ("unsettled", "empty")
    for axis, turns, unit in (
        ("concurrency", 1, "requests in flight"), ("users", 2, "users"), ("request_rate", 1, "requests/s"),
        ("request_rate", 2, "conversations/s"), ("time_scale", 1, "times the trace's speed"),
    ):  # fmt: skip
        assert point([steady_row(summary, 4, axis=axis, turns=turns)])["unit"] == unit, (axis, turns)


def test_the_ends_of_the_rate_are_those_of_all_levels_on_their_side(summary):
    """1 % of error at 1, 20 % at 2: the lower end is 1's. Nothing above the first sure miss counts."""
    rows = curve(summary, [0.1, 0.1, 9.0, 9.0], rps=[4.0, 5.0, 3.0, 50.0], steady_error=[0.01, 0.2, 0.01, 0.01])
    row = point(rows)
    assert (row["operate_at"], row["usable_rps"], row["low"], row["high"]) == (2, 5, 2, 4)
    assert row["usable_low"] == pytest.approx(4 * (1 - with_session(0.01 * T9)), rel=1e-4)
    assert row["usable_high"] == pytest.approx(5 * (1 + with_session(0.2 * T9)), rel=1e-4)
    # Operated at 1, which carries nearly as much: no end is on the wrong side of it.
    errors = {"steady_error": [0.5, 0.01, 0.01], "requests": [1000] * 3}
    near = point(curve(summary, [0.1, 0.1, 9.0], levels=(1, 2, 4), rps=[3.9, 4.0, 2.0], **errors))
    assert (near["operate_at"], near["usable_low"]) == (1, pytest.approx(4 * (1 - with_session(0.01 * T9)), rel=1e-4))
    # At 4 too few requests to be sure: what it carries is no lower end.
    unsure = point(curve(summary, [0.1, 0.1, 9.0], levels=(2, 4, 8), requests=[400, 60, 400]))
    assert (unsure["c_max"], unsure["low"], unsure["usable_rps"]) == (4, 2, 8)
    assert 4 * (1 - with_session(0.01 * T9)) < unsure["usable_low"] < 5


def test_the_rates_within_limits_by_hand(summary):
    levels = [Level(load, [], rate=rate) for load, rate in ((4.0, 8.0), (8.0, 12.0), (16.0, 6.0))]
    assert rates_within(np.array([4.0, 6.0, 8.0, 12.0, 16.0]), levels).interval == (8, 12)
    assert rates_within(np.array([2.0]), levels).interval == (4, 4)
    # Beyond the highest load the last line goes on, and a rate that falls was higher before.
    assert rates_within(np.array([24.0]), levels).interval == (12, 12)
    assert rates_within(np.array([10.0]), levels[:2]).interval == (14, 14)
    assert rates_within(np.array([6.0]), levels[:1]).interval == (12, 12)
    # Of 10/s it gave 10.4 by chance: what was offered lasts.
    assert rates_within(np.array([10.0]), [Level(10.0, [], rate=10.4, offered=10.0)]).interval == (10, 10)
    # Of 30/s it gave 19: a limit anywhere up to there is no rate of 28/s.
    levels = [Level(17.7, [], rate=17.6, error=1.0, offered=17.7), Level(30.0, [], rate=19.0, error=1.0, offered=30.0)]
    low, high = rates_within(np.linspace(17.7, 30.0, 100), levels).interval
    assert 16 < low < high < 20.5
    # A limit anywhere from 6 to 10, where a request in flight brings 2/s, and starts of the server that differ by 5 %: of rates drawn
    # from both as often as an interval is to hold them, it holds so many. The worst of both together is wider.
    random = np.random.default_rng(3)
    levels = [Level(load, [], rate=2 * load, error=0.05 * 2.2414 * 2 * load) for load in (4.0, 8.0, 16.0)]
    limits = np.sort(random.uniform(6, 10, 400))
    low, high = rates_within(limits, levels).interval
    planted = 2 * random.uniform(6, 10, 20_000) * (1 + 0.05 * random.standard_normal(20_000))
    assert np.mean((planted >= low) & (planted <= high)) == pytest.approx(NOMINAL, abs=0.005)
    assert 12 * (1 - 0.05 * 2.2414) < low < high < 20 * (1 + 0.05 * 2.2414)
    # Their errors in squares: √(1 + 4 + 4) is 3 %, ÷ 3 runs; Student's t of 9 degrees of freedom is 2.262. And what one session shows.

    def rate(level, errors, *, offered=False):
        axis = {"axis": "request_rate", "arrival": "poisson"} if offered else {}
        rows = [summary_row(**steady_row(summary, level, rps=8.0, steady_error=error) | axis) for error in errors]
        ((found,), _) = judged_levels(rows, TTFT, 0.01)
        return found.rate, found.error

    assert rate(7.5, (0.01, 0.02, 0.02)) == (8, pytest.approx(8 * with_session(0.01 * T9), rel=1e-4))
    assert [rate(level, (0.01, 0.02, 0.02), offered=True)[0] for level in (7.5, 8.5)] == [7.5, 8]
    assert rate(7.5, (None,)) == (8, pytest.approx(8 * T6 * 0.04, rel=1e-4))
