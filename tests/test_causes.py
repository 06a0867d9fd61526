"""Why a curve carries no more: servers with one planted limit each, and what is said where the server does not tell."""

import polars as pl
import pytest

from bench.analysis import operating_points, summary_frame
from bench.analysis.bottleneck import bottleneck
from bench.study import parse_slo
from bench.study.config import Thresholds
from tests.planted import frame, rate_row, served_row, short_row, steady_row

TTFT = [parse_slo("ttft_p95=500ms")]
TPOT = [parse_slo("tpot_p95=30ms")]
LEVELS = (1, 2, 4, 8, 16, 32)
# A prompt is of 32 tokens: four requests of 64 hold 256 of 272, and the next prompt lacks half of its room.
FOUR_FIT = {"kv_tokens": 272, "kv_blocks": 17}


def cause(rows, slos, **facts):
    runs = frame(rows, **facts)
    point = operating_points(runs, slos).row(0, named=True)
    return bottleneck(runs, point, slos), point


def ladder(summary, **server):
    return [served_row(summary, level, **server) for level in LEVELS]


def test_all_slots_run(summary):
    found, _ = cause(ladder(summary, room=4), TTFT, slots=4)
    assert found.cause == "sequences"
    assert "all 4 sequences of max_num_seqs run" in found.why
    assert found.remedy.startswith("Raise max_num_seqs")


def test_what_lacks_room_beyond_the_load_that_misses_is_no_cause_where_nothing_waits_there(summary):
    """E2E misses at 8 in flight, where none waits; from 10 on, within 1.4 times that, all slots run."""
    levels = (1, 2, 4, 8, 10)
    rows = [served_row(summary, level, base_ms=10, each_ms=0.2, room=9) for level in levels]
    limit = [parse_slo("e2e_p95=365ms")]
    found, point = cause(rows, limit, slots=9)
    assert (point["missed_at"], found.cause) == (8, "decode")


def test_the_kv_cache_admits_no_more(summary):
    rows = [{**row, "steady_kv_usage_queued": 256 / 272} for row in ladder(summary, room=4)]
    found, _ = cause(rows, TTFT, **FOUR_FIT, slots=64)
    assert found.cause == "kv"
    assert "16 tokens are free where a prompt takes 32" in found.why
    assert found.remedy.startswith("More KV memory")


def test_prompts_wait_for_arithmetic(summary):
    found, _ = cause(ladder(summary, base_ms=4, each_ms=0.02, prompt_ms=100), TTFT)
    assert found.cause == "prefill"
    assert "prompts take 65% of the time" in found.why


def test_steps_are_slow_with_many_requests(summary):
    found, point = cause(ladder(summary, base_ms=10, each_ms=4), TPOT)
    assert point["missed_by"] == "tpot_p95_s"
    assert found.cause == "decode"
    assert "a step takes 42 ms" in found.why


def test_decoding_holds_back_answers_whose_whole_time_is_limited(summary):
    assert cause(ladder(summary, base_ms=10, each_ms=4), [parse_slo("e2e_p95=1s")])[0].cause == "decode"


def test_prompts_of_others_stand_between_tokens(summary):
    found, _ = cause(ladder(summary, base_ms=10, each_ms=0.02, prompt_ms=100), TPOT)
    assert found.cause == "interference"
    assert "prompts of other requests" in found.why


def test_preemptions_are_the_kv_cache(summary):
    rows = [{**row, "preemptions": 80.0 if row["level"] >= 8 else 0.0} for row in ladder(summary, each_ms=4)]
    found, _ = cause(rows, TPOT)
    assert found.cause == "kv"
    assert "0.2 preemptions a request" in found.why


def test_refusals_come_before_all_else(summary):
    rows = [served_row(summary, level, room=4, failed=200 if level >= 8 else 0) for level in LEVELS]
    found, point = cause(rows, TTFT, slots=4)
    assert (found.cause, point["high"]) == ("refusals", 8)
    assert "200 of 400 requests" in found.why


def test_where_no_load_misses_there_is_no_limit(summary):
    found, _ = cause([served_row(summary, level) for level in (1, 2)], TTFT)
    assert (found.cause, found.remedy) == ("none", "Measure higher levels to find the limit.")


def test_an_overload_has_the_cause_of_what_it_waits_for(summary):
    """No latency is missed yet; requests wait for one of four slots."""
    steps = {
        "steady_itl_p10_s": 0.0104,
        "steady_tpot_mean_s": 0.0105,
        "steady_ttft_per_token_p10_s": 0.0114 / 32,
        "output_tokens": 32,
    }
    quiet = {**steps, "steady_running": 1.0, "steady_running_high": 2.0, "steady_queued_share": 0.0, "steady_kv_usage": 0.2}
    busy = {**steps, "steady_running": 4.0, "steady_running_high": 4.0, "steady_queued_share": 0.9, "steady_waiting": 6.0,
            "steady_kv_usage": 0.4, "steady_kv_usage_queued": 0.4}  # fmt: skip
    rows = [rate_row(summary, 3, **quiet), rate_row(summary, 16, growth=0.3, growth_error=0.03, rps=11.0, **busy)]
    found, point = cause(rows, TTFT, slots=4)
    assert point["missed_by"] == "growth"
    assert found.cause == "sequences"


@pytest.mark.parametrize(
    "withheld",
    [
        {"steady_queued_share": None},
        {"steady_kv_usage": None},
        {"steady_queued_share": None, "steady_kv_usage": None, "steady_running": None, "kv_usage_peak": None},
        {"scrape_gap_max_s": 30.0},  # the telemetry cannot be trusted
    ],
)
@pytest.mark.parametrize("slos", [TTFT, TPOT])
def test_without_the_servers_gauges_no_cause_is_claimed(summary, withheld, slos):
    """`The KV cache has room` was said of a server without any known metric."""
    rows = [{**row, **withheld} for row in ladder(summary, room=4, each_ms=8)]
    found, point = cause(rows, slos, **FOUR_FIT, slots=4)
    assert (point["kind"], found.cause, found.remedy) == ("found", "unknown", "")
    assert "why is not known" in found.why
    assert "room" not in found.why and "full" not in found.why


def test_failures_need_no_telemetry(summary):
    silent = {"steady_queued_share": None, "steady_kv_usage": None, "kv_usage_peak": None}
    rows = [served_row(summary, level, failed=100 if level >= 8 else 0, **silent) for level in LEVELS]
    assert cause(rows, TTFT)[0].cause == "refusals"


def test_without_a_verdict_there_is_no_cause(summary):
    wrong = [{**row, "wrong_output_tokens": 1} for row in ladder(summary)]
    assert cause(wrong, TTFT)[0].cause == "unknown"
    short = [short_row(row, 90.0) for row in ladder(summary)]
    found, _ = cause(short, TTFT)
    assert found.cause == "unknown"
    assert "let its load last 90 s" in found.why
    no_ttft = [served_row(summary, level) | {"judged": steady_row(summary, level, ttft=None)["judged"]} for level in LEVELS]
    assert cause(no_ttft, TTFT)[0].cause == "unknown"


# Bursts


def burst(summary, level, ttft, **more):
    none = dict.fromkeys(("steady", "steady_from_s", "steady_judged_until_s", "steady_requests_per_s", "steady_queued_share"))
    return steady_row(summary, level, requests=level, ttft=ttft, ttft_p95_s=ttft, **{"arrival": "burst", **none, **more})


TENTH = {"prompt_tokens": 4000, "prompt_tokens_p90": 4000, "output_tokens": 100, "kv_usage_peak": 0.926}


@pytest.mark.parametrize(
    ("there", "found"),
    [
        # 2,499 blocks of 16: nine requests of 4,000 + 100 tokens hold 92.6 %, and the tenth waits for ever.
        ({**TENTH, "kv_usage_queued": 0.926, "waiting_standing": 1.0, "running_peak": 9.0}, "kv"),
        ({"waiting_standing": 2.0, "running_peak": 8.0, "kv_usage_queued": 0.3, "prompt_tokens_p90": 32}, "prefill"),
        ({"waiting_standing": 0.0}, "prefill"),
        ({"waiting_standing": None}, "unknown"),
        ({"waiting_standing": 1.0, "kv_usage_peak": None}, "unknown"),
        ({"waiting_standing": None, "kv_usage_peak": None, "preemptions": None}, "unknown"),
        ({"failed": 5}, "refusals"),
    ],
)
def test_why_a_burst_misses(summary, there, found):
    rows = [burst(summary, 8, 0.1), burst(summary, 10, 9.0, **there)]
    limit, point = cause(rows, TTFT, kv_tokens=2499 * 16, kv_blocks=2499)
    assert (point["basis"], point["c_max"], point["missed_at"]) == ("burst", 8, 10)
    assert limit.cause == found


def test_a_closed_loop_whose_tenth_request_waits_for_kv_memory_is_not_told_to_raise_max_num_seqs(summary):
    """Fault 3: saturation was `none`, and the cause `sequences`."""
    rows = []
    for level in (1, 3, 6, 9, 10, 14):
        row = served_row(summary, level, room=9, base_ms=20, each_ms=0.2, prompt_ms=50, output=100)
        full = level > 9
        rows.append({**row, **TENTH, "kv_usage_peak": 0.926 if full else 0.1 * level, "kv_usage_queued": 0.926 if full else None,
                     "steady_kv_usage_queued": 0.926 if full else None,
                     "steady_ttft_per_token_p10_s": row["steady_ttft_per_token_p10_s"] * 32 / 4000})  # fmt: skip
    runs = frame(rows, kv_tokens=2499 * 16, kv_blocks=2499)
    assert runs.filter("saturated")["level"].to_list() == [10, 14]
    slos = [parse_slo("ttft_p95=180ms")]
    point = operating_points(runs, slos).row(0, named=True)
    found = bottleneck(runs, point, slos)
    assert (point["missed_at"], found.cause) == (10, "kv")
    assert "max_num_seqs" not in found.remedy


def test_a_table_of_other_programs_has_no_cause(summary):
    """Without telemetry, launch or facts."""
    rows = [{**served_row(summary, level, room=2), **dict.fromkeys(("kv_usage_peak", "waiting_standing", "preemptions"))} for level in LEVELS]  # fmt: skip
    runs = summary_frame(rows, {}, {}, Thresholds()).with_columns(
        pl.lit(None, dtype=pl.Float64).alias(name) for name in ("steady_queued_share", "steady_kv_usage", "steady_running")
    )
    assert runs["saturated"].to_list() == [None] * len(LEVELS)
    assert bottleneck(runs, operating_points(runs, TTFT).row(0, named=True), TTFT).cause == "unknown"
