"""SLOs: how one is written, goodput, the knee, and waits before the engines, by hand. C_max: test_capacity_rules.py."""

import polars as pl
import pytest

from bench.errors import BenchError
from bench.findings.regions import knees
from bench.parse.slo import goodput, judged_frame, judged_requests
from bench.parse.stream import front_wait, long_wait
from bench.parse.table import summary_frame
from bench.study.config import Thresholds
from bench.study.read import load_config
from bench.study.slo import Slo, parse_slo
from tests.support.planted import frame, steady_row


def test_an_slo_in_words(content):
    for text, slo, said in (
        ("ttft_p99=2s", Slo("ttft", "p99", 2.0), "TTFT P99 ≤ 2 s"),
        ("TPOT_P95 <= 50ms", Slo("tpot", "p95", 0.05), "TPOT P95 ≤ 50 ms"),
        ("e2e_p50=1.5s", Slo("e2e", "p50", 1.5), "E2E P50 ≤ 1.5 s"),
    ):
        assert parse_slo(text) == slo, text
        assert str(slo) == said, text
    # What is no slo says how one looks.
    for text in ("ttft=2s", "ttft_p42=2s", "ttft_p99=2", "ttft_p99=0s", "itl_p99=2s", ""):
        with pytest.raises(BenchError, match="as in ttft_p99=2s"):
            parse_slo(text)
    own = {**content, "hardware": {"h100": {"price_per_hour": 2.5}}, "decision": {"price_per_hour": 3}}
    assert load_config(own, source="test").hardware == {"h100": {"price_per_hour": 2.5}}


FOUR = pl.DataFrame(
    {
        "outcome": ["ok", "ok", "ok", "error"],
        "ttft_s": [0.1, 0.9, 0.1, 0.1],
        "tpot_s": [0.01, 0.01, 0.9, 0.01],
        "e2e_s": [1.0] * 4,
        "sent_s": [0.0, 2.0, 1.0, None],
    }
)
BOTH = [parse_slo("ttft_p99=500ms"), parse_slo("tpot_p99=100ms")]


def of(run, requests, slos):
    found = goodput(run, judged_requests(run, requests), slos)
    return found["goodput_requests_per_s"], found["slo_share"]


def test_goodput_counts_requests_that_met_every_limit():
    assert of({"duration_s": 2.0}, FOUR, BOTH) == (0.5, 0.25)
    assert of({"duration_s": 2.0}, FOUR, BOTH[:1]) == (1.0, 0.5)
    assert of({"duration_s": None}, FOUR.clear(), BOTH) == (None, None)
    assert of({"duration_s": None}, FOUR, BOTH) == (None, 0.25)
    assert of({"duration_s": 2.0}, FOUR, []) == (None, None)
    # Answers that are not streamed have no TTFT; one of a single token beside others has no TPOT, and misses no limit of it.
    some = pl.Series([0.01, None, 0.9, None])
    assert of({"duration_s": 2.0}, FOUR.with_columns(ttft_s=pl.lit(None, pl.Float64)), BOTH) == (None, None)
    assert of({"duration_s": 2.0}, FOUR.with_columns(tpot_s=some), BOTH[1:]) == (1.0, 0.5)
    # Of the two that were sent in it one met the limits: half of 3 requests/s.
    window = {"duration_s": 2.0, "steady_from_s": 0.5, "steady_judged_until_s": 2.5, "steady_offered_rate": 3.0}
    assert of(window, FOUR, BOTH[:1]) == (1.5, 0.5)
    # A window that is too short gives way to the whole run, as in figures and comparisons.
    assert of({**window, "steady_why": "short"}, FOUR, BOTH[:1]) == (1.0, 0.5)
    # The judged requests are kept in the order of sending.
    judged = goodput({}, judged_requests({}, FOUR), [])["judged"]
    told = ((True, 0.1, 0.01), (True, 0.1, 0.9), (True, 0.9, 0.01), (False, 0.1, 0.01))
    assert judged == [{"ok": ok, "ttft": ttft, "ttfo": None, "tpot": tpot, "e2e": 1.0} for ok, ttft, tpot in told]
    again = goodput({"duration_s": 2.0, "steady_offered_rate": 3.0}, judged_frame(judged), BOTH)
    assert (again["slo_share"], again["judged"]) == (0.25, judged)


def curve(summary, levels, **more):
    """A burst's curve whose columns are lists, one value a level."""
    rows = [
        {**summary, "judged": None, "run": f"r{level}", "level": float(level), **{key: each[i] for key, each in more.items()}}
        for i, level in enumerate(levels)
    ]
    return summary_frame(rows, {}, {}, Thresholds())


def test_the_knee_is_where_the_tail_leaves_the_median_while_throughput_flattens(summary):
    for p50, p99, rps, knee in (
        ([0.1, 0.1, 0.1, 0.1, 0.1], [0.1, 0.15, 0.2, 0.5, 2.0], [1, 2, 4, 5, 5], 8),
        ([0.1, 0.2, 0.4, 0.8, 1.6], [0.2, 0.4, 0.8, 1.6, 3.2], [1, 2, 3, 3, 3], None),  # a burst's ramp is no knee
        ([0.1] * 5, [0.1, 0.15, 0.2, 0.5, 2.0], [1, 2, 4, 8, 16], None),  # it still grows
        ([0.1] * 5, [0.1, 0.5, 0.2, 0.1, 0.1], [1, 2, 3, 3, 3], None),  # one slow level
        ([0.5] * 5, [0.5, 0.5, 0.5, 1.5, 1.5], [1, 2, 4, 4, 4], 8),  # three times is apart
        ([0.5] * 5, [0.5, 0.5, 0.5, 1.49, 1.49], [1, 2, 4, 4, 4], None),
        ([0.5] * 5, [0.5, 0.5, 1.5, 1.5, 1.5], [1, 4, 8, 8, 8], 8),
        ([0.5] * 5, [0.5, 0.5, 0.5, 1.5, 1.5], [1, 4, 2, 8, 16], None),  # 8 brings 2 ** 0.5 a doubling over 2
        ([0.5] * 5, [0.5, 0.5, 0.5, 1.5, 1.5], [1, 4, 2, 7.9, 16], 8),  # and here less than half of its share
        ([0.5] * 5, [0.5, 0.5, 1.5, 1.5, 1.5], [1, 2, 4, 4, 16], 8),
        ([0.5] * 5, [1.5] * 5, [2, 2, 2, 2, 2], 2),  # the lowest level has none below it
        ([0.5] * 5, [0.5, 0.5, 0.5, 0.5, 1.5], [2, 2, 2, 2, 2], 16),
        ([0.5] * 5, [0.5, 0.5, 0.0, 1.5, 1.5], [1, 3, 4, 4, 4], 8),  # a level of which a number is lacking or 0 is none
        ([0.5, 0.5, None, 0.5, 0.5], [0.5, 0.5, 0.5, 1.5, 1.5], [1, 2, 4, 4, 4], 16),
    ):
        rates = [float(x) for x in rps]
        runs = curve(summary, (1, 2, 4, 8, 16), ttft_p50_s=p50, ttft_p99_s=p99, throughput_requests_per_s=rates)
        assert list(knees(runs).values()) == ([knee] if knee else []), (p50, p99, rps)
    # Three runs a level; of the middle level one is off, and of the last three that are invalid do not bend.
    numbers = {1: [(1, 1)] * 3, 2: [(1, 2), (6, 2), (1, 2)], 4: [(4, 2), (4, 2), (1.5, 2)]}
    rows = [
        {**summary, "judged": None, "run": f"r{level}-{i}", "level": float(level), "repeat": i, "ttft_p50_s": 1.0, "ttft_p99_s": float(p99),
         "throughput_requests_per_s": float(rps)} for level, runs in numbers.items() for i, (p99, rps) in enumerate(runs)
    ]  # fmt: skip
    rows += [{**row, "run": f"x{row['run']}", "ttft_p99_s": 1.0, "wrong_output_tokens": 1} for row in rows]
    assert list(knees(summary_frame(rows, {}, {}, Thresholds())).values()) == [4]
    # Of 400 requests at 8 and 16, 8 are slow and `failed` fail: beyond 1 % P99 is infinite, beyond 50 % P50 too.
    for failed in (0, 4, 12, 240):
        rows = [
            steady_row(summary, level, slow=8 if level > 4 else 0, failed=failed if level > 4 else 0, rps=min(level, 5) * 1.0)
            for level in (1, 2, 4, 8, 16)
        ]
        assert list(knees(frame(rows)).values()) == [8.0], failed


ROW = {"deployment": "a", "workload": "w", "arrival": "closed", "level": 1.0, "ttft_n": 100.0, "server_ttft_n": 100.0, "ttft_mean_s": 0.2,
       "server_ttft_mean_s": 0.18, "tokens_per_chunk": 1.0, "tokens_per_arrival": 1.0, "itl_mean_s": 0.02, "tpot_mean_s": 0.02,
       "server_itl_mean_s": 0.02}  # fmt: skip
LATE = {**ROW, "level": 8.0, "ttft_mean_s": 1.0, "server_ttft_mean_s": 0.2}


def test_a_wait_is_what_ttft_has_beyond_the_engine_s_and_the_shortest_way():
    for change, wait in (
        ({}, 0.78),
        ({"level": 1.0}, None),  # a single load has no other to compare with
        ({"server_ttft_n": 90.0}, None),  # of other requests
        ({"tokens_per_arrival": 4.0}, None),
        ({"server_itl_mean_s": 0.01}, None),  # the engine is ahead of its clients
    ):
        found = pl.DataFrame([ROW, {**LATE, **change}]).with_columns(wait=front_wait())["wait"][1]
        assert found == (None if wait is None else pytest.approx(wait)), change
    for wait, ttft, named in ((0.06, 0.2, 0.06), (0.04, 0.04, None), (0.06, 0.3, None), (None, 0.3, None), (0.06, None, None)):
        assert long_wait({"front_wait_s": wait, "ttft_mean_s": ttft}) == named, (wait, ttft)
