"""Verdicts and saturation, on runs whose truth is known."""

import re

import polars as pl
import pytest

from bench.analysis import saturation, summary_frame, verdict
from bench.study.config import Thresholds


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"failed": 1, "ok": 3, "outcome_timeout": 1}, r"1 of 4 requests failed \(1 timeout\)"),
        ({"wrong_prompt_tokens": 2}, "2 requests had another prompt length"),
        ({"wrong_output_tokens": 1}, "1 requests had another output length"),
        ({"client_loop_lag_p99_s": 0.2}, "event loop was late"),
        ({"client_loop_lag_max_s": 0.6}, "stood still for 0.6 s"),
        ({"client_send_spread_s": 0.5}, "burst took too long"),
        ({"client_clock_skew_s": 0.005}, "clocks of our processes differ by 0.005 s"),
        ({"host_other_share": 0.4}, "other processes took 40% of the cores' time, over 15%"),
        ({"client_cpu_share": 0.99}, "the client was the limit: 99% of a core"),
        (
            {"client_in_flight_mean": 8.0, "server_in_flight_mean": 12.0},
            r"server had 12.0 .* the client 8.0: others use it too",
        ),
        ({"client_in_flight_max": 600, "server_in_flight_max": 100.0}, r"never had more than 100 .* the client 600"),
        ({"scrape_gap_max_s": 3.0}, "no scrape for"),
        ({"scraped": False}, "no scrape succeeded"),
        ({"scraped_before": False}, "no scrape came before the load"),
        ({"scraped_after": False}, "no scrape came after the load"),
        ({"counters_fell": ["vllm:y"]}, r"counters fell back \(vllm:y\)"),
        ({"scrape_share": 0.2}, "only 20% of the scrapes due during the load came"),
        ({"metrics_missing": ["vllm:x"]}, "lacks vllm:x"),
        ({"prefix_hits": 64.0}, "64 tokens came from the prefix cache"),
    ],
)
def test_each_fault_is_named(summary, change, reason):
    assert verdict(summary, Thresholds()).reasons == []
    reasons = verdict({**summary, **change}, Thresholds()).reasons
    assert len(reasons) == 1
    assert re.search(reason, reasons[0])


def test_what_was_not_measured_is_no_fault(summary):
    bare = {**summary, "scrape_gap_max_s": None, "prefix_hits": None, "client_loop_lag_p99_s": None}
    assert verdict(bare, Thresholds()).reasons == []
    assert verdict({**bare, "client_cpu_share": None, "server_in_flight_mean": None}, Thresholds()).reasons == []


def test_hits_that_the_workload_implies_are_no_fault(summary):
    shared = {**summary, "prefix_hits": 50.0, "prefix_hit_rate": 0.5, "prefix_hit_rate_expected": 0.5}
    assert verdict(shared, Thresholds()).reasons == []
    reasons = verdict({**shared, "prefix_hit_rate": 0.3}, Thresholds()).reasons
    assert reasons == ["the prefix cache served 30.0% of the prompts' tokens, where the workload implies 50.0%"]


def test_a_full_kv_cache_loses_what_was_cached_and_gains_nothing(summary):
    full = {**summary, "prefix_hits": 50.0, "prefix_hit_rate_expected": 0.5, "kv_usage_peak": 0.99}
    assert verdict({**full, "prefix_hit_rate": 0.02}, Thresholds()).reasons == []
    assert verdict({**full, "prefix_hit_rate": 0.02, "kv_usage_peak": 0.5}, Thresholds()).reasons
    assert verdict({**full, "prefix_hit_rate": 0.7}, Thresholds()).reasons  # more than there could be


def test_a_few_requests_apart_are_no_fault(summary):
    """One request is in flight at the client for a moment before and after it is at the server."""
    told = {"client_in_flight_mean": 0.6, "server_in_flight_mean": 1.4, "client_in_flight_max": 2, "server_in_flight_max": 1.0}
    assert verdict({**summary, **told}, Thresholds()).reasons == []


def test_a_gauge_that_lags_by_a_long_step_is_no_fault(summary):
    told = {
        "client_in_flight_mean": 16.0,
        "server_in_flight_mean": 10.4,
        "client_in_flight_max": 16,
        "server_in_flight_max": 16.0,
    }
    assert verdict({**summary, **told}, Thresholds()).reasons == []


def test_what_only_open_loops_promise_is_asked_of_them_alone(summary):
    late = {**summary, "client_schedule_delay_p99_s": 0.2}
    assert verdict(late, Thresholds()).reasons == []
    assert "left late" in verdict({**late, "axis": "request_rate", "arrival": "poisson"}, Thresholds()).reasons[0]


def test_a_late_client_speaks_against_the_latencies_alone(summary):
    late = ladder(summary, {8: 0.8, 10: 1.0, 12: 1.0}, client_loop_lag_max_s=[0.0, 0.6, 0.0])
    assert late["valid"].to_list() == [True, False, True]
    assert saturation(late)["measured"].to_list() == [10]


LAUNCH = {"a": {"deployment": "a", "model": "m", "plan": {
    "parameters": 10, "kv_bytes_per_token": 64, "kv_tokens": 640, "block_size": 32}}}  # fmt: skip
FACTS = {"a": {"deployment": "a", "engine_version": "1", "kv_tokens": 640, "kv_blocks": 20, "cache_config": {}}}


def ladder(summary, usage, **more):
    runs = [
        {**summary, "level": float(level), "concurrency": level, "kv_usage_peak": peak, **{k: v[i] for k, v in more.items()}}
        for i, (level, peak) in enumerate(usage.items())
    ]
    return summary_frame(runs, LAUNCH, FACTS, Thresholds())


def test_saturation_is_the_first_level_from_which_all_are_full(summary):
    row = saturation(ladder(summary, {1: 0.1, 8: 0.8, 10: 1.0, 12: 1.0})).row(0, named=True)
    assert (row["measured"], row["below"], row["predicted"], row["levels_apart"]) == (10, 8, 10.0, 0)


def test_a_single_full_run_below_others_is_no_saturation(summary):
    row = saturation(ladder(summary, {1: 0.1, 8: 1.0, 10: 0.7, 12: 1.0})).row(0, named=True)
    assert (row["measured"], row["below"], row["levels_apart"]) == (12, 10, 1)


def test_no_saturation_is_said_not_invented(summary):
    row = saturation(ladder(summary, {1: 0.1, 4: 0.4, 8: 0.8})).row(0, named=True)
    assert (row["measured"], row["below"], row["levels_apart"]) == (None, None, None)


def test_invalid_runs_are_kept_out(summary):
    row = saturation(ladder(summary, {8: 0.8, 10: 1.0, 12: 1.0}, failed=[0, 1, 0])).row(0, named=True)
    assert row["measured"] == 12


def test_in_a_cache_of_few_blocks_waiting_near_full_counts(summary):
    frame = ladder(summary, {8: 0.9, 10: 0.95, 12: 0.95}, waiting_peak=[0.0, 0.0, 3.0])
    assert frame["saturated"].to_list() == [False, False, True]  # 20 blocks: within two of full from 0.9


def test_a_preemption_is_a_full_cache_that_the_gauge_missed(summary):
    frame = ladder(summary, {8: 0.7, 10: 0.8, 12: 1.0}, preemptions=[0.0, 1.0, 5.0])
    assert saturation(frame)["measured"].to_list() == [10]


def test_the_highest_throughput_is_told(summary):
    frame = ladder(summary, {1: 0.1, 8: 0.8, 12: 1.0}, throughput_tokens_per_s=[10.0, 90.0, 70.0])
    assert saturation(frame)["peak_at"].to_list() == [8]
    late = ladder(
        summary, {1: 0.1, 8: 0.8, 12: 1.0}, throughput_tokens_per_s=[10.0, 90.0, None], client_loop_lag_max_s=[0.0, 0.6, 0.0]
    )
    assert saturation(late)["peak_at"].to_list() == [1]  # a late client takes from throughput; and nothing is no maximum
    assert saturation(ladder(summary, {1: 0.1}, failed=[1]))["peak_at"].to_list() == []


def test_prompts_that_share_blocks_have_no_prediction(summary):
    alike = {**summary, "cache": "shared", "prefix_hit_rate_expected": 0.5}
    assert ladder(summary, {1: 0.1})["predicted_saturation"].to_list() == [10.0]
    assert ladder(alike, {1: 0.1})["predicted_saturation"].to_list() == [None]


def test_a_study_without_facts_still_has_rows(summary):
    frame = summary_frame([{**summary, "kv_usage_peak": None}], {}, {}, Thresholds())
    assert frame["valid"].to_list() == [True]
    assert frame["saturated"].to_list() == [False]
    assert saturation(frame)["measured"].to_list() == [None]
    assert frame.schema["predicted_saturation"] == pl.Float64
