"""What a report answers first, on made runs whose truth is known: an effect that is there, one that is not, and one that nobody can know."""

import json
import re

import numpy as np
import polars as pl
import pytest
import sklearn.ensemble  # noqa: F401 - two seconds, which are no test's

from bench.findings.capacity.curves import curves_of
from bench.findings.lengths import streaming_gains
from bench.findings.report import closing_lines
from bench.findings.tables import Tables
from bench.findings.trust import alike, changed_thresholds, first_line, remedy
from bench.study.config import Thresholds
from bench.study.decision import Decision
from bench.study.questions import crossed_factors, levels, plain, with_and_without_streaming
from tests.support.answers import (
    EMPTY,
    WRONG,
    answered,
    length_rows,
    named,
    rows_of,
    screen,
    streamed_rows,
    study,
)
from tests.support.crossed import planted as crossed
from tests.support.findings import reported
from tests.support.planted import rate_row, steady_row

# Lengths and streaming


def found_in(results):
    return results.analysis.findings


def test_what_a_token_costs_and_what_streaming_buys(summary):
    results = study(length_rows(summary, noise=0.003) + streamed_rows(summary))
    prompt, output = found_in(results).lengths
    assert (prompt.lengths, prompt.slope) == ((128, 2048), pytest.approx(0.5, rel=0.02))
    assert (output.workload, output.slope) == ("decode", pytest.approx(10, rel=0.02))
    assert list(answered(results)) == ["lengths"]
    # A cost that is not there, or that cannot be known.
    flat = found_in(study(length_rows(summary, prompt_ms=0.0, noise=0.05))).lengths[0]
    assert (abs(flat.slope) < flat.slope_half, flat.lengths) == (True, (128, 2048))
    lost = found_in(study(length_rows(summary, wrong=range(3, 17)))).lengths[0]
    assert (lost.measured, lost.runs, lost.slope) == (2, 16, None)
    # One kind of answer alone says nothing of streaming.
    for wrong, valid, found in (((), 2, (0.35, 5.6)), (("whole",), 1, (0.35, None)), (("streamed",), 1, (None, 5.6))):
        results = study(streamed_rows(summary, wrong=wrong))
        (gain,) = found_in(results).streaming
        assert (gain.valid, (gain.first_s, gain.whole_s)) == (valid, found), wrong
        assert ("not known" in answered(results)["lengths"].lines[0]) == bool(wrong), wrong


def small(seed=1, noise=0.05):
    """A crossed study of 32 configurations."""
    return named(crossed(seed, noise, batches=(1, 16), prompts=(32, 512)))


def decided_of(runs, *left_out):
    """What decides the metrics of the one family. Args: left_out: columns that are not known."""
    runs = runs.with_columns(pl.lit(None, dtype=pl.Float64).alias(name) for name in left_out)
    (found,) = found_in(Tables(runs, EMPTY)).factors
    return found


def test_factors_of_noise_decide_nothing_and_few_configurations_are_not_enough():
    runs = small()
    chance = pl.Series(np.exp(np.random.default_rng(3).standard_normal(runs.height)))
    noise = decided_of(runs.with_columns(ttft_mean_s=chance), "duration_s", "throughput_tokens_per_s").effects
    assert noise and all(row["importance"] is None for row in noise)
    few = decided_of(runs.with_columns(valid=pl.int_range(pl.len()) < 6))
    assert (few.effects, few.configurations) == ((), 3)
    assert decided_of(runs.filter(tensor_parallel=1)).configurations == 16


def of_lengths(summary, levels, **more):
    """Two lengths of one ladder, as `output_tokens: [64, 128]` writes them."""
    base = {**summary, "deployment": "a", "family": "chat", **more}
    return [
        {**steady_row({**base, "workload": f"chat-o{output}", "output_fixed": output}, level, ttft=0.1 if level < 8 else 9.0), "run": f"o{output}_{level}"}
        for output in (64, 128) for level in levels
    ]  # fmt: skip


def test_lengths_that_were_measured_at_several_loads_have_capacities_of_their_own(summary):
    decision = Decision(slo=["ttft_p90=1s"])
    found = study(of_lengths(summary, (1, 2, 4, 8)), decision=decision)
    assert answered(found) == {} and list(screen(found)[0]) == ["a · chat-o64", "a · chat-o128"]
    lonely = answered(study(of_lengths(summary, (4,)), decision=decision))
    assert lonely == {}
    # Lengths at several loads have the figures of loads and crossed factors have not.
    loads, alone = (study(of_lengths(summary, levels)).runs.to_dicts() for levels in ((1, 2, 4), (4,)))
    assert plain(loads) == loads and levels(3)(loads)
    assert plain(alone) == [] and not levels(1)(alone)
    bursts = [{**row, "arrival": "burst"} for row in loads]
    assert plain(bursts) == bursts
    crossed_with = [{**row, "prompt_fixed": prompt} for row in bursts for prompt in (8, 16)]
    assert crossed_factors(crossed_with) and plain(crossed_with) == []


def compared_rows(summary, ratio=1.0):
    """`new` is `ratio` times as fast as `old`."""
    speeds = {"old": lambda x: 100.0 * x, "new": lambda x: ratio * 100.0 * x}
    return rows_of(summary, speeds, levels=(1, 2, 4), noise=0.01)


def test_what_is_better_or_worse_than_the_baseline(summary):
    def against(rows):
        return answered(study(rows, baseline="old"))["comparison"]

    worse = against(compared_rows(summary, 0.7))
    assert re.match("new: tokens/s: −(29|30)", worse.lines[0]) and "worse" in worse.lines[0]
    assert worse.do[0].startswith("Keep old")
    alike = against(compared_rows(summary))
    assert "tokens/s: no difference seen" in alike.lines[0] and "no reason to prefer" in alike.do[0]
    # Requests that no longer fail are a reason to change.
    for failing, line, do in (("old", "0 of 400 requests failed, of the baseline's 80 of 400: better", "new can replace old"), ("new", "80 of 400 requests failed, of the baseline's 0 of 400: worse", "Keep old")):  # fmt: skip
        failed = {failing: {"failed": 20, "ok": 80}}
        found = against([{**row, "requests": 100, **failed.get(row["deployment"], {})} for row in compared_rows(summary)])
        assert line in found.lines[0] and do in found.do[0], failing


def test_a_limit_of_a_class_is_said_of_the_curves_that_it_limits_alone(summary):
    """A rate of `mix`, with class chat, beside one of `plain`: the second has a capacity without any SLO."""
    base, classes = {**summary, "deployment": "a"}, json.dumps({"chat": {}, "rag": {}})
    plain, mix = (
        [{**rate_row({**base, "workload": name, "family": name}, level), "run": f"{name}{level}"} for level in (4, 8)]
        for name in ("plain", "mix")
    )
    for row in mix:
        row |= {"classes": classes, "judged": [{**each, "request_class": "chat"} for each in row["judged"]]}
    found = study([*plain, *mix], decision=Decision(slo=["chat.ttft_p99=1s"], peak_rps=100))
    rows, (plan, *notes) = screen(found)
    assert {row["workload"]: "no SLO limits it" in row["sustains"] for row in rows.values()} == {"mix": False, "plain": True}
    assert "instances of a · mix" in plan and notes[1] == "a · mix: judged by TTFT P99 of chat ≤ 1 s."
    assert notes[0] == "a · plain: judged by no SLO."


def test_a_report_without_a_valid_run_says_so_first(summary, tmp_path):
    decision = Decision(slo=["ttft_p99=1s"], peak_rps=10)
    base = {**summary, "deployment": "a", "workload": "w", "family": "w", **WRONG}
    page, markdown = reported(tmp_path, study([steady_row(base, level) for level in (1, 2, 4)], decision=decision))
    assert markdown.splitlines()[2].startswith("**None of the 3 runs is valid, so no result holds.")
    assert 'class="trust alarm"' in page
    assert "Why not more" not in page and "Why not more" not in markdown
    assert markdown.count("discard invalid") == 1


def test_a_load_that_was_measured_alone_is_within_the_slos_or_not(summary):
    one, two, several = ({**summary, "workload": name, "family": name} for name in ("one", "two", "several"))
    lone = [steady_row(one, 4), steady_row(two, 8, ttft=3.0)]
    curve = [steady_row(several, level) for level in (1, 2)]
    results = study(lone + curve, decision=Decision(slo=["ttft_p99=2s"]))
    lines = answered(results)["alone"].lines
    assert lines == (
        "a · one at 4 requests in flight: meets TTFT P99 ≤ 2 s (measured: 100 ms).",
        "a · two at 8 requests in flight: misses TTFT P99 ≤ 2 s (measured: 3 s).",
    )
    assert set(lines) <= set(closing_lines(results, figures=1))
    assert "alone" not in answered(study(lone)) | answered(study(curve, decision=results.decision))


def test_limits_of_validity_that_a_study_changed_are_named(summary, tmp_path):
    assert changed_thresholds(Thresholds()) == ""
    both = changed_thresholds(Thresholds(drift=1.0, count_error=0.5, client_delay_p99_s=0.01))
    assert "`client_delay_p99_s` 0.01 (default 0.05)" in both and "`drift` 1 (default 0.1)" in both
    # And what lets an invalid run count.
    changed = Thresholds(other_share=0.99)
    _, markdown = reported(tmp_path, study([{**summary, "run": "r", "host_other_share": 0.9}]), thresholds=changed)
    assert changed_thresholds(changed) in markdown and "`thresholds: { other_share: 0.9 }`" in markdown


def test_what_is_alike_is_one_line():
    # Reasons that differ in numbers alone are one.
    parts = [f"2{i} % slower in round 1 from 0{i}:00:00 UTC on than in its part from 09:00:00 UTC on" for i in (1, 2)]
    expected = [("21–22 % slower in round 1 from 01:00:00–02:00:00 UTC on than in its part from 09:00:00 UTC on", 2)]
    assert alike(parts) == expected
    reasons = ["others took 17 %, over 15 %", "late by 2 s", "others took 53 %, over 15 %"]
    assert alike(reasons) == [("others took 17–53 %, over 15 %", 2), ("late by 2 s", 1)]


def test_little_is_judged_by_the_requests_that_the_table_counts(summary):
    """54 requests of a steady window are 54 wherever they are counted, and goodput is never above what is carried."""
    decision = Decision(slo=["ttft_p99=1s"])
    base = {**summary, "deployment": "a", "workload": "w", "family": "w"}
    told = {"requests": 64, "goodput_requests_per_s": 1.51}
    rows = [{**steady_row(base, level, requests=54, rps=1.5), **told} for level in (1, 2)]
    curve = curves_of(study(rows, decision=decision))[0]
    assert curve.evidence.startswith("54 requests in 1 run were judged at 2 requests in flight.")
    assert curve.point["goodput_rps"] == curve.point["usable_rps"] == 1.5


def test_which_advice_on_invalid_runs_is_given(summary):
    """`spoilt` runs are so by other processes, `lasting` ones by answers of another length. No answer of the report says otherwise."""
    for spoilt, lasting, of, begins, also in (
        (1, 0, 6, "Measure the invalid runs again", ""),
        (1, 1, 6, "Measure the invalid runs again", ""),
        (0, 2, 6, "Measured again they would be the same", ""),
        (4, 0, 7, "Measure the invalid runs again", ""),
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

    # The first line counts what can be trusted.
    def runs(valid, counts, reasons):
        columns = {"valid": valid, "counts_valid": counts, "reasons": reasons}
        return pl.DataFrame(columns, schema_overrides={"reasons": pl.List(pl.String)})

    assert first_line(runs([True, True], [True, True], [[], []])) == "All 2 runs are valid."
    late = ["client.loop_lag: the client's event loop was late: P99 0.2 s, over 0.1 s"]
    assert "The only run is invalid, so only the server's counts hold." in first_line(runs([False], [True], [late]))
    assert first_line(runs([True, False], [True, False], [[], late])).startswith(
        "1 of 2 runs is valid. What cannot be trusted of the others is left out."
    )


def at_level(rows, level):
    return [{**row, "level": float(level), "concurrency": level, "run": f"{row['run']}_c{level}"} for row in rows]


def test_levels_and_families_are_named_and_not_mixed(summary):
    low, high = at_level(length_rows(summary, noise=0.003), 1), at_level(length_rows(summary, prompt_ms=3.0, noise=0.003), 16)
    prefill = [row for row in low if row["family"] == "prefill"]
    other = [{**row, "family": "chat", "workload": f"chat-{i}", "run": f"chat-{i}"} for i, row in enumerate(prefill)]
    prompts = [each for each in found_in(study([*low, *high, *other])).lengths if each.kind == "prompt"]
    told = {(each.workload, each.level): each.slope for each in prompts}
    assert told == pytest.approx({("prefill", 1): 0.5, ("chat", 1): 0.5, ("prefill", 16): 3.0}, rel=0.02)
    apart = [*prefill, *(row for row in high if row["family"] == "decode")]
    assert answered(study(apart))["lengths"].do == ()
    # Valid runs without a TTFT are valid.
    (none,) = found_in(study([{**row, "stream": False, "ttft_p50_s": None} for row in prefill])).lengths
    assert (none.measured, none.runs, none.slope) == (0, 16, None)
    # Lengths of a distribution are not the same requests.
    rows = [{**row, "output_fixed": None} for row in streamed_rows(summary)]
    results = study(rows)
    assert not with_and_without_streaming(results.runs.to_dicts()) and streaming_gains(results.runs) == []
    assert answered(results) == {}
