"""Percentiles and the bounds that their samples carry, by hand and by simulation."""

import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import bdtr

from bench.statistics.percentiles import bound_rank, percentile, tail_text, upper_bound


def test_percentile_by_hand():
    for values, share, expected in [
        ([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 0.5, 5), ([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 0.9, 9),
        ([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 0.99, 10), ([3.0], 0.5, 3), ([], 0.5, None), ([None, 2.0], 0.5, 2),
    ]:  # fmt: skip
        assert percentile(pl.Series(values, dtype=pl.Float64), share) == expected


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_a_percentile_is_the_smallest_value_that_covers_its_share(values, share):
    told = percentile(pl.Series(values), share)
    assert sum(v <= told for v in values) >= share * len(values) - 1e-9
    assert sum(v < told for v in values) < share * len(values)


# 662 and 64, and 353 of 40,000, are LoadGen's own numbers. For P50: (1 + 11) / 2^11 = 0.0059, but (1 + 10) / 2^10 = 0.0107.
def test_the_fewest_samples_that_carry_a_bound_and_ranks_known_from_elsewhere():
    for share, fewest in [(0.5, 11), (0.9, 64), (0.95, 130), (0.99, 662)]:
        assert (bound_rank(fewest - 1, share), bound_rank(fewest, share)) == (0, 1)
        slowest_last = pl.Series(range(1, fewest + 1))
        assert (upper_bound(slowest_last, share), upper_bound(slowest_last.head(fewest - 1), share)) == (fewest, None)
    assert bound_rank(40_000, 0.99) == 353
    assert [bound_rank(n, 0.99) for n in (0, 1)] == [0, 0]
    for share in [0.5, 0.9, 0.99]:
        n = 1_000_000
        normal = n * (1 - share) - 2.326 * math.sqrt(n * share * (1 - share))
        assert bound_rank(n, share) == pytest.approx(normal, abs=3)
    # Nulls are no samples.
    assert upper_bound(pl.Series([None] * 50 + [1.0] * 63), 0.9) is None
    assert upper_bound(pl.Series([None] * 50 + [1.0] * 63 + [3.0]), 0.9) == 3


@given(st.integers(1, 100_000), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_the_bound_is_that_of_scipys_binomial(n, share):
    rank = bound_rank(n, share)
    assert rank == 0 or bdtr(rank, n, 1 - share) <= 0.01
    assert bdtr(rank + 1, n, 1 - share) > 0.01


def test_a_tail_says_what_it_is():
    assert [tail_text(0.5119, 0.5304), tail_text(0.5119, None), tail_text(None, None)] == ["0.512 (≤ 0.530)", "~0.512", "–"]
    assert tail_text(math.inf, None) == "failed"
