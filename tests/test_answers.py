"""What a report answers first, on made runs whose truth is known: an effect that is there, one that is not, and one that nobody can know."""

import math
import re

import numpy as np
import polars as pl
import pytest
from benchmarks.factors import planted as crossed

from bench.aggregate import summary_frame
from bench.figures import Results
from bench.report import write_report
from bench.report.answers import answers
from bench.report.findings import findings
from bench.study import Decision
from bench.study.config import Thresholds
from bench.words import saturates
from bench.words.trust import alike, changed_thresholds, first_line
from tests import records
from tests.planted import answers as judged_answers
from tests.planted import rate_row, steady_row

EMPTY = pl.DataFrame(schema={"deployment": pl.String, "run": pl.String})
WRONG = {"wrong_output_tokens": 1}  # a run with it is invalid


def study(rows, *, decision=None, baseline=None, launches=None):
    """Results of made summary rows. Args: launches: what differs in a deployment's launch, by its name."""
    by_name = {
        row["deployment"]: records.launch(deployment=row["deployment"], **(launches or {}).get(row["deployment"], {}))
        for row in rows
    }
    facts = {name: records.facts(deployment=name, kv_tokens=640, kv_blocks=20) for name in by_name}
    return Results(summary_frame(rows, by_name, facts, Thresholds(), baseline), EMPTY, None, decision or Decision())


def answered(results):
    """The answers by the names of their questions, and all of their text."""
    found = answers(results, findings(results, {}, {}).curves)
    return {each.name: each for each in found}


def text(answer):
    return "\n".join((answer.question, *answer.lines, *answer.sure, *answer.do))


def noisy(value, noise, random):
    return value * math.exp(noise * random.standard_normal())


# Lengths and streaming


def length_rows(summary, *, prompt_ms=0.5, output_ms=10.0, square_ms=0.0, noise=0.01, wrong=(), count=16):
    random = np.random.default_rng(1)
    rows = []
    for i in range(1, count + 1):
        prompt, output = 128 * i, 32 * i
        ttft = noisy(20 + prompt_ms * prompt + square_ms * prompt**2, noise, random) / 1000
        e2e = noisy(50 + output_ms * output, noise, random) / 1000
        common = {**summary, "axis": "concurrency", "level": 1.0, "concurrency": 1, "deployment": "a"}
        sweeps = (
            {
                "workload": f"prefill-p{prompt}",
                "family": "prefill",
                "prompt_fixed": prompt,
                "output_fixed": 1,
                "ttft_p50_s": ttft,
            },
            {"workload": f"decode-o{output}", "family": "decode", "prompt_fixed": 32, "output_fixed": output, "e2e_p50_s": e2e},
        )
        rows += [{**common, "run": each["workload"], **each, **(WRONG if i in wrong else {})} for each in sweeps]
    return rows


def streamed_rows(summary, *, first=0.35, whole=5.6, wrong=()):
    common = {**summary, "axis": "concurrency", "level": 1.0, "concurrency": 1, "deployment": "a"}
    common |= {"prompt_fixed": 1024, "output_fixed": 512, "e2e_p50_s": whole}
    kinds = (("streamed", True, first), ("whole", False, None))
    return [
        {**common, "workload": name, "family": name, "run": name, "stream": stream, "ttft_p50_s": ttft, **(WRONG if name in wrong else {})}
        for name, stream, ttft in kinds
    ]  # fmt: skip


def test_what_a_token_costs_and_what_streaming_buys(summary):
    found = answered(study(length_rows(summary, noise=0.003) + streamed_rows(summary)))
    assert list(found) == ["lengths"]
    prompt, output, streaming = found["lengths"].lines
    assert prompt.startswith("A prompt token costs 0.5") and "(prompts of 128 to 2,048 tokens)" in prompt
    assert re.match("An output token costs (10.0|9.9)", output) and "No bend shows" in prompt
    assert "something to read after 0.35 s, without it after 5.6 s (1,024 + 512 tokens)" in streaming
    assert "An output token takes as long as 20 prompt tokens" in text(found["lengths"])
    assert "one run of each kind, so how far two such runs differ by chance is not known" in text(found["lengths"])


def test_a_cost_that_is_not_there_or_bends_or_cannot_be_known(summary):
    flat = answered(study(length_rows(summary, prompt_ms=0.0, noise=0.05)))["lengths"]
    assert "What a prompt token costs is not known" in flat.lines[0]
    assert not any("prompt token" in line for line in flat.do)
    bent = answered(study(length_rows(summary, prompt_ms=0.1, square_ms=2e-4)))["lengths"]
    share = 2e-4 * 2048**2 / (20 + 0.1 * 2048 + 2e-4 * 2048**2)
    made = re.search(
        r"long ones cost more than in proportion \(the square of the length makes (\d+) % of the latency at 2,048 tokens\)",
        bent.lines[0],
    )
    assert float(made[1]) == pytest.approx(100 * share, abs=6)
    lost = answered(study(length_rows(summary, wrong=range(3, 17))))["lengths"]
    assert lost.lines[0] == "What a prompt token costs is not known: 2 of 16 runs are valid, and a line takes 3 lengths."
    assert "bench discard --invalid" in lost.do[-1]


@pytest.mark.parametrize(
    ("wrong", "side"), [(("whole",), "without"), (("streamed",), "with"), (("streamed", "whole"), "with or without")]
)
def test_half_a_pair_says_nothing_of_streaming(summary, wrong, side):
    found = answered(study(streamed_rows(summary, wrong=wrong)))["lengths"]
    assert found.lines == (f"What streaming buys is not known: no valid run {side} it (1,024 + 512 tokens).",)
    assert not any("Stream" in line for line in found.do)


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
    found = answered(device_rows(summary, gain=1.3, short_gain=3.5))["devices"]
    said = text(found)
    assert "on 1 GPU the KV cache is full from 6 requests in flight on; on 2 GPUs no measured load fills the KV cache" in said
    room, short = found.lines[1:3]
    times = [float(re.search(r"([\d.]+) times", line)[1]) for line in (room, short)]
    assert times == pytest.approx([1.3, 3.5], rel=0.03)
    assert "(1 to 4): " in room and "less than 2 separate instances on 1 GPU each would give" in room
    assert "(6 to 24): " in short and "more than 2 separate instances" in short
    assert found.do[0].startswith("While 1 GPU can hold the load, run 2 separate instances")
    assert found.do[1].startswith("From 6 requests in flight on one instance, use 2 GPUs")
    assert "is assumed" in said


def test_a_second_device_that_buys_nothing_or_of_which_nothing_is_known(summary):
    none = answered(device_rows(summary, gain=1.0, short_gain=1.0, full=100))["devices"]
    assert "so no gain is established" in none.lines[1] and "No change of the gain" in none.lines[2]
    assert "separate instances" in none.do[0]
    half = answered(device_rows(summary, wrong=("two",)))["devices"]
    assert half.lines[0].startswith("Speed: not known, because no pair of runs")
    assert not any("times" in line for line in half.lines)
    assert half.sure == () and "bench discard" in half.do[0]


# Factors


def named(runs):
    """The made runs of a factor study under the names of deployments."""
    return runs.with_columns(deployment=pl.format("{}-{}", "model", "tensor_parallel"))


def test_which_factor_decides_what():
    runs = named(crossed(1, 0.05))
    found = answered(Results(runs, EMPTY))["factors"]
    makespan = next(line for line in found.lines if line.startswith("Makespan"))
    throughput = next(line for line in found.lines if line.startswith("Throughput"))
    assert makespan.startswith("Makespan: output length") and "decides most" in makespan
    assert throughput.startswith("Throughput: batch size") and "no visible effect: devices" in throughput
    assert "To change throughput, look at batch size first." in found.do
    assert "R² of 0.9" in found.sure[0] or "R² of 1.00" in found.sure[0]


def test_factors_of_noise_decide_nothing_and_few_configurations_are_not_enough():
    runs = named(crossed(1, 0.05))
    random = np.random.default_rng(3)
    chance = pl.Series(np.exp(random.standard_normal(runs.height)))
    noise = runs.with_columns(ttft_mean_s=chance, duration_s=chance, throughput_tokens_per_s=1 / chance)
    found = answered(Results(noise, EMPTY))["factors"]
    assert all("not known, because no model of it predicts" in line for line in found.lines)
    assert not any("look at" in line for line in found.do)
    few = runs.with_columns(valid=pl.int_range(pl.len()) < 6)
    assert "Not known: " in answered(Results(few, EMPTY))["factors"].lines[0]


# Open loops and steps


def test_what_load_is_sustained_and_how_it_recovers(summary):
    base = {**summary, "deployment": "a", "workload": "chat", "family": "chat"}
    rows = [rate_row(base, 4), rate_row(base, 8), rate_row(base, 24, growth=0.4, ttft=5.0, rps=10.0)]
    step = {**rate_row({**base, "workload": "step", "family": "step"}, 3), "recovered": True, "recovery_s": 1.7}
    found = answered(study([*rows, step]))
    assert list(found) == ["sustained"]
    curve, recovery = found["sustained"].lines
    assert curve.startswith("chat: carries 8 requests/s (TTFT P99 ~0.1 s); at 24 requests pile up, and the median TTFT is 5 s")
    assert recovery == "step: after the step, TTFT is as before within 1.7 s."
    assert "sets no SLO" in found["sustained"].sure[0]
    fast = answered(study(rows[:2]))["sustained"].lines[0]
    assert fast.endswith("the highest load that can be judged; its limit was not reached.")
    lost = answered(study([{**row, **WRONG} for row in (*rows, step)]))["sustained"]
    assert lost.lines == (
        "chat: not known, no run is valid.",
        "step: how it recovers from the step is not known, the run is invalid.",
    )


# A baseline


def compared_rows(summary, *, ratio=1.0, wrong=()):
    random = np.random.default_rng(4)
    return [
        {**summary, "deployment": name, "workload": "w", "family": "w", "run": f"w_{level}_{session}", "axis": "concurrency",
         "level": float(level), "concurrency": level, "session": session, "repeat": session, "ttft_p50_s": None,
         "throughput_tokens_per_s": noisy(100.0 * level * factor, 0.01, random), **(WRONG if name in wrong else {})}
        for session in range(1, 5) for level in (1, 2, 4) for name, factor in (("old", 1.0), ("new", ratio))
    ]  # fmt: skip


def test_what_is_better_or_worse_than_the_baseline(summary):
    def against(**more):
        return answered(study(compared_rows(summary, **more), baseline="old"))["comparison"]

    worse = against(ratio=0.7)
    assert re.match("new: output tokens/s: −(29|30)", worse.lines[0]) and "worse" in worse.lines[0]
    assert worse.do == ("Keep old: new is worse in something and visibly better in nothing.",)
    alike_ = against()
    assert "no evidence of a difference in output tokens/s" in alike_.lines[0]
    assert alike_.do == ("These runs give no reason to prefer new or old.",)


@pytest.mark.parametrize("wrong", [("old",), ("new",), ("old", "new")])
def test_half_a_pair_is_compared_nowhere(summary, tmp_path, wrong):
    results = study(compared_rows(summary, ratio=0.7, wrong=wrong), baseline="old")
    found = answered(results)["comparison"]
    assert found.lines == ("new: not known, no pair of runs under the same load is valid on both sides.",)
    write_report(tmp_path / "report.html", title="t", results=results, specs=[], facts=[], summary=tmp_path / "report.md")
    for file in ("report.html", "report.md"):
        assert "output tokens/s: " not in (tmp_path / file).read_text()


# Concurrency and capacity


def test_where_the_cache_fills_and_throughput_peaks(summary):
    peak = {1: 10, 2: 20, 4: 40, 8: 80, 12: 115, 16: 90, 24: 60, 32: 50}
    rows = [
        {**summary, "deployment": "a", "workload": "w", "family": "w", "run": f"w_{level}_{repeat}", "axis": "concurrency",
         "level": float(level), "concurrency": level, "repeat": repeat, "kv_usage_peak": 1.0 if level >= 16 else 0.5, "preemptions": 0,
         "throughput_tokens_per_s": throughput * (1 + 0.01 * (repeat - 2))}
        for level, throughput in peak.items() for repeat in (1, 2, 3)
    ]  # fmt: skip
    found = answered(study(rows))["concurrency"]
    assert "a: the KV cache is full from 16 in flight on (not at 12" in found.lines[0]
    assert "throughput peaks at 12 (8 to 16), then it falls" in found.lines[0]
    assert found.do[0] == "a: send no more than 12 at once; more wait for KV memory."
    few = answered(study([row for row in rows if row["level"] < 3]))["concurrency"]
    assert (
        "no load filled its KV cache" in few.lines[0] and "where throughput peaks is not known: too few levels" in few.lines[0]
    )
    assert not any("send no more" in line for line in few.do)


@pytest.mark.parametrize(
    ("predicted", "below", "measured", "most"), [(16.0, 15.0, 16.0, 16), (42.7, 40.0, 50.0, 42), (10.0, 12.0, 16.0, 12)]
)
def test_as_many_are_sent_as_fit(predicted, below, measured, most):
    """16 requests that fill the cache exactly do not wait; between two levels the prediction decides if it lies there."""
    row = {"deployment": "a", "workload": "w", "predicted": predicted, "below": below, "measured": measured, "levels_apart": 0}
    row |= {f"saturation_{key}": None for key in ("at", "low", "high", "fell_at", "back_at")}
    row |= {"saturation_kind": "unknown", "saturation_why": "few", "levels": 2, "cache_known": True}
    found = saturates.answer([row], several_workloads=False, decided=False)
    assert found.do[0] == f"a: send no more than {most} at once; more wait for KV memory."
    assert saturates.answer([row], several_workloads=False, decided=True).do == ()


def test_capacity_comes_first_where_a_peak_is_to_be_carried(summary):
    decision = Decision(slo=["ttft_p99=1s"], peak_rps=100)
    base = {**summary, "deployment": "a", "workload": "w", "family": "w"}
    rows = [steady_row(base, level, ttft=3.0 if level > 4 else 0.1) for level in (1, 2, 4, 8)]
    found = answered(study(rows, decision=decision))
    assert next(iter(found)) == "capacity"
    assert found["capacity"].lines[0].startswith("a: carries 8 requests/s at 4 requests in flight")
    assert (
        "The peak takes 13 instances (6 to 14 at 95 % confidence), 17 GPUs with the safety factor 1.3."
        in found["capacity"].lines[0]
    )
    assert re.search(r"plan the upper end: \d+ of a, before", found["capacity"].do[0])
    lost = answered(study([{**row, **WRONG} for row in rows], decision=decision))["capacity"]
    assert lost.lines == ("a: no valid run, so its capacity is not known.",)
    assert lost.sure == () and "bench discard" in lost.do[-1]


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
    assert markdown.splitlines()[2].startswith("**None of the 3 runs is valid, so nothing below holds.")
    assert 'class="trust alarm"' in page
    assert "Why not more" not in page and "Why not more" not in markdown


def test_limits_of_validity_that_a_study_changed_are_named(summary, tmp_path):
    assert changed_thresholds(Thresholds()) == ""
    changed = Thresholds(other_share=0.99)
    said = "Validity was judged by limits that the study changed: `other_share` 0.99 in place of 0.15."
    assert changed_thresholds(changed) == said
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
    assert "<code>other_share</code> 0.99 in place of 0.15" in (tmp_path / "report.html").read_text()


def test_reasons_that_differ_in_numbers_alone_are_one():
    reasons = ["others took 17%, over 15%", "late by 2 s", "others took 53%, over 15%"]
    assert alike(reasons) == [("others took 17–53%, over 15%", 2), ("late by 2 s", 1)]


def test_the_first_line_counts_what_can_be_trusted():
    def runs(valid, counts, reasons):
        columns = {"valid": valid, "counts_valid": counts, "reasons": reasons}
        return pl.DataFrame(columns, schema_overrides={"reasons": pl.List(pl.String)})

    assert first_line(runs([True, True], [True, True], [[], []])) == "All 2 runs are valid."
    assert first_line(runs([False], [True], [["late"]])).startswith(
        "None of the 1 runs is valid, so only the server's counts hold."
    )
    assert first_line(runs([True, False], [True, False], [[], ["late"]])).startswith("1 of 2 runs are valid. The others")


def test_little_is_judged_by_the_requests_that_the_table_counts(summary):
    """54 requests of a steady window are 54 wherever they are counted, and goodput is never above what is carried."""
    decision = Decision(slo=["ttft_p99=1s"])
    base = {**summary, "deployment": "a", "workload": "w", "family": "w"}
    rows = [
        {**steady_row(base, level, requests=54, rps=1.5), "requests": 64, "goodput_requests_per_s": 1.51} for level in (1, 2)
    ]
    curve = findings(study(rows, decision=decision), {}, {}).curves[0]
    assert curve.sure.startswith("C_max rests on 54 requests in 1 run.")
    assert (curve.there["requests"], curve.there["runs"]) == (54, 1)
    assert curve.point["goodput_rps"] == curve.point["usable_rps"] == 1.5
    assert len(judged_answers(54)) == 54
