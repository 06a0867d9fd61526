"""What repeats agree on, by hand."""

import polars as pl
import pytest

from bench.analysis import repeats
from bench.statistics import student_t


# Two-sided 95 % points, as every table prints them.
@pytest.mark.parametrize(
    ("freedom", "t"),
    [
        (1, 12.706),
        (2, 4.303),
        (3, 3.182),
        (4, 2.776),
        (5, 2.571),
        (9, 2.262),
        (10, 2.228),
        (29, 2.045),
        (30, 2.042),
        (120, 1.980),
    ],
)
def test_students_t_is_that_of_the_tables(freedom, t):
    assert student_t(freedom) == pytest.approx(t, abs=5e-4)


def test_another_confidence():
    assert student_t(10, 0.99) == pytest.approx(3.169, abs=5e-4)


def runs(*rows):
    schema = {"deployment": pl.String, "level": pl.Float64, "x": pl.Float64, "valid": pl.Boolean}
    return pl.DataFrame(rows, schema=schema, orient="row").with_columns(workload=pl.lit("short"))


def test_mean_and_interval_by_hand():
    # 1, 2, 6: mean 3, deviations −2, −1, 3, s² = 14 / 2 = 7; 4.303 · √(7 / 3) = 6.573.
    told = repeats(runs(("a", 4, 1.0, True), ("a", 4, 2.0, True), ("a", 4, 6.0, True)), "x").row(0, named=True)
    assert (told["n"], told["mean"]) == (3, 3.0)
    assert (told["low"], told["high"]) == (pytest.approx(3 - 6.573, abs=1e-3), pytest.approx(3 + 6.573, abs=1e-3))


def test_one_run_has_no_interval():
    told = repeats(runs(("a", 4, 1.0, True)), "x").row(0, named=True)
    assert (told["n"], told["mean"], told["low"], told["high"]) == (1, 1.0, None, None)


def test_invalid_runs_and_runs_without_a_value_do_not_count():
    rows = (("a", 4, 1.0, True), ("a", 4, 9.0, False), ("a", 4, None, True), ("a", 8, 9.0, False))
    assert repeats(runs(*rows), "x").select("level", "n", "mean").rows() == [(4.0, 1, 1.0)]


def test_levels_and_deployments_stand_apart():
    rows = (("a", 0.5, 1.0, True), ("a", 0.5, 3.0, True), ("a", 2.5, 5.0, True), ("b", 0.5, 7.0, True), ("b", None, 8.0, True))
    told = repeats(runs(*rows), "x")
    assert told.select("deployment", "level", "n", "mean").rows() == [
        ("a", 0.5, 2, 2.0),
        ("a", 2.5, 1, 5.0),
        ("b", 0.5, 1, 7.0),
    ]
