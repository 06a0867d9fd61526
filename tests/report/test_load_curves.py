"""The figures of load curves, against planted runs: latency and throughput, the full cache, and what throughput loses beyond it."""

import json
import math
from dataclasses import replace

import polars as pl
import pytest

from bench.findings.saturation import lesson
from bench.findings.tables import Tables
from bench.search.chart import draw
from bench.search.placing import Aim, Answer
from bench.search.search import Found, Look
from bench.statistics.observation import Excess, Observation
from bench.study.decision import Decision
from bench.study.slo import parse_slo
from tests.support.figures import PEAK, data_of, drawn_rows, encodings, planted, results, saved_spec, spec_of
from tests.support.planted import answers


def rows_of(spec, panel):
    return spec["datasets"][data_of(spec["concat"][panel])]


# Latency against throughput


def curve(summary, **more):
    """Of deployment a, 16 misses the SLO; throughput falls from 4 to 16, where the tail leaves the median."""
    spread = [[0.1] * 400, *([p50] * 370 + [p95] * 20 + [p99] * 10 for p50, p95, p99 in ((0.2, 0.3, 0.4), (0.4, 2.0, 4.0)))]
    planted = {
        "throughput_tokens_per_s": [10.0, 40.0, 30.0], "throughput_requests_per_s": [1.0, 4.0, 3.0],
        "ttft_p50_s": [0.1, 0.2, 0.4], "ttft_p95_s": [0.1, 0.3, 2.0], "ttft_p99_s": [0.1, 0.4, 4.0],
        "tpot_p50_s": [0.01, 0.02, 0.04], "tpot_p95_s": [0.01, 0.02, 0.05], "judged": [answers(ttft=ttft) for ttft in spread],
    }  # fmt: skip
    study = results(summary, deployments=("a",), **planted, **more)
    return replace(study, decision=Decision(slo=["ttft_p95=1s"]))


def test_noise_is_no_path_back(summary):
    """Throughput that falls by no more than runs vary goes straight up; one that falls for certain goes back."""
    straight = {row["level"]: row["along"] for row in rows_of(spec_of("latency-throughput", curve(summary)), 0)}
    assert straight[1] == pytest.approx(10) and straight[4] == straight[16] == pytest.approx(math.sqrt(40 * 30))
    back = planted(summary, PEAK)
    rows = rows_of(spec_of("latency-throughput", back), 0)
    assert {row["level"]: row["along"] for row in rows}[24] == pytest.approx(50 * 1.005)


def test_whole_answers_stand_by_their_end(summary):
    """As embeddings, or answers without streaming: no run has a first token."""
    none = dict.fromkeys((f"{name}_{each}_s" for name in ("ttft", "tpot") for each in ("p50", "p90", "p95", "p99")), [None] * 3)
    ends = {f"e2e_{each}_s": [0.1, 0.2, 0.4] for each in ("p50", "p95", "p99")}
    study = results(
        summary, deployments=("a",), work=["embedding"] * 3, throughput_tokens_per_s=[10.0, 40.0, 30.0], **none, **ends
    )
    spec = spec_of("latency-throughput", study)
    assert [panel["title"]["text"] for panel in spec["concat"]] == ["E2E P95; faint: P50"]
    assert spec["concat"][0]["layer"][0]["encoding"]["x"]["title"] == "prompt tokens/s"
    assert [panel["title"]["text"] for panel in spec_of("ttft", study)["concat"]] == ["E2E P50", "E2E P95"]


# The full cache


def test_what_fits_stands_beside_what_is_sustained(summary):
    """Each run at its part of the predicted load; a cache that holds four times as many does not help one whose limit is elsewhere."""
    slow = {"a": [0.1, 0.4, 2.0], "b": [0.1, 2.0, 8.0]}
    study = results(summary, workloads=("short",))
    parts = [results(summary, deployments=(name,), ttft_p95_s=waits, judged=[answers(ttft=[wait] * 400) for wait in waits])
             for name, waits in slow.items()]  # fmt: skip
    fits = pl.col("deployment").replace_strict({"a": 16.0, "b": 64.0})
    runs = pl.concat([part.runs for part in parts]).with_columns(
        predicted_saturation=fits, kv_usage_peak=pl.min_horizontal(pl.lit(1.0), pl.col("level") / fits)
    )
    runs = runs.with_columns(saturated=pl.col("kv_usage_peak") >= 1.0)
    study = Tables(runs, study.timeseries, None, Decision(slo=["ttft_p95=1s"]))
    spec = saved_spec("kv-saturation", study)
    at = {(row["curve"], row["level"]): (row["full"], row["kv_usage_peak"]) for row in drawn_rows(spec, "burst")}
    assert at["a", 16] == (1, 1) and at["b", 16] == (0.25, 0.25)
    beside = {row["curve"]: (row["c_max"], row["missed_at"], row["predicted"]) for row in drawn_rows(spec, "missed_at")}
    assert beside == {"a": (4, 16, 16), "b": (1, 4, 64)}
    assert lesson(study) == (
        "Geometry decides when the cache fills, compute decides what users can have: b's cache holds 64 requests, a's 16, and yet it "
        "misses TTFT P95 ≤ 1 s at 4 in flight, which a sustains."
    )
    assert spec["title"]["text"] == lesson(study).partition(":")[0]
    elsewhere = runs.with_columns(predicted_saturation=fits / 4)  # the cache fills where nobody predicted it
    alike = runs.with_columns(predicted_saturation=pl.lit(16.0), kv_usage_peak=pl.col("level") / 16)
    for other in (elsewhere, alike, runs.filter(deployment="a")):
        assert lesson(Tables(other, study.timeseries, None, study.decision)) == ""


# What is not there


def test_ttft_is_in_the_unit_of_its_limit_and_the_title_says_where_it_is_passed(summary):
    judged = [answers(ttft=[wait] * 400) for wait in (0.1, 0.4, 3.0)]
    told = results(summary, deployments=("a",), ttft_p95_s=[0.1, 0.4, 3.0], judged=judged)
    for slo, unit, times, title in (
        ("ttft_p95=1s", "s", 1, "TTFT P95 passes 1 s at 16 in flight"),
        ("ttft_p95=200ms", "ms", 1000, "TTFT P95 passes 200 ms at 4 in flight"),
        ("ttft_p95=9s", "s", 1, "TTFT P95 stays within 9 s"),
        ("tpot_p95=9s", "s", 1, "TTFT P50 is 3 s at the highest load"),
    ):
        spec = saved_spec("ttft", replace(told, decision=Decision(slo=[slo])))
        assert spec["title"]["text"] == title
        assert [panel["title"]["text"] for panel in spec["concat"]] == ["TTFT P50", "TTFT P95"]
        drawn = {row["level"]: row["ttft_p95_s"] for row in drawn_rows(spec, "ttft_p95_s") if row.get("run")}
        assert drawn == pytest.approx({1: 0.1 * times, 4: 0.4 * times, 16: 3.0 * times})
        titles = [each["title"] for each in encodings(spec) if each.get("field") == "ttft_p95_s"]
        assert all(text.startswith(f"TTFT P95 ({unit})") for text in titles)


# The limit that `bench find` draws

SLOS = [parse_slo("ttft_p95=1s"), parse_slo("tpot_p95=40ms")]
AIM = Aim(slos=SLOS, failed_share=0.01, held=True, precision=0.2, start=8, lowest=1, highest=96)


def limit_of(tmp_path, looks, answer):
    draw(Found(answer, looks), AIM, tmp_path / "limit")
    return json.loads((tmp_path / "limit.json").read_text())


def test_the_frame_of_a_limit_is_as_high_as_its_runs(tmp_path):
    """Of two loads at half and twice their limit, ± 10 %."""
    looks = [
        Look(load, 100, 9.0, Observation(load, {SLOS[0].column: Excess(math.log(reached), 0.05)}, 100))
        for load, reached in ((8.0, 0.5), (32.0, 2.0))
    ]
    spec = limit_of(tmp_path, looks, Answer(16, 8, 32, "found"))
    y = spec["layer"][-1]["encoding"]["y"]
    low, high = y["scale"]["domain"]
    assert 0.3 < low < 0.5 and 2.0 < high < 2.6
    assert spec["layer"][-1]["encoding"]["shape"]["legend"] is None  # of one SLO
