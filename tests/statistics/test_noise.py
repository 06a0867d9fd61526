"""How far sessions, levels and runs differ by chance, from cells that can be worked out by hand."""

import math
from statistics import NormalDist

import numpy as np
import polars as pl
import pytest
from scipy import stats

from bench.findings.comparison.effects import Error, Noise, sessions_for, smallest_difference, visible
from bench.parse.steady import SURE_GROWTH
from bench.statistics.levels import Levels, studentized_range
from bench.statistics.textbook import CONFIDENCE, MEDIAN_DEVIATION, TAIL, Z, student_t

# What a comparison can see


def test_the_smallest_difference_by_hand():
    """Normal: 1.960 + 0.842 standard errors, and a tenth on top; a t test's power is that of the noncentral t."""

    def seen(deviation, freedom, wrong=0.05):
        return smallest_difference(Error(deviation, freedom), wrong)

    assert seen(0.01, 200.0) == pytest.approx(math.expm1(1.1 * 0.01 * 2.81), rel=2e-3)  # t of 200: 1.972
    assert seen(0.01, 1e6) == pytest.approx(math.expm1(1.1 * 0.01 * 2.8016), rel=1e-4)
    away = math.log1p(seen(0.02, 5.0)) / (1.1 * 0.02)
    assert stats.nct.sf(stats.t.ppf(0.975, 5), 5, away) == pytest.approx(0.8, abs=1e-6)
    away = math.log1p(seen(0.02, 199.0)) / (1.1 * 0.02)
    assert away == pytest.approx(stats.t.ppf(0.975, 199) + 0.8416, rel=0.003)
    assert seen(99.0, 5.0) == math.expm1(50)
    far = stats.t.isf(6.5e-10, 1.5) * math.sqrt(stats.chi2.ppf(0.8, 1.5) / 1.5)  # the exact value takes minutes
    assert math.log1p(seen(1e-6, 1.5, 1.3e-9)) == pytest.approx(1.1e-6 * far)
    # Two parts of an error add up as squares, and of one that is nothing nothing is left.
    both = Error(0.03, 3.0).and_also(Error(0.04, 1e6))
    assert (both.deviation, both.freedom) == pytest.approx((0.05, 0.05**4 / (0.03**4 / 3)), rel=1e-4)
    assert Error(0.03, 3.0).and_also(Error(0.0, 0.0)) == Error(0.03, 3.0)


def test_what_many_sessions_see_by_hand():
    """Of 400 sessions the mean is about normal: 2.170 + 0.842 standard errors at 3 %, and 2.807 + 0.842 for each of six metrics."""
    noise = Noise(run=0.04, spread=0.1)
    for levels, count, metrics, away in [(1, 2, 1, 3.012), (4, 1, 1, 3.012), (4, 1, 6, 3.649)]:
        error = math.sqrt((0.1**2 + 2 * 0.04**2 / count / levels) / 400)
        assert math.log1p(visible(noise, 400, levels, count, metrics)) / (1.1 * error) == pytest.approx(away, rel=0.01)
    assert visible(noise, 400, 1, 1, 6) == visible(noise, 400, 1, 1)


def test_the_fewest_sessions_are_four_and_the_most_a_hundred():
    assert sessions_for(0.5, Noise(0.01, 0.01), 2, 1, 1) == 4
    noise = Noise(0.01, 0.1)
    at = {sessions: visible(noise, sessions, 1, 1, 1) for sessions in (4, 5, 7, 99, 100, 101)}
    for sessions in (5, 7, 100):
        assert sessions_for(at[sessions], noise, 1, 1, 1) == sessions
    assert sessions_for(at[101], noise, 1, 1, 1) is None
    assert sessions_for(at[100] / 20, noise, 1, 1, 1) is None


# Levels of a curve


def curve(values, **marks):
    """Rows of a curve; `values` has a list of repeats a level."""
    rows = [(float(level), i, x) for level, repeats in values.items() for i, x in enumerate(repeats, 1)]
    return pl.DataFrame(rows, schema={"level": pl.Float64, "repeat": pl.Int64, "x": pl.Float64}, orient="row").with_columns(
        valid=pl.lit(True), **marks
    )


def exp(*logs):
    return [math.exp(log) for log in logs]


def test_levels_and_the_noise_of_their_repeats_by_hand():
    runs = curve({1: exp(1.00, 1.04), 2: exp(2.00, 2.10), 4: exp(3.0, 3.02)})
    levels = Levels.of(runs, "x")
    assert (levels.load.tolist(), levels.log.tolist(), levels.runs.tolist()) == (
        [1, 2, 4],
        pytest.approx([1.02, 2.05, 3.01]),
        [2] * 3,
    )
    # Off their means by ∓ 0.02, 0.05, 0.01, of which the repeat has ∓ 0.08 / 3: squares 2 · (0.003 − 3 · (0.08 / 3)²), 2 degrees.
    assert (levels.noise, levels.freedom, levels.noise_of) == (pytest.approx(math.sqrt(0.003 - 0.0064 / 3)), 2, "repeats")
    assert levels.errors.tolist() == [[pytest.approx(levels.noise)] * 3] * 3  # √(1/2 + 1/2)
    assert (len(levels), levels.sure) == (3, pytest.approx(4.303, abs=1e-3))
    # Invalid runs and values of nothing are no levels.
    runs = curve({1: exp(1.0), 2: [0.0], 4: exp(2.0)}).with_columns(valid=pl.col("level") != 4)
    assert Levels.of(runs, "x").load.tolist() == [1]
    assert Levels.of(runs.with_columns(level=pl.lit(None, pl.Float64)), "x").load.tolist() == []


def test_curves_that_vary_alike_share_their_noise():
    own, calm, wild = (curve({1: exp(1, 1 + x), 2: exp(2, 2 + 2 * x), 4: exp(3, 3 + x / 2)}) for x in (0.04, 0.03, 0.6))
    alone, other = Levels.of(own, "x"), Levels.of(calm, "x")
    pooled = Levels.of(own, "x", [calm, wild])
    # F of 2 and 2 lies between 1/9 and 9 in 80 of 100
    assert (alone.freedom, pooled.freedom, pooled.noise_of) == (2, 4, "repeats")
    assert pooled.noise == pytest.approx(math.sqrt((alone.noise**2 + other.noise**2) / 2))


def test_repeats_that_levels_do_not_share_keep_what_they_have_in_common():
    levels = Levels.of(curve({1: exp(1.00, 1.04), 2: exp(2.0)}), "x")
    assert (levels.noise, levels.freedom, levels.noise_of) == (pytest.approx(math.sqrt(0.0008)), 1, "repeats")
    assert levels.errors[0, 1] == pytest.approx(levels.noise * math.sqrt(1 / 2 + 1))
    one = Levels.of(curve({1: exp(1.00, 1.04, 1.02)}), "x")
    assert (one.noise, one.freedom) == (pytest.approx(0.02), 2)
    # Twice the same number of a repeat is no ladder that was repeated as a whole.
    odd = curve({1: exp(1.00, 1.04), 2: exp(2.00, 2.02)}).with_columns(repeat=pl.Series([1, 1, 1, 2]))
    assert Levels.of(odd, "x").freedom == 2


def test_without_repeats_the_other_curves_or_the_neighbours_tell_the_noise():
    other = curve({1: exp(1.00, 1.04)})
    levels = Levels.of(curve({1: exp(1.0), 2: exp(2.0)}), "x", [other, other])
    assert (levels.noise, levels.freedom, levels.noise_of) == (pytest.approx(math.sqrt(0.0016 / 2)), 2, "others")
    # Of six levels the neighbours tell two degrees of freedom, more than one repeat does.
    alone = curve({level: exp(math.log(level)) for level in (1, 2, 3, 4, 5, 6)})
    assert Levels.of(alone, "x", [other]).noise_of == "neighbours"
    assert Levels.of(alone, "x", [other, other]).noise_of == "others"
    # Load ÷ throughput: 1, 1.2, 1, off the line by −0.2, with a scale of √(0.25 + 0.25 + 1.44).
    levels = Levels.of(curve({1: [1.0], 2: [2 / 1.2], 3: [3.0]}), "x")
    assert (levels.noise, levels.freedom, levels.noise_of) == (pytest.approx(0.2 / math.sqrt(1.94) / 0.6745), 1, "neighbours")
    # Loads that are not evenly spaced: 2 lies a third of the way from 1 to 4, on the line from 1 to 1.3.
    assert Levels.of(curve({1: [1.0], 2: [2 / 1.1], 4: [4 / 1.3]}), "x").noise == pytest.approx(0.005)
    apart = Levels.of(curve({1: [1.0], 2: [2 / 1.2], 4: [4 / 1.3]}), "x")
    scale = math.sqrt((2 / 3) ** 2 + (1.3 / 3) ** 2 + 1.2**2)
    assert apart.noise == pytest.approx(0.1 / scale / 0.6745)
    assert Levels.of(curve({1: [1.0], 2: [9.0]}), "x").noise == 0.005
    many = Levels.of(curve({level: [float(level)] for level in range(1, 9)}), "x")
    assert many.freedom == 3


# The 95 % points of the studentized range, as every table prints them.
def test_one_level_surely_gives_more_than_another_by_the_studentized_range():
    for means, freedom, q in [(2, 10, 3.151), (3, 10, 3.877), (5, 20, 4.232), (10, 60, 4.646)]:
        assert studentized_range(means, freedom) == pytest.approx(q, rel=0.03)
    levels = Levels(np.array([1.0, 2.0]), np.array([0.0, 0.5]), np.array([2.0, 2.0]), 0.1, 10, "repeats")
    # 3.151 / √2 standard errors of 0.1: 0.223.
    assert levels.more().tolist() == [[False, True], [False, False]]
    assert levels.more(math.exp(0.2)).tolist() == [[False, True], [False, False]]
    assert not levels.more(math.exp(0.35)).any()


# What repeats agree on


# Two-sided 95 % points, as every table prints them.
def test_students_t_and_rounded_values_are_those_of_the_tables():
    for freedom, t in [
        (1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (9, 2.262), (10, 2.228), (29, 2.045),
        (30, 2.042), (120, 1.980),
    ]:  # fmt: skip
        assert student_t(freedom) == pytest.approx(t, abs=5e-4)
    assert student_t(10, 0.99) == pytest.approx(3.169, abs=5e-4)
    assert (0.95, 0.025, pytest.approx(NormalDist().inv_cdf(0.975), abs=5e-5)) == (CONFIDENCE, TAIL, Z)
    assert pytest.approx(NormalDist().inv_cdf(0.75), abs=5e-5) == MEDIAN_DEVIATION
    assert round(student_t(18), 1) == SURE_GROWTH
