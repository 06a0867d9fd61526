"""Whether a level is on the frontier of speed and throughput, on made runs whose truth is known."""

import math

import numpy as np
import polars as pl
import pytest

from bench.findings.capacity.points import operating_points
from bench.findings.economics import Prices
from bench.findings.user_speed import throughput_of, trade_offs
from bench.study.slo import parse_slo
from tests.support.planted import answers, steady_row, summary_rows

# What a user and a GPU get at each level; b's second is beaten by a's, and the last two are as good as each other.
TRUTH = {
    ("a", 1): (100, 100), ("a", 2): (80, 160), ("a", 4): (40, 200),
    ("b", 1): (90, 60), ("b", 2): (60, 110), ("b", 4): (20, 230), ("b", 8): (20, 230.0001),
}  # fmt: skip


def front_of(values):
    """The keys that no other beats. Args: values: by key, two of them, of which more is better."""
    return {
        key for key, (x, y) in values.items() if not any(c >= x and d >= y and (c, d) != (x, y) for c, d in values.values())
    }


ON = front_of(TRUTH)


def runs(seed=0, *, sessions=4, noise=0.03, start=0.02):
    random = np.random.default_rng(seed)
    starts = {(name, s): start * random.standard_normal(2) for name in "ab" for s in range(sessions)}
    rows = []
    for (name, level), (user, gpu) in TRUTH.items():
        for session in range(sessions):
            off = np.exp(starts[name, session] + noise * random.standard_normal(2))
            rows.append({"deployment": name, "workload": "w", "axis": "concurrency", "level": float(level), "session": session,
                         "valid": True, "tpot_p50_s": 1 / (user * off[0]), "throughput_tokens_per_s": 2 * gpu * off[1], "gpus": 2})  # fmt: skip
    return pl.DataFrame(rows)


def by_key(levels, *names):
    """Each level's values of these columns."""
    return {(row["deployment"], int(row["level"])): tuple(row[name] for name in names) for row in levels.iter_rows(named=True)}


def told(frame):
    return {key: on for key, (on,) in by_key(trade_offs(frame, "tpot_p50_s"), "unbeaten").items()}


AT_A_4 = (pl.col("deployment") == "a") & (pl.col("level") == 4)
ALL_FAILED = pl.lit(pl.Series([answers(400, failed=400)]))


def test_what_no_other_level_beats_in_both_is_on_the_frontier():
    found = told(runs(noise=0.0, start=0.0))
    assert {key for key, on in found.items() if on} == ON
    equal = pl.concat(
        [runs(noise=0.0, start=0.0), runs(noise=0.0, start=0.0).filter(deployment="a").with_columns(deployment=pl.lit("c"))]
    )
    assert {key for key, on in told(equal).items() if on} >= {("c", 1), ("a", 1)}  # neither of equals beats the other


def altered(where, **columns):
    return runs().with_columns(pl.when(where).then(value).otherwise(name).alias(name) for name, value in columns.items())


def test_a_level_that_lacks_a_value_is_left_out():
    for frame in (
        summary_rows(
            altered(AT_A_4, tpot_p50_s=None, throughput_tokens_per_s=0.0)
            .with_columns(judged=pl.when(AT_A_4).then(ALL_FAILED))
            .to_dicts()
        ),
        altered(AT_A_4, throughput_tokens_per_s=0.0),
        altered(AT_A_4, tpot_p50_s=math.inf),
    ):
        found = told(frame)
        assert found.keys() == TRUTH.keys() - {("a", 4)}, frame
        assert found["a", 1] and found["a", 2], frame


# Under SLOs

SLO = parse_slo("ttft_p90=1s")

# Tokens/s of a user, those of a GPU, TTFT P90 (s) and the share that fails. a's last level just misses the SLO and b's third just meets it;
# b's last one gives the most, but 5 % of its requests fail.
UNDER = {
    ("a", 1): (100, 100, 0.3, 0.0), ("a", 2): (80, 160, 0.6, 0.0), ("a", 4): (40, 240, 1.1, 0.0),
    ("b", 1): (90, 60, 0.2, 0.0), ("b", 2): (60, 110, 0.4, 0.0), ("b", 4): (20, 230, 0.9, 0.0), ("b", 8): (19, 260, 0.95, 0.05),
}  # fmt: skip
MEETING = {key for key, (_, _, p90, failing) in UNDER.items() if p90 <= SLO.limit_s and failing <= 0.01}


def limited_runs(seed, *, sessions=4, requests=150, noise=0.04, start=0.02):
    """Runs whose requests are drawn: a lognormal TTFT with the planted P90, and the planted share of failures."""
    random = np.random.default_rng(seed)
    starts = {(name, s): start * random.standard_normal(3) for name in "ab" for s in range(sessions)}
    rows = []
    for (name, level), (user, gpu, p90, failing) in UNDER.items():
        for session in range(sessions):
            off = starts[name, session] + noise * random.standard_normal(3)
            ttft = p90 * np.exp(off[2] + 0.5 * (random.standard_normal(requests) - 1.2816))
            tpot, rate = math.exp(off[0]) / user, gpu * math.exp(off[1])
            rows.append(
                steady_row({"deployment": name, "workload": "w", "axis": "concurrency", "session": session + 1, "repeat": session + 1, "valid": True,
                            "turns": 1, "gpus": 1}, level, requests=requests, failed=int(random.binomial(requests, failing)), ttft=ttft.tolist(),
                           tpot=tpot, rps=rate / 32, tpot_p50_s=tpot, ttft_p90_s=float(np.quantile(ttft, 0.9)), throughput_tokens_per_s=rate)
            )  # fmt: skip
    return summary_rows(rows)


def limited(frame):
    return by_key(trade_offs(frame, "tpot_p50_s", capacity=operating_points(frame, [SLO])), "within", "unbeaten")


def test_levels_that_miss_an_slo_are_no_candidates():
    """Beyond its limit a gives more than b for more speed, and takes b's third level off the frontier of all levels."""
    frame = limited_runs(0, requests=400, noise=0.01, start=0.0)
    found = limited(frame)
    assert {key for key, (within, _) in found.items() if within} == MEETING
    assert {key for key, (_, unbeaten) in found.items() if unbeaten} == {("a", 1), ("a", 2), ("b", 4)}
    assert found["b", 8] == (False, False)
    # A level that is too close to tell is not said to miss.
    points = operating_points(frame, [SLO])
    rows = [{**row, "missed": [{**miss, "close": True} for miss in row["missed"]]} for row in points.to_dicts()]
    within = by_key(trade_offs(frame, "tpot_p50_s", capacity=pl.DataFrame(rows, schema=points.schema)), "within")
    assert (within["a", 2], within["a", 4], within["b", 8]) == ((True,), (None,), (None,))
    # Unstreamed answers have no TTFT: whether they are within is not known.
    without = pl.col("judged").list.eval(pl.element().struct.with_fields(ttft=pl.lit(None, dtype=pl.Float64)))
    judged = pl.when(pl.col("deployment") == "a").then(without).otherwise("judged")
    found = limited(limited_runs(0).with_columns(judged=judged))
    assert {told for key, told in found.items() if key[0] == "a"} == {(None, False)}
    assert found["b", 2] == (True, True)


def test_energy_decides_where_speeds_are_equal():
    """Of two deployments that are alike in both, the one that draws less power gives more for a dollar."""
    rows = [
        {"deployment": name, "workload": "w", "axis": "concurrency", "level": 1.0, "session": s, "valid": True, "gpus": 1,
         "tpot_p50_s": 0.01 * (1 + 0.001 * s), "throughput_tokens_per_s": 100.0, "gpu_power_mean_w": watts}
        for name, watts in (("a", 300.0), ("b", 600.0)) for s in range(1, 5)
    ]  # fmt: skip
    frame = summary_rows(rows)
    plain = trade_offs(frame, "tpot_p50_s", prices=Prices())
    assert throughput_of(plain) == "a_gpu" and plain["unbeaten"].all()
    priced = trade_offs(frame, "tpot_p50_s", prices=Prices(gpu_hour=0.1, kwh=1.0))
    assert throughput_of(priced) == "a_dollar"
    assert dict(priced.select("deployment", "unbeaten").iter_rows()) == {"a": True, "b": False}
    assert priced["a_dollar"].to_list() == pytest.approx([3600 * 100 / 0.4, 3600 * 100 / 0.7])
    # Where the GPUs of one deployment are not known, its cost is not, and all are counted by the instance.
    frame = summary_rows(runs().with_columns(gpus=pl.when(pl.col("deployment") == "a").then(pl.lit(2))).to_dicts())
    assert throughput_of(trade_offs(frame, "tpot_p50_s", prices=Prices(gpu_hour=2.0))) == "an_instance"
