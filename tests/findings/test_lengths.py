"""Latency over length, what streaming buys, and what happens within a run: planted lines and courses are found."""

import numpy as np
import polars as pl
import pytest
from scipy.stats import norm

from bench.findings.course import course, ttft_slope
from bench.findings.lengths import cost, length_costs, streaming_gains, swept
from bench.findings.tables import Tables
from bench.parse.table import summary_frame
from bench.study.config import Thresholds
from tests.support.figures import drawn_rows, saved_spec
from tests.support.summaries import LAUNCH


def sweep(times):
    """Runs of one sweep of output lengths, by their lengths (ms)."""
    first = {"deployment": "a", "family": "w", "axis": "concurrency", "level": 1.0, "prompt_fixed": 8, "ttft_p50_s": None}
    rows = [{**first, "output_fixed": x, "e2e_p50_s": None if y is None else y / 1000, "valid": True} for x, y in times]
    return pl.DataFrame(rows, schema_overrides={"ttft_p50_s": pl.Float64})


def planted(n, noise, *, slope=0.3, intercept=12.0, seed=0):
    """`n` runs on a line with normal errors of which every sample has the same spread."""
    errors = pl.Series(norm.ppf([(i + 0.5) / n for i in range(n)])).sample(n, shuffle=True, seed=seed)
    return sweep((128 * (i + 1), intercept + slope * 128 * (i + 1) + noise * e) for i, e in enumerate(errors))


def test_the_interval_holds_the_truth_as_often_as_it_says():
    found = [length_costs(planted(16, 10.0, seed=seed))[0] for seed in range(400)]
    held = [abs(each.slope - 0.3) <= each.slope_half for each in found]
    assert 0.93 <= sum(held) / len(held) <= 0.99  # 95 %, with shuffled errors of one spread


def test_a_line_and_its_interval_by_hand():
    """1, 2 and 4 at 1, 2 and 3: errors of 1/6, −1/3 and 1/6, one degree of freedom, for which Student's t is 12.706."""
    points = sweep([(1, 1.0), (2, 2.0), (3, 4.0)])
    (found,) = length_costs(points)
    assert (found.kind, found.workload, found.lengths, found.measured, found.runs) == ("output", "w", (1, 3), 3, 3)
    assert (found.slope, found.r_squared) == pytest.approx((1.5, 1 - (1 / 6) / (14 / 3)))
    assert found.slope_half == pytest.approx(12.7062 * (1 / 6) ** 0.5 / 2**0.5, rel=1e-4)
    gaps = pl.concat(
        [points, sweep([(9, None)]), points.with_columns(valid=pl.lit(False), output_fixed=pl.lit(7, dtype=pl.Int64))]
    )
    (left_out,) = length_costs(gaps)
    assert (left_out.slope, left_out.lengths, left_out.measured, left_out.runs) == (found.slope, (1, 3), 3, 7)
    (exact,) = length_costs(planted(8, 0.0))
    assert (exact.slope, exact.r_squared) == pytest.approx((0.3, 1.0))
    assert cost(exact).startswith(
        "An output token adds 0.300 ± 0.000 ms to E2E latency, in the mean of answers of 128 to 1,024 tokens"
    )
    # Two lengths make no line.
    (two,) = length_costs(points.with_columns(valid=pl.col("output_fixed") > 1))
    assert (two.slope, two.measured) == (None, 2)
    assert length_costs(points.head(2)) == []


@pytest.fixture
def study(summary):
    rows = [
        {**summary, "run": f"p{n}", "workload": f"prefill-p{n}", "family": "prefill", "prompt_fixed": n, "output_fixed": 1,
         "ttft_p50_s": 0.01 + n / 1000, "level": 1.0} for n in (8, 16, 24)
    ] + [
        {**summary, "run": f"o{n}", "workload": f"decode-o{n}", "family": "decode", "prompt_fixed": 8, "output_fixed": n,
         "e2e_p50_s": n / 100, "tpot_p50_s": 0.01, "level": 1.0} for n in (8, 16, 24)
    ] + [
        {**summary, "run": f"s{stream}", "workload": f"s{stream}", "family": f"s{stream}", "prompt_fixed": 64, "output_fixed": 64,
         "stream": stream, "ttft_p50_s": 0.1 if stream else None, "e2e_p50_s": 2.0, "level": 1.0} for stream in (True, False)
    ]  # fmt: skip
    return Tables(summary_frame(rows, LAUNCH, {}, Thresholds()), pl.DataFrame())


def test_each_length_has_its_own_runs(study):
    assert swept(study.runs, "prompt")["run"].to_list() == ["p8", "p16", "p24"]
    assert swept(study.runs, "output")["run"].to_list() == ["o8", "o16", "o24"]
    spec = saved_spec("latency-by-length", study)
    assert {row["run"]: row["milliseconds"] for row in drawn_rows(spec, "milliseconds")} == pytest.approx(
        {"p8": 18, "p16": 26, "p24": 34, "o8": 80, "o16": 160, "o24": 240}
    )
    assert {row["speed"] for row in drawn_rows(spec, "speed")} == {100}
    (gain,) = streaming_gains(study.runs)
    assert (gain.prompt, gain.output, gain.first_s, gain.streamed_s, gain.whole_s) == (64, 64, 0.1, 2.0, 2.0)
    assert (gain.valid, gain.runs) == (2, 2)


# What happens within a run, on planted courses whose truth is known


def rows(name, times, values):
    return pl.DataFrame({"series": [name] * len(times), "elapsed_s": times, "value": np.asarray(values, dtype=float)})


def run_of(rng, *, filling=-0.2, full=-0.4, noise=0.05, together=0.0, swing=0.0, full_at=20.0, bins=0.2):
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
    seen = course(run_of(np.random.default_rng(1), noise=0.0))
    assert seen.full_after_s == pytest.approx(20, abs=0.3)
    assert seen.full_for_s == pytest.approx(30, abs=0.5)
    assert seen.running == 16
    assert seen.filling[0] == pytest.approx(-0.2, abs=0.01)
    assert seen.full[0] == pytest.approx(-0.4, abs=0.01)
    level = course(run_of(np.random.default_rng(2), filling=0.0, full=0.0, noise=0.0, swing=0.5))
    assert level.swing == pytest.approx(0.5, abs=0.03)
    assert course(run_of(np.random.default_rng(2), filling=0.0, full=0.0, noise=0.0)).swing == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("together", [0.0, 0.6])
def test_the_intervals_hold_the_truth(together):
    """Of neighbours that depend on each other, too: 95 of 100 would, and of 100 runs the two stretches together have no fewer than 180."""
    rng = np.random.default_rng(20261129)
    held = 0
    for _ in range(100):
        seen = course(run_of(rng, filling=-0.1, full=-0.3, together=together))
        held += (seen.filling[1] <= -0.1 <= seen.filling[2]) + (seen.full[1] <= -0.3 <= seen.full[2])
    assert held >= 180


def test_what_a_course_does_not_show_is_not_known():
    rng = np.random.default_rng(3)
    short = course(run_of(rng, full_at=4.0))
    assert short.filling is None and short.full is not None  # ten bins before the cache is full
    never = run_of(rng).filter(pl.col("series") != "kv_usage")
    assert (course(never).full_after_s, course(never).full) == (None, None) and course(never).filling is not None
    assert course(never.clear()).swing is None
    with_few = run_of(rng).filter((pl.col("series") != "throughput") | (pl.col("elapsed_s") < 0.9))
    assert course(with_few).swing is None


def test_each_request_of_a_burst_waits_for_the_prompts_before_it():
    rng = np.random.default_rng(4)
    waits = 0.05 + 0.012 * np.arange(40) + rng.normal(0, 0.002, 40)
    judged = [{"ok": True, "ttft": wait} for wait in rng.permutation(waits)] + [{"ok": False, "ttft": None}]
    assert ttft_slope(judged) == pytest.approx(0.012, rel=0.03)
    assert ttft_slope(judged[:5]) is None
