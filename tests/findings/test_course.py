"""What happens within a run, on planted courses whose truth is known."""

import numpy as np
import polars as pl
import pytest

from bench.findings.course import course, ttft_slope


def rows(name, times, values):
    return pl.DataFrame({"series": [name] * len(times), "elapsed_s": times, "value": np.asarray(values, dtype=float)})


def planted(rng, *, filling=-0.2, full=-0.4, noise=0.05, together=0.0, swing=0.0, full_at=20.0, bins=0.2):
    """A run of 60 s whose load stands from 2 s on: the cache fills until `full_at` and stays full until 50 s, and tokens/s change by these
    shares in the two stretches. Args: together: how much each bin's noise depends on the one before. swing: of a sine, from valley to peak.
    """
    times = np.arange(bins / 2, 60, bins)
    errors = rng.normal(0, noise, len(times))
    for i in range(1, len(times)):
        errors[i] = together * errors[i - 1] + np.sqrt(1 - together**2) * errors[i]
    before = 1 + filling * np.clip((times - 2) / (full_at - 2), 0, 1)
    speed = 1000 * before * (1 + full * np.clip((times - full_at) / (50 - full_at), 0, 1))
    speed *= 1 + errors + swing / 2 * np.sin(2 * np.pi * times / 4)
    scraped = np.arange(0, 60, 0.2)
    usage = np.where(scraped >= 50, 0.2, np.clip(scraped / full_at, 0, 1) * 0.95 + (scraped >= full_at) * 0.05)
    running = np.where((scraped >= 2) & (scraped <= 55), 16, 4)
    return pl.concat([rows("throughput", times, speed), rows("kv_usage", scraped, usage), rows("running", scraped, running)])


def test_the_course_of_a_run_is_the_one_planted():
    seen = course(planted(np.random.default_rng(1), noise=0.0))
    assert seen.full_after_s == pytest.approx(20, abs=0.3)
    assert seen.full_for_s == pytest.approx(30, abs=0.5)
    assert seen.running == 16
    assert seen.filling[0] == pytest.approx(-0.2, abs=0.01)
    assert seen.full[0] == pytest.approx(-0.4, abs=0.01)
    level = course(planted(np.random.default_rng(2), filling=0.0, full=0.0, noise=0.0, swing=0.5))
    assert level.swing == pytest.approx(0.5, abs=0.03)
    assert course(planted(np.random.default_rng(2), filling=0.0, full=0.0, noise=0.0)).swing == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("together", [0.0, 0.6])
def test_the_intervals_hold_the_truth(together):
    """Of neighbours that depend on each other, too: 95 of 100 would, and of 100 runs the two stretches together have no fewer than 180."""
    rng = np.random.default_rng(20261129)
    held = 0
    for _ in range(100):
        seen = course(planted(rng, filling=-0.1, full=-0.3, together=together))
        held += (seen.filling[1] <= -0.1 <= seen.filling[2]) + (seen.full[1] <= -0.3 <= seen.full[2])
    assert held >= 180


def test_what_a_course_does_not_show_is_not_known():
    rng = np.random.default_rng(3)
    short = course(planted(rng, full_at=4.0))
    assert short.filling is None and short.full is not None  # ten bins before the cache is full
    never = planted(rng).filter(pl.col("series") != "kv_usage")
    assert (course(never).full_after_s, course(never).full) == (None, None) and course(never).filling is not None
    assert course(never.clear()).swing is None
    with_few = planted(rng).filter((pl.col("series") != "throughput") | (pl.col("elapsed_s") < 0.9))
    assert course(with_few).swing is None


def test_each_request_of_a_burst_waits_for_the_prompts_before_it():
    rng = np.random.default_rng(4)
    waits = 0.05 + 0.012 * np.arange(40) + rng.normal(0, 0.002, 40)
    judged = [{"ok": True, "ttft": wait} for wait in rng.permutation(waits)] + [{"ok": False, "ttft": None}]
    assert ttft_slope(judged) == pytest.approx(0.012, rel=0.03)
    assert ttft_slope(judged[:5]) is None
