"""Every sentence on results, kept in snapshots to be read as a whole: RENEW=1 renews them. What is concluded is tested by value, elsewhere."""

from dataclasses import replace
from types import SimpleNamespace

import polars as pl
import pytest

from bench.errors import BenchError, count_text, is_are, signed_percent, three_digits, two_digits, was_were
from bench.findings import causes, factors, fleet, lengths
from bench.findings import saturation as saturates
from bench.findings import settings as setting_gain
from bench.findings.capacity import words as capacity
from bench.findings.capacity.judging import Miss
from bench.findings.capacity.points import operating_points
from bench.findings.causes import RULES, Bottleneck
from bench.findings.comparison import words as comparison
from bench.findings.comparison.compare import Differs
from bench.findings.comparison.effects import Ratio
from bench.findings.factors import Decided
from bench.findings.latency_throughput import sustained_title
from bench.findings.lengths import LengthCost, StreamingGain
from bench.findings.predicted import DOUBTS, doubt_text
from bench.findings.regions import POINTS, turning_point
from bench.findings.settings import Load, SettingGain
from bench.findings.streams import stream_notes
from bench.parse import validity as verdicts
from bench.parse.validity import CHECKS, Reason
from bench.predict.calibration import Doubt
from bench.runs import sentences as loads
from bench.runs.sentences import filled, numbers_of
from bench.search import words as searches
from bench.study.slo import Slo, parse_slo
from tests.support import snapshots
from tests.support.planted import frame, searched, short_row, steady_row
from tests.support.words import CAUSE, TURNS, cell

SLOS = [parse_slo("ttft_p99=2s")]
POINT = {"unsettled": None, "missed": None, "unsettled_at": None, "missed_at": None, "deployment": "a", "workload": "w",
         "axis": "concurrency", "unit": "requests in flight", "usable_rps": 8.0, "limit": None, "unsettled_needs_s": None, "over": None, "runs": 2,
         "requests": 400, "highest": 16.0, "unsettled_class": None}  # fmt: skip
GROWS = [{"by": "growth", "growth": 0.5}]


def test_a_number_is_rounded_before_its_form_is_chosen():
    for form, shown in (
        (three_digits, {999.7: "1,000", 999.4: "999", 0.000012: "0.000012", -1e-5: "-0.00001", 12345.6: "12,346", 0.5: "0.5", 0.0: "0"}),
        (two_digits, {99.7: "100", 0.000012: "0.000012", 370.0: "370", 0.371: "0.37"}),
        (lambda share: signed_percent(share, 0), {-0.001: "0", 0.001: "0", -0.04: "−4", 0.12: "+12"}),
        (signed_percent, {-0.0004: "0.0"}),
    ):  # fmt: skip
        assert {value: form(value) for value in shown} == shown


def test_a_part_in_brackets_needs_its_numbers():
    template = "{a:share}[, {b:requests} of {c}][: {d:quoted}]"
    assert numbers_of(template) == ["a", "b", "c", "d"]
    assert filled(template, {"a": 0.5, "b": 1, "c": 2, "d": "[x] {y}"}) == "50 %, 1 request of 2: '[x] {y}'"
    assert filled(template, {"a": 0.5, "b": None, "c": 2, "d": None}) == "50 %"
    with pytest.raises(KeyError):
        filled(template, {"a": 0.5})


def test_loads_and_intervals():
    assert [loads.loads_text(each) for each in ([], [8.0], [8.0, 0.5])] == ["", "8", "8, 0.5"]
    units = ("requests/s", "conversations/s", "users", "requests in flight", "times the trace's speed")
    ones = ["1 request/s", "1 conversation/s", "1 user", "1 request in flight", "1 times the trace's speed"]
    assert [loads.load_text(1, unit) for unit in units] == ones
    assert [loads.load_cell(1, axis) for axis in ("users", "request_rate", "concurrency")] == ["1 user", "1 request/s", "1"]
    assert loads.load_text(1.5, "requests/s") == "1.5 requests/s"
    assert [loads.numbers_text(each) for each in ([16.0, 64.0, 1520.0], [8.0, 8.0])] == ["16, 64 and 1,520", "8"]
    for number, said in (
        ((2.04, 1.98, 2.1), ("2.04", "1.98 to 2.10")), ((10.7, 6.44, 25.7), ("about 11", "6 to 26")), ((4.71, 1, 8), ("about 4.7", "1.0 to 8.0")), ((9.59, 8.5, 10.9), ("9.6", "8.5 to 10.9")), ((110, 97.6, 117.6), ("110", "98 to 118")),
        ((1520, 900, 2200), ("about 1,500", "900 to 2,200")), ((8, 8, 8), ("8", "8 to 8")), ((0.4, 0.0, 3.0), ("about 0.4", "0.0 to 3.0")),
        ((2.0386, None, None), ("about 2", "95 % interval not established")), ((10.7, 6.44, None), ("about 11", "6.4 or more")), ((0, 0, 1), ("0", "0 to 1")),
    ):  # fmt: skip
        assert loads.sure_text(*number) == said, number


# Causes and recommendations

NO_CAUSE = dict.fromkeys(("in_flight", "said", "request_class", "free_tokens", "prompt_tokens", "request_bytes", "per_request"))


def test_each_kind_of_evidence():
    """With all numbers, then without those that may not be known."""
    lines = []
    for evidence in RULES:
        numbers = {**CAUSE, "waiting": None} if evidence == "relieved" else CAUSE
        bare = {**CAUSE, **NO_CAUSE}
        known, bare = (Bottleneck(evidence=evidence, **each) for each in (numbers, bare))
        said = dict.fromkeys(say(each) for say in (causes.why, causes.remedy) for each in (known, bare))
        lines += [f"{evidence}: {known.cause}", *(f"  {text}" for text in said if text)]
    lines += [
        "held, for little gain:",
        f"  {causes.why(Bottleneck(evidence='relieved', **{**CAUSE, **NO_CAUSE, 'waiting': None, 'tied': 2}))}",
        f"  {causes.remedy(Bottleneck(evidence='relieved', **{**CAUSE, 'tied': 2}))}",
    ]
    loads_of = ({"level": 1.0}, {"unit": None}, {"unit": None, "burst": True})
    lines += [causes.why(Bottleneck(evidence="full_cache", **{**CAUSE, **changed})) for changed in loads_of]
    nothing = ({"gains": ()}, {"gains": (), "no_model": "too few steps"}, {"gains": CAUSE["gains"][3:]})
    doubted = [Bottleneck(evidence="slots", doubt=doubt, **{**CAUSE, "gains": ()}) for doubt in causes.DOUBTS]
    lines += [f"{causes.why(each)}\n  {causes.remedy(each)}" for each in doubted]
    lines += [causes.why(Bottleneck(evidence="nothing_full", **{**CAUSE, **changed})) for changed in nothing]
    snapshots.same("causes", lines)
    assert (causes.why(Bottleneck()), causes.remedy(Bottleneck())) == ("", "")


# What a curve sustains, and a fleet

MISSES = [
    Miss("ttft_p99_s", 2.0, None, 1.0, 4, 4),
    Miss("ttft_p99_s", 2.0, 1.5, 0.05, 5, 100),
    Miss("tpot_p90_s", 0.025, 0.0243, 3 / 46, 3, 46, 0.42, close=True),
    Miss("tpot_p90_s", 0.025, None, 0.0, 0, 0, 0.42, close=True),
    Miss("tpot_p50_s", 0.05, 0.0501),
    Miss("failed", share=0.5, misses=2, requests=4),
    Miss("growth", growth=0.34),
    Miss("growth", growth=0.02, below=0.3, close=True),
]


def test_by_what_a_level_misses():
    snapshots.same("misses", [capacity.misses_text([miss]) for miss in MISSES])
    slo = Slo("ttft", "p99", 2.0)
    assert Slo.of_column(slo.column, 2.0) == slo
    unsettled = [capacity.unsettled_text(*each) for each in (("short", 48), ("short",), ("empty",))]
    assert [text.rpartition("; ")[2] for text in unsettled] == ["let it last 48 s", "send more requests", "no request was sent"]


def ended(low, high):
    return {"low": low, "high": high, "usable_low": low, "usable_high": high, "operate_at": 8.0, "c_max": 8.0}


POINTS_OF = {
    "found": {"kind": "found", **ended(7.0, 10.0), "limit": 8.4, "missed_at": 9.0, "missed": GROWS},
    "found, one": {"kind": "found", **ended(8.0, 9.0), "limit": 8.4, "missed_at": 9.0, "missed": GROWS},
    "found, of a rate": {"kind": "found", **ended(7.0, 9.15), "limit": 8.456, "missed_at": 9.15, "axis": "request_rate", "unit": "requests/s", "missed": GROWS},
    "found, operated below": {"kind": "found", **ended(7.0, 9.0), "operate_at": 7.0, "missed_at": 9.0, "missed": GROWS},
    "found, surely later": {"kind": "found", **ended(7.0, 12.0), "missed_at": 9.0, "missed": GROWS},
    "above": {"kind": "above", **ended(7.0, None)},
    "above, unsettled": {"kind": "above", **ended(7.0, None), "unsettled": "short", "unsettled_at": 16.0, "unsettled_needs_s": 30.0},
    "no lower end": {"kind": "found", **ended(None, 9.0), "limit": 8.4},
    "no end": {"kind": "found", **ended(None, None), "limit": 8.4, "missed_at": 9.0, "missed": GROWS},
    "below": {"kind": "below", "missed_at": 1.0, "missed": GROWS},
    "below, others unsettled": {"kind": "below", "missed_at": 2.0, "missed": GROWS, "unsettled": "short", "unsettled_at": 1.0, "unsettled_needs_s": 25.0},
    "unsettled": {"kind": "unsettled", "missed_at": 1.0, "unsettled": "empty", "unsettled_at": 1.0},
    "unjudged": {"kind": "unjudged", "missed_at": 1.0, "missed": [{"by": "ttft_p50_s", "limit_s": 1.0}], "unjudged": None},
    **{f"unjudged, {why}": {"kind": "unjudged", "missed_at": 1.0, "missed": [{"by": "tpot_p50_s", "limit_s": 1.0}], "unjudged": why}
       for why in ("stream", "held_back", "hidden", "uncounted", "single")},
    "unknown": {"kind": "unknown"},
}  # fmt: skip


def test_what_a_curve_sustains_and_why_a_fleet_cannot_be_sized():
    lines = []
    for name, told in POINTS_OF.items():
        point = {**POINT, **ended(None, None), "c_max": None, **told}
        bases = [{**point, "basis": basis} for basis in ("steady", "burst")]
        said = [f"sustains {capacity.sustains(each)}; limit: {capacity.limit(each) or '–'}" for each in bases]
        said += [f"misses {capacity.first_miss(point) or '–'}", capacity.evidence(point), capacity.narrowed(point)]
        said += [] if point["c_max"] else [fleet.no_point(point), fleet.next_step(point)]
        lines += [f"{name}:", *(f"  {text}" for text in dict.fromkeys(said) if text)]
    snapshots.same("capacity", lines)


FLEET = {"instances": 25, "instances_least": 12, "instances_most": 1028, "gpus": 1337, "peak_rps": 1000.0, "safety": 1.3}


def test_a_fleet():
    told = [{"gpus": None}, {"instances": 1}, *({"gpus": 1337 if "most" not in ends else 33} | {f"instances_{end}": None for end in ends} for ends in ((), ("least",), ("most",), ("least", "most")))]  # fmt: skip
    fleets = [{**FLEET, "cost": None, **each} for each in told]
    lines = [fleet.plan(each, "machine", "a") for each in fleets]
    snapshots.same("fleet", [*lines, fleet.plan({**fleets[1], "cost": {"hour": 2674.0}}, "GPU", "a"), fleet.little(2.345)])
    assert (fleet.plan(None, "GPU", "a"), fleet.interval(None)) == ("", "")


def test_a_lowest_load_that_misses_is_not_the_lowest_measured_where_others_cannot_be_judged(summary):
    """Loads of 4 and 8 were too short, and 24 misses: that nothing lower is sustained was not shown."""
    lower = [short_row(steady_row(summary, level), 24.9) for level in (4, 8)]
    point = operating_points(frame([*lower, steady_row(summary, 24, slow=200)]), SLOS).row(0, named=True)
    assert (point["kind"], point["missed_at"], point["unsettled_at"], point["unsettled_needs_s"]) == ("below", 24, 4, 25)
    alone = operating_points(frame([steady_row(summary, 24, slow=200)]), SLOS).row(0, named=True)
    assert (alone["kind"], alone["unsettled_at"]) == ("below", None)


# Searches


def test_what_a_search_found():
    """By the axis and where the limit lies; then by why it ended."""
    ends = {"found": (34, 32, 36), "above": (96, 96, None), "below": (0, 0, 1), "open": (40, 16, None),
            "wide": (4, 0, 9), "runs": (None, 0, None)}  # fmt: skip
    lines = []
    for axis in ("concurrency", "request_rate"):
        lines += [f"{axis}:"]
        for why, (limit, low, high) in ends.items():
            reason = "runs" if why in ("open", "wide") else why
            record = searched(axis=axis, why=reason, limit=limit, low=low, high=high)
            lines += [f"  {why}: {searches.search_limit(record)}", f"    {searches.search_ended(record)}"]
    lines += [searches.search_ended(searched(why=why)) for why in ("seconds", "invalid", "short")]
    snapshots.same("searches", lines)


# Turning points, charts and predictions


FILLED = {"deployment": "a", "workload": "w", "axis": "concurrency", "cache_known": True, "measured": 20.0, "below": 16.0,
          "predicted": 15.7}  # fmt: skip


def test_titles_state_no_more_than_the_curves_show():
    b = {"deployment": "b"}
    full = [[{}], [{"predicted": None}], [{}, {**b, "measured": 64.0, "predicted": 64.0}], [{"measured": None}], [{}, {**b, "measured": None}],
            [{}, {"workload": "v", "predicted": None, "measured": 28.0}]]  # fmt: skip
    lines = [saturates.title([{**FILLED, **row} for row in rows]) for rows in full]
    for rows in ([{"cache_known": False}], [{"axis": "request_rate"}], [{"deployment": name} for name in "abcdef"]):
        assert saturates.title([{**FILLED, **row} for row in rows]) is None, rows
    lines += [saturates.prediction_title(apart) for apart in ([0, 1, None], [1])]
    assert saturates.prediction_title([None]) is None
    told = pl.DataFrame(
        {"deployment": ["a", "b"], "workload": ["chat", "chat"], "usable_rps": [2.0, 9.0], "tokens_per_s": [760.4, 1289.0]}
    )
    snapshots.same("titles", [*lines, sustained_title(told)])


def test_turning_points():
    snapshots.same("regions", [f"{name}: {turning_point(cell(name, point), name)}" for name in POINTS for point in TURNS])


def test_doubts_about_predictions():
    numbers = ((1500.0, 1200.0), (0.3, 0.2))
    snapshots.same("doubts", [doubt_text(Doubt(name, *each)) for name in DOUBTS for each in numbers])


# Comparisons

TOKENS = "throughput_tokens_per_s"
ROW = {"metric": TOKENS, "scope": "all", "verdict": "no evidence", "pooled": "no evidence", "ratio": 0.8, "low": 0.7, "high": 0.9,
       "could_see": 0.1234, "workload": None, "axis": None, "level": None}  # fmt: skip


def compared(worse=()):
    """Four levels, of which some are worse, and all together."""
    levels = [{**ROW, "scope": "level", "workload": "chat", "axis": "concurrency", "level": load, "verdict": "worse" if load in worse else "no evidence"}
              for load in (1, 2, 4, 8)]  # fmt: skip
    return [*levels, ROW]


def test_comparisons():
    lines = [comparison.sentence(compared(worse)) for worse in ((1, 2, 4, 8), (4, 8), (1, 2), (2, 4), (1, 8), (2,))]
    lines += [comparison.sentence(rows) for rows in ([ROW], [{**ROW, "low": None, "high": None}])]
    differences = (Differs("kv_tokens", None, 640), Differs("kv_tokens", 640.5, None, deployment="a"), Differs("seed", 0, 1, loads=(("short", 8.0),)))  # fmt: skip
    lines += map(comparison.difference_text, differences)
    lines += [
        comparison.overlooked({"could_see": could, "sessions": takes}, 5)
        for could, takes in ((None, None), (12.5, None), (12.5, 6))
    ]
    snapshots.same("comparison", [*lines, comparison.assumed_text(2, 0.1)])
    empty = pl.DataFrame(schema={"deployment": pl.String, "metric": pl.String})
    for replica in (True, False):
        assert comparison.sentences(SimpleNamespace(replica=replica, effects=empty, overall=empty)) == []


# Streams and verdicts

PLAIN = {"ok": 8, "requests": 8, "failed": 0, "tokens_per_chunk": 1.0, "ttft_n": 8, "held_back_answers": 0, "hidden_tokens": 0, "unknown_streamed": 0,
         "without_done": 0, "requests_omit": None, "short_answers": 0, "sdk_differs": None}  # fmt: skip
LATE = {"client_schedule_delay_p50_s": 0.06, "e2e_p50_s": 1.0}
STREAMS = [
    {"tokens_per_chunk": 3.0}, {"tokens_per_chunk": 0.25}, {"held_back_answers": 8, "ttft_n": 0}, {"held_back_answers": 1}, {"hidden_tokens": 480},
    {"unknown_streamed": 1, "tpot_n": 7}, {"unknown_streamed": 4, "tpot_n": 0}, {"tokens_per_arrival": 4.0}, {"tokens_per_arrival": 4.0, "spec_accepted_tokens": 30.0}, {"unknown_streamed": 8, "tpot_n": 0, "spec_accepted_tokens": 30.0}, {"axis": "concurrency", **LATE},
    {"without_done": 8}, {"requests_omit": "ignore_eos, token_ids"},
    {"front_wait_s": 0.8, "ttft_mean_s": 1.2},
    {"uncounted_outputs": 8, "unknown_streamed": 8, "tpot_n": 0}, {"uncounted_outputs": 1, "unknown_streamed": 1, "tpot_n": 7},
    {"short_answers": 4, "counted_output_tokens": 5.0, "asked_output_tokens": 8.0}, {"sdk_differs": "text is 'a' to the SDK, 'b' to Saturate"},
]  # fmt: skip


def test_what_a_reader_should_know_of_streams():
    lines = []
    for change in STREAMS:
        lines += [", ".join(f"{key} {value}" for key, value in change.items())]
        lines += [f"  {note}" for note in stream_notes({**PLAIN, **change})]
    snapshots.same("streams", lines)
    # Not streamed; counted in the verdict; of a load that is not held.
    silent = [{}, {"answers": "natural", "requests_omit": "ignore_eos"}, dict.fromkeys(("tokens_per_chunk", "hidden_tokens", "without_done")), {"unknown_streamed": 8, "uncounted_outputs": 8, "wrong_output_tokens": 8, "tpot_n": 0},
              {"axis": "request_rate", **LATE}]  # fmt: skip
    assert not [note for change in silent for note in stream_notes({**PLAIN, **change})]


COUNTS = (2000.0, 32.0)
COUNTED = {"other_requests", "other_tokens", "held_back", "refused", "not_counted", "prompt_lengths", "output_lengths", "cached_tokens",
           "tokens_not_counted"}  # fmt: skip


def test_each_check_that_a_run_may_not_pass():
    reasons = [Reason(check, *(COUNTS if check in COUNTED else (0.9, 0.5)), 0.25, ("a", "b"), {"http_404": 2},
                      31.7) for check in CHECKS]  # fmt: skip
    reasons += [Reason(*told) for told in (("prompt_lengths", 1), ("refused", 4, 9), ("cached_tokens", 4.0, 0.0))]
    snapshots.same("verdicts", [f"{each.check}: {verdicts.reason_text(each)}" for each in reasons])
    for each in reasons:
        assert verdicts.read_code(each.code) == (each.check, verdicts.reason_text(each))


def test_a_code_can_be_read_and_holds_whatever_is_said():
    assert Reason("loop_stall", 0.2, 0.1).code == "client.loop_stall: the client's event loop stood still for 0.2 s, over 0.1 s"
    missing = Reason("metrics_missing", names=("a", "b or 'c=d'", "; e: f"))
    assert verdicts.reason_texts([missing.code]) == ["the exposition lacks a; b or 'c=d'; ; e: f"]
    for code in ("drift", "machine.nothing", "client.loop_lag value=0.2 limit=0.1", "telemetry.not_scraped_before", ""):
        with pytest.raises(BenchError, match="which this version does not know: another one wrote it"):
            verdicts.read_code(code)


def test_a_count_of_one_takes_the_singular():
    assert [count_text(n, "run", of=of) for n, of in ((1, 3), (1, 1))] == ["1 of 3 runs", "1 of 1 run"]
    assert [count_text(n, "run") for n in (1, 2)] == ["1 run", "2 runs"]
    assert [is_are(1), is_are(0), was_were(1), was_were(2)] == ["is", "are", "was", "were"]
    point = {**POINT, "c_max": 8.0, "requests": 1, "runs": 1}
    assert capacity.evidence(point) == "1 request in 1 run was judged at 8 requests in flight."


# Each question's answer, its certainty and its advice


def answer_lines(name, answer):
    parts = (("", answer.lines), ("sure: ", answer.sure), ("do: ", answer.do))
    return [f"{name}: {answer.question}", *(f"  {part}{line}" for part, lines in parts for line in lines)]


def test_lengths_and_streaming():
    at = {"deployment": "a", "axis": "concurrency", "level": 1.0, "measured": 16, "runs": 16}
    line = {"slope": 0.5, "slope_half": 0.02, "r_squared": 0.997}
    prompt = LengthCost(workload="prefill", kind="prompt", lengths=(128, 2048), **at, **line)
    output = LengthCost(workload="decode", kind="output", lengths=(32, 512), **at, **{**line, "slope": 10.0})
    gain = StreamingGain("a", "concurrency", 1.0, 1024, 512, 0.35, 5.5, 5.6, 2, 2)
    cases = {
        "both and streaming": ([prompt, output], [gain]),
        "at two loads": ([prompt, replace(prompt, level=16.0), replace(output, level=16.0)], []),
        "not significant": ([prompt, replace(output, slope_half=20.0)], []),
        "too few": ([replace(prompt, lengths=None, slope=None, measured=0)], []),
        "streaming not known": ([], [replace(gain, first_s=None, valid=1)]),
    }  # fmt: skip
    snapshots.same("lengths", [line for name, case in cases.items() for line in answer_lines(name, lengths.answer(*case))])


def test_settings_and_devices():
    gain = Ratio(1.5, 1.4, 1.6)
    loads = (
        Load(1.0, Ratio(0.8, 0.7, 0.9), "worse", None, (1,), (1,), 0.42),
        Load(16.0, Ratio(3.5, None, None), "no evidence", None, (1, 2), ()),
    )
    devices = SettingGain("m", "e", "w", "concurrency", "tensor_parallel", (), (1, 2), (1, 2), ("one", "two"), gain, "better",
                          loads, True, ())  # fmt: skip
    seqs = replace(devices, setting="max_num_seqs", values=(8, 64), devices=(1, 1), loads=loads[:1])
    ngram = replace(seqs, setting="flag_spec_size_m", values=(None, "8"), beside=("flag_spec_type",), deployments=("plain", "ngram"),
                    differences=(Differs("flag_spec_type", None, "ngram"),))  # fmt: skip
    cases = {
        "devices": [devices],
        "workers": [replace(devices, devices=(1, 4), gpus=False)],
        "without a pair": [replace(devices, whole=None, verdict=None, loads=())],
        "a setting": [seqs],
        "for the worse, and not established": [
            replace(seqs, verdict="worse"),
            replace(seqs, verdict="no evidence", whole=Ratio(1.1, None, None)),
        ],
        "a mode and its parameters": [ngram],
    }
    lines = [line for name, gains in cases.items() for line in answer_lines(name, setting_gain.answer(gains))]
    lines += [", ".join(map(str, row.values())) for row in setting_gain.rows([devices, seqs])]
    snapshots.same("settings", lines)


def test_factors():
    row = {"metric": "makespan (s)", "factor": "output length", "importance": 1.0, "low": 0.5, "high": 1.5, "score": 0.9, "n": 24,
          }  # fmt: skip
    others = [{**row, "factor": name, "importance": 0.5, "low": low} for name, low in (("devices", 0.1), ("model", 0.0))]
    found = Decided("f", (row, *others, {**row, "metric": "TTFT (s)", "low": 0.0}), 24)
    unknown = replace(found, effects=({**row, "importance": None, "score": -0.2},))
    cases = {
        "known": [found],
        "two families of no model": [unknown, replace(unknown, family="g")],
        "too few, of invalid runs": [replace(found, effects=(), configurations=6)],
    }
    snapshots.same("factors", [line for name, each in cases.items() for line in answer_lines(name, factors.answer(each))])


def test_where_curves_saturate():
    """As many are sent as fit: 16 that fill the cache exactly do not wait; between two levels the prediction decides if it lies there."""
    rows = [{"deployment": f"d{i}", "workload": "w", "axis": "concurrency", "predicted": predicted, "below": below, "measured": measured, "levels_apart": apart,
             "cache_known": i != 1, **cell("saturation", point)}
            for i, (point, predicted, below, measured, apart) in enumerate([
                (TURNS[0], 16.0, 15.0, 16.0, 0), (TURNS[3], None, None, None, None), (TURNS[5], 42.7, 40.0, 50.0, 1), (TURNS[8], 10.0, 12.0, 16.0, None),
                (TURNS[4], 10.0, None, None, None), (TURNS[1], None, None, 8.0, None)])]  # fmt: skip
    answers = (saturates.answer(rows, several_workloads=each) for each in (False, True))
    snapshots.same("saturates", [line for each in answers for line in answer_lines("", each)])
