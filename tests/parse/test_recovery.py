"""Recovery after a step in the load, by hand: a request a second, the step from 20 s to 30 s."""

import polars as pl
import pytest

from bench.parse import Recovery, recovery

# Twenty requests before the step take 0.1 to 2.0 s: P50 is the 10th, P90 the 18th.
BEFORE = [0.1 * (i + 1) for i in range(20)]
STEP = [5.0] * 10


def told(*after, before=BEFORE, failed=(), outcome="timeout"):
    ttft = [*before, *STEP, *after]
    due = [20.0 - len(before) + i for i in range(len(ttft))]
    outcomes = [outcome if t in failed else "ok" for t in due]
    table = pl.DataFrame({"scheduled_s": due, "outcome": outcomes, "ttft_s": ttft}, schema_overrides={"ttft_s": pl.Float64})
    return recovery(table.reverse(), step_start_s=20.0, step_end_s=30.0)  # order in the file does not matter


def test_it_is_back_with_the_first_window_whose_median_is_within_the_baselines_p90():
    # Due at 30 to 36 s: slow. The window from 32 s holds five slow ones of nine; that from 33 s holds four.
    back = told(*[5.0] * 7, *[0.5] * 10)
    assert (back.baseline_p50_s, back.baseline_p90_s) == (pytest.approx(1.0), pytest.approx(1.8))
    assert (back.recovered, back.recovery_s) == (True, 3.0)


def test_a_server_that_was_never_disturbed_is_back_at_once():
    assert told(*[1.0] * 9).recovery_s == 0.0


def test_the_p90_itself_is_back_and_a_little_more_is_not():
    assert told(*[BEFORE[17]] * 9).recovered is True
    assert told(*[BEFORE[17] + 0.01] * 9).recovered is False


def test_never_back_is_said():
    lost = told(*[5.0] * 20)
    assert (lost.recovered, lost.recovery_s) == (False, None)
    assert lost.baseline_p90_s == pytest.approx(1.8)


def test_a_few_slow_ones_do_not_hide_a_recovery():
    assert told(0.5, 9.0, 0.5, 9.0, 0.5, 9.0, 0.5, 9.0, 0.5).recovery_s == 0.0
    assert told(9.0, 0.5, 9.0, 0.5, 9.0, 0.5, 9.0, 0.5, 9.0).recovered is False


def test_requests_of_the_step_are_in_no_window():
    assert told(*[0.5] * 8).recovered is None  # eight after the step, whatever those within it were


def test_a_failed_request_is_one_of_infinite_ttft():
    after = [0.5] * 9
    assert told(*after, failed=[30.0, 31.0, 32.0, 33.0]).recovered is True
    assert told(*after, failed=[30.0, 31.0, 32.0, 33.0, 34.0]).recovered is False  # even with a first token before it failed
    assert told(*after, failed=[30.0, 31.0, 32.0, 33.0, 34.0], outcome="http_error").recovered is False
    assert told(*[None] * 5, *[0.5] * 4, failed=[30.0, 31.0, 32.0, 33.0, 34.0]).recovered is False


def test_an_answer_without_ttft_is_in_no_window():
    assert told(*[None, 0.5] * 9).recovery_s == 1.0
    assert told(*[None] * 9, *[0.5] * 8).recovered is None


def test_failures_before_the_step_are_no_baseline():
    assert told(*[0.5] * 9, before=[1.0] * 9, failed=[11.0]) == Recovery(None, None, None, None)
    assert told(*[0.5] * 9, before=[1.0] * 9, failed=[11.0], outcome="http_error") == Recovery(None, None, None, None)
    assert told(*[0.5] * 9, before=[1.0] * 9).recovered is True


def test_a_run_of_nothing_tells_nothing():
    empty = pl.DataFrame(schema={"scheduled_s": pl.Float64, "outcome": pl.String, "ttft_s": pl.Float64})
    assert recovery(empty, step_start_s=1.0, step_end_s=2.0) == Recovery(None, None, None, None)
