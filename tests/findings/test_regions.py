"""Turning points of curves whose truth is known, and the reasons where there are none."""

from functools import partial

import numpy as np
import polars as pl
import pytest
from benchmarks.regions import judge
from scipy import stats

from bench.findings.regions import equilibrium, regions, saturation_point, turning_point
from bench.parse.windows import of_windows
from bench.statistics.levels import Levels, studentized_range
from tests.support.limits import CURVES, ladder, measured
from tests.support.planted import steady_row
from tests.support.summaries import table as table_of
from tests.support.words import cell

THROUGHPUT = "throughput_tokens_per_s"
BY_NAME = {curve.name: curve for curve in CURVES}


def runs(name, *, levels=20, even=True, repeats=2, noise=0.01, seed=1):
    return measured(BY_NAME[name], ladder(levels, even=even), repeats=repeats, noise=noise, random=np.random.default_rng(seed))


def exact(throughput, *, axis="concurrency", repeats=2, wobble=0.01, **more):
    """Runs of given levels, whose repeats lie evenly about what is given."""
    rows = [
        {"deployment": "a", "workload": "w", "axis": axis, "level": float(level), "repeat": repeat, "valid": True,
         THROUGHPUT: told * (1 + wobble * (-1) ** (repeat + i)) if repeats > 1 else told, **more}
        for repeat in range(1, repeats + 1) for i, (level, told) in enumerate(throughput.items())
    ]  # fmt: skip
    return pl.DataFrame(rows, schema_overrides={THROUGHPUT: pl.Float64})


def told(frame):
    return next(iter(regions(frame).values()))


saturation_text, equilibrium_text = (partial(turning_point, name=name) for name in ("saturation", "equilibrium"))


def test_what_is_told_of_a_planted_curve_is_so():
    for name, left, top in (
        ("proportional throughout", "above", "above"),
        ("bend at 16, slope 0.3", "left", "above"),
        ("scalability law, peak beyond", "left", "above"),
        ("flat from 20", "left", "flat"),
        ("exponential to a flat top", "left", "flat"),
        ("three lines, peak at 48", "left", "peak"),
        ("scalability law, peak at 40", "left", "peak"),
        ("cache full at 48, 25 % less", "left", "peak"),
        ("burst, waves of 64", "left", "unknown"),  # falls by a little, and comes back
        ("burst, waves of 40", "left", "unknown"),
    ):
        row, curve = told(runs(name)), BY_NAME[name]
        assert (row["equilibrium_kind"], row["saturation_kind"]) == (left, top), name
        for point, truth in (("equilibrium", curve.equilibrium), ("saturation", curve.saturation)):
            kind, at, low, high = (row[f"{point}_{key}"] for key in ("kind", "at", "low", "high"))
            assert (at is not None, high is not None) == (kind in ("left", "flat", "peak"),) * 2, (name, point)
            if at is None:
                assert low is None or truth is None or low <= truth, (name, point)
            else:
                assert low <= truth <= high and at == pytest.approx(truth, rel=0.15), (name, point)


def test_a_fall_and_the_equilibrium_by_hand():
    row = told(exact({1: 10, 2: 20, 4: 40, 8: 60, 12: 100, 16: 70, 20: 70}))
    assert saturation_text(row) == "about 12 (8 to 16), then it falls"
    # 8 keeps 75 % of what one request gets, 4 all; 12 keeps 83 % again.
    assert equilibrium_text(row) == "throughput a request falls below 80 % and rises above it again: no single point"
    row = told(exact({1: 10, 2: 20, 4: 40, 8: 60, 16: 70}))
    # Load ÷ throughput: 0.1 at 4, 0.1333 at 8; 0.125 is three quarters of the way.
    assert (row["equilibrium_at"], row["equilibrium_low"], row["equilibrium_high"]) == (pytest.approx(7, abs=0.1), 4, 8)
    assert equilibrium_text(row).endswith("(4 to 8)")


@pytest.mark.long(part="truth")
def test_of_many_draws_nothing_is_invented():
    """Forty draws each of a curve without any point, one without a fall, and one with both; 5 % may be wrong."""
    cells = [
        judge([BY_NAME[name]], 40, levels=12, even=True, repeats=2, noise=0.05)
        for name in ("proportional throughout", "bend at 16, slope 0.3", "three lines, peak at 48")
    ]
    assert all(float(row[i].rstrip("%")) <= 5 for row in cells for i in (5, 11))
    assert (cells[2][0], cells[2][6]) == ("100%", "100%")  # and what is there is found


def known(throughput, noise=0.005):
    """Levels of one run each, whose noise is known: at half a per cent, differences of about 2 % are sure."""
    load, log = np.array(list(throughput), float), np.log(np.array(list(throughput.values()), float))
    return Levels(load, log, np.ones(len(load)), noise, 1000, "repeats")


def test_the_equilibrium_of_levels_whose_noise_is_known():
    for throughput, noise, kind, at, low, high in (
        ({1: 10, 2: 20, 4: 40, 8: 60, 16: 70}, 0.005, "left", 7, 4, 8),  # load ÷ throughput 0.1 at 4, 0.1333 at 8
        ({1: 10, 2: 20, 4: 40, 8: 64, 16: 100}, 0.005, "left", 8, 4, 16),  # 80 % are neither kept nor lost
        (
            {1: 10, 2: 20, 4: 40, 8: 65.6, 16: 80},
            0.005,
            "left",
            8.3125,
            8,
            16,
        ),  # (0.125 − 8 ÷ 65.6) ÷ (0.2 − 8 ÷ 65.6) of the way
        ({1: 10, 2: 20, 4: 40, 8: 65.6, 16: 80}, 0.02, "left", 8.3125, 4, 16),  # 82 ± 4.6 %
        ({1: 10, 2: 20, 4: 40, 8: 62.4, 16: 80}, 0.005, "left", 4 + 0.025 / (8 / 62.4 - 0.1) * 4, 4, 8),
        ({1: 10, 2: 20, 4: 40, 8: 62.4, 16: 80}, 0.02, "left", 4 + 0.025 / (8 / 62.4 - 0.1) * 4, 4, 16),  # 78 ± 4.3 %
        ({1: 10, 2: 20, 4: 40, 8: 80}, 0.005, "above", None, 8, None),
        ({1: 10, 2: 20, 4: 40, 8: 64}, 0.005, "unknown", None, 4, None),
        ({1: 10, 2: 20, 4: 30, 8: 80, 16: 70}, 0.005, "unknown", None, None, None),  # 75 % at 4, all at 8
        ({1: 10, 2: 15, 4: 20, 8: 22}, 0.005, "left", 1.75, 1, 2),  # one request is proportional
        ({2: 20, 4: 30, 8: 40, 16: 44}, 0.005, "below", None, None, 4),  # two may not be
        ({10: 100, 20: 150, 40: 200, 80: 220}, 0.005, "below", None, None, 20),  # 17.5
        ({10: 100, 20: 170, 40: 200, 80: 220}, 0.005, "left", 20 + (0.125 - 2 / 17) / (0.2 - 2 / 17) * 20, 20, 40),  # 21.8
    ):
        point = equilibrium(known(throughput, noise), whole=True)
        assert (point.kind, point.low, point.high, point.at) == (kind, low, high, at and pytest.approx(at)), (throughput, noise)
    # A rate of one is no single request.
    assert equilibrium(known({1: 10, 2: 15, 4: 20, 8: 22}), whole=False).kind == "below"
    found = equilibrium(known({1: 10, 2: 17, 4: 20, 8: 22}), whole=False)
    assert (found.kind, found.at) == ("left", pytest.approx(2 + (0.125 - 2 / 17) / (0.2 - 2 / 17) * 2))


RISE = {1: 10, 2: 20, 4: 40, 8: 80}


def test_the_saturation_point_of_levels_whose_noise_is_known():
    for throughput, kind, at, low, high in (
        (RISE | {16: 100, 32: 100, 64: 100}, "flat", 12, 8, 16),  # 90 lie half-way between 80 and 100
        (RISE | {16: 100, 32: 100}, "flat", 12, 8, 16),  # to twice the load
        (RISE | {16: 100, 31: 100}, "unknown", None, 8, None),  # not quite
        (RISE | {16: 100, 32: 108}, "flat", 8 + (97.2 - 80) / 20 * 8, 8, 16),  # doubling it buys 8 %
        (RISE | {16: 100, 32: 114}, "above", None, 16, None),  # or 14
        (RISE | {10: 100, 16: 101}, "above", None, 8, None),  # 16 gives more than half its load does
        # And here half its load is no level below 10.
        ({1: 10, 2: 20, 4: 40, 7: 80, 10: 100, 16: 101}, "unknown", None, 7, None),
        (RISE | {10: 101, 16: 100}, "unknown", None, 8, None),
        (RISE, "above", None, 4, None),
        (RISE | {16: 100, 32: 70}, "peak", 16, 8, 32),
        ({1: 100, 2: 101, 4: 100, 8: 50}, "peak", 2, None, 8),
        ({1: 100, 2: 80, 4: 60, 8: 50}, "below", None, None, 2),
        (RISE | {16: 60, 32: 80}, "unknown", None, None, None),  # at 16 it has fallen, and rises again
    ):
        point = saturation_point(known(throughput))
        assert (point.kind, point.low, point.high, point.at) == (kind, low, high, at and pytest.approx(at)), throughput


def test_which_runs_make_a_curve():
    good = exact({1: 10, 2: 20, 4: 40, 8: 60, 12: 100, 16: 70, 20: 70})
    invalid = good.with_columns(pl.lit(1.0).alias(THROUGHPUT), valid=pl.lit(False), repeat=3 + pl.col("repeat"))
    beyond = good.with_columns(level=pl.lit(99.0))
    nothing = [beyond.with_columns(**{THROUGHPUT: pl.lit(each, dtype=pl.Float64)}) for each in (None, 0.0)]
    for left_out in (invalid, *nothing):
        assert regions(pl.concat([good, left_out])) == regions(good), left_out
    uncounted = good.with_columns(throughput_tokens_per_s=pl.lit(None, pl.Float64))
    assert saturation_text(told(uncounted)) == "the server does not count tokens"
    assert saturation_text(told(good.with_columns(valid=pl.lit(False)))).startswith("no level with a valid run")
    row = told(exact({1: 10, 2: 20, 4: 30}))
    for name in ("saturation", "equilibrium"):
        assert turning_point(row, name) == "3 levels to compare; 4 are needed", name
    assert (row["noise"], row["noise_of"], row["levels"]) == (None, None, 3)
    # Curves stand in the order of the runs.
    one = exact({1: 10, 2: 20, 4: 40, 8: 60})
    names = [f"w{7 * i % 10}" for i in range(10)]
    assert [name for _, name in regions(pl.concat([one.with_columns(workload=pl.lit(name)) for name in names]))] == names


def test_where_no_point_is_found_it_is_said_why():
    row = told(runs("bend at 16, slope 0.3"))
    assert row["saturation_at"] is None
    assert saturation_text(row) == f"above {row['saturation_low']:g} (still rising at 96, the highest load)"
    for text, frame, said in (
        (equilibrium_text, runs("proportional throughout"), "above 96 (still proportional at 96, the highest load)"),
        (saturation_text, exact({10: 90, 20: 80, 30: 70, 40: 60}), "at or below 20 (it falls from the lowest level on)"),
        (saturation_text, exact({1: 10, 10: 80, 20: 100, 25: 70, 30: 80, 40: 100}), "throughput falls and rises again: no single peak"),
        (saturation_text, runs("three lines, peak at 48", levels=6, repeats=1, noise=0.1), "(hidden by noise of 24 %)"),
        (equilibrium_text, exact({1: 10, 2: 20, 4: 36, 8: 50}, wobble=0.4), "(hidden by noise of 69 %)"),
    ):  # fmt: skip
        assert text(told(frame)).endswith(said), said
    # A lowest level beyond the proportional part is said.
    whole = exact({level: 100 * level / (20 + level) for level in (1, 2, 4, 8, 16, 40, 60, 80, 100)})
    late = whole.filter(pl.col("level") >= 40)
    assert told(whole)["equilibrium_at"] == pytest.approx(6.25, rel=0.1)  # 21 ÷ (20 + N) = 0.8
    assert equilibrium_text(told(late)) == "at or below 60 (no level is significantly in the proportional range)"
    # One request a second may well be beyond it, one request may not.
    rates = exact({1: 10, 2: 15, 4: 20, 8: 22})
    assert told(rates)["equilibrium_kind"] == "left"
    assert told(rates.with_columns(axis=pl.lit("request_rate")))["equilibrium_kind"] == "below"
    # A curve that is proportional until it falls has both points in one place.
    row = told(exact({1: 10, 2: 20, 4: 40, 8: 80, 16: 60}))
    assert (row["equilibrium_at"], row["saturation_at"]) == (8, 8)


def test_where_the_noise_comes_from():

    # ln: level means 0 and 1; the second repeat is 0.2 higher in all; what is left are ± 0.05 at each level.
    logs = [(1, 1, 0.05), (2, 1, 0.95), (1, 2, 0.15), (2, 2, 1.25)]
    frame = pl.DataFrame(logs, schema=["level", "repeat", "log"], orient="row").with_columns(valid=True, x=pl.col("log").exp())
    levels = Levels.of(frame, "x")
    assert (levels.noise_of, levels.freedom) == ("repeats", 1)
    assert levels.noise == pytest.approx((4 * 0.05**2) ** 0.5)
    # A repeat that lacks a level cannot be told apart from the level.
    loose = Levels.of(frame.filter(~((pl.col("level") == 2) & (pl.col("repeat") == 2))), "x")
    assert (loose.freedom, loose.noise) == (1, pytest.approx((2 * 0.05**2) ** 0.5))
    # A curve without repeats takes the noise of the workload's others.
    repeated = runs("flat from 20", noise=0.03)
    single = runs("three lines, peak at 48", repeats=1, noise=0.03)
    both = {name: row for (name, _), row in regions(pl.concat([repeated, single])).items()}
    lent = both["three lines, peak at 48"]
    assert (lent["noise_of"], lent["noise"]) == ("others", both["flat from 20"]["noise"])
    assert lent["saturation_kind"] == "peak"
    _, apart = regions(pl.concat([repeated.with_columns(workload=pl.lit("v")), single])).values()
    assert apart["noise_of"] == "neighbours"
    assert told(single) == apart
    # Noise from neighbours is that of the runs and passes over a turn.
    found = [Levels.of(runs("bend at 16, slope 0.3", repeats=1, noise=0.05, seed=seed), THROUGHPUT) for seed in range(40)]
    assert {levels.noise_of for levels in found} == {"neighbours"}
    assert float(np.median([levels.noise for levels in found])) == pytest.approx(0.05, rel=0.3)
    # The noise of a curve is told in per cent.
    for noise, said in ((0.02, "hidden by noise of 2 %"), (0.6, "hidden by noise of 60 %")):
        left = equilibrium(known({1: 10, 2: 20, 4: 40, 8: 64}, noise), whole=True)
        top = saturation_point(known(RISE | {16: 100, 31: 100}, noise))
        assert (left.why, top.why) == ("noise", "noise")
        for name, point in (("equilibrium", left), ("saturation", top)):
            bound = "" if point.low is None else f"above {point.low:g} ("
            assert turning_point({**cell(name, point), "noise": noise}, name).startswith(bound + said)


def test_the_studentized_range_is_that_of_scipy():
    for means, freedom in ((4, 1), (4, 8), (9, 3), (9, 8), (20, 38)):
        expected = pytest.approx(stats.studentized_range.ppf(0.95, means, freedom), rel=0.03)
        assert studentized_range(means, freedom) == expected, (means, freedom)


def test_the_rates_of_windows_are_compared_with_one_another(summary):
    """Requests come faster than the server can answer: at 27.4/s one window is too short for latencies, and whole runs, ramp and drain
    included, gave 6 % less than the windows at 21.6 did.
    """
    windows = {7.84: (188.0, 188.3), 13.7: (329.1, 329.2), 17.6: (419.9, 421.6), 21.6: (492.7, 484.0), 27.4: (504.3, 504.3)}
    whole = {7.84: (185.4, 185.7), 13.7: (318.2, 316.0), 17.6: (399.5, 398.7), 21.6: (460.1, 453.9), 27.4: (464.9, 455.7)}

    def rows(**last):
        for level, both in windows.items():
            for repeat, steady in enumerate(both):
                more = last if (level, repeat) == (27.4, 0) else {}
                rates = {THROUGHPUT: whole[level][repeat], "steady_tokens_per_s": steady}
                yield steady_row(summary, level, axis="request_rate", repeat=repeat + 1, **rates, **more)

    found = table_of(*rows(steady=False, steady_why="short"))
    (shown,) = of_windows(found)
    assert shown.filter(level=27.4)[THROUGHPUT].to_list() == [464.9, 455.7]
    for frame in (found, shown):
        row = told(frame)
        assert (row["saturation_kind"], row["saturation_at"], row["saturation_low"]) == ("above", None, 17.6)
    # Where windows do not count, a whole run is not compared with them.
    none = found.with_columns(pl.when(pl.col("steady_why").is_null()).then("steady_tokens_per_s").alias("steady_tokens_per_s"))
    for frame in (none, found.with_columns(turns=pl.lit(3))):
        (shown,) = of_windows(frame)
        assert told(shown) == told(shown.filter(pl.col("level") < 27)) != told(frame.drop("steady_tokens_per_s"))
