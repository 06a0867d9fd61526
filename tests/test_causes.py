"""Why a curve carries no more: servers with one planted limit each, and what is said where the server does not tell."""

import sys

import polars as pl
import pytest

from bench.aggregate import summary_frame
from bench.analysis import operating_points
from bench.analysis.admission import admission, gains, no_room, pinned, request_bytes
from bench.analysis.bottleneck import between_tokens, bottleneck, prefill_or_decode, refusals
from bench.analysis.evidence import Bottleneck
from bench.analysis.server_load import ServerLoad, server_load
from bench.study import parse_slo
from bench.study.config import Thresholds
from bench.words.causes import remedy
from tests.planted import frame, rate_row, served_row, short_row, steady_row, summary_rows

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
    assert (found.cause, found.evidence, found.slots) == ("sequences", "held_by_slots", 4)


def test_slots_of_the_kv_cache_are_one_bound_and_not_two(summary):
    """All four are taken, and so the KV cache is full: more of them would still raise the rate, as on a server of blocks."""
    found, _ = cause(ladder(summary, room=4), TTFT, slots=4, of_cache=True)
    blocks, _ = cause(ladder(summary, room=4), TTFT, slots=4)
    assert (found.evidence, found.slots) == ("held_by_slots", 4)
    assert found.gain == pytest.approx(_gains_without_a_cache(summary), rel=1e-6)
    assert found.gain > blocks.gain > 1  # a cache of blocks that is half full is full at twice as many


def _gains_without_a_cache(summary):
    silent = [{**row, "steady_kv_usage": None} for row in ladder(summary, room=4)]
    there, alone = (server_load(runs, frame(silent)) for runs in (frame(silent[-1:]), frame(silent[:1])))
    return gains(there, alone, 4)["sequences"]


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
    assert (found.cause, found.evidence) == ("kv", "held_by_cache")
    assert (found.free_tokens, found.prompt_tokens) == pytest.approx((16, 32))


def test_prompts_wait_for_arithmetic(summary):
    found, _ = cause(ladder(summary, base_ms=4, each_ms=0.02, prompt_ms=100), TTFT)
    assert (found.evidence, found.prefill_share) == (
        "prefill_steps",
        pytest.approx(0.9, abs=0.005),
    )  # 12 a second, 100 ms each, would be more than there is


def test_steps_are_slow_with_many_requests(summary):
    found, point = cause(ladder(summary, base_ms=10, each_ms=4), TPOT)
    assert [miss["by"] for miss in point["missed"]] == ["tpot_p95_s"]
    assert (found.evidence, found.step_s) == ("slow_steps", pytest.approx(0.042))


def test_decoding_holds_back_answers_whose_whole_time_is_limited(summary):
    assert cause(ladder(summary, base_ms=10, each_ms=4), [parse_slo("e2e_p95=1s")])[0].cause == "decode"


def test_prompts_of_others_stand_between_tokens(summary):
    found, _ = cause(ladder(summary, base_ms=10, each_ms=0.02, prompt_ms=100), TPOT)
    assert (found.cause, found.evidence) == ("interference", "others_prompts")


def test_preemptions_are_the_kv_cache(summary):
    rows = [{**row, "preemptions": 80.0 if row["level"] >= 8 else 0.0} for row in ladder(summary, each_ms=4)]
    found, _ = cause(rows, TPOT)
    assert (found.evidence, found.per_request) == ("preemptions", 0.2)


def test_refusals_come_before_all_else(summary):
    rows = [served_row(summary, level, room=4, failed=200 if level >= 8 else 0) for level in LEVELS]
    found, point = cause(rows, TTFT, slots=4)
    assert (found.evidence, point["high"], found.failed, found.requests) == ("refused", 8, 200, 400)


def test_where_no_load_misses_there_is_no_limit(summary):
    found, _ = cause([served_row(summary, level) for level in (1, 2)], TTFT)
    assert (found.cause, found.evidence) == ("none", "highest_level")


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
    assert [miss["by"] for miss in point["missed"]] == ["growth"]
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
    assert (point["kind"], found.cause, remedy(found)) == ("found", "unknown", "")
    assert found.evidence in ("metrics_unread", "metrics_gaps", "no_gauges", "no_queue", "no_usage")


@pytest.mark.parametrize(
    ("withheld", "said"),
    [
        ({"steady_queued_share": None}, "no_queue"),
        ({"steady_kv_usage": None}, "no_usage"),
        ({"steady_queued_share": None, "steady_kv_usage": None}, "no_gauges"),
        ({"scrape_gap_max_s": 30.0, "steady_kv_usage": None}, "metrics_gaps"),
    ],
)
def test_what_is_missing_is_named(summary, withheld, said):
    rows = [{**row, "scrape_endpoint": "m", **withheld} for row in ladder(summary, room=4, each_ms=8)]
    assert cause(rows, TTFT, **FOUR_FIT, slots=4)[0].evidence == said


@pytest.mark.parametrize(
    ("slo", "loads", "found_cause", "said"),
    [
        ("ttft_p95=100ms", {"prompt_ms": 800, "steady_ttft_p95_s": 0.81}, "prefill", ("alone_prefill", "ttft", 0.81, 0.1)),
        ("tpot_p95=5ms", {"base_ms": 40, "steady_tpot_p95_s": 0.04}, "decode", ("alone_decode", "tpot", 0.04, 0.005)),
        (
            "e2e_p95=300ms",
            {"base_ms": 40, "steady_e2e_p95_s": 1.3, "steady_ttft_p50_s": 0.1},
            "decode",
            ("alone_decode", "e2e", 1.3, 0.3),
        ),
        (
            "e2e_p95=300ms",
            {"prompt_ms": 800, "steady_e2e_p95_s": 1.3, "steady_ttft_p50_s": 0.8},
            "prefill",
            ("alone_prefill", "e2e", 1.3, 0.3),
        ),
        (
            "e2e_p95=300ms",
            {"prompt_ms": 800, "steady_e2e_p95_s": 1.3, "steady_ttft_p50_s": None},
            "unknown",
            ("alone", "e2e", 1.3, 0.3),
        ),
    ],
)
def test_one_request_that_misses_alone_needs_no_telemetry(summary, slo, loads, found_cause, said):
    silent = {"steady_queued_share": None, "steady_kv_usage": None, "kv_usage_peak": None}
    found, point = cause([served_row(summary, level, **loads, **silent) for level in (1, 2)], [parse_slo(slo)])
    assert (point["missed_at"], found.cause) == (1, found_cause)
    assert (found.evidence, found.metric, found.value_s, found.limit_s) == said


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
    assert (found.evidence, found.needs_s) == ("never_steady", 90)
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
    assert "max_num_seqs" not in remedy(found)


def test_a_table_of_other_programs_has_no_cause(summary):
    """Without telemetry, launch or facts."""
    rows = [{**served_row(summary, level, room=2), **dict.fromkeys(("kv_usage_peak", "waiting_standing", "preemptions"))} for level in LEVELS]  # fmt: skip
    runs = summary_frame(rows, {}, {}, Thresholds()).with_columns(
        pl.lit(None, dtype=pl.Float64).alias(name) for name in ("steady_queued_share", "steady_kv_usage", "steady_running")
    )
    assert runs["saturated"].to_list() == [None] * len(LEVELS)
    assert bottleneck(runs, operating_points(runs, TTFT).row(0, named=True), TTFT).cause == "unknown"


# Each rule by itself

HERE = Bottleneck(level=8.0)


def server(**told):
    names = (
        "running",
        "running_high",
        "queued_share",
        "usage",
        "usage_queued",
        "preempted",
        "step_s",
        "gap_s",
        "service_s",
        "prefill_share",
        "rps",
    )
    return ServerLoad(**{"load": 8.0, **dict.fromkeys(names), **told})


def level(*rows, **columns):
    """Runs of one level, of which a server tells `columns`; `rows` are those that differ, one a run."""
    told = {"level": 8.0, "saturated": False, **columns}
    return summary_rows([{"run": f"r{i}", **told, **row} for i, row in enumerate(rows or ({},))])


@pytest.mark.parametrize(
    ("alone", "share", "sequences", "kv"),
    [
        # Service takes 1.1 s with 1 and 2 s with 4 that run: 0.8 + 0.3 n, and so 2 ÷ 1.2, and 4 × 2 ÷ (0.8 + 16 × 0.3).
        ((1, 1.1), 0.2, 2 / 1.2, 8 / 5.6),
        ((1, 1.1), 0.8, 1 / 0.8, 4 / 3.4),  # prompts alone allow no more
        ((1, 0.1), 0.2, 2 / (4 * 1.9 / 3), 8 / (16 * 1.9 / 3)),  # nothing of it is fixed
        ((1, 3.0), 0.2, 5, 2.5),  # it falls: prompts are the bound
        ((3.3, 1.79), 0.2, 2 / 1.2, 8 / 5.6),
        ((3.4, 1.82), 0.2, 5, 2.5),  # less than a fifth apart: no line
        ((None, 1.1), 0.2, 5, 2.5),
        ((1, None), 0.2, 5, 2.5),
        ((1, 3.0), 0.0, 1000, 4),
    ],
)
def test_what_more_room_would_bring_by_hand(alone, share, sequences, kv):
    found = gains(server(running=4.0, service_s=2.0, prefill_share=share), server(running=alone[0], service_s=alone[1]))
    assert found == pytest.approx({"prefill": 1 / (1 - share / 2), "decode": 2 / (1 + share), "sequences": sequences, "kv": kv})


@pytest.mark.parametrize(
    ("usage", "slots", "sequences", "kv"),
    [
        (None, None, 2 / 1.2, 8 / 5.6),
        (0.5, None, 2 / 1.6, 8 / 5.6),  # the KV cache holds eight: 8 ÷ (0.8 + 8 × 0.3) against 4 ÷ 2
        (1.0, None, 1.0, 8 / 5.6),  # it holds no more
        (None, 8, 2 / 1.2, 2 / 1.6),  # room for sixteen, and eight may run
        (None, 4, 2 / 1.2, 1.0),
    ],
)
def test_of_two_bounds_lifting_one_leaves_the_other(usage, slots, sequences, kv):
    there, alone = server(running=4.0, service_s=2.0, prefill_share=0.2, usage=usage), server(running=1.0, service_s=1.1)
    found = gains(there, alone, slots)
    assert (found["sequences"], found["kv"]) == pytest.approx((sequences, kv))


def test_what_bounds_it_soon_after():
    near = {room: "engine's speed" in remedy(Bottleneck(evidence="held_by_slots", room=room)) for room in (1.0, 1.54, 1.9, 2.0)}
    assert near == {1.0: False, 1.54: True, 1.9: True, 2.0: False}


@pytest.mark.parametrize(
    ("told", "bound"),
    [
        ({"running_high": 10.7}, True),  # within 2 % and half a request
        ({"running_high": 10.8}, False),
        ({"running_high": 10.0, "prefill_share": 0.29}, True),
        ({"running_high": 10.0, "prefill_share": 0.31}, False),
    ],
)
def test_requests_that_run_are_pinned_by_a_bound_that_is_not_known(told, bound):
    assert pinned(server(running=10.0, **told)) is bound


@pytest.mark.parametrize(
    ("columns", "told", "left"),
    [
        ({}, {"usage_queued": 0.86}, (140, 100)),  # less than 1.5 prompts
        ({}, {"usage_queued": 0.84}, None),
        ({"engines": 2}, {"usage_queued": 0.72}, (140, 100)),
        ({}, {"usage_queued": 0.5, "preempted": 0.03}, (None, None)),
        ({}, {"usage_queued": 0.5, "preempted": 0.02}, None),
        ({"saturated": True}, {}, (None, None)),
        ({"saturated": None}, {}, None),
        ({"prompt_tokens": None}, {"usage_queued": 0.99}, None),
    ],
)
def test_when_the_kv_cache_has_no_room(columns, told, left):
    runs = level(**{"kv_tokens": 1000, "prompt_tokens": 100, "saturated": False, **columns})
    found = no_room(runs.cast({"saturated": pl.Boolean}), server(**told))
    assert found == (left and (left if left[0] is None else pytest.approx(left)))


@pytest.mark.parametrize(("share", "found"), [(None, "unknown"), (0.44, "decode"), (0.45, "prefill")])
def test_prompts_or_steps_by_their_share_of_the_time(share, found):
    limit = prefill_or_decode(server(prefill_share=share), HERE)
    assert (limit.cause, limit.prefill_share) == (found, share)


@pytest.mark.parametrize(
    ("told", "found", "number"),
    [
        ({"gap_s": 0.0139}, "slow_steps", 0.0039),
        ({"gap_s": 0.0141}, "others_prompts", 0.0041),
        ({"gap_s": 0.01992, "step_s": 0.00996, "prefill_share": 0.5}, "others_prompts", 0.00996),
        ({"gap_s": 0.0141, "prefill_share": 0.1}, "slow_steps", 0.00141),
        ({"gap_s": 0.0141, "preempted": 0.02}, "others_prompts", 0.0041),
        ({"gap_s": 0.0141, "preempted": 0.03}, "preemptions", 0.03),
        ({"gap_s": None}, "unknown_step", None),
        ({"gap_s": 0.0141, "prefill_share": None}, "unknown_step", None),
        ({"gap_s": 0.0141, "step_s": None}, "unknown_step", None),
    ],
)
def test_between_tokens_prompts_count_from_two_fifths_of_a_step(told, found, number):
    gap = told["gap_s"] or 0.01
    there = server(**{"step_s": 0.01, "prefill_share": 1 - 0.01 / gap, **told})
    limit = between_tokens(level(), there, there, HERE)
    assert (limit.evidence, limit.per_request or limit.others_s) == (found, number and pytest.approx(number))


@pytest.mark.parametrize(
    ("alone_ms", "gap_ms", "found"),
    [
        # Steps of 10 ms at twice the load: those that do not grow leave all growth to others' prompts, however little they add.
        (10.0, 12.0, "interference"),
        (5.0, 12.0, "decode"),  # a line through nothing: without others a fifth more load, at half the steps 12 / 7
        (5.0, 22.0, "interference"),  # 2.2 times the load against 22 / 17
        (8.0, 13.0, "decode"),  # 6 ms and 4: (13 − 6) / 4 without others, (13 − 3) / 5 with steps of half the time
        (8.0, 16.0, "interference"),  # 10 / 4 against 13 / 8
    ],
)
def test_of_several_loads_what_grows_with_the_load_decides(alone_ms, gap_ms, found):
    there = server(step_s=0.01, gap_s=gap_ms / 1000, prefill_share=1 - 10 / gap_ms, rps=4.0)
    alone = server(step_s=alone_ms / 1000, rps=2.0)
    assert between_tokens(level(), there, alone, HERE).cause == found


STEPS = {"steady_tpot_mean_s": 0.02, "steady_itl_p10_s": 0.015, "steady_requests_per_s": 2.0, "prompt_tokens": 100,
         "steady_ttft_per_token_p10_s": 0.001, "output_tokens": 51, "requests": 400, "preemptions": 8.0}  # fmt: skip


@pytest.mark.parametrize(
    ("told", "share"),
    [
        # A prompt takes 100 × 1 − 15 ms alone; two a second 17 %, and the gaps are longer than a short one by a fourth.
        ({}, 0.17),
        ({"steady_requests_per_s": 4.0}, 0.25),
        ({"steady_prefill_share": 0.2}, 0.2),
        ({"steady_prefill_share": 0.1}, 0.17),
        ({"steady_requests_per_s": 99.0, "steady_itl_p10_s": 0.0005}, 0.95),
        ({"steady_itl_p10_s": 0.03}, 0.0),
        ({"steady_ttft_per_token_p10_s": None}, None),
        ({"steady_ttft_per_token_p10_s": None, "steady_prefill_share": 0.3}, 0.3),
        ({"steady_ttft_per_token_p10_s": 0.0001}, 0.0),
        ({"engines": 2, "steady_prefill_share": 0.3}, None),
    ],
)
def test_the_share_of_prompts_by_hand(told, share):
    runs = level(**{**STEPS, **told})
    found = server_load(runs, runs)
    assert found.prefill_share == (None if share is None else pytest.approx(share))


def test_a_server_is_the_mean_of_its_runs():
    """Gaps of 20 ms, 17 % of them prompts: steps of 16.6 ms; 50 gaps and a prompt of 85 ms are 1.085 s."""
    both = {"steady_running": 3.0, "steady_running_high": 5.0, "steady_queued_share": 0.2, "steady_kv_usage_queued": 0.4}
    runs = level(
        {**both, "preemptions": 4.0}, {name: value + 0.2 for name, value in both.items()} | {"preemptions": 12.0}, **STEPS
    )
    found = server_load(runs, runs)
    told = {"load": 8, "running": 3.1, "running_high": 5.1, "queued_share": 0.3, "usage_queued": 0.5, "preempted": 8 / 400,
            "step_s": 0.0166, "gap_s": 0.02, "service_s": 1.085, "prefill_share": 0.17, "rps": 2}  # fmt: skip
    assert {name: getattr(found, name) for name in told} == pytest.approx(told)
    silent = server_load(level(), level())
    assert (silent.preempted, silent.step_s, silent.service_s) == (None, None, None)


# Service takes 0.5 + 0.5 n seconds: more sequences bring 2.5 ÷ 2 at 4 that run, four times the memory 10 ÷ 8.5.
ALONE = {"running": 1.0, "service_s": 1.0}
FOUR = {"running": 4.0, "running_high": 4.0, "service_s": 2.5, "queued_share": 0.5, "prefill_share": 0.5}


@pytest.mark.parametrize(
    ("columns", "told", "bound", "held", "numbers"),
    [
        ({"max_num_seqs": 4}, {}, None, "held_by_slots", {"slots": 4, "waiting": 3, "gain": 1.25}),
        ({"max_num_seqs": 4}, {"service_s": 2.1}, "held_by_slots", None, {"slots": 4, "waiting": 3}),
        ({"max_num_seqs": 4, "steady_waiting": 0.7}, {"service_s": 2.1}, "held_by_slots", None, {"waiting": 1}),
        ({"max_num_seqs": 2, "engines": 2}, {"service_s": 2.1}, "held_by_slots", None, {"slots": 4}),
        ({"max_num_seqs": 4}, {"service_s": 2.1, "running_high": 3.5}, "held_by_slots", None, {"slots": 4}),
        ({"max_num_seqs": 4}, {"service_s": 2.1, "running_high": 3.4}, "full_steps", None, {}),
        ({"max_num_seqs": 64}, {"queued_share": 0.5}, "full_steps", None, {"waiting": 3}),
        ({"max_num_seqs": 64}, {"queued_share": 0.4}, None, None, {}),
        ({"max_num_seqs": 4}, {"service_s": 2.1, "queued_share": 0.1}, "held_by_slots", None, {}),
        ({"max_num_seqs": 4}, {"service_s": 2.1, "queued_share": 0.09}, None, None, {}),
        ({"max_num_seqs": 4}, {"service_s": 2.1, "queued_share": None}, None, None, {}),
        ({"max_num_seqs": 4}, {"service_s": 2.1, "running": None}, None, None, {}),
        ({}, {"service_s": 2.1, "prefill_share": 0.2}, None, "pinned", {"running": 4.0, "waiting": 3}),
        ({}, {"service_s": 1.1, "prefill_share": 0.2}, "pinned", None, {"running": 4.0, "waiting": 3}),
        ({}, {"service_s": 1.1, "prefill_share": 0.31}, None, None, {}),
        ({"saturated": True}, {}, None, "held_by_cache", {"waiting": 3, "gain": 10 / 8.5}),
        ({"saturated": True}, {"service_s": 1.9}, "held_by_cache", None, {"waiting": 3}),
        ({"saturated": True, "max_num_seqs": 4}, {"service_s": 1.9}, "held_by_slots", None, {}),
    ],
)
def test_what_holds_requests_back_that_wait(columns, told, bound, held, numbers):
    runs = level(**{"steady_waiting": 2.4, **columns})
    found = admission(runs, server(**{**FOUR, **told}), server(**ALONE))
    assert tuple(each and each.evidence for each in found) == (bound, held)
    for each in filter(None, found):
        assert {name: getattr(each, name) for name in numbers} == pytest.approx(numbers)
        slow = prefill_or_decode(server(prefill_share=0.2), HERE, each)
        assert (slow.evidence, slow.level, slow.held, slow.held_level, slow.gain) == (
            "decode_steps",
            8,
            each.evidence,
            8,
            each.gain,
        )


def test_a_request_more_takes_its_tokens_of_kv_memory():
    runs = level(kv_bytes_per_token=2**20, prompt_tokens=3, output_tokens=2)
    assert (request_bytes(runs), request_bytes(level())) == (5 * 2**20, None)


@pytest.mark.parametrize(("pushed", "found"), [(11, "sequences"), (12, "prefill")])
def test_what_runs_out_is_looked_for_up_to_two_fifths_beyond_the_miss(summary, pushed, found):
    """At 8 requests wait now and then. At 11 all four sequences run; as far off as 12 says nothing of 8."""
    quiet = {"steady_queued_share": 0.1, "steady_running": 3.0, "steady_running_high": 3.0, "steady_prefill_share": 0.46}
    full = {**quiet, "steady_queued_share": 1.0, "steady_running": 4.0, "steady_running_high": 4.0, "steady_waiting": 7.0,
            "steady_tpot_mean_s": 0.02, "steady_prefill_share": 0.0}  # fmt: skip
    tells = {
        "steady_kv_usage": 0.2,
        "steady_itl_p10_s": 0.02,
        "steady_ttft_per_token_p10_s": 0.03 / 32,
        "steady_tpot_mean_s": 0.02,
    }
    rows = [steady_row(summary, n, ttft=0.1 if n < 8 else 9.0, **{**tells, **more}) for n, more in ((1, quiet | {"steady_running": 1.0}), (8, quiet), (pushed, full))]  # fmt: skip
    assert cause(rows, TTFT, slots=4)[0].cause == found


def test_a_range_whose_end_is_not_steady_has_no_cause(summary):
    found, _ = cause([served_row(summary, 1), short_row(served_row(summary, 2), 90.0)], TTFT)
    assert (found.evidence, found.level, found.unsettled, found.runs) == ("steady_meets", 2, "short", ())
    found, _ = cause([served_row(summary, level) for level in (1, 2)], TTFT)
    assert (found.evidence, found.level, found.runs) == ("highest_level", 2, ("r2",))


def test_failures_are_counted_over_the_runs_of_the_level(summary):
    rows = [
        {**served_row(summary, 8, failed=failed), "repeat": i, "run": f"r{i}", "steady_in_flight": 6.0 + i}
        for i, failed in enumerate((100, 50))
    ]
    found, _ = cause([served_row(summary, 1), *rows], TTFT)
    assert (found.unit, found.failed, found.requests, found.in_flight) == ("requests in flight", 150, 800, 6.5)
    # Of a table without windows the whole runs count.
    runs = level({"failed": 3, "requests": 10}, {"failed": 4, "requests": 11}, steady_failed=1, steady_requests=None)
    found = refusals(runs, {"missed": [{"by": "failed"}]}, [], HERE)
    assert (found.failed, found.requests, found.in_flight) == (7, 21, None)
    assert refusals(runs, {"missed": [{"by": "ttft_p99_s"}]}, [], HERE) is None


@pytest.mark.parametrize(("failed", "late", "found"), [(3, 2, "refusals"), (2, 3, "decode")])
def test_an_slo_that_mostly_failed_requests_miss_is_missed_by_refusals(summary, failed, late, found):
    """Of 100 requests 5 may miss; fewer fail than may by themselves, as a fifth is allowed to."""
    rows = [served_row(summary, 1, requests=100), served_row(summary, 8, requests=100, failed=4 * failed, slow=4 * late)]
    runs = frame(rows)
    point = operating_points(runs, TTFT, failed_share=0.2).row(0, named=True)
    assert bottleneck(runs, point, TTFT).cause == found


@pytest.mark.parametrize(
    ("there", "found"),
    [
        ({"waiting_standing": 6.0, "running_peak": 4.0}, "sequences"),
        ({"waiting_standing": 6.0, "running_peak": 3.0}, "prefill"),
        ({"waiting_standing": 0.0, "running_peak": 4.0}, "prefill"),
        ({"waiting_standing": 0.0, "ttft_p95_s": 0.4}, "unknown"),
        ({"waiting_standing": 0.0, "ttft_p95_s": 0.6}, "prefill"),
        ({"waiting_standing": 6.0, "running_peak": 4.0, "kv_usage_peak": 1.0}, "kv"),
    ],
)
def test_a_burst_that_waits_for_slots(summary, there, found):
    limit, _ = cause([burst(summary, 2, 0.1), {**burst(summary, 10, 9.0), **there}], TTFT, slots=4)
    assert limit.cause == found


@pytest.mark.parametrize(
    ("level", "there", "found"),
    [
        (10, {"waiting_standing": 6.0, "running_peak": 4.0}, "sequences"),
        (4, {"waiting_standing": 0.0, "running_peak": 4.0}, "prefill"),  # each has a slot, and none waits for one
    ],
)
def test_a_burst_that_takes_all_slots_of_a_cache_is_not_told_to_find_more_memory(summary, level, there, found):
    rows = [burst(summary, 2, 0.1), {**burst(summary, level, 9.0), **there}]
    limit, _ = cause(rows, TTFT, slots=4, of_cache=True)
    assert frame(rows, slots=4, of_cache=True)["saturated"].to_list()[1]
    assert (limit.cause, "memory" in remedy(limit)) == (found, False)


def test_a_latency_of_which_nobody_knows_what_it_consists_of_has_no_cause(summary, monkeypatch):
    """It was taken for E2E: its cause would be decoding."""
    slos = [parse_slo("e2e_p95=500ms")]
    known, _ = cause(ladder(summary, room=4), slos, slots=4)
    assert known.cause != "unknown"
    monkeypatch.setattr(sys.modules["bench.analysis.bottleneck"], "_EXPLAINED", {"ttft", "tpot"})
    found, _ = cause(ladder(summary, room=4), slos, slots=4)
    assert (found.evidence, found.metric) == ("unknown_latency", "e2e")
