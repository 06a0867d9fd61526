"""Latency over length: a planted line is found, and each figure shows the runs that are its own."""

import re

import polars as pl
import pytest
from scipy.stats import norm

from bench.aggregate import summary_frame
from bench.analysis.lengths import line
from bench.figures.lengths import fitted, length_title, swept
from bench.figures.registry import load_figure
from bench.figures.results import Results
from bench.study.config import Thresholds
from tests.support.summaries import LAUNCH


def planted(n, noise, *, slope=0.3, intercept=12.0, seed=0):
    """`n` runs on a line with normal errors of which every sample has the same spread."""
    x = [128.0 * (i + 1) for i in range(n)]
    errors = pl.Series(norm.ppf([(i + 0.5) / n for i in range(n)])).sample(n, shuffle=True, seed=seed)
    return pl.DataFrame(
        {"x": x, "y": [intercept + slope * a + noise * e for a, e in zip(x, errors, strict=True)], "valid": True}
    )


def test_the_interval_holds_the_truth_as_often_as_it_says():
    held = [abs((f := line(planted(16, 10.0, seed=seed), "x", "y")).slope - 0.3) <= f.slope_half for seed in range(400)]
    assert 0.93 <= sum(held) / len(held) <= 0.99  # 95 %, with shuffled errors of one spread


def test_a_parabola_is_found_and_a_line_is_none():
    runs = planted(16, 0.0).with_columns(y=50 + 0.2 * pl.col("x") + 1e-4 * pl.col("x") ** 2)
    found = line(runs, "x", "y")
    curve = found.parabola
    assert (curve.square, curve.slope, curve.intercept, curve.r_squared) == pytest.approx((1e-4, 0.2, 50, 1))
    assert (curve.longest, curve.bend) == (2048, pytest.approx(1e-4 * 2048**2 / (50 + 0.2 * 2048 + 1e-4 * 2048**2)))
    assert found.intercept < 0  # of a line through it
    assert runs.select(found.at(pl.col("x"))).to_series().to_list() == pytest.approx(runs["y"].to_list())
    bent = [line(planted(16, 10.0, seed=seed), "x", "y").parabola is not None for seed in range(200)]
    assert sum(bent) / len(bent) < 0.1  # of lines, about 5 % by chance


def test_a_line_and_its_intervals_by_hand():
    """1, 2 and 4 at 1, 2 and 3: errors of 1/6, −1/3 and 1/6, one degree of freedom, for which Student's t is 12.706."""
    points = pl.DataFrame({"x": [1, 2, 3], "y": [1.0, 2.0, 4.0], "valid": True})
    found = line(points, "x", "y")
    assert (found.slope, found.intercept) == pytest.approx((1.5, -2 / 3))
    deviation = (1 / 6) ** 0.5
    assert found.slope_half == pytest.approx(12.7062 * deviation / 2**0.5, rel=1e-4)
    assert found.intercept_half == pytest.approx(12.7062 * deviation * (1 / 3 + 4 / 2) ** 0.5, rel=1e-4)
    assert found.r_squared == pytest.approx(1 - (1 / 6) / (14 / 3))
    assert (found.parabola, found.n) == (None, 3)
    gaps = pl.concat([points, points.with_columns(y=pl.lit(None, dtype=pl.Float64)), points.with_columns(valid=pl.lit(False))])
    assert line(gaps, "x", "y") == found
    # An exact line is found exactly.
    found = line(planted(8, 0.0), "x", "y")
    assert (found.slope, found.intercept, found.r_squared) == pytest.approx((0.3, 12.0, 1.0))
    assert found.n == 8
    # Two lengths and invalid runs make no line.
    runs = planted(3, 0.0)
    assert line(runs.head(2), "x", "y") is None
    assert line(runs.with_columns(valid=pl.col("x") > 128), "x", "y") is None
    assert line(pl.concat([runs.head(2), runs.head(2)]), "x", "y") is None  # four points, two lengths
    # A parabola of `bent` and a cubic of `wave`, which is its error, at 1 to 5: the deviation is √(5 ÷ 14) × wave, and t is 4.303.
    for bent, wave, bend in (
        (2.5, 1, None),
        (2.65, 1, 2.65 * 25 / (100 + 2 * 2.65)),
        (-2.65, 1, -2.65 * 25 / (100 - 2 * 2.65)),
        (-2.5, 1, None),
        (2.5, 0.9, 2.5 * 25 / (100 + 2 * 2.5)),
    ):
        y = [100 + bent * two + wave * three for two, three in zip((2, -1, -2, -1, 2), (-1, 2, 0, -2, 1), strict=True)]
        points = pl.DataFrame({"x": [1, 2, 3, 4, 5], "y": y, "valid": True})
        found = line(points, "x", "y")
        if bend is None:
            assert found.parabola is None, (bent, wave)
        else:
            curve = found.parabola
            assert (curve.bend, curve.intercept) == (pytest.approx(bend), pytest.approx(100 + 7 * bent)), (bent, wave)
            assert curve.square_half == pytest.approx(4.3027 * (5 / 14) ** 0.5 * wave, rel=1e-3), (bent, wave)
        assert line(points.head(4), "x", "y").parabola is None, (bent, wave)  # of four points none


def test_the_fit_that_stands_is_drawn_and_named():
    def drawn(runs):
        return fitted(runs.rename({"x": "output_fixed"}).with_columns(series=pl.lit("m"), milliseconds="y"), "output")

    straight = drawn(planted(16, 300.0, intercept=1234.0))
    name = straight["series"][0]
    assert re.fullmatch(r"m: line, 1,\d+ ± \d{3} ms \+ 0\.\d+ ± 0\.\d+ ms a token \(R² 0\.\d{3}\)", name), name
    steps = straight["fit"].diff().drop_nulls()
    assert steps.to_list() == pytest.approx([steps[0]] * 15)
    bent = planted(16, 1.0).with_columns(y=pl.col("y") + 1e-4 * pl.col("x") ** 2)
    name = drawn(bent)["series"][0]
    assert re.fullmatch(
        r"m: parabola, 1\d\.\d ± \d\.\d ms \+ 0\.3\d* ± 0\.\d+ ms a token \+ 0\.\d+ ± 0\.\d+ µs a token² \(R² 1\.000\)", name
    ), name
    assert (drawn(bent)["fit"] - bent["y"]).abs().max() < 5  # a line through them is off by 20 ms

    # A title of lengths is what its fit is sure of.
    def title(runs, series=None):
        named = runs.with_columns(series=pl.lit("m") if series is None else series, output_fixed="x", milliseconds="y")
        return length_title(named, "output")

    assert title(planted(16, 1.0)).startswith("An output token adds 0.300")
    bent = planted(16, 0.0).with_columns(y=50 + 0.2 * pl.col("x") + 1e-4 * pl.col("x") ** 2)
    assert title(bent) == "At 2,048 tokens 48 % of E2E latency grows with the square of the length"
    unsure = planted(16, 1e4)
    assert (title(unsure), title(unsure.head(2))) == (None, None)
    assert title(planted(16, 1.0), series=pl.col("x").cast(pl.String)) is None  # several series


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
    return Results(summary_frame(rows, LAUNCH, {}, Thresholds()), pl.DataFrame())


def test_each_length_has_its_own_runs(study):
    assert swept(study, "prompt")["run"].to_list() == ["p8", "p16", "p24"]
    assert swept(study, "output")["run"].to_list() == ["o8", "o16", "o24"]
    # A line is told in words.
    told = fitted(swept(study, "prompt"), "prompt")
    assert re.match(r"a: line, 10(\.0+)? ± 0(\.0+)? ms \+ 1(\.0+)? ± 0(\.0+)? ms a token", told["series"].unique().item())
    assert told["fit"].to_list() == pytest.approx([18, 26, 34])
    # Without streaming the whole answer is the first thing to read.
    spec = load_figure("streaming").draw(study).to_dict()
    rows = [row for rows in spec["datasets"].values() for row in rows]
    told = {(row["answer"], row["measure"]): row["seconds"] for row in rows}
    assert told == {("streaming", "until there is something to read"): 0.1,
                    ("whole answer", "until there is something to read"): 2.0,
                    ("streaming", "until the answer is complete (E2E)"): 2.0,
                    ("whole answer", "until the answer is complete (E2E)"): 2.0}  # fmt: skip
