"""Verdicts and saturation, on runs whose truth is known."""

from dataclasses import replace

import polars as pl

from bench.findings.saturation import saturation
from bench.parse.table import summary_frame
from bench.parse.validity import Reason, failures, invalid, reason_texts, verdict
from bench.study.config import Thresholds
from tests.support import records
from tests.support.planted import reasons
from tests.support.summaries import ladder


def checks(summary, limits=None, **change):
    """What a run did not pass."""
    return reasons(verdict({**summary, **change}, limits or Thresholds()))


def faults(summary, limits=None, **change):
    return [(each.check, each.value, each.limit) for each in verdict({**summary, **change}, limits or Thresholds()).found]


def test_each_fault_is_named(summary):
    assert checks(summary) == []
    for change, check, value in (
        ({"wrong_prompt_tokens": 2}, "prompt_lengths", 2), ({"wrong_output_tokens": 1}, "output_lengths", 1),
        ({"client_loop_lag_p99_s": 0.2}, "loop_lag", 0.2), ({"client_loop_lag_max_s": 0.6}, "loop_stall", 0.6),
        ({"client_send_spread_s": 0.5}, "burst_spread", 0.5), ({"client_clock_skew_s": 0.005}, "clock_skew", 0.005),
        ({"host_other_share": 0.4}, "other_processes", 0.4), ({"client_cpu_share": 0.99}, "client_cpu", 0.99),
        ({"client_in_flight_mean": 8.0, "server_in_flight_mean": 12.0}, "other_requests", 12),
        ({"held_back_requests": 500.0, "held_back_share": 0.8}, "held_back", 500), ({"scrape_gap_max_s": 3.0}, "scrape_gap", 3),
        ({"scraped": False}, "never_scraped", None), ({"scraped_before": False}, "not_scraped_before", None),
        ({"scraped_after": False}, "not_scraped_after", None), ({"counters_fell": ["vllm:y"]}, "counters_fell", None),
        ({"scrape_share": 0.2}, "scrape_share", 0.2), ({"metrics_missing": ["vllm:x"]}, "metrics_missing", None),
        ({"prefix_hits": 64.0}, "cached_tokens", 64),
    ):  # fmt: skip
        assert [each[:2] for each in faults(summary, **change)] == [(check, value)], change
    # A line of an exposition may hold anything, and the reason is kept as a code.
    error = "no Prometheus exposition: line 54, 'a{b=\"c\" {': could not convert 'x' = y"
    for change, words in (
        ({"scraped": False}, "no scrape succeeded: "),
        ({"scrape_share": 0.2}, "only 20 % of the scrapes due during the load came, under 25 %: "),
    ):
        (found,) = verdict({**summary, **change, "scrape_error": error}, Thresholds()).found
        assert reason_texts([found.code]) == [words + error]
    # What is sound, or was not measured, is no fault.
    sound = {"scrape_share": 1.0, "scraped": True, "scraped_before": True, "scraped_after": True, "counters_fell": []}
    names = ("scrape_gap_max_s", "prefix_hits", "client_loop_lag_p99_s", "client_cpu_share", "server_in_flight_mean")
    for change in (sound, dict.fromkeys(sound), dict.fromkeys(names)):
        assert checks(summary, **change) == [], change


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
    found = verdict(summary, Thresholds(), [Reason("drift", names=("the machine was slower",))])
    assert (found.faults, reasons(found), found.valid) == (["machine"], ["drift"], False)
    # Faults stand in the order of their parts.
    bad = {"host_other_share": 0.9, "scraped": False, "client_cpu_share": 1.0, "wrong_prompt_tokens": 1,
           "client_send_spread_s": 9.0}  # fmt: skip
    found = verdict({**summary, **bad, "wrong_output_tokens": 2}, Thresholds())
    assert found.faults == ["load", "content", "client", "telemetry", "machine"]
    assert len(reasons(found)) == 6
    # A run is invalid where either part is.
    parts = pl.DataFrame({"valid": [True, True, False, False], "counts_valid": [True, False, True, False]})
    assert parts.select(invalid())["valid"].to_list() == [False, True, True, True]


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
    # What no server would answer under any load is a fault.
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


def test_saturation_is_the_first_level_from_which_all_are_full(summary):
    def found(usage, **more):
        return saturation(ladder(summary, usage, **more)).row(0, named=True)

    for usage, more, told in (
        ({1: 0.1, 8: 0.8, 10: 1.0, 12: 1.0}, {}, {"measured": 10, "below": 8, "predicted": 10.0, "levels_apart": 0}),
        (
            {1: 0.1, 8: 1.0, 10: 0.7, 12: 1.0},
            {},
            {"measured": 12, "below": 10, "levels_apart": 1},
        ),  # a single full one below others
        ({1: 0.1, 4: 0.4, 8: 0.8}, {}, {"measured": None, "below": None, "levels_apart": None, "cache_known": True}),
        ({1: None, 4: None}, {}, {"measured": None, "cache_known": False}),
        ({1: 0.1, 8: 0.8, 10: 0.9}, {"waiting_standing": [0.0, 0.5, 1.0]}, {"queue": 8, "queue_below": 1}),
        # A preemption is a full cache that the gauge missed.
        ({8: 0.7, 10: 0.8, 12: 1.0}, {"preemptions": [0.0, 1.0, 5.0]}, {"measured": 10}),
        # Failures are results; invalid runs are kept out.
        ({8: 0.8, 10: 1.0, 12: 1.0}, {"failed": [0, 2, 2]}, {"measured": 10}),
        ({8: 0.8, 10: 1.0, 12: 1.0}, {"wrong_output_tokens": [0, 1, 0]}, {"measured": 12}),
    ):
        row = found(usage, **more)
        assert {name: row[name] for name in told} == told, (usage, more)
    # A late client speaks against the latencies alone, missing scrapes against the counts alone.
    late = ladder(summary, {8: 0.8, 10: 1.0, 12: 1.0}, client_loop_lag_max_s=[0.0, 0.6, 0.0])
    assert (late["valid"].to_list(), saturation(late)["measured"].to_list()) == ([True, False, True], [10])
    gap = {"scrape_gap_max_s": [0.3, 3.0, 0.3], "throughput_tokens_per_s": [10.0, 90.0, 70.0]}
    runs = ladder(summary, {8: 0.8, 10: 1.0, 12: 1.0}, **gap)
    assert (runs["valid"].to_list(), runs["counts_valid"].to_list()) == ([True] * 3, [True, False, True])
    assert saturation(runs)["measured"].to_list() == [12]
    # The highest throughput is told.
    speeds, late = [10.0, 90.0, None], [0.0, 0.6, 0.0]
    for more, at in (
        ({"throughput_tokens_per_s": [10.0, 90.0, 70.0]}, 8),
        (
            {"throughput_tokens_per_s": speeds, "client_loop_lag_max_s": late},
            1,
        ),  # a late client takes from it; nothing is no maximum
    ):
        assert saturation(ladder(summary, {1: 0.1, 8: 0.8, 12: 1.0}, **more))["peak_at"].to_list() == [at], more
    assert saturation(ladder(summary, {1: 0.1}, wrong_output_tokens=[1]))["peak_at"].to_list() == []


# 2,499 blocks of 16 and requests of 4,000 + 100 tokens: nine are admitted at 92.6 %, and the tenth waits for ever.
TENTH = {"kv_usage_peak": 0.926, "kv_usage_queued": 0.926, "waiting_standing": 1.0, "running_peak": 9.0,
         "prompt_tokens": 4000, "prompt_tokens_p90": 4000, "output_tokens": 100}  # fmt: skip


def test_a_cache_that_cannot_admit_the_next_prompt_is_full(summary):
    """2,499 blocks of 16 tokens, used by 92.6 %: 2,958.8 are free."""
    for more, slots, full in (
        ({}, None, True),
        # A prompt of 2,958 tokens less two blocks would just fit into what is free of the fullest engine.
        ({"prompt_tokens_p90": 2927}, None, True),
        ({"prompt_tokens_p90": 2926}, None, False),
        ({"prompt_tokens_p90": None}, None, False),
        ({"waiting_standing": 0.0}, None, False),  # nothing waits
        ({"waiting_standing": None}, None, False),
        ({}, 9, False),  # that bound holds it back
        ({}, 10, True),
        ({"kv_usage_peak": None, "kv_usage_queued": None}, None, None),
        ({"kv_usage_peak": None, "kv_usage_queued": None, "preemptions": 2.0}, None, True),
        ({"preemptions": None}, None, True),
        ({"kv_usage_peak": 0.99, "waiting_standing": 0.0}, None, True),
        ({"kv_usage_peak": 0.98, "waiting_standing": 0.0}, None, False),
        ({"preemptions": 0.0, "waiting_standing": 0.0}, None, False),
    ):
        facts = {"a": records.facts(kv_tokens=2499 * 16, kv_blocks=2499)}
        frame = summary_frame([{**summary, **TENTH, **more}], {"a": records.launch(max_num_seqs=slots)}, facts, Thresholds())
        assert frame["saturated"].to_list() == [full], (more, slots)


def test_a_value_at_its_limit_is_no_fault(summary):
    limits = Thresholds(
        client_delay_p99_s=0.1, other_share=0.15, client_cpu_share=0.9, scrape_gap_s=2.0,
    )  # fmt: skip
    for name, at_the_limit, beyond in (
        ("client_loop_lag_p99_s", 0.1, 0.101), ("client_loop_lag_max_s", 0.5, 0.501), ("client_clock_skew_s", 0.001, 0.0011),
        ("client_send_spread_s", 0.2, 0.201), ("host_other_share", 0.15, 0.151), ("client_cpu_share", 0.9, 0.901),
        ("scrape_gap_max_s", 2.0, 2.001), ("scrape_share", 0.25, 0.249),
    ):  # fmt: skip
        assert checks(summary, limits, **{name: at_the_limit}) == [], name
        assert len(checks(summary, limits, **{name: beyond})) == 1, name
    # What only open loops promise is asked of them alone.
    assert checks(summary, client_schedule_delay_p99_s=0.2) == []
    assert checks(summary, client_schedule_delay_p99_s=0.2, axis="request_rate", arrival="poisson") == ["schedule_delay"]


def test_others_use_the_server_from_a_quarter_or_one_request_on(summary):
    limits = Thresholds(count_error=0.25)
    for mine, its, fault in (
        (8.0, 10.0, False),  # a quarter more is allowed
        (8.0, 10.1, True), (10.0, 8.0, False),
        (2.0, 3.0, False),  # one request is, too
        (2.0, 3.1, True), (0.0, 1.5, True), (None, 9.0, False), (0.0, None, False),
    ):  # fmt: skip
        assert bool(checks(summary, limits, client_in_flight_mean=mine, server_in_flight_mean=its)) is fault, (mine, its)
    # A server that goes on with what the client gave up is not used by others.
    told = {"client_in_flight_mean": 8.0, "server_in_flight_mean": 12.0, "failed": 1, "ok": 3, "outcome_timeout": 1}
    assert checks(summary, **told) == []
    # Requests are held back from a quarter and more than one on.
    for missing, share, fault in (
        (1.0, 0.9, False), (1.1, 0.26, True), (1.1, 0.25, False), (9.0, 0.1, False), (9.0, None, False), (None, 0.9, False),
    ):  # fmt: skip
        assert bool(checks(summary, limits, held_back_requests=missing, held_back_share=share)) is fault, (missing, share)


def test_hits_against_those_that_the_workload_implies(summary, monkeypatch):
    monkeypatch.setattr(Thresholds, "prefix_hit_error", 0.125)
    for rate, expected, peak, fault in (
        (0.5, 0.625, 0.5, False),  # an eighth off is allowed
        (0.5, 0.63, 0.5, True), (0.75, 0.625, 0.5, False), (0.76, 0.625, 0.5, True),
        (0.1, 0.5, 0.99, False),  # full: what was cached had to go
        (0.1, 0.5, 0.94, True), (0.1, 0.5, None, True), (0.9, 0.5, 1.0, True), (0.2, 0.0, 0.5, True), (0.125, 0.0, 0.5, False),
        (0.9, None, 0.5, False),  # several engines
        (None, 0.5, 0.5, False),
    ):  # fmt: skip
        told = {"prefix_hits": None, "prefix_hit_rate": rate, "prefix_hit_rate_expected": expected, "kv_usage_peak": peak}
        assert bool(checks(summary, Thresholds(), **told)) is fault, (rate, expected, peak)
    # Of 200 prompts, ten tokens in all: less than the block that a cache of blocks shares at least.
    slots = {"requests": 200, "ok": 200, "kv_slots": True}
    for more, found in (({"prefix_hits": 10.0}, []), ({"prefix_hits": 11.0}, ["cached_tokens"]), ({"kv_slots": False, "prefix_hits": 16.0}, ["cached_tokens"])):  # fmt: skip
        assert checks(summary, **{**slots, **more}) == found, more
    monkeypatch.setattr(Thresholds, "prefix_hit_error", 0.05)
    # Half had been sent before, and a cache of its size keeps 30 %: what lies between is its own doing.
    shared = {"prefix_hits": 40.0, "prefix_hit_rate_expected": 0.5, "prefix_hit_rate_lru": 0.3}
    for more, found in (
        *(({"prefix_hit_rate": rate}, []) for rate in (0.26, 0.3, 0.4, 0.54)),
        # How full it was is part of what is known.
        ({"prefix_hit_rate": 0.2, "kv_usage_peak": 1.0}, [("lru_hits", 0.2, 0.3)]),
        ({"prefix_hit_rate": None, "prefix_hit_rate_answers": 0.2, "kv_usage_peak": 1.0}, [("lru_hits", 0.2, 0.3)]),
        ({"prefix_hit_rate": 0.6}, [("hit_rate", 0.6, 0.5)]),
    ):
        assert faults(summary, **shared, **more) == found, more
    monkeypatch.setattr(Thresholds, "prefix_hit_error", 0.125)
    # A chat s template may come from the prefix cache.
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
        assert faults(summary, Thresholds(), **told) == ([fault] if fault else []), hits


def test_what_a_row_takes_from_launch_facts_and_plan(summary):
    plan = {"parameters": 7, "kv_bytes_per_token": 64, "kv_tokens": 320, "block_size": 16}
    launch = records.launch(tensor_parallel=2, pipeline_parallel=3, data_parallel=4, gpus=24, plan=plan, max_model_len=4096,
                            max_num_seqs=8)  # fmt: skip
    gpus = ({"name": "H100"}, {"name": "A100"}, {"name": "H100"})
    fact = records.facts(engine_version="1.2", kv_blocks=30, hardware=replace(records.MACHINE, gpus=gpus))
    runs = [summary, {**summary, "deployment": "b", "run": "r2"}]
    first, second = summary_frame(runs, {"a": launch}, {"a": fact}, Thresholds(), "a").iter_rows(named=True)
    for key in ("model", "engine", "device", "tensor_parallel", "pipeline_parallel", "data_parallel", "gpus"):
        assert first[key] == getattr(launch, key), key
    expected = (7, 64, 320, None)
    assert (first["parameters"], first["kv_bytes_per_token"], first["kv_tokens_planned"], first["kv_tokens"]) == expected
    assert (first["max_model_len"], first["max_num_seqs"], first["engines"], first["kv_blocks"]) == (4096, 8, 4, 30)
    assert (first["engine_version"], first["hardware"]) == ("1.2", "Xeon, 2 cores, 2 × H100, 1 × A100")
    # 320 tokens planned, in blocks of 16, and requests of 32 + 32.
    assert (first["predicted_saturation"], second["predicted_saturation"]) == (5, None)
    assert [row["baseline"] for row in (first, second)] == [True, False]
    assert (second["model"], second["hardware"], second["max_num_seqs"], second["gpus"]) == (None, None, None, None)
    # A study without facts still has rows.
    frame = summary_frame([{**summary, "kv_usage_peak": None}], {}, {}, Thresholds())
    assert frame["valid"].to_list() == [True]
    assert frame["saturated"].to_list() == [None]  # without a gauge it is not known
    assert saturation(frame)["measured"].to_list() == [None]
    assert frame.schema["predicted_saturation"] == pl.Float64


def test_predicted_saturation_by_hand(summary):
    planned = {"kv_tokens": 320, "block_size": 64}
    for run, plan, fact, predicted in (
        ({}, planned, {"kv_tokens": 640, "block_size": 32}, 10),  # what the server says is before the plan
        ({}, planned, {"kv_tokens": 640, "block_size": 64}, 10),
        ({}, planned, {"kv_tokens": 640, "block_size": 128}, 5),  # a request takes a whole block
        ({}, planned, {}, 5),
        ({}, {"kv_tokens": 320}, {}, 5),  # without blocks, tokens count
        ({}, None, {}, None),
        ({"requests": 0, "ok": 0}, planned, {}, None),
        ({"cache": "repeated", "prefix_hit_rate_expected": 0.5}, planned, {}, None),
        ({"cache": "repeated"}, planned, {}, None),
        ({"cache": "repeated", "prefix_hit_rate_expected": 0}, planned, {}, 5),  # the server has no prefix cache
        ({"cache": "shared", "prefix_hit_rate_expected": 0.5}, planned, {}, None),
        ({"cache": "unique", "prefix_hit_rate_expected": 0.5}, planned, {}, 5),
    ):
        launches = {"a": records.launch(plan=plan)} if plan else {}
        frame = summary_frame([{**summary, **run}], launches, {"a": records.facts(**fact)}, Thresholds())
        assert frame["predicted_saturation"].to_list() == [predicted], (run, plan, fact)
    # It is of requests in flight alone, and is compared by the levels between.
    runs = ladder(summary, {1: 0.1, 8: 0.8, 10: 1.0, 12: 1.0})
    rates = saturation(runs.with_columns(axis=pl.lit("request_rate"), predicted_saturation=pl.lit(10.0))).row(0, named=True)
    assert (rates["predicted"], rates["levels_apart"], rates["measured"]) == (None, None, 10)
    for usage, predicted, told in (
        ({1: 0.1, 8: 1.0, 10: 1.0, 12: 1.0}, 8.5, (8, 1, -1)),
        ({1: 0.1, 8: 1.0, 10: 1.0, 12: 1.0}, 99.0, (8, 1, None)),
        ({4: 1.0, 8: 1.0}, 10.0, (4, None, None)),
        ({4: 1.0, 8: 1.0}, 3.0, (4, None, None)),  # it may have been full at 1 already
    ):
        runs = ladder(summary, usage).with_columns(predicted_saturation=pl.lit(predicted))
        assert saturation(runs).select("measured", "below", "levels_apart").row(0) == told, (usage, predicted)
