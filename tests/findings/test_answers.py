"""What a report answers first, on made runs whose truth is known: an effect that is there, one that is not, and one that nobody can know."""

import json
import re

import numpy as np
import polars as pl
import pytest

from bench.figures import Results
from bench.report import write_report
from bench.report.answers import answers
from bench.report.findings import curves
from bench.report.headline import headline
from bench.study import Decision
from bench.study.config import Thresholds
from bench.study.questions import crossed_factors, levels, plain
from bench.words.answer import AGAIN, by_advice
from bench.words.closing import closing_lines
from bench.words.trust import alike, changed_thresholds, first_line, remedy
from tests.support.answers import EMPTY, WRONG, answered, compared_rows, length_rows, named, noisy, streamed_rows, study
from tests.support.crossed import planted as crossed
from tests.support.planted import answers as judged_answers
from tests.support.planted import rate_row, steady_row

# Lengths and streaming


def found_in(results):
    return results.analysis.findings


def test_what_a_token_costs_and_what_streaming_buys(summary):
    results = study(length_rows(summary, noise=0.003) + streamed_rows(summary))
    prompt, output = found_in(results).lengths
    assert (prompt.lengths, prompt.known.slope, prompt.known.parabola) == ((128, 2048), pytest.approx(0.5, rel=0.02), None)
    assert (output.workload, output.known.slope) == ("decode", pytest.approx(10, rel=0.02))
    (gain,) = found_in(results).streaming
    assert (gain.first_s, gain.whole_s, gain.pairs, gain.valid) == (0.35, 5.6, 1, (1, 1))
    assert list(answered(results)) == ["lengths"]
    # A cost that is not there or bends or cannot be known.
    flat = found_in(study(length_rows(summary, prompt_ms=0.0, noise=0.05))).lengths[0]
    assert (flat.known, flat.lengths) == (None, (128, 2048))
    bent = found_in(study(length_rows(summary, prompt_ms=0.1, square_ms=2e-4))).lengths[0]
    assert bent.known.parabola.bend == pytest.approx(2e-4 * 2048**2 / (20 + 0.1 * 2048 + 2e-4 * 2048**2), abs=0.06)
    lost = found_in(study(length_rows(summary, wrong=range(3, 17)))).lengths[0]
    assert (lost.measured, lost.valid, lost.runs, lost.line) == (2, 2, 16, None)
    # Half a pair says nothing of streaming.
    for wrong, valid in ((("whole",), (1, 0)), (("streamed",), (0, 1)), (("streamed", "whole"), (0, 0))):
        (gain,) = found_in(study(streamed_rows(summary, wrong=wrong))).streaming
        assert (gain.valid, gain.pairs, gain.first_s, gain.whole_s) == (valid, 0, None, None), wrong


# A second device


def device_rows(summary, *, gain=1.0, short_gain=3.0, full=6, noise=0.01, wrong=()):
    """One device beside two. `gain` is the throughput of two ÷ that of one while its KV cache has room, `short_gain` from `full` on."""
    random = np.random.default_rng(2)
    rows = []
    for level in (1, 2, 4, 6, 8, 12, 16, 24):
        alone = 10.0 * min(level, full)
        both = alone * (gain if level < full else short_gain)
        for name, throughput, fills in (("one", alone, level >= full), ("two", both, False)):
            rows.append(
                {**summary, "deployment": name, "workload": "w", "family": "w", "run": f"w_{level}", "axis": "concurrency",
                 "level": float(level), "concurrency": level, "kv_usage_peak": 1.0 if fills else 0.5, "preemptions": 0,
                 "throughput_tokens_per_s": noisy(throughput, noise, random), **(WRONG if name in wrong else {})}
            )  # fmt: skip
    return study(rows, launches={"one": {"tensor_parallel": 1}, "two": {"tensor_parallel": 2}})


def test_what_a_second_device_buys_at_what_load(summary):
    results = device_rows(summary, gain=1.3, short_gain=3.5)
    (gain,) = found_in(results).settings
    assert (gain.full, gain.full_known, gain.spread_assumed) == ((6, None), (True, True), True)
    assert (gain.room.loads, gain.short.loads) == ((1, 2, 4), (6, 8, 12, 16, 24))
    assert (gain.room.same.value, gain.short.same.value) == (pytest.approx(1.3, rel=0.03), pytest.approx(3.5, rel=0.03))
    assert (gain.room.same.beside(2), gain.short.shared.beside(1), gain.short.shared_loads[0]) == ("less", "more", 8)
    assert next(iter(answered(results))) == "devices"
    # A second device that buys nothing or of which nothing is known.
    (none,) = found_in(device_rows(summary, gain=1.0, short_gain=1.0, full=100)).settings
    assert (none.room.same.beside(1), none.doubling, none.short) == ("unknown", None, None)
    (half,) = found_in(device_rows(summary, wrong=("two",))).settings
    assert (half.pairs, half.room and half.room.same) == (0, None)


# Factors


def decided_of(runs):
    """What decides each metric of the one family, by its name; and the family."""
    (found,) = found_in(Results(runs, EMPTY)).factors
    return {each.metric.split(" (")[0]: each for each in found.metrics}, found


def test_which_factor_decides_what():
    metrics, _ = decided_of(named(crossed(1, 0.05)))
    assert metrics["makespan"].effects[0].factor == "output length"
    assert (metrics["throughput"].effects[0].factor, metrics["throughput"].none) == ("batch size", ("devices",))
    assert all(each.score[0] > 0.9 for each in metrics.values())
    # Factors of noise decide nothing and few configurations are not enough.
    runs = named(crossed(1, 0.05))
    chance = pl.Series(np.exp(np.random.default_rng(3).standard_normal(runs.height)))
    noise, _ = decided_of(runs.with_columns(ttft_mean_s=chance, duration_s=chance, throughput_tokens_per_s=1 / chance))
    assert noise and all(each.effects is None for each in noise.values())
    metrics, few = decided_of(runs.with_columns(valid=pl.int_range(pl.len()) < 6))
    assert (metrics, few.configurations, few.measured > few.fewest) == ({}, 3, True)
    small = named(crossed(1, 0.05, batches=(1, 4), prompts=(32, 128))).filter(tensor_parallel=1)
    assert [getattr(decided_of(small)[1], name) for name in ("configurations", "measured", "fewest")] == [16, 16, 20]


def test_a_factor_changes_a_metric_by_so_much_within_a_model():
    """A model ten times as fast that was measured on one device alone makes no second device slower."""
    runs = named(crossed(1, 0.0))
    large = pl.col("model") == runs["model"].last()
    slowed = pl.when(large).then(10 / pl.col("tensor_parallel").sqrt()).otherwise(1.0)
    runs = runs.filter(large | (pl.col("tensor_parallel") == 1)).with_columns(pl.col("ttft_mean_s") * slowed)
    devices = next(each for each in decided_of(runs)[0]["TTFT"].effects if each.factor == "devices")
    assert (devices.change, devices.between) == (pytest.approx(0.5**0.5), (1, 2))
    # One model was measured on one and two devices, the other on two and four.
    runs = named(crossed(1, 0.0))
    devices = pl.col("tensor_parallel") * pl.when(pl.col("model") == runs["model"].last()).then(2).otherwise(1)
    runs = runs.with_columns(tensor_parallel=devices, ttft_mean_s=pl.col("ttft_mean_s") / devices)
    devices = next(each for each in decided_of(runs)[0]["TTFT"].effects if each.factor == "devices")
    assert (devices.change, devices.between) == (None, None)


def test_bursts_of_swept_lengths_that_nothing_crosses_are_not_asked_for_factors():
    runs = named(crossed(1, 0.05))
    swept = runs.filter((pl.col("prompt_fixed") < 512), level=1, output_fixed=16, tensor_parallel=1)
    swept = swept.with_columns(family=pl.lit("swept"), workload=pl.format("swept-p{}", "prompt_fixed"))
    found = answered(Results(pl.concat([runs, swept]), EMPTY))
    assert not any("swept" in line for line in found["factors"].lines)
    assert any("swept-p32" in line for line in found["alone"].lines)


# Open loops and steps


def test_what_load_is_sustained_and_how_it_recovers(summary):
    base = {**summary, "deployment": "a", "workload": "chat", "family": "chat"}
    rows = [rate_row(base, 4), rate_row(base, 8), rate_row(base, 24, growth=0.4, ttft=5.0, rps=10.0)]
    step = {**rate_row({**base, "workload": "step", "family": "step"}, 3), "recovered": True, "recovery_s": 1.7}
    found = answered(study([*rows, step]))
    assert list(found) == ["capacity", "recovery"]
    (curve,) = found["capacity"].lines
    assert re.fullmatch(
        r"a · chat: sustains \S+ requests/s \(.*\) at 8 requests/s; at 24 it misses steadiness \(requests pile up: 40 % .*\)\.",
        curve,
    )
    assert found["recovery"].lines == ("a · step at 3 requests/s: TTFT is as before 1.7 s after the step.",)
    assert "sets no SLO, so a load counts as sustained while requests do not pile up" in found["capacity"].sure[0]
    assert found["capacity"].sure[1].startswith("a · chat: C_max, the highest load that is sustained (requests/s), is 8 (")
    expected = ("Set `decision.slo` to learn what is sustained within limits on latency; nothing is measured again.",)
    assert found["capacity"].do == expected
    fast = answered(study(rows[:2]))["capacity"]
    assert "misses" not in fast.lines[0] and "is 8 or more (" in fast.sure[1]
    lost = answered(study([{**row, **WRONG} for row in (*rows, step)]))
    assert lost["capacity"].lines == ("a · chat: no valid run, so its capacity is not known.",)
    assert lost["recovery"].lines == ("a · step at 3 requests/s: not known, the run is invalid.",)
    assert sum("discard" in line for answer in lost.values() for line in answer.do) == 1


# Lengths at several loads


def of_lengths(summary, levels, **more):
    """Two lengths of one ladder, as `output_tokens: [64, 128]` writes them."""
    base = {**summary, "deployment": "a", "family": "chat", **more}
    return [
        {**steady_row({**base, "workload": f"chat-o{output}", "output_fixed": output}, level, ttft=0.1 if level < 8 else 9.0), "run": f"o{output}_{level}"}
        for output in (64, 128) for level in levels
    ]  # fmt: skip


def test_lengths_that_were_measured_at_several_loads_have_capacities_of_their_own(summary):
    decision = Decision(slo=["ttft_p90=1s"])
    found = answered(study(of_lengths(summary, (1, 2, 4, 8)), decision=decision))
    assert set(found) == {"capacity", "concurrency"}
    assert [line.split(": sustains")[0] for line in found["capacity"].lines] == ["a · chat-o64", "a · chat-o128"]
    lonely = answered(study(of_lengths(summary, (4,)), decision=decision))
    assert set(lonely) == {"alone"}
    assert [line.partition(", 4 requests in flight")[0] for line in lonely["alone"].lines] == ["a · chat-o64", "a · chat-o128"]
    # Lengths at several loads have the figures of loads and crossed factors have not.
    loads, alone = (study(of_lengths(summary, levels)).runs.to_dicts() for levels in ((1, 2, 4), (4,)))
    assert plain(loads) == loads and levels(3)(loads)
    assert plain(alone) == [] and not levels(1)(alone)
    bursts = [{**row, "arrival": "burst"} for row in loads]
    assert plain(bursts) == bursts
    crossed_with = [{**row, "prompt_fixed": prompt} for row in bursts for prompt in (8, 16)]
    assert crossed_factors(crossed_with) and plain(crossed_with) == []


# A baseline


def test_what_is_better_or_worse_than_the_baseline(summary):
    def against(**more):
        return answered(study(compared_rows(summary, **more), baseline="old"))["comparison"]

    worse = against(ratio=0.7)
    assert re.match("new: tokens/s: −(29|30)", worse.lines[0]) and "worse" in worse.lines[0]
    assert worse.do == ("Keep old: new is worse in something and visibly better in nothing.",)
    alike_ = against()
    assert "no evidence of a difference in tokens/s" in alike_.lines[0]
    assert alike_.do == ("These runs give no reason to prefer new or old.",)

    # Requests that no longer fail are a reason to change.
    def against(failing):
        failed = {failing: {"failed": 20, "ok": 80}}
        rows = [{**row, "requests": 100, **failed.get(row["deployment"], {})} for row in compared_rows(summary)]
        return answered(study(rows, baseline="old"))["comparison"]

    assert against("old").lines[0] == "new: fewer requests fail, at 1, 2 and 4 requests in flight."
    assert against("old").do == ("new is better in something and visibly worse in nothing: it can replace old.",)
    assert against("new").lines[0] == "new: more requests fail, at 1, 2 and 4 requests in flight."
    assert against("new").do == ("Keep old: new is worse in something and visibly better in nothing.",)
    # As much better at the least load as it is worse at the highest, each too little to be sure of.
    results = study(compared_rows(summary, trend=0.99, levels=(1, 2, 4, 8, 16)), baseline="old")
    assert results.comparisons["new"].overall["verdict"].to_list() == ["changes with load"]
    assert answered(results)["comparison"].do == (
        "How new compares with old changes with the load, but at no load is either significantly better: "
        "measure more repeats at the loads that matter to you.",
    )


@pytest.mark.parametrize("wrong", [("old",), ("new",), ("old", "new")])
def test_half_a_pair_is_compared_nowhere(summary, tmp_path, wrong):
    results = study(compared_rows(summary, ratio=0.7, wrong=wrong), baseline="old")
    found = answered(results)["comparison"]
    assert found.lines == ("new: not known, no pair of runs under the same load is valid on both sides.",)
    write_report(tmp_path / "report.html", title="t", results=results, specs=[], facts=[], summary=tmp_path / "report.md")
    for file in ("report.html", "report.md"):
        assert "new: tokens/s: " not in (tmp_path / file).read_text()


# Concurrency and capacity


def test_where_the_cache_fills_and_throughput_peaks(summary):
    peak = {1: 10, 2: 20, 4: 40, 8: 80, 12: 115, 16: 90, 24: 60, 32: 50}
    rows = [
        {**summary, "deployment": "a", "workload": "w", "family": "w", "run": f"w_{level}_{repeat}", "axis": "concurrency",
         "level": float(level), "concurrency": level, "repeat": repeat, "kv_usage_peak": 1.0 if level >= 16 else 0.5, "preemptions": 0,
         "throughput_tokens_per_s": throughput * (1 + 0.01 * (repeat - 2))}
        for level, throughput in peak.items() for repeat in (1, 2, 3)
    ]  # fmt: skip
    row = study(rows).saturation.row(0, named=True)
    assert [row[key] for key in ("measured", "below", "saturation_at", "saturation_kind")] == [16, 12, 12, "peak"]
    assert (row["saturation_low"], row["saturation_high"]) == (8, 16)
    few = study([row for row in rows if row["level"] < 3]).saturation.row(0, named=True)
    assert (few["measured"], few["cache_known"], few["saturation_why"]) == (None, True, "few")


def test_capacity_comes_first_where_a_peak_is_to_be_carried(summary):
    decision = Decision(slo=["ttft_p99=1s"], peak_rps=100)
    base = {**summary, "deployment": "a", "workload": "w", "family": "w"}
    rows = [steady_row(base, level, ttft=3.0 if level > 4 else 0.1) for level in (1, 2, 4, 8)]
    found = answered(study(rows, decision=decision))
    assert next(iter(found)) == "capacity"
    assert found["capacity"].lines[0].startswith("a: sustains 8 requests/s (")
    expected = "A peak of 100 requests/s takes 13 instances (7 to 14 at 95 % confidence), 17 GPUs with the safety factor 1.3."
    assert expected in found["capacity"].lines[0]
    assert re.search(r"plan 19 GPUs of a \(14 instances, times the safety factor 1.3\)", found["capacity"].do[0])
    lost = answered(study([{**row, **WRONG} for row in rows], decision=decision))["capacity"]
    assert lost.lines == ("a: no valid run, so its capacity is not known.",)
    assert lost.sure == () and "bench discard" in lost.do[-1]


def test_a_limit_of_a_class_is_said_of_the_curves_that_it_limits_alone(summary, tmp_path):
    """A rate of `mix`, with class chat, beside one of `plain`: the second has a capacity without any SLO."""
    base, classes = {**summary, "deployment": "a"}, json.dumps({"chat": {}, "rag": {}})
    rows = [
        {**rate_row({**base, "workload": name, "family": name}, level), "run": f"{name}{level}"}
        for name in ("plain", "mix")
        for level in (4, 8)
    ]
    for row in rows[2:]:
        row |= {"classes": classes, "judged": [{**each, "request_class": "chat"} for each in row["judged"]]}
    found = study(rows, decision=Decision(slo=["chat.ttft_p99=1s"], peak_rps=100))
    (card,) = headline(curves(found))
    assert card.numbers[0].what == "sustains within TTFT P99 of chat ≤ 1 s"
    assert [number.workload for number in card.numbers] == ["mix", "mix"]  # and the fleet's
    (alone,) = headline([curve for curve in curves(found) if curve.workload == "plain"])
    assert (alone.numbers[0].what, alone.numbers[0].workload) == ("sustains", "plain")
    said = answered(found)["capacity"]
    assert said.question.startswith(
        "What load does one instance sustain within the limits of its own classes (TTFT P99 of chat ≤ 1 s), and"
    )
    assert said.sure[:2] == (
        "a · mix: judged by TTFT P99 of chat ≤ 1 s.",
        "No SLO limits a · plain, so a load counts as sustained while requests do not pile up and no more than 1 % of them fail.",
    )
    write_report(tmp_path / "r.html", title="t", results=found, specs=[], facts=[])
    page = (tmp_path / "r.html").read_text()
    assert page.count("No SLO limits it.") == 1
    only = answered(study(rows[2:], decision=found.decision))["capacity"]
    assert only.question.startswith("What load does one instance sustain within TTFT P99 of chat ≤ 1 s, and")


# One run, and none that is valid


def test_a_single_run_and_a_curve_of_one_level_are_reported(summary, tmp_path):
    row = {**summary, "deployment": "a", "workload": "w", "family": "w", "run": "w_4", "level": 4.0, "concurrency": 4, "axis": "concurrency",
           "throughput_tokens_per_s": 123.0}  # fmt: skip
    results = study([row], decision=Decision(slo=["ttft_p99=1s"], peak_rps=10))
    assert answered(results)["alone"].lines[0].startswith("a · w, 4 requests in flight: 123 output tokens/s")
    write_report(tmp_path / "report.html", title="t", results=results, specs=[], facts=[], summary=tmp_path / "report.md")
    assert "123 output tokens/s" in (tmp_path / "report.md").read_text()
    swept = length_rows(summary)[:1]
    assert list(answered(study(swept))) == ["alone"]


def test_a_report_without_a_valid_run_says_so_first(summary, tmp_path):
    decision = Decision(slo=["ttft_p99=1s"], peak_rps=10)
    base = {**summary, "deployment": "a", "workload": "w", "family": "w", **WRONG}
    results = study([steady_row(base, level) for level in (1, 2, 4)], decision=decision)
    write_report(tmp_path / "report.html", title="t", results=results, specs=[], facts=[], summary=tmp_path / "report.md")
    page, markdown = ((tmp_path / name).read_text() for name in ("report.html", "report.md"))
    assert markdown.splitlines()[2].startswith("**None of the 3 runs is valid, so no result holds.")
    assert 'class="trust alarm"' in page
    assert "Why not more" not in page and "Why not more" not in markdown
    assert markdown.count("discard --invalid") == 1


def test_limits_of_validity_that_a_study_changed_are_named(summary, tmp_path):
    assert changed_thresholds(Thresholds()) == ""
    changed = Thresholds(other_share=0.99)
    said = "The study loosened limits of validity: `other_share` 0.99 (default 0.15). By the defaults more runs may be invalid."
    assert changed_thresholds(changed) == said
    assert changed_thresholds(Thresholds(drift=1.0, scrape_share=0.0, send_spread_s=0.01)) == (
        "The study loosened limits of validity: `scrape_share` 0 (default 0.25) and `drift` 1 (default 0.1). By the defaults more runs "
        "may be invalid. The study tightened limits of validity: `send_spread_s` 0.01 (default 0.1)."
    )
    results = study([{**summary, "run": "r"}])
    write_report(
        tmp_path / "report.html",
        title="t",
        results=results,
        specs=[],
        facts=[],
        summary=tmp_path / "report.md",
        thresholds=changed,
    )
    assert said in (tmp_path / "report.md").read_text()
    assert "<code>other_share</code> 0.99 (default 0.15)" in (tmp_path / "report.html").read_text()


def test_what_is_alike_is_one_line(summary):
    # Reasons that differ in numbers alone are one.
    parts = [f"2{i} % slower in round 1 from 0{i}:00:00 UTC on than in its part from 09:00:00 UTC on" for i in (1, 2)]
    expected = [("21–22 % slower in round 1 from 01:00:00–02:00:00 UTC on than in its part from 09:00:00 UTC on", 2)]
    assert alike(parts) == expected
    reasons = ["others took 17 %, over 15 %", "late by 2 s", "others took 53 %, over 15 %"]
    assert alike(reasons) == [("others took 17–53 %, over 15 %", 2), ("late by 2 s", 1)]
    # The same advice for several curves is one line.
    found = [("a", "send less."), ("b", "send less."), ("c", ""), ("d", "send no more than 2.")]
    assert by_advice(found) == ["a and b: send less.", "d: send no more than 2."]
    assert by_advice([(name, "x.") for name in "abcdef"]) == ["a, b, c, d and 2 more: x."]
    assert by_advice([(name, "x.") for name in "abcde"]) == ["a, b, c, d and e: x."]
    # What the peak takes of alike curves is one part.
    curves = [
        steady_row({**summary, "deployment": name}, level, ttft=0.1 if level < 8 else 9.0)
        for name in "ab"
        for level in (1, 2, 4, 8)
    ]
    decision = Decision(slo=["ttft_p90=1s"], peak_rps=100)
    (plan, *_) = answered(study(curves, decision=decision))["capacity"].do
    assert re.fullmatch(
        r"To sustain the peak at 95 % confidence, plan \d+ GPUs of a and b \(\d+ instances, times the safety factor 1.3\)\.",
        plan,
    )


def test_the_first_line_counts_what_can_be_trusted():
    def runs(valid, counts, reasons):
        columns = {"valid": valid, "counts_valid": counts, "reasons": reasons}
        return pl.DataFrame(columns, schema_overrides={"reasons": pl.List(pl.String)})

    assert first_line(runs([True, True], [True, True], [[], []])) == "All 2 runs are valid."
    assert first_line(runs([False], [True], [["late"]])).startswith(
        "The only run is invalid, so only the server's counts hold."
    )
    assert first_line(runs([True, False], [True, False], [[], ["late"]])).startswith("1 of 2 runs is valid. The others")


def test_little_is_judged_by_the_requests_that_the_table_counts(summary):
    """54 requests of a steady window are 54 wherever they are counted, and goodput is never above what is carried."""
    decision = Decision(slo=["ttft_p99=1s"])
    base = {**summary, "deployment": "a", "workload": "w", "family": "w"}
    rows = [
        {**steady_row(base, level, requests=54, rps=1.5), "requests": 64, "goodput_requests_per_s": 1.51} for level in (1, 2)
    ]
    curve = curves(study(rows, decision=decision))[0]
    assert curve.sure.startswith("54 requests in 1 run were judged there.")
    assert curve.point["goodput_rps"] == curve.point["usable_rps"] == 1.5
    assert len(judged_answers(54)) == 54


def test_which_advice_on_invalid_runs_is_given(summary):
    """`spoilt` runs are so by other processes, `lasting` ones by answers of another length. No answer of the report says otherwise."""
    for spoilt, lasting, of, begins, also in (
        (1, 0, 6, "Measure the invalid runs again", ""),
        (1, 1, 6, "Measure the invalid runs again", "Some of them would be the same"),
        (0, 2, 6, "Measured again they would be the same", ""),
        (4, 0, 7, "Measure the invalid runs again", "end what disturbs most of them"),
        (0, 0, 3, "", ""),
    ):
        rows = [
            {**summary, "run": f"r{i}", "digest": f"r{i}", "level": i + 1.0, "host_other_share": 0.9 * (i < spoilt),
             "wrong_output_tokens": int(spoilt <= i < spoilt + lasting)}
            for i in range(of)
        ]  # fmt: skip
        found = study(rows)
        said = remedy(found.runs)
        assert said.startswith(begins) and also in said, (spoilt, lasting)
        told = [line for answer in answers(found, curves(found)) for line in answer.do]
        assert (AGAIN in told) <= said.startswith(AGAIN), (spoilt, lasting)
    # What to do about invalid runs depends on why they are.
    rows = [{**summary, "run": digest, "digest": digest, "wrong_output_tokens": int(digest == "a")} for digest in "ab"]
    line, _ = closing_lines(study(rows).runs, figures=1)
    assert line.startswith("1 of 2 runs is valid")
    assert "Measured again they would be the same" in line  # the server ends answers early
    rows = [{**row, "wrong_output_tokens": 0, "host_other_share": 0.9 * (row["run"] == "a")} for row in rows]
    line, allowed, _ = closing_lines(study(rows).runs, figures=1)
    assert "`thresholds: { other_share: 0.9 }`" in allowed
    assert "say why. Measure the invalid runs again: `.venv/bin/bench discard --invalid`" in line
    # How to measure again is said once in a command that is there.
    decision = Decision(slo=["ttft_p99=1s"], peak_rps=10)
    base = {**summary, "deployment": "a", "workload": "w", "family": "w", **WRONG}
    found = answered(
        study([*(steady_row(base, level) for level in (1, 2)), *length_rows(summary, wrong=range(17))], decision=decision)
    )
    assert set(found) == {"capacity", "lengths"}
    remedies = [line for answer in found.values() for line in answer.do if "discard" in line]
    expected = ["Measure the invalid runs again: `.venv/bin/bench discard --invalid`, then the same `make` command as before."]
    assert remedies == expected
