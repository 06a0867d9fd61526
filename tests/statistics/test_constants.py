"""Rounded values of distributions."""

from statistics import NormalDist

import pytest

from bench.parse.steady import SURE_GROWTH
from bench.statistics.textbook import CONFIDENCE, MEDIAN_DEVIATION, TAIL, Z, student_t


def test_rounded_values_are_those_of_the_textbooks():
    assert (0.95, 0.025, pytest.approx(NormalDist().inv_cdf(0.975), abs=5e-5)) == (CONFIDENCE, TAIL, Z)
    assert pytest.approx(NormalDist().inv_cdf(0.75), abs=5e-5) == MEDIAN_DEVIATION
    assert round(student_t(18), 1) == SURE_GROWTH
