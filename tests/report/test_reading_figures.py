"""What a reader takes from any figure: axes, colours, labels, marks and notes that state what the data show, by planted runs."""

import json
import math
from dataclasses import replace
from itertools import combinations

import polars as pl
import pytest

from bench.findings.registry import draw_figure
from bench.findings.saturation import lesson
from bench.findings.tables import Tables
from bench.report.theme import HEIGHT, Span, apart, curve_colour, curve_dash, curve_shape, level_axis
from bench.study.decision import Decision
from tests.support.figures import PEAK, data_of, drawn_rows, encodings, planted, results, saved_spec, spec_of
from tests.support.planted import answers


def test_a_figure_without_anything_to_show_may_be_left_out(summary, tmp_path):
    study, told = results(summary, known=False), []
    assert draw_figure("gpus", study, tmp_path / "gpus", leave_out=told.append) == []
    assert told == ["no run has the utilisation, the memory, the power or the energy of its GPUs"]
    assert not list(tmp_path.iterdir())
    assert len(draw_figure("gpus", study, tmp_path / "gpus")) == 3  # a study's workflow expects it
    assert draw_figure("kv-saturation", study, tmp_path / "kv", leave_out=told.append)


def test_an_axis_of_loads_has_a_tick_at_each_measured_one(summary):
    """A panel of 18 to 29 of a study of 1 to 64 had none: of powers of two there is none between."""
    study = results(summary, levels=(1, 18, 29, 64))
    assert level_axis(study).to_dict()["axis"]["values"] == [1, 18, 29, 64]


def test_margins_far_beyond_an_end_stand_at_the_edge(summary):
    study = replace(results(summary, ttft_p99_s=(0.001, 1.0, 100.0)), decision=Decision(slo=["ttft_p99=1s"]))
    spec = spec_of("slo-margin", study)
    found = {(row["level"], row["ttft_p99_of_limit"]) for row in drawn_rows(spec, "ttft_p99_of_limit")}
    assert found == {(1, 0.05), (4, 1.0), (16, 20.0)}


def test_the_line_of_a_margin_stays_in_its_panel(summary):
    """At 4 so many fail that P99 is infinite; at 16 none is answered, so the level has its line alone."""
    judged, seconds = [answers(100, failed=count) for count in (0, 10, 100)], [0.1, 0.1, None]
    study = replace(
        results(summary, judged=judged, ttft_p99_s=seconds, deployments=("a",)), decision=Decision(slo=["ttft_p99=1s"])
    )
    spec = spec_of("slo-margin", study)
    json.dumps(spec, allow_nan=False)
    rows = drawn_rows(spec, "ttft_p99_of_limit")
    assert {row["level"]: row["ttft_p99_of_limit"] for row in rows if "run" not in row} == {1: 0.1, 4: 20.0, 16: 20.0}
    assert {row["level"]: row["ttft_p99_of_limit"] for row in rows if "run" in row} == {1: 0.1, 4: 0.1}
    ((low, high),) = {tuple(each["scale"]["domain"]) for each in encodings(spec) if each.get("field") == "ttft_p99_of_limit"}
    assert low <= 0.1 and high == 20.0


def scale_of(channel):
    scale = channel.to_dict()["scale"]
    return dict(zip(scale["domain"], map(str, scale["range"]), strict=True))


def test_colour_and_shape_are_the_deployment_and_dash_the_workload(summary):
    study = results(summary, deployments=("a", "b"), workloads=("short", "chat"))
    dash = scale_of(curve_dash(study))
    for of_deployment in (scale_of(curve_colour(study)), scale_of(curve_shape(study))):
        for name in "ab":
            assert of_deployment[f"{name} · short"] == of_deployment[f"{name} · chat"]
        assert of_deployment["a · short"] != of_deployment["b · short"]
    assert dash["short"] == "[1, 0]" != dash["chat"]
    part = Tables(study.runs.filter(pl.col("workload") == "chat"), study.timeseries, study.runs)
    assert scale_of(curve_dash(part))["chat"] == dash["chat"]  # of a part of a study too


def test_names_stand_at_the_ends_of_lines_and_cover_no_other(summary):
    """A single curve needs none, and of very many there is a legend."""
    study = results(summary, deployments=("a", "b", "c"))
    spec = spec_of("ttft", study)
    assert "legend" not in {key for each in encodings(spec) for key in each}
    names = spec["datasets"][next(name for name, rows in spec["datasets"].items() if "ink" in rows[0])]
    assert [row["curve"] for row in names] == ["a", "b", "c"] and {row["end"] for row in names} == {16}
    assert len({row["beside"] for row in names}) == 3
    x, y = Span(0.0, 100.0), Span(0.0, 100.0)
    # Three lines that end at one point; a name beside which another line has its points; one far from all stays where it is.
    texts, points = [(50.0, 90.0, "far"), *[(50.0, 50.0, name) for name in "abc"]], [(60.0, 90.0), (52.0, 45.0), (10.0, 50.0)]
    down = [HEIGHT * (1 - y.share(at)) for at in apart(texts, x, y, points=points)]
    assert down[0] == pytest.approx(HEIGHT * 0.1 + 15) and apart(texts[:1], x, y) == [90.0]
    gaps = [abs(one - other) for one, other in combinations([*down[1:], HEIGHT * 0.55], 2)]
    assert min(gaps) >= 15 - 1e-6 and max(abs(each - HEIGHT / 2) for each in down[1:]) <= 45
    assert not drawn_rows(spec_of("ttft", results(summary, deployments=("a",))), "ink")
    assert curve_colour(study).to_dict()["legend"] is None
    many = results(summary, deployments=tuple("abcdefghi"), known=False)
    assert not drawn_rows(spec_of("ttft", many), "ink") and curve_colour(many).to_dict()["legend"] is not None


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
    at = {(row["curve"], row["level"]): (row["full"], row["kv_usage_peak"]) for row in drawn_rows(spec, "run")}
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
        column = f"ttft_p95_{unit}"
        drawn = {row["level"]: row[column] for row in drawn_rows(spec, column) if row.get("run")}
        assert drawn == pytest.approx({1: 0.1 * times, 4: 0.4 * times, 16: 3.0 * times})
        titles = [each["title"] for each in encodings(spec) if each.get("field") == column]
        assert titles and all(text.startswith(f"TTFT P95 ({unit})") for text in titles)
