"""Whether a level is on the frontier of speed and throughput, on made runs whose truth is known."""

import math

import numpy as np
import polars as pl
import pytest

from bench.analysis import Prices, operating_points
from bench.analysis.pareto import throughput_of, trade_offs
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
    return by_key(trade_offs(frame, "tpot_p50_s"), "unbeaten", "established")


def test_what_is_clear_is_established_and_equals_are_not():
    found = told(runs())
    assert {key for key, (on, sure) in found.items() if on and sure} == {("a", 1), ("a", 2), ("a", 4)} <= ON
    assert {key for key, (on, sure) in found.items() if not on and sure} == {("b", 1), ("b", 2)}
    assert not found["b", 4][1] and not found["b", 8][1]
    # Single runs establish nothing.
    assert not any(sure for _, sure in told(runs(sessions=1)).values())
    # Two repeats in one session of each: starts are held to differ by 10 %, so 20 % more of both shows nothing.
    rows = [
        {"deployment": name, "workload": "w", "axis": "concurrency", "level": 1.0, "session": 1, "valid": True,
         "tpot_p50_s": 0.01 / times, "throughput_tokens_per_s": 100.0 * times * (1 + 0.001 * repeat), "gpus": 1}
        for name, times in (("a", 1.0), ("b", 1.2)) for repeat in range(4)
    ]  # fmt: skip
    assert told(pl.DataFrame(rows)) == {("a", 1): (False, False), ("b", 1): (True, False)}


@pytest.mark.long(part="truth")
def test_what_is_established_is_so():
    """At most 5 % of levels may be wrong; the two that are alike have no truth that could be shown."""
    for sessions in (2, 4):
        found = [told(runs(seed, sessions=sessions, noise=0.06)) for seed in range(200)]
        sure = [(key, on) for each in found for key, (on, established) in each.items() if established]
        assert len(sure) > 400, sessions
        assert sum((key in ON) != on for key, on in sure) <= 0.05 * 200 * len(TRUTH), sessions


AT_A_4 = (pl.col("deployment") == "a") & (pl.col("level") == 4)
ALL_FAILED = pl.lit(pl.Series([answers(400, failed=400)]))


def altered(where, **columns):
    return runs().with_columns(pl.when(where).then(value).otherwise(name).alias(name) for name, value in columns.items())


def test_a_level_or_run_that_lacks_a_value_is_left_out():

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
        assert found["a", 1] == found["a", 2] == (True, True), frame
    # One of two is left, which shows no noise; repeats of the others do.
    for second in ({"tpot_p50_s": None}, {"throughput_tokens_per_s": None}, {"throughput_tokens_per_s": 0.0}):
        found = told(altered(AT_A_4 & (pl.col("session") > 0), **second))
        assert found["a", 1] == found["a", 2] == (True, True), second
        alone = altered(pl.col("session") > 0, **second).filter(pl.col("session") < 2)
        assert told(alone).keys() == TRUTH.keys(), second
        assert not any(sure for _, sure in told(alone).values()), second
    # Each value is known of another run, so nothing tells how far noise goes there, nor that another level is above it.
    first = pl.col("session") < 2
    frame = altered(AT_A_4 & first, tpot_p50_s=None).with_columns(
        throughput_tokens_per_s=pl.when(AT_A_4 & ~first).then(None).otherwise("throughput_tokens_per_s")
    )
    found = told(frame)
    assert found["a", 4] == (True, False)
    assert found["a", 1] == (True, False)
    assert found["b", 1] == (False, True)


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
    return by_key(trade_offs(frame, "tpot_p50_s", capacity=operating_points(frame, [SLO])), "within", "unbeaten", "established")


def test_levels_that_miss_an_slo_are_no_candidates():
    """Beyond its limit a gives more than b for more speed, and takes b's third level off the frontier of all levels."""
    frame = limited_runs(0, requests=400, noise=0.01, start=0.0)
    found = limited(frame)
    assert {key for key, (within, _, _) in found.items() if within} == MEETING
    on = {("a", 1), ("a", 2), ("b", 4)}
    assert {key for key, (_, unbeaten, _) in found.items() if unbeaten} == on
    assert {key for key, (_, unbeaten, sure) in found.items() if unbeaten and sure} == on
    assert found["b", 8] == (False, False, True)
    # A level that is too close to tell is not said to miss.
    points = operating_points(frame, [SLO])
    rows = [{**row, "high": None, "missed": [{**miss, "close": True} for miss in row["missed"]]} for row in points.to_dicts()]
    within = by_key(trade_offs(frame, "tpot_p50_s", capacity=pl.DataFrame(rows, schema=points.schema)), "within")
    assert (within["a", 2], within["a", 4], within["b", 8]) == ((True,), (None,), (None,))
    # Unstreamed answers have no TTFT: whether they are within is not known, and what they would beat is not established.
    without = pl.col("judged").list.eval(pl.element().struct.with_fields(ttft=pl.lit(None, dtype=pl.Float64)))
    for unmeasured, other, established in (("a", ("b", 2), False), ("b", ("a", 1), True)):
        judged = pl.when(pl.col("deployment") == unmeasured).then(without).otherwise("judged")
        found = limited(limited_runs(0).with_columns(judged=judged))
        assert {told[:2] for key, told in found.items() if key[0] == unmeasured} == {(None, False)}, unmeasured
        assert found[other][1:] == (True, established), unmeasured


@pytest.mark.long(part="truth")
def test_what_is_established_under_an_slo_is_so():
    """At most 5 % of levels may be wrong, those that miss the SLO and those that fail among them."""
    studies = 60
    goodness = {"tpot_p50_s": lambda key: UNDER[key][0], "ttft_p90_s": lambda key: -UNDER[key][2]}
    on = {latency: front_of({key: (good(key), UNDER[key][1]) for key in MEETING}) for latency, good in goodness.items()}
    claims, wrong = dict.fromkeys(on, 0), dict.fromkeys(on, 0)
    for seed in range(studies):
        frame = limited_runs(seed)
        capacity = operating_points(frame, [SLO])
        for latency, front in on.items():
            for key, (unbeaten, sure) in by_key(
                trade_offs(frame, latency, capacity=capacity), "unbeaten", "established"
            ).items():
                claims[latency] += sure
                wrong[latency] += sure and unbeaten != (key in front)
    assert all(count > 2 * studies for count in claims.values()), claims
    assert all(count <= 0.05 * studies * len(UNDER) for count in wrong.values()), wrong


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
