"""Why a curve carries no more: servers with one planted limit each, and what is said where the server does not tell."""

import polars as pl
import pytest

from bench.findings.capacity.points import operating_points
from bench.findings.causes import Bottleneck, bottleneck, refusals, remedy, why
from bench.parse.table import summary_frame
from bench.predict.calibration import CurveRelief, Gain, Relief
from bench.study.config import Thresholds
from bench.study.slo import parse_slo
from tests.support.capacity import again
from tests.support.planted import frame, rate_row, served_row, short_row, steady_row, summary_rows

TTFT = [parse_slo("ttft_p95=500ms")]
TPOT = [parse_slo("tpot_p95=30ms")]
LEVELS = (1, 2, 4, 8, 16, 32)
# A prompt is of 32 tokens: four requests of 64 hold 256 of 272, and the next prompt lacks half of its room.
FOUR_FIT = {"kv_tokens": 272, "kv_blocks": 17}


def cause(rows, slos, relief=None, **facts):
    runs = frame(rows, **facts)
    point = operating_points(runs, slos).row(0, named=True)
    known = relief and CurveRelief(deployment="a", workload="w", digest="", relief=relief)
    return bottleneck(runs, point, slos, known), point


def ladder(summary, **server):
    return [served_row(summary, level, **server) for level in LEVELS]


def test_what_each_limit_shows(summary):
    refused = [served_row(summary, level, room=4, failed=200 if level >= 8 else 0) for level in LEVELS]
    held = [{**row, "steady_kv_usage_queued": 256 / 272} for row in ladder(summary, room=4)]
    preempting = [{**row, "preemptions": 80.0 if row["level"] >= 8 else 0.0} for row in ladder(summary, base_ms=27)]
    for rows, slos, facts, cause_, told in (
        (ladder(summary, room=4), TTFT, {"slots": 4}, "sequences", {"evidence": "slots", "slots": 4}),
        # All slots of the KV cache are taken, and so it is full: one bound and not two.
        (ladder(summary, room=4), TTFT, {"slots": 4, "of_cache": True}, "sequences", {"evidence": "slots", "slots": 4}),
        # More of the one would help only with more of the other.
        (held, TTFT, {**FOUR_FIT, "slots": 4}, "sequences", {"evidence": "slots_and_cache", "slots": 4}),
        (held, TTFT, {**FOUR_FIT, "slots": 64}, "kv",
         {"evidence": "full_cache", "free_tokens": pytest.approx(16), "prompt_tokens": pytest.approx(32)}),
        (preempting, TPOT, {}, "kv", {"evidence": "full_cache", "per_request": 0.2}),
        # Refusals come before all else.
        (refused, TTFT, {"slots": 4}, "refusals", {"evidence": "refused", "failed": 200, "requests": 400}),
        ([served_row(summary, level) for level in (1, 2)], TTFT, {}, "none", {"evidence": "highest_level"}),
    ):  # fmt: skip
        found, _ = cause(rows, slos, **facts)
        assert found.cause == cause_, told
        assert {name: getattr(found, name) for name in told} == told
    # Steps of 10 ms + 4 ms a request: the sixth brings 15 % more, and 24 would bring twice as much, as steps in half the time do.
    for rows, doubt, said in (
        (ladder(summary, room=6, each_ms=4), "flat", "requests/s hardly rise with the requests that run"),
        (ladder(summary, room=6, each_ms=0.1), None, ""),
        (
            ladder(summary, room=6, each_ms=0.1)[3:],
            "untested",
            "no lower load, of at most 4 running requests, shows whether requests/s rise with the requests that run",
        ),
    ):
        found, _ = cause(rows, TTFT, slots=6)
        assert (found.evidence, found.doubt, found.cause) == ("slots", doubt, "unknown" if doubt else "sequences"), doubt
        assert "all 6 sequences of max_num_seqs run" in why(found) and said in why(found), doubt
        assert remedy(found).partition(" ")[0] == {"flat": "", "untested": "measure", None: "a"}[doubt]
    # A server that shows preemptions may not show what runs.
    hidden = [{**row, "steady_running": None} for row in preempting]
    assert (cause(hidden, TPOT)[0].evidence, cause(hidden, TPOT)[0].doubt) == ("full_cache", "untested")
    # An overload has the cause of what it waits for. No latency is missed yet; requests wait for one of four slots.
    quiet = {"steady_running": 1.0, "steady_running_high": 2.0, "steady_queued_share": 0.0, "steady_kv_usage": 0.2}
    busy = {"steady_running": 4.0, "steady_running_high": 4.0, "steady_queued_share": 0.9, "steady_waiting": 6.0,
            "steady_kv_usage": 0.4, "steady_kv_usage_queued": 0.4}  # fmt: skip
    rows = [rate_row(summary, 3, **quiet), rate_row(summary, 16, growth=0.3, growth_error=0.03, rps=11.0, **busy)]
    found, point = cause(rows, TTFT, slots=4)
    assert ([miss["by"] for miss in point["missed"]], found.cause) == (["growth"], "sequences")


GAINS = (Gain("decode", 1.8, 1.7, 2.0), Gain("prefill", 1.75, 1.6, 1.9), Gain("kv", 1.1, 1.02, 1.2),
         Gain("sequences", 1.0, 1.0, 1.02))  # fmt: skip
SILENT = dict.fromkeys(("steady_queued_share", "steady_kv_usage", "kv_usage_peak"))  # the server does not tell


def test_where_replays_know_the_cause_is_what_brings_most(summary):
    """All slots run, and more of them would bring nothing."""

    def relieved(*gains, tied):
        return cause(ladder(summary, room=4), TTFT, Relief(gains, tied=tied), slots=4)

    found, point = relieved(*GAINS, tied=1)
    assert (found.cause, found.evidence, found.level, found.slots) == ("decode", "relieved", point["missed_at"], 4)
    assert why(found) == "at 16 requests in flight, steps take too long" and why(found, 16.0) == "steps take too long"
    assert remedy(found).startswith("more memory bandwidth")
    # What is not surely apart is a cause alike.
    found, _ = relieved(*GAINS, tied=2)
    assert why(found).endswith("either steps take too long or prompts take too long to compute")
    assert "more memory bandwidth" in remedy(found) and "more compute" in remedy(found)
    # A gain beyond what is replayed is so much at least; without any, what the server shows is the cause.
    found, _ = relieved(Gain("sequences", 7.2, 5.0, 9.9, more=True), GAINS[2], tied=1)
    assert "about 7.2 times the requests/s (at least 5.0)" in remedy(found)
    assert relieved(Gain("decode", 1.01, 1.0, 1.03), tied=0)[0].evidence == "slots"
    # Refusals and a request alone need no replay.
    rows = [served_row(summary, level, room=4, failed=200 if level >= 8 else 0) for level in LEVELS]
    assert cause(rows, TTFT, Relief(GAINS, tied=1), slots=4)[0].evidence == "refused"
    slow = [served_row(summary, level, prompt_ms=800, steady_ttft_p95_s=0.81) for level in (1, 2)]
    assert cause(slow, [parse_slo("ttft_p95=100ms")], Relief(GAINS, tied=1))[0].evidence == "alone_prefill"
    # A reader of the figure sees a full cache, a queue and preemptions, and was told of steps alone.
    for there, said in (
        ({"preemptions": 128.0}, "steps take too long; the KV cache is full too: 0.32 preemptions a request"),
        ({"steady_kv_usage_queued": 256 / 272}, "steps take too long; the KV cache is full too: 12 requests wait on average"),
        ({}, "steps take too long"),
    ):  # fmt: skip
        rows = [{**row, **there} for row in ladder(summary, room=4)]
        found, _ = cause(rows, TTFT, Relief(GAINS, tied=1), **FOUR_FIT, slots=64)
        assert why(found) == f"at 16 requests in flight, {said}", there
        assert found.cause == "decode", there
        memory, _ = cause(rows, TTFT, Relief((GAINS[2], *GAINS[:2]), tied=1), **FOUR_FIT, slots=64)
        assert (memory.cause, "too:" in why(memory)) == ("kv", False), there


def test_without_the_servers_gauges_no_cause_is_claimed(summary):
    nothing = {"steady_queued_share": None, "steady_kv_usage": None}
    for withheld, said in (
        ({"steady_queued_share": None}, "no_gauges"),
        ({"steady_kv_usage": None}, "no_gauges"),
        (nothing, "no_gauges"),
        ({**nothing, "steady_running": None, "kv_usage_peak": None}, "no_gauges"),
        ({"scrape_gap_max_s": 30.0}, "no_gauges"),  # the telemetry cannot be trusted
        ({"scrape_gap_max_s": 30.0, "steady_kv_usage": None}, "no_gauges"),
        ({**nothing, "scrape_endpoint": None}, "no_gauges"),
    ):
        for slos in (TTFT, TPOT):
            rows = [{**row, "scrape_endpoint": "m", **withheld} for row in ladder(summary, room=4, each_ms=8)]
            found, point = cause(rows, slos, **FOUR_FIT, slots=4)
            assert (point["kind"], found.cause, remedy(found), found.evidence) == ("found", "unknown", "", said), said
    # Without telemetry, launch or facts.
    bare = dict.fromkeys(("kv_usage_peak", "waiting_standing", "preemptions"))
    rows = [{**served_row(summary, level, room=2), **bare} for level in LEVELS]
    gauges = ("steady_queued_share", "steady_kv_usage", "steady_running")
    runs = summary_frame(rows, {}, {}, Thresholds()).with_columns(pl.lit(None, dtype=pl.Float64).alias(name) for name in gauges)
    assert runs["saturated"].to_list() == [None] * len(LEVELS)
    assert bottleneck(runs, operating_points(runs, TTFT).row(0, named=True), TTFT).cause == "unknown"


def test_without_a_verdict_or_a_model_there_is_no_cause(summary):
    """Prompts and steps are told apart by a model alone."""
    no_ttft = [served_row(summary, level) | {"judged": steady_row(summary, level, ttft=None)["judged"]} for level in LEVELS]
    for rows, slos, evidence in (
        ([{**row, "wrong_output_tokens": 1} for row in ladder(summary)], TTFT, None),
        (no_ttft, TTFT, None),
        ([short_row(row, 90.0) for row in ladder(summary)], TTFT, "never_steady"),
        (ladder(summary, base_ms=4, each_ms=0.02, prompt_ms=100), TTFT, "nothing_full"),
        (ladder(summary, base_ms=10, each_ms=4), TPOT, "nothing_full"),
        (ladder(summary, base_ms=10, each_ms=0.02, prompt_ms=100), TPOT, "nothing_full"),
    ):
        found, _ = cause(rows, slos)
        assert found.cause == "unknown" and evidence in (None, found.evidence), rows[0]
        assert found.needs_s == (90 if evidence == "never_steady" else None)
    # Why there is no model is said.
    runs = frame(ladder(summary, base_ms=4, each_ms=0.02, prompt_ms=100))
    point = operating_points(runs, TTFT).row(0, named=True)
    for known, said in (
        ({"why_not": "its limits are not known"}, "and the limit was not replayed (its limits are not known)"),
        ({"relief": Relief(GAINS[3:], 0)}, "and in replays no single resource helps"),
    ):
        relief = CurveRelief(deployment="a", workload="w", digest="", **known)
        assert why(bottleneck(runs, point, TTFT, relief)).endswith(said)


def test_one_request_that_misses_alone_needs_no_telemetry(summary):
    slow, long = {"base_ms": 40, "steady_e2e_p95_s": 1.3}, {"prompt_ms": 800, "steady_e2e_p95_s": 1.3}
    for slo, loads, found_cause, said in (
        ("ttft_p95=100ms", {"prompt_ms": 800, "steady_ttft_p95_s": 0.81}, "prefill", ("alone_prefill", "ttft", 0.81, 0.1)),
        ("tpot_p95=5ms", {"base_ms": 40, "steady_tpot_p95_s": 0.04}, "decode", ("alone_decode", "tpot", 0.04, 0.005)),
        ("e2e_p95=300ms", {**slow, "steady_ttft_p50_s": 0.1}, "decode", ("alone_decode", "e2e", 1.3, 0.3)),
        ("e2e_p95=300ms", {**long, "steady_ttft_p50_s": 0.8}, "prefill", ("alone_prefill", "e2e", 1.3, 0.3)),
        ("e2e_p95=300ms", {**long, "steady_ttft_p50_s": None}, "unknown", ("alone", "e2e", 1.3, 0.3)),
    ):
        found, point = cause([served_row(summary, level, **loads, **SILENT) for level in (1, 2)], [parse_slo(slo)])
        assert (point["missed_at"], found.cause) == (1, found_cause), (slo, loads)
        assert (found.evidence, found.metric, found.value_s, found.limit_s) == said, (slo, loads)
    # Nor do failures.
    rows = [served_row(summary, level, failed=100 if level >= 8 else 0, **SILENT) for level in LEVELS]
    assert cause(rows, TTFT)[0].cause == "refusals"


def burst(summary, level, ttft, **more):
    none = dict.fromkeys(("steady", "steady_from_s", "steady_judged_until_s", "steady_requests_per_s", "steady_queued_share"))
    return steady_row(summary, level, requests=level, ttft=ttft, ttft_p95_s=ttft, **{"arrival": "burst", **none, **more})


TENTH = {"prompt_tokens": 4000, "prompt_tokens_p90": 4000, "output_tokens": 100, "kv_usage_peak": 0.926}


def test_why_a_burst_misses(summary):
    # 2,499 blocks of 16: nine requests of 4,000 + 100 tokens hold 92.6 %, and the tenth waits for ever.
    cache, four = {"kv_tokens": 2499 * 16, "kv_blocks": 2499}, {"slots": 4}
    for facts, there, found in (
        # All ten are late, though nine do not wait: the cache delays the tenth alone.
        (cache, {**TENTH, "kv_usage_queued": 0.926, "waiting_standing": 1.0, "running_peak": 9.0}, "prefill"),
        (cache, {**TENTH, "kv_usage_queued": 0.926, "waiting_standing": 6.0, "running_peak": 4.0}, "kv"),
        (cache, {"waiting_standing": 2.0, "running_peak": 8.0, "kv_usage_queued": 0.3, "prompt_tokens_p90": 32}, "prefill"),
        (cache, {"waiting_standing": 0.0}, "prefill"),
        (cache, {"waiting_standing": None}, "unknown"),
        (cache, {"waiting_standing": 1.0, "kv_usage_peak": None}, "unknown"),
        (cache, {"waiting_standing": None, "kv_usage_peak": None, "preemptions": None}, "unknown"),
        (cache, {"failed": 5}, "refusals"),
        *((four, {"waiting_standing": 6.0, "running_peak": running}, "sequences") for running in (4.0, 5.0)),
        (four, {"waiting_standing": 6.0, "running_peak": 3.0}, "prefill"),
        (four, {"waiting_standing": 0.0, "running_peak": 4.0}, "prefill"),
        (four, {"waiting_standing": 6.0, "running_peak": 4.0, "kv_usage_peak": 1.0}, "kv"),
    ):
        missing = {**burst(summary, 10, 9.0, failed=there.get("failed", 0)), **there}
        limit, point = cause([burst(summary, 8, 0.1), missing], TTFT, **facts)
        assert (point["basis"], point["c_max"], point["missed_at"]) == ("burst", 8, 10), there
        assert limit.cause == found, (facts, there)
    # Slow answers whose prompts were in time: a burst does not show why.
    slow = {**burst(summary, 10, 0.1, tpot=0.2), "waiting_standing": 0.0}
    assert cause([burst(summary, 8, 0.1), slow], TPOT, **cache)[0].evidence == "slow_answers"
    preempted = frame([burst(summary, 8, 0.1), {**slow, "preemptions": 2.0}], **cache)
    assert bottleneck(preempted, operating_points(preempted, TPOT).row(0, named=True), TPOT).cause == "kv"
    # A burst that takes all slots of a cache is not told to find more memory.
    for level, there, found in (
        (10, {"waiting_standing": 6.0, "running_peak": 4.0}, "sequences"),
        (4, {"waiting_standing": 0.0, "running_peak": 4.0}, "prefill"),  # each has a slot, and none waits for one
    ):
        rows = [burst(summary, 2, 0.1), {**burst(summary, level, 9.0), **there}]
        limit, _ = cause(rows, TTFT, slots=4, of_cache=True)
        assert frame(rows, slots=4, of_cache=True)["saturated"].to_list()[1], level
        assert (limit.cause, "memory" in remedy(limit)) == (found, False), level


HERE = Bottleneck(level=8.0)


def level(*rows, **columns):
    """Runs of one level, of which a server tells `columns`; `rows` are those that differ, one a run."""
    told = {"level": 8.0, "saturated": False, **columns}
    return summary_rows([{"run": f"r{i}", **told, **row} for i, row in enumerate(rows or ({},))])


FULL = {"steady_queued_share": 0.9, "steady_running": 3.9, "steady_running_high": 4.0, "steady_waiting": 2.4, "max_num_seqs": None,
        "engines": 1, "kv_slots": None, "kv_tokens": 1000, "prompt_tokens": 100, "output_tokens": 50, "steady_kv_usage_queued": 0.2,
        "steady_kv_usage": 0.2, "kv_bytes_per_token": 2**20}  # fmt: skip


def test_what_is_full_while_requests_wait(summary):
    for columns, found in (
        ({}, ("pinned", {"running": 4.0, "waiting": 3})),
        ({"steady_running": 3.3}, ("queued", {"waiting": 3})),
        ({"steady_queued_share": 0.05}, ("nothing_full", {})),
        ({"max_num_seqs": 4}, ("slots", {"slots": 4, "running": 4.0})),
        ({"max_num_seqs": 2, "engines": 2}, ("slots", {"slots": 4})),
        ({"max_num_seqs": 5}, ("queued", {"slots": None})),
        ({"steady_kv_usage_queued": 0.9}, ("full_cache", {"free_tokens": pytest.approx(100), "prompt_tokens": 100, "request_bytes": 150 * 2**20})),
        ({"steady_kv_usage_queued": 0.84}, ("pinned", {})),  # room for a prompt and a half
        ({"steady_kv_usage_queued": 0.84, "saturated": True}, ("full_cache", {"free_tokens": None})),
        ({"steady_kv_usage_queued": 0.9, "kv_slots": True}, ("pinned", {})),
        ({"preemptions": 20.0}, ("full_cache", {"per_request": 0.05})),
        ({"preemptions": 20.0, "steady_queued_share": 0.0}, ("full_cache", {})),
        ({"preemptions": 8.0}, ("pinned", {})),  # no more than 0.02 a request
    ):  # fmt: skip
        rows = [steady_row(summary, 1), steady_row(summary, 8, ttft=9.0)]
        runs = frame(rows)
        told = {**FULL, "requests": 400, "preemptions": 0.0, "saturated": False, **columns}
        kinds = {"kv_slots": pl.Boolean, "max_num_seqs": pl.Int64}
        runs = runs.with_columns(pl.lit(value, dtype=kinds.get(name)).alias(name) for name, value in told.items())
        limit = bottleneck(runs, operating_points(runs, TTFT).row(0, named=True), TTFT)
        assert limit.evidence == found[0], columns
        assert {name: getattr(limit, name) for name in found[1]} == found[1], columns
    # At 8 requests wait now and then. At 11 all four sequences run; as far off as 12 says nothing of 8.
    for pushed, found in ((11, "slots"), (12, "queued")):
        quiet = {"steady_queued_share": 0.1, "steady_running": 3.0, "steady_running_high": 3.0, "steady_kv_usage": 0.2}
        full = {**quiet, "steady_queued_share": 1.0, "steady_running": 4.0, "steady_running_high": 4.0, "steady_waiting": 7.0}
        loads = ((1, quiet), (8, quiet), (pushed, full))
        rows = [steady_row(summary, n, ttft=0.1 if n < 8 else 9.0, **more) for n, more in loads]
        assert cause(rows, TTFT, slots=4)[0].evidence == found, pushed
    # A range whose end is not steady has no cause.
    found, _ = cause([served_row(summary, 1), short_row(served_row(summary, 2), 90.0)], TTFT)
    assert (found.evidence, found.level, found.unsettled, found.runs) == ("steady_meets", 2, "short", ())
    found, _ = cause([served_row(summary, level) for level in (1, 2)], TTFT)
    assert (found.evidence, found.level, found.runs) == ("highest_level", 2, ("r2",))


def test_failures_are_counted_over_the_runs_of_the_level(summary):
    failing = [{**served_row(summary, 8, failed=failed), "steady_in_flight": 6.0 + i} for i, failed in enumerate((100, 50))]
    found, _ = cause([served_row(summary, 1), *again(failing)], TTFT)
    assert (found.unit, found.failed, found.requests, found.in_flight) == ("requests in flight", 150, 800, 6.5)
    # Of a table without windows the whole runs count.
    runs = level({"failed": 3, "requests": 10}, {"failed": 4, "requests": 11}, steady_failed=1, steady_requests=None)
    found = refusals(runs, runs.clear(), {"missed": [{"by": "failed"}]}, [], HERE)
    assert (found.failed, found.requests, found.in_flight) == (7, 21, None)
    assert refusals(runs, runs.clear(), {"missed": [{"by": "ttft_p99_s"}]}, [], HERE) is None


def test_failures_limit_a_load_where_they_are_its_own_and_more_than_chance(summary):
    """A fifth may fail by itself."""

    def limit_of(counts, slos, requests, **facts):
        rows = [served_row(summary, n, requests=requests, failed=lost, slow=slow, **facts) for n, lost, slow in counts]
        runs = frame(rows, slots=facts.get("room"))
        point = operating_points(runs, slos, failed_share=0.2).row(0, named=True)
        assert point["missed_at"] == 8, counts
        return bottleneck(runs, point, slos)

    # Of 100 requests 5 may miss.
    for failed, late, found in ((3, 2, "refusals"), (2, 3, "unknown")):
        assert limit_of(((1, 0, 0), (8, 4 * failed, 4 * late)), TTFT, 100).cause == found, failed
    # What fails at higher loads is no measure of it.
    assert limit_of(((1, 0, 0), (8, 12, 8), (16, 50, 0)), TTFT, 100).cause == "refusals"
    # Of 200 requests at two loads, chance puts four or five failures all at the higher one in 6 and 3 % of cases.
    for below, failed, late, evidence in (
        (0, 8, 0, "refused"), (0, 4, 0, "few_failures"), (0, 5, 1, "few_failures"),
        (0, 5, 3, "slots"),  # of 100 requests 3 that are late miss a P99 by themselves
        (1, 4, 0, "slots"),  # some fail at any load
    ):  # fmt: skip
        found = limit_of(((1, below, 0), (8, failed, late)), [parse_slo("ttft_p99=2s")], 100, room=4)
        assert found.evidence == evidence, (below, failed, late)
    # 30 of 1,000 fail at any load, and 28 are late at the load that misses; 50 may miss.
    assert limit_of(((1, 30, 0), (2, 30, 0), (8, 30, 28)), TTFT, 1000).cause == "unknown"
