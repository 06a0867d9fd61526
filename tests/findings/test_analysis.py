"""Verdicts and saturation, on runs whose truth is known."""

import math
from dataclasses import replace

import polars as pl

from bench.aggregate import summary_frame
from bench.analysis import repeats, saturation, verdict
from bench.analysis.validity import Reason, invalid
from bench.drift import Drift, RoundPart
from bench.study.config import Thresholds
from bench.words.regions import signals
from bench.words.verdicts import failures, reason_text
from tests.support import records
from tests.support.planted import reasons, summary_rows
from tests.support.summaries import ladder


def test_each_fault_is_named(summary):
    for change, check, value in (
        ({"wrong_prompt_tokens": 2}, "prompt_lengths", 2),
        ({"wrong_output_tokens": 1}, "output_lengths", 1),
        ({"client_loop_lag_p99_s": 0.2}, "loop_lag", 0.2),
        ({"client_loop_lag_max_s": 0.6}, "loop_stall", 0.6),
        ({"client_send_spread_s": 0.5}, "burst_spread", 0.5),
        ({"client_clock_skew_s": 0.005}, "clock_skew", 0.005),
        ({"host_other_share": 0.4}, "other_processes", 0.4),
        ({"client_cpu_share": 0.99}, "client_cpu", 0.99),
        ({"client_in_flight_mean": 8.0, "server_in_flight_mean": 12.0}, "other_requests", 12),
        ({"held_back_requests": 500.0, "held_back_share": 0.8}, "held_back", 500),
        ({"scrape_gap_max_s": 3.0}, "scrape_gap", 3),
        ({"scraped": False}, "never_scraped", None),
        ({"scraped_before": False}, "not_scraped_before", None),
        ({"scraped_after": False}, "not_scraped_after", None),
        ({"counters_fell": ["vllm:y"]}, "counters_fell", None),
        ({"scrape_share": 0.2}, "scrape_share", 0.2),
        ({"metrics_missing": ["vllm:x"]}, "metrics_missing", None),
        ({"prefix_hits": 64.0}, "cached_tokens", 64),
    ):
        assert reasons(verdict(summary, Thresholds())) == [], change
        (found,) = verdict({**summary, **change}, Thresholds()).found
        assert (found.check, found.value) == (check, value), change
    # A line of an exposition may hold anything, and the reason is kept as a code.
    error = "no Prometheus exposition: line 54, 'a{b=\"c\" {': could not convert 'x' = y"
    for change, words in (
        ({"scraped": False}, "no scrape succeeded: "),
        ({"scrape_share": 0.2}, "only 20 % of the scrapes due during the load came, under 25 %: "),
    ):
        (found,) = verdict({**summary, **change, "scrape_error": error}, Thresholds()).found
        assert reason_text(Reason.of(found.code)) == words + error
    # All scrapes and no engine s restart are no fault.
    sound = {"scrape_share": 1.0, "scraped": True, "scraped_before": True, "scraped_after": True, "counters_fell": []}
    assert reasons(verdict({**summary, **sound}, Thresholds())) == []
    assert reasons(verdict({**summary, "scraped": None, "scraped_before": None, "scraped_after": None}, Thresholds())) == []
    # What was not measured is no fault.
    bare = {**summary, "scrape_gap_max_s": None, "prefix_hits": None, "client_loop_lag_p99_s": None}
    assert reasons(verdict(bare, Thresholds())) == []
    assert reasons(verdict({**bare, "client_cpu_share": None, "server_in_flight_mean": None}, Thresholds())) == []


def test_a_reason_speaks_against_what_rests_on_its_part(summary):
    for change, part, valid, counts_valid in (
        ({"client_send_spread_s": 0.5}, "load", False, False),
        ({"held_back_requests": 500.0, "held_back_share": 0.8}, "load", False, False),
        ({"wrong_output_tokens": 1}, "content", False, False),
        ({"client_clock_skew_s": 0.005}, "client", False, True),
        ({"scrape_gap_max_s": 3.0}, "telemetry", True, False),
        ({"host_other_share": 0.4}, "machine", False, True),
    ):
        found = verdict({**summary, **change}, Thresholds())
        assert (found.faults, found.valid, found.counts_valid) == ([part], valid, counts_valid), change
        assert not found.telemetry_valid, change
    # A further reason counts like our own.
    found = verdict(summary, Thresholds(), [Reason("machine", "drift", drift=DRIFT)])
    assert (found.faults, reasons(found), found.valid) == (["machine"], ["drift"], False)
    # Faults stand in the order of their parts.
    bad = {**summary, "host_other_share": 0.9, "scraped": False, "client_cpu_share": 1.0, "wrong_prompt_tokens": 1}
    found = verdict({**bad, "client_send_spread_s": 9.0, "wrong_output_tokens": 2}, Thresholds())
    assert found.faults == ["load", "content", "client", "telemetry", "machine"]
    assert len(reasons(found)) == 6
    # A run is invalid where either part is.
    parts = pl.DataFrame({"valid": [True, True, False, False], "counts_valid": [True, False, True, False]})
    assert parts.select(invalid())["valid"].to_list() == [False, True, True, True]


DRIFT = Drift(RoundPart(2), None, math.log(1.1), 0.0)


def test_failures_are_results_and_no_fault(summary):
    failing = {**summary, "failed": 2, "ok": 2, "outcome_http_503": 1, "outcome_timeout": 1}
    found = verdict(failing, Thresholds())
    assert (reasons(found), found.failed_share) == ([], 0.5)
    assert failures(failing) == "2 of 4 requests failed (1 http_503, 1 timeout)"
    assert failures(summary) is None
    frame = summary_frame([failing], {}, {}, Thresholds())
    told = frame.select("valid", "counts_valid", "telemetry_valid", "failed_share", "reasons").row(0)
    assert told == (True, True, True, 0.5, [])
    # Nothing sent is nothing measured.
    found = verdict({**summary, "requests": 0, "ok": 0}, Thresholds())
    assert (reasons(found), found.failed_share) == (["nothing_sent"], None)


def test_what_no_server_would_answer_under_any_load_is_a_fault(summary):
    for kinds, checks in (
        ({"outcome_unreachable": 4}, ["unreachable"]),
        ({"outcome_unreachable": 3, "outcome_timeout": 1}, []),  # some were let in: what a full server does
        ({"outcome_http_401": 4}, ["refused"]),
        ({"outcome_http_400": 1, "outcome_http_503": 3}, ["refused"]),
        ({"outcome_http_429": 4}, []),
        ({"outcome_http_500": 4}, ["none_answered"]),
        ({"outcome_http_301": 4}, ["refused"]),
        ({"outcome_truncated": 4}, ["none_answered"]),
        ({"outcome_stream_error": 3, "outcome_timeout": 1}, ["none_answered"]),
        ({"outcome_timeout": 3, "outcome_http_504": 1}, []),
        ({"outcome_timeout": 3, "outcome_http_500": 1}, []),  # one in a plain overload
    ):
        found = verdict({**summary, "failed": 4, "ok": 0, **kinds}, Thresholds())
        assert (reasons(found), found.failed_share) == (checks, 1.0), kinds
        assert found.faults == (["content"] if checks else []), kinds


def test_which_runs_count_for_saturation(summary):
    # A late client speaks against the latencies alone.
    late = ladder(summary, {8: 0.8, 10: 1.0, 12: 1.0}, client_loop_lag_max_s=[0.0, 0.6, 0.0])
    assert late["valid"].to_list() == [True, False, True]
    assert saturation(late)["measured"].to_list() == [10]
    # Missing scrapes speak against the counts alone.
    gap = {"scrape_gap_max_s": [0.3, 3.0, 0.3], "throughput_tokens_per_s": [10.0, 90.0, 70.0]}
    runs = ladder(summary, {8: 0.8, 10: 1.0, 12: 1.0}, **gap)
    assert (runs["valid"].to_list(), runs["counts_valid"].to_list()) == ([True] * 3, [True, False, True])
    assert saturation(runs)["measured"].to_list() == [12]
    assert repeats(runs, "throughput_tokens_per_s")["level"].to_list() == [8, 10, 12]
    # It was invalid for that, and so vanished from the ladder.
    runs = ladder(summary, {8: 0.8, 10: 1.0, 12: 1.0}, failed=[0, 2, 2])
    assert saturation(runs)["measured"].to_list() == [10]
    # Invalid runs are kept out.
    row = saturation(ladder(summary, {8: 0.8, 10: 1.0, 12: 1.0}, wrong_output_tokens=[0, 1, 0])).row(0, named=True)
    assert row["measured"] == 12


def test_saturation_is_the_first_level_from_which_all_are_full(summary):
    row = saturation(ladder(summary, {1: 0.1, 8: 0.8, 10: 1.0, 12: 1.0})).row(0, named=True)
    assert (row["measured"], row["below"], row["predicted"], row["levels_apart"]) == (10, 8, 10.0, 0)
    # A single full run below others is no saturation.
    row = saturation(ladder(summary, {1: 0.1, 8: 1.0, 10: 0.7, 12: 1.0})).row(0, named=True)
    assert (row["measured"], row["below"], row["levels_apart"]) == (12, 10, 1)
    # No saturation is said not invented.
    row = saturation(ladder(summary, {1: 0.1, 4: 0.4, 8: 0.8})).row(0, named=True)
    assert (row["measured"], row["below"], row["levels_apart"], row["cache_known"]) == (None, None, None, True)
    silent = saturation(ladder(summary, {1: None, 4: None})).row(0, named=True)
    assert (silent["measured"], silent["cache_known"]) == (None, False)
    # A preemption is a full cache that the gauge missed.
    frame = ladder(summary, {8: 0.7, 10: 0.8, 12: 1.0}, preemptions=[0.0, 1.0, 5.0])
    assert saturation(frame)["measured"].to_list() == [10]


# 2,499 blocks of 16 and requests of 4,000 + 100 tokens: nine are admitted at 92.6 %, and the tenth waits for ever.
TENTH = {"kv_usage_peak": 0.926, "kv_usage_queued": 0.926, "waiting_standing": 1.0, "running_peak": 9.0,
         "prompt_tokens": 4000, "prompt_tokens_p90": 4000, "output_tokens": 100}  # fmt: skip


def test_a_cache_that_cannot_admit_the_next_prompt_is_full(summary):
    for more, slots, full in (
        ({}, None, True),
        ({"prompt_tokens_p90": 2000}, None, False),  # 2,958 tokens are free: the next prompt would fit
        ({"waiting_standing": 0.0}, None, False),  # nothing waits
        ({"waiting_standing": None}, None, False),
        ({}, 9, False),  # that bound holds it back
        ({}, 10, True),
        ({"prompt_tokens_p90": None}, None, False),
        ({"kv_usage_peak": None, "kv_usage_queued": None}, None, None),
        ({"kv_usage_peak": None, "kv_usage_queued": None, "preemptions": 2.0}, None, True),
        ({"preemptions": None}, None, True),
    ):
        facts = {"a": records.facts(kv_tokens=2499 * 16, kv_blocks=2499)}
        run = {**summary, **TENTH, **more}
        assert summary_frame([run], {"a": records.launch(max_num_seqs=slots)}, facts, Thresholds())["saturated"].to_list() == [
            full
        ], (more, slots)
    # 2,499 blocks of 16 tokens, used by 92.6 %: 2,958.8 are free.
    for more, full in (
        # A prompt of 2,958 tokens less two blocks would just fit into what is free of the fullest engine.
        ({"prompt_tokens_p90": 2927}, True),
        ({"prompt_tokens_p90": 2926}, False),
        ({"kv_usage_peak": 0.99, "waiting_standing": 0.0}, True),
        ({"kv_usage_peak": 0.98, "waiting_standing": 0.0}, False),
        ({"preemptions": 0.0, "waiting_standing": 0.0}, False),
    ):
        facts = {"a": records.facts(kv_tokens=2499 * 16, kv_blocks=2499)}
        assert summary_frame([{**summary, **TENTH, **more}], {}, facts, Thresholds())["saturated"].to_list() == [full], more


def test_the_highest_throughput_is_told(summary):
    frame = ladder(summary, {1: 0.1, 8: 0.8, 12: 1.0}, throughput_tokens_per_s=[10.0, 90.0, 70.0])
    assert saturation(frame)["peak_at"].to_list() == [8]
    late = ladder(
        summary, {1: 0.1, 8: 0.8, 12: 1.0}, throughput_tokens_per_s=[10.0, 90.0, None], client_loop_lag_max_s=[0.0, 0.6, 0.0]
    )
    assert saturation(late)["peak_at"].to_list() == [1]  # a late client takes from throughput; and nothing is no maximum
    assert saturation(ladder(summary, {1: 0.1}, wrong_output_tokens=[1]))["peak_at"].to_list() == []


def test_signals_agree_where_each_lies_in_the_ranges_of_all(summary):
    """Each signal shows from its second load on, and is known not to at its first; of other loads it is not known."""
    for throughput, cache, queue, words in (
        ((7, 10, 8), (7, 10), (4, 8), "throughput, KV cache and queue cannot be told apart"),  # 10 is above the queue's 8
        ((4, 8, 8), (4, 8), (4, 8), "throughput, KV cache and queue agree"),
        ((4, 8, 8), (8, 10), (4, 8), "throughput and queue before KV cache"),  # at 8 the cache is known not to be full
        ((4, 12, 8.45), (12, 16), (12, 16), "throughput before KV cache and queue"),
        ((8, 48, 21.5), (48, 64), (None, None), "throughput before KV cache"),
        ((4, 16, 8.45), (12, 16), (None, None), "throughput and KV cache cannot be told apart"),
        ((4, 30, 20), (2, 10), (8, 20), "throughput, KV cache and queue cannot be told apart"),
        ((4, 8, 8), (9, 10), (None, 2), "queue before throughput before KV cache"),
        ((4, 8, None), (2, 8), (4, 8), "KV cache and queue agree"),  # no throughput was found
        ((4, None, 8), (2, 8), (None, None), "throughput and KV cache agree"),
        ((4, None, 8), (2, 4), (None, None), "KV cache before throughput"),
        ((6, None, 8), (2, 4), (None, None), "KV cache before throughput"),
        ((4, 8, None), (None, None), (2, 8), "queue alone"),
    ):
        marks = [{low: False, high: True} for low, high in (cache, queue)]
        rows = [
            {**summary, "level": float(level), "kv_usage_peak": None, "waiting_standing": None, "preemptions": None, "valid": True,
             "counts_valid": True, "saturated": marks[0].get(level), "waits": marks[1].get(level)}
            for level in sorted({*marks[0], *marks[1], 16} - {None})
        ]  # fmt: skip
        runs = summary_rows(rows).with_columns(waiting_standing=pl.col("waits").cast(pl.Float64))
        turns = pl.DataFrame(
            {
                "deployment": "a",
                "workload": "short",
                "metric": "x",
                **dict(zip(("saturation_low", "saturation_high", "saturation_at"), throughput, strict=True)),
            }
        )
        assert signals(saturation(runs, turns).row(0, named=True)) == words, (throughput, cache)


def test_a_value_at_its_limit_is_no_fault(summary):
    for change, at_the_limit, beyond in (
        ("client_loop_lag_p99_s", 0.1, 0.101),
        ("client_loop_lag_max_s", 0.5, 0.501),
        ("client_clock_skew_s", 0.002, 0.0021),
        ("client_send_spread_s", 0.1, 0.101),
        ("host_other_share", 0.15, 0.151),
        ("client_cpu_share", 0.9, 0.901),
        ("scrape_gap_max_s", 2.0, 2.001),
        ("scrape_share", 0.5, 0.499),
    ):
        limits = Thresholds(
            loop_lag_p99_s=0.1, loop_lag_max_s=0.5, clock_skew_s=0.002, send_spread_s=0.1, other_share=0.15, client_cpu_share=0.9,
            scrape_gap_s=2.0, scrape_share=0.5,
        )  # fmt: skip
        assert reasons(verdict({**summary, change: at_the_limit}, limits)) == [], change
        assert len(reasons(verdict({**summary, change: beyond}, limits))) == 1, change
    # What only open loops promise is asked of them alone.
    late = {**summary, "client_schedule_delay_p99_s": 0.2}
    assert reasons(verdict(late, Thresholds())) == []
    assert reasons(verdict({**late, "axis": "request_rate", "arrival": "poisson"}, Thresholds())) == ["schedule_delay"]


def test_others_use_the_server_from_a_quarter_or_one_request_on(summary):
    for mine, its, fault in (
        (8.0, 10.0, False),  # a quarter more is allowed
        (8.0, 10.1, True),
        (10.0, 8.0, False),
        (2.0, 3.0, False),  # one request is, too
        (2.0, 3.1, True),
        (0.0, 1.5, True),
        (None, 9.0, False),
        (0.0, None, False),
    ):
        told = {**summary, "client_in_flight_mean": mine, "server_in_flight_mean": its}
        assert bool(reasons(verdict(told, Thresholds(in_flight_error=0.25)))) is fault, (mine, its)
    # A server that goes on with what the client gave up is not used by others.
    told = {"client_in_flight_mean": 8.0, "server_in_flight_mean": 12.0, "failed": 1, "ok": 3, "outcome_timeout": 1}
    assert reasons(verdict({**summary, **told}, Thresholds())) == []
    # Requests are held back from a quarter on.
    for missing, share, fault in (
        (1.0, 0.9, False),
        (1.1, 0.26, True),
        (1.1, 0.25, False),
        (9.0, 0.1, False),
        (9.0, None, False),
        (None, 0.9, False),
    ):
        told = {**summary, "held_back_requests": missing, "held_back_share": share}
        assert bool(reasons(verdict(told, Thresholds(in_flight_error=0.25)))) is fault, (missing, share)
    # One request is in flight at the client for a moment before and after it is at the server.
    told = {"client_in_flight_mean": 0.6, "server_in_flight_mean": 1.4, "held_back_requests": 1.0, "held_back_share": 0.5}
    assert reasons(verdict({**summary, **told}, Thresholds())) == []


def test_hits_against_those_that_the_workload_implies(summary):
    for rate, expected, peak, fault in (
        (0.5, 0.625, 0.5, False),  # an eighth off is allowed
        (0.5, 0.63, 0.5, True),
        (0.75, 0.625, 0.5, False),
        (0.76, 0.625, 0.5, True),
        (0.1, 0.5, 0.95, False),  # full: what was cached had to go
        (0.1, 0.5, 0.94, True),
        (0.1, 0.5, None, True),
        (0.9, 0.5, 1.0, True),
        (0.2, 0.0, 0.5, True),
        (0.125, 0.0, 0.5, False),
        (0.9, None, 0.5, False),  # several engines
        (None, 0.5, 0.5, False),
    ):
        told = {"prefix_hits": None, "prefix_hit_rate": rate, "prefix_hit_rate_expected": expected, "kv_usage_peak": peak}
        assert bool(reasons(verdict({**summary, **told}, Thresholds(prefix_hit_error=0.125)))) is fault, (rate, expected, peak)
    # Hits that the workload implies are no fault.
    shared = {**summary, "prefix_hits": 50.0, "prefix_hit_rate": 0.5, "prefix_hit_rate_expected": 0.5}
    assert reasons(verdict(shared, Thresholds())) == []
    (found,) = verdict({**shared, "prefix_hit_rate": 0.3}, Thresholds()).found
    assert (found.check, found.value, found.limit) == ("hit_rate", 0.3, 0.5)
    # A full kv cache loses what was cached and gains nothing.
    full = {**summary, "prefix_hits": 50.0, "prefix_hit_rate_expected": 0.5, "kv_usage_peak": 0.99}
    assert reasons(verdict({**full, "prefix_hit_rate": 0.02}, Thresholds())) == []
    assert reasons(verdict({**full, "prefix_hit_rate": 0.02, "kv_usage_peak": 0.5}, Thresholds()))
    assert reasons(verdict({**full, "prefix_hit_rate": 0.7}, Thresholds()))  # more than there could be
    # Of 200 prompts, ten tokens in all: less than the block that a cache of blocks shares at least.
    slots = {**summary, "requests": 200, "ok": 200, "kv_slots": True}
    assert reasons(verdict({**slots, "prefix_hits": 10.0}, Thresholds())) == []
    assert reasons(verdict({**slots, "prefix_hits": 11.0}, Thresholds())) == ["cached_tokens"]
    assert reasons(verdict({**slots, "kv_slots": False, "prefix_hits": 16.0}, Thresholds()))
    # Half had been sent before, and a cache of its size keeps 30 %: what lies between is its own doing.
    shared = {**summary, "prefix_hits": 40.0, "prefix_hit_rate_expected": 0.5, "prefix_hit_rate_lru": 0.3}
    for rate in (0.26, 0.3, 0.4, 0.54):
        assert reasons(verdict({**shared, "prefix_hit_rate": rate}, Thresholds())) == []
    for further in ({"prefix_hit_rate": 0.2}, {"prefix_hit_rate": None, "prefix_hit_rate_answers": 0.2}):
        full = {**shared, **further, "kv_usage_peak": 1.0}  # how full it was is part of what is known
        (found,) = verdict(full, Thresholds()).found
        assert (found.check, found.value, found.limit) == ("lru_hits", 0.2, 0.3)
    (found,) = verdict({**shared, "prefix_hit_rate": 0.6}, Thresholds()).found
    assert (found.check, found.value, found.limit) == ("hit_rate", 0.6, 0.5)


def test_a_chat_s_template_may_come_from_the_prefix_cache(summary):
    for hits, expected, template, fault in (
        (96, 0.0, 24, None),  # four prompts of 100 tokens, whose template the cache served each time
        (0, 0.0, 24, None),  # or not at all
        (97, 0.0, 24, ("cached_tokens", 97, 96)),
        (1, 0.0, 0, ("cached_tokens", 1, 0)),
        (296, 0.5, 24, None),  # half is shared, and the template beside it
        (200, 0.5, 24, None),
        (360, 0.5, 24, ("hit_rate", 0.9, 0.5)),
        (100, 0.5, 24, ("hit_rate", 0.25, 0.5)),
    ):
        told = {"prompt_tokens": 100.0, "requests": 4, "prefix_hits": hits, "prefix_hit_rate": hits / 400,
                "prefix_hit_rate_expected": expected, "template_tokens": template}  # fmt: skip
        found = verdict({**summary, **told}, Thresholds(prefix_hit_error=0.125)).found
        assert [(each.check, each.value, each.limit) for each in found] == ([fault] if fault else []), hits


# The table of runs


def test_what_a_row_takes_from_launch_facts_and_plan(summary):
    plan = {"parameters": 7, "kv_bytes_per_token": 64, "kv_tokens": 320, "block_size": 16}
    launch = records.launch(tensor_parallel=2, pipeline_parallel=3, data_parallel=4, gpus=24, plan=plan, max_model_len=4096,
                            max_num_seqs=8)  # fmt: skip
    gpus = ({"name": "H100"}, {"name": "A100"}, {"name": "H100"})
    fact = records.facts(engine_version="1.2", kv_blocks=30, hardware=replace(records.MACHINE, gpus=gpus))
    runs = [summary, {**summary, "deployment": "b", "run": "r2"}]
    first, second = summary_frame(runs, {"a": launch}, {"a": fact}, Thresholds(), "a", ["b"]).iter_rows(named=True)
    told = {
        key: first[key]
        for key in ("model", "engine", "device", "tensor_parallel", "pipeline_parallel", "data_parallel", "gpus")
    }
    assert told == {key: getattr(launch, key) for key in told}
    expected = (7, 64, 320, None)
    assert (first["parameters"], first["kv_bytes_per_token"], first["kv_tokens_planned"], first["kv_tokens"]) == expected
    assert (first["max_model_len"], first["max_num_seqs"], first["engines"], first["kv_blocks"]) == (4096, 8, 4, 30)
    assert (first["engine_version"], first["hardware"]) == ("1.2", "Xeon, 2 cores, 2 × H100, 1 × A100")
    # 320 tokens planned, in blocks of 16, and requests of 32 + 32.
    assert (first["predicted_saturation"], second["predicted_saturation"]) == (5, None)
    assert [(row["baseline"], row["replica"]) for row in (first, second)] == [(True, False), (False, True)]
    assert (second["model"], second["hardware"], second["max_num_seqs"], second["gpus"]) == (None, None, None, None)
    # A study without facts still has rows.
    frame = summary_frame([{**summary, "kv_usage_peak": None}], {}, {}, Thresholds())
    assert frame["valid"].to_list() == [True]
    assert frame["saturated"].to_list() == [None]  # without a gauge it is not known
    assert saturation(frame)["measured"].to_list() == [None]
    assert frame.schema["predicted_saturation"] == pl.Float64


def test_predicted_saturation_by_hand(summary):
    for run, fact, predicted in (
        ({}, {"kv_tokens": 640, "block_size": 32}, 10),  # what the server says is before the plan
        ({}, {"kv_tokens": 640, "block_size": 64}, 10),
        ({}, {"kv_tokens": 640, "block_size": 128}, 5),  # a request takes a whole block
        ({}, {}, 5),
        ({"requests": 0, "ok": 0}, {}, None),
        ({"cache": "repeated", "prefix_hit_rate_expected": 0.5}, {}, None),
        ({"cache": "repeated"}, {}, None),
        ({"cache": "repeated", "prefix_hit_rate_expected": 0}, {}, 5),  # the server has no prefix cache
        ({"cache": "unique", "prefix_hit_rate_expected": 0.5}, {}, 5),
    ):
        launch = records.launch(plan={"kv_tokens": 320, "block_size": 64})
        frame = summary_frame([{**summary, **run}], {"a": launch}, {"a": records.facts(**fact)}, Thresholds())
        assert frame["predicted_saturation"].to_list() == [predicted], (run, fact)
    # A plan without blocks counts tokens.
    frame = summary_frame([summary], {"a": records.launch(plan={"kv_tokens": 320})}, {}, Thresholds())
    assert frame["predicted_saturation"].to_list() == [5]
    frame = summary_frame([summary], {}, {}, Thresholds())
    assert frame["predicted_saturation"].to_list() == [None]
    # Prompts that share blocks have no prediction.
    alike = {**summary, "cache": "shared", "prefix_hit_rate_expected": 0.5}
    assert ladder(summary, {1: 0.1})["predicted_saturation"].to_list() == [10.0]
    assert ladder(alike, {1: 0.1})["predicted_saturation"].to_list() == [None]
    # A prediction is of requests in flight alone.
    runs = ladder(summary, {1: 0.1, 8: 0.8, 10: 1.0, 12: 1.0})
    assert saturation(runs)["predicted"].to_list() == [10]
    rates = saturation(runs.with_columns(axis=pl.lit("request_rate"), predicted_saturation=pl.lit(10.0))).row(0, named=True)
    assert (rates["predicted"], rates["levels_apart"], rates["measured"]) == (None, None, 10)
    # Levels between the prediction and the measurement.
    runs = ladder(summary, {1: 0.1, 8: 1.0, 10: 1.0, 12: 1.0}).with_columns(predicted_saturation=pl.lit(8.5))
    assert saturation(runs).select("measured", "below", "levels_apart").row(0) == (8, 1, -1)
    assert saturation(runs.with_columns(predicted_saturation=pl.lit(99.0)))["levels_apart"].to_list() == [None]
    full = saturation(ladder(summary, {4: 1.0, 8: 1.0})).row(0, named=True)
    assert (full["measured"], full["below"], full["levels_apart"]) == (4, None, None)
    lower = ladder(summary, {4: 1.0, 8: 1.0}).with_columns(predicted_saturation=pl.lit(3.0))
    assert saturation(lower)["levels_apart"].to_list() == [None]  # it may have been full at 1 already
