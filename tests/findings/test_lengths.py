"""Latency over length, what streaming buys, and what happens within a run: planted lines and courses are found."""

import polars as pl
import pytest
from scipy.stats import norm

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
