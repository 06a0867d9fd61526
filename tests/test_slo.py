"""SLOs: how one is written, goodput, C_max with its interval, and the knee, on curves by hand and on planted ones."""

import random
import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.analysis import goodput, knees, operating_points, summary_frame
from bench.analysis.sensitivity import sensitivity
from bench.errors import BenchError
from bench.study import Slo, load_config, parse_slo
from bench.study.config import Thresholds

TTFT = [parse_slo("ttft_p99=2s")]


@pytest.mark.parametrize(
    ("text", "slo", "said"),
    [
        ("ttft_p99=2s", Slo("ttft", "p99", 2.0), "TTFT P99 ≤ 2 s"),
        ("TPOT_P95 <= 50ms", Slo("tpot", "p95", 0.05), "TPOT P95 ≤ 50 ms"),
        ("e2e_p50=1.5s", Slo("e2e", "p50", 1.5), "E2E P50 ≤ 1.5 s"),
    ],
)
def test_an_slo_in_words(text, slo, said):
    assert parse_slo(text) == slo
    assert str(slo) == said


@pytest.mark.parametrize("text", ["ttft=2s", "ttft_p42=2s", "ttft_p99=2", "ttft_p99=0s", "itl_p99=2s", ""])
def test_what_is_no_slo_says_how_one_looks(text):
    with pytest.raises(BenchError, match="as in ttft_p99=2s"):
        parse_slo(text)


@pytest.mark.parametrize(
    ("decision", "told"),
    [
        ({"slo": ["ttft_p99=2"]}, "decision.slo[0] is 'ttft_p99=2': 'ttft_p99=2' is no SLO"),
        ({"device": "h10"}, "no device is called h10"),
        ({"device": "h100"}, "decision.device is 'h100', but every engine of this study runs on a CPU"),
        ({"safety": 0.5}, "decision.safety is 0.5"),
    ],
)
def test_a_decision_that_is_wrong_is_refused(content, decision, told):
    with pytest.raises(BenchError, match=re.escape(told)):
        load_config({**content, "decision": decision}, source="test")


def test_devices_of_ones_own_are_checked(content):
    with pytest.raises(BenchError, match=r"hardware\.mine: title: Field required"):
        load_config({**content, "hardware": {"mine": {"memory": "8GiB"}}}, source="test")
    own = {**content, "hardware": {"h100": {"price_per_hour": 2.5}}, "decision": {"price_per_hour": 3}}
    assert load_config(own, source="test").hardware == {"h100": {"price_per_hour": 2.5}}


def test_goodput_counts_requests_that_met_every_limit():
    requests = pl.DataFrame(
        {
            "outcome": ["ok", "ok", "ok", "error"],
            "ttft_s": [0.1, 0.9, 0.1, 0.1],
            "tpot_s": [0.01, 0.01, 0.9, 0.01],
            "e2e_s": [1.0] * 4,
        }
    )
    slos = [parse_slo("ttft_p99=500ms"), parse_slo("tpot_p99=100ms")]
    assert goodput(requests, slos, 2.0) == {"goodput_requests_per_s": 0.5, "slo_share": 0.25}
    assert goodput(requests, slos[:1], 2.0) == {"goodput_requests_per_s": 1.0, "slo_share": 0.5}
    assert goodput(requests.clear(), slos, None)["slo_share"] is None


def curve(summary, levels, *, deployment="a", repeats=1, **more):
    """A curve whose columns are lists, one value a level, or one a level and repeat."""
    rows = []
    for repeat in range(1, repeats + 1):
        for i, level in enumerate(levels):
            told = {key: values[i][repeat - 1] if isinstance(values[i], tuple) else values[i] for key, values in more.items()}
            base = {**summary, "deployment": deployment, "run": f"r{level}_{repeat}", "level": float(level), "repeat": repeat}
            rows.append({**base, "throughput_requests_per_s": 2.0 * level, "e2e_mean_s": 0.5, **told})
    return summary_frame(rows, {}, {}, Thresholds())


def point(runs, slos=TTFT):
    return operating_points(runs, slos).row(0, named=True)


def test_c_max_is_the_highest_level_below_the_first_that_misses(summary):
    row = point(curve(summary, (1, 2, 4, 8), ttft_p99_s=[0.5, 1.0, 3.0, 1.9]))
    assert (row["kind"], row["c_max"], row["missed_at"]) == ("found", 2, 4)
    assert (row["operate_at"], row["usable_rps"], row["missed"]) == (2, 4.0, "TTFT P99 ≤ 2 s (3 s)")


def test_a_narrow_miss_has_the_digits_that_show_it(summary):
    assert point(curve(summary, (1, 2), ttft_p99_s=[0.5, 2.00004]))["missed"] == "TTFT P99 ≤ 2 s (2.00004 s)"


@pytest.mark.parametrize(("limit", "kind", "c_max"), [("100ms", "below", None), ("9s", "above", 8)])
def test_c_max_outside_of_what_was_measured(summary, limit, kind, c_max):
    row = point(curve(summary, (1, 2, 4, 8), ttft_p99_s=[0.5, 1.0, 3.0, 4.0]), [parse_slo(f"ttft_p99={limit}")])
    assert (row["kind"], row["c_max"], row["usable_rps"] is None) == (kind, c_max, kind == "below")


def test_every_slo_has_to_be_met(summary):
    runs = curve(summary, (1, 2, 4), ttft_p99_s=[0.1] * 3, tpot_p95_s=[0.01, 0.2, 0.3])
    assert point(runs, [*TTFT, parse_slo("tpot_p95=100ms")])["c_max"] == 1


def test_invalid_runs_decide_nothing(summary):
    runs = curve(summary, (1, 2, 4), ttft_p99_s=[0.1, 0.1, 9.0], failed=[0, 0, 1])
    assert (point(runs)["kind"], point(runs)["highest"]) == ("above", 2)
    assert point(curve(summary, (1, 2), ttft_p99_s=[1, 1], failed=[1, 1]))["kind"] == "unknown"


def test_where_the_kv_cache_is_full_at_c_max_the_instance_is_operated_below(summary):
    row = point(curve(summary, (1, 2, 4, 8), ttft_p99_s=[0.1, 0.2, 0.3, 9.0], kv_usage_peak=[0.2, 0.5, 1.0, 1.0]))
    assert (row["c_max"], row["operate_at"], row["usable_rps"]) == (4, 2, 4.0)
    full = point(curve(summary, (1, 2), ttft_p99_s=[0.1, 9.0], kv_usage_peak=[1.0, 1.0]))
    assert full["operate_at"] == 1  # there is none below


def test_an_open_loop_carries_what_comes_unless_requests_stand(summary):
    told = {"axis": ["request_rate"] * 2, "achieved_rate": [1.9, 3.8], "ttft_p99_s": [0.1, 0.2]}
    assert point(curve(summary, (2, 4), **told))["usable_rps"] == 3.8
    assert point(curve(summary, (2, 4), **told, waiting_standing=[0.0, 3.0]))["usable_rps"] == 8.0  # of the whole run


def test_repeats_give_the_interval(summary):
    quiet = [(0.50, 0.51, 0.49), (1.00, 1.01, 0.99), (1.98, 2.02, 1.97), (3.0, 3.02, 2.98)]
    row = point(curve(summary, (1, 2, 4, 8), repeats=3, ttft_p99_s=quiet))
    assert (row["c_max"], row["low"], row["high"], row["told"]) == (4, 2, 8, "4 (at least 2, below 8)")
    noisy = [tuple(x * y for y in (0.5, 1, 2)) for x in (0.5, 1.0, 1.9, 3.0)]
    row = point(curve(summary, (1, 2, 4, 8), repeats=3, ttft_p99_s=noisy).sample(fraction=1, shuffle=True, seed=1))
    assert row["c_max"] == 4


def test_a_bound_beyond_the_limit_is_not_sure(summary):
    told = {"ttft_p99_s": [(0.5, 0.51), (0.6, 0.61), (0.7, 0.71), (5, 5.1)], "ttft_p99_bound_s": [0.6, (0.7, 2.5), 0.8, 6.0]}
    row = point(curve(summary, (1, 2, 4, 8), repeats=2, **told))
    assert (row["c_max"], row["low"]) == (4, 1)


def test_few_levels_without_repeats_have_no_interval(summary):
    row = point(curve(summary, (1, 2, 4), ttft_p99_s=[0.5, 1.0, 3.0]))
    assert (row["low"], row["high"], row["told"]) == (None, None, "2 (no interval)")


def test_the_interval_holds_the_true_point_19_times_in_20(summary):
    """Curves with 8 % of noise whose true C_max is known, and so near to the limit that C_max alone is often another level."""
    levels, draw, inside, right = (1, 2, 4, 8, 12, 16, 20, 24), random.Random(4), 0, 0
    true = [0.1, 0.2, 0.5, 0.97, 1.03, 1.5, 2.0, 3.0]  # the limit of 1 s is met up to 8, and missed from 12
    for _ in range(60):
        told = [tuple(x * draw.lognormvariate(0, 0.08) for _ in range(3)) for x in true]
        row = point(curve(summary, levels, repeats=3, ttft_p99_s=told), [parse_slo("ttft_p99=1s")])
        inside += (row["low"] or 0) <= 8 and (row["high"] or 99) >= 12
        right += row["c_max"] == 8
    assert inside >= 54
    assert right < 45  # an interval without width would fail


def test_a_latency_of_0_is_met_and_moves_no_bound_to_another_level(summary):
    told = {"tpot_p99_s": [(0.0, 0.0), (0.1, 0.101), (0.2, 0.201), (3.0, 3.1)], "tpot_p99_bound_s": [0.0, 9.0, 0.3, 9.0]}
    row = point(curve(summary, (1, 2, 4, 8), repeats=2, **told), [parse_slo("tpot_p99=2s")])
    assert (row["c_max"], row["low"]) == (4, 1)


def test_a_latency_that_no_run_has_is_no_verdict(summary):
    runs = pl.concat(
        [curve(summary, (1, 2), ttft_p99_s=[1, None]), curve(summary, (1, 2), deployment="b", ttft_p99_s=[1, 1])],
        how="diagonal_relaxed",
    )
    a, b = operating_points(runs, TTFT).iter_rows(named=True)
    assert (a["kind"], a["told"]) == ("unjudged", "TTFT P99 ≤ 2 s cannot be judged: no run at 2 has that latency")
    assert b["kind"] == "above"


@given(st.lists(st.floats(0.01, 10), min_size=2, max_size=8), st.floats(0.01, 10), st.floats(1, 3))
def test_a_laxer_limit_never_lowers_c_max(ttft, limit, factor):
    rows = [
        {
            "deployment": "a",
            "workload": "w",
            "axis": "concurrency",
            "level": float(i + 1),
            "repeat": 1,
            "valid": True,
            "saturated": False,
            "ttft_p99_s": value,
            "throughput_requests_per_s": 1.0,
        }
        for i, value in enumerate(ttft)
    ]
    runs, slo = pl.DataFrame(rows), Slo("ttft", "p99", limit)
    told = sensitivity(runs, [slo], slo, [limit, limit * factor])["c_max"].to_list()
    assert told == sorted(told)


@pytest.mark.parametrize(
    ("p50", "p99", "rps", "knee"),
    [
        ([0.1, 0.1, 0.1, 0.1, 0.1], [0.1, 0.15, 0.2, 0.5, 2.0], [1, 2, 4, 5, 5], (8, 4)),
        ([0.1, 0.2, 0.4, 0.8, 1.6], [0.2, 0.4, 0.8, 1.6, 3.2], [1, 2, 3, 3, 3], (None, None)),  # a burst's ramp is no knee
        ([0.1] * 5, [0.1, 0.15, 0.2, 0.5, 2.0], [1, 2, 4, 8, 16], (None, None)),  # it still grows
        ([0.1] * 5, [0.1, 0.5, 0.2, 0.1, 0.1], [1, 2, 3, 3, 3], (None, None)),  # one slow level
    ],
)
def test_the_knee_is_where_the_tail_leaves_the_median_while_throughput_flattens(summary, p50, p99, rps, knee):
    runs = curve(summary, (1, 2, 4, 8, 16), ttft_p50_s=p50, ttft_p99_s=p99, throughput_requests_per_s=[float(x) for x in rps])
    row = knees(runs).row(0, named=True)
    assert (row["knee"], row["knee_below"]) == knee
