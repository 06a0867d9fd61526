"""Every figure, on results as they come: invalid runs, no telemetry, a single level, several workloads."""

import json
from dataclasses import replace

import polars as pl
import pytest

from bench.findings.registry import FIGURES, draw_figure, figures_of, load_figure, used_by
from bench.findings.saturation import saturation
from bench.findings.tables import Tables
from bench.models.catalogue import Accelerator
from bench.report import save
from bench.report.theme import why_empty
from bench.study.decision import Decision
from tests.support.figures import (
    CASES,
    GPUS,
    PEAK,
    Undrawn,
    drawn_of,
    drawn_rows,
    encodings,
    planted,
    results,
    results_of,
    saved_spec,
    spec_of,
)  # fmt: skip
from tests.support.study import bare_summary

WHOLE = Decision(
    slo=["ttft_p99=1s"], peak_rps=10, safety=1.5, accelerator="h100", price_per_hour=1, energy_price_per_kwh=0.2,
    cost_per_million_requests=3, price_per_million_tokens=10,
)  # fmt: skip
DEVICE = Accelerator(
    title="a GPU", memory="80GiB", bandwidth_tb_s=3, bf16_tflops=900, power_w=700, price_per_hour=10, source="a test"
)
# Figures that the cases here show; the others are drawn where what they show is planted.
OF_GPUS = ("gpus",)
SHOWN = ("comparison", "kv-saturation", "ttft", "throughput", "slo-margin", "latency-throughput", "memory-pressure", "predicted-loads",
         "economics", *OF_GPUS)  # fmt: skip
ELSEWHERE = ("speculation", "settings", "latency-by-length", "factors", "factor-panels")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Every figure's specification as it is saved, of which no picture is made."""
    folder, study = tmp_path_factory.mktemp("saved"), results(bare_summary(), **GPUS, wrong_output_tokens=[0, 0, 1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(save, "vl_convert", Undrawn)
        return {name: draw_figure(name, study, folder / name)[2] for name in FIGURES}


@pytest.fixture(scope="module")
def specs(files):
    return {name: json.loads(file.read_text()) for name, file in files.items()}


def test_every_figure_is_drawn_and_every_axis_has_a_title_and_no_tick_outside_its_domain(specs):
    assert sorted((*SHOWN, *ELSEWHERE)) == sorted(specs)
    assert {name for name, spec in specs.items() if "Nothing to show" not in json.dumps(spec)} == set(SHOWN)
    for name in SHOWN:
        axes = [each for each in encodings(specs[name]) if each.get("type") == "quantitative"]
        assert axes and all("title" in axis or axis["field"] == "predicted" for axis in axes), name
        for axis in encodings(specs[name]):
            scale, ticks = axis.get("scale") or {}, (axis.get("axis") or {}).get("values")
            assert not scale.get("clamp"), name
            if scale.get("domain") and ticks:
                assert min(scale["domain"]) <= min(ticks) and max(ticks) <= max(scale["domain"]), name


def test_every_figure_names_the_curves_that_the_reports_filter_hides_and_every_level_has_its_words_on_hover(specs):
    for name in SHOWN:
        told = {key: {row[key] for row in drawn_rows(specs[name], key)} for key in ("curve", "deployment")}
        assert {"a", "b"} <= told["curve"] or "b" in told["deployment"], name
    for name in ("kv-saturation", "throughput", "ttft", "memory-pressure"):
        assert '"tooltip": [' in json.dumps(specs[name]), name


@pytest.fixture(scope="module")
def invalid():
    """Every figure of a study without a valid run."""
    return {name: json.dumps(spec_of(name, results_of("on GPUs, only invalid runs"))) for name in SHOWN}


def test_without_a_valid_run_most_figures_have_crosses_and_the_others_nothing(invalid):
    empty = {name for name, spec in invalid.items() if "Nothing to show" in spec}
    assert empty == {"comparison", "economics"}


@pytest.mark.long(part="outputs")
@pytest.mark.timeout(600)
def test_every_figure_draws_whatever_comes():
    for case in CASES:
        for name in FIGURES:
            assert drawn_of(name, case), (name, case)


def test_loads_of_different_kinds_share_no_axis(summary):
    """A kind of load that shows nothing leaves no gap."""
    burst, paced = results(summary, deployments=("a",)), results(summary, deployments=("b",))
    rates = paced.runs.with_columns(axis=pl.lit("request_rate"), concurrency=pl.lit(None, dtype=pl.Int64))
    mixed = Tables(pl.concat([burst.runs, rates]), pl.concat([burst.timeseries, paced.timeseries]))
    for name, apart in (("ttft", True), ("kv-saturation", True), ("latency-throughput", False)):
        assert len(saved_spec(name, mixed).get("vconcat", ())) == (2 if apart else 0), name
    text = json.dumps(spec_of("ttft", mixed.by_axis()[1]))
    assert "request rate (requests/s)" in text
    assert "concurrency (requests" not in text
    row = saturation(rates).row(0, named=True)
    assert (row["axis"], row["predicted"]) == ("request_rate", None)  # a number of requests says nothing of a rate
    half = Tables(mixed.runs, burst.timeseries)
    assert "Nothing to show" in str(spec_of("memory-pressure", half.by_axis()[1]))
    assert "Nothing to show" not in json.dumps(saved_spec("memory-pressure", half))


def test_every_figure_is_drawn_by_a_function_of_its_own():
    charts = [load_figure(name) for name in FIGURES]
    assert [chart.name for chart in charts] == list(FIGURES)
    assert all(chart.title and chart.question.endswith("?") for chart in charts)
    # A page, and `--panel`, may show panels one by one.
    assert not [chart.name for chart in charts if {"Left:", "Right:", "Right.", "Above:", "Below:"} & {*chart.reading.split()}]
    plain = {"workload": "w", "family": "w", "deployment": "d", "axis": "concurrency", "arrival": "burst", "slo": True}
    for device in ("cuda", "cpu", None):
        rows = [{**plain, "device": device, "level": level, "repeat": 1, "baseline": level == 1} for level in (1, 2, 4, 8)]
        assert len(figures_of(rows)) > 5
        assert {*OF_GPUS} & {*figures_of(rows[:1])} == ({*OF_GPUS} if device == "cuda" else set())


def test_a_figure_that_has_nothing_to_show_says_so_in_its_picture(summary, tmp_path):
    for name, said in (("kv-saturation", False), ("gpus", True)):
        svg, png, _ = draw_figure(name, results(summary), tmp_path / name)
        assert png.read_bytes().startswith(b"\x89PNG")
        assert ("Nothing to show: no run has the" in svg.read_text()) == said
        assert " ".join(load_figure(name).reading.split()[:4]) not in svg.read_text()


def test_an_empty_figure_names_what_the_study_lacks(summary):
    study = results(summary)
    failed = replace(study, runs=study.runs.with_columns(valid=False))
    for name, given, why in (
        ("slo-margin", replace(study, decision=Decision()), "the study's `decision` names no SLO"),
        ("economics", replace(study, decision=Decision()), "no price of an hour and of tokens is given"),
        ("economics", failed, "no run is valid"),
    ):
        assert why_empty(load_figure(name).draw(given)) == why, name


def test_both_points_stand_on_their_curve_with_their_interval(summary):
    study = planted(summary, PEAK)
    spec, title = spec_of("throughput", study), load_figure("throughput").finding
    assert title(study) == "Throughput stops growing at 12 requests in flight"
    assert title(results_of("as it should be")) == "Throughput reaches 160 output tokens/s on a and 160 on b"
    found = {(row["point"], row["low"], row["high"]): row for row in drawn_rows(spec, "point")}
    assert set(found) == {("A|B", 4, 8), ("B|C", 8, 16)}
    left, top = found["A|B", 4, 8], found["B|C", 8, 16]
    assert (top["level"], top["throughput_tokens_per_s"]) == (12, pytest.approx(75 * 1.005))
    assert 40 < left["throughput_tokens_per_s"] < 60
    assert [panel["title"]["text"] for panel in spec["concat"]] == ["mean", "best second of each run"]
    assert not drawn_rows(spec_of("throughput", results_of("as it should be")), "point")  # three levels show none


def test_a_run_that_others_disturbed_is_a_cross_with_their_share(summary):
    study = results(summary, deployments=("a",), host_other_share=[0.0, 0.02, 0.314])
    assert study.runs["valid"].to_list() == [True, True, False]
    for name, column in (("ttft", "ttft_p50_s"), ("throughput", "throughput_tokens_per_s")):
        rows = drawn_rows(spec_of(name, study), "beside")
        assert {(row["level"], row["beside"]) for row in rows} == {(16, "31 %")}, name
        lines = [row for row in drawn_rows(spec_of(name, study), column) if not {"run", "beside"} & row.keys()]
        assert {row["level"] for row in lines} == {1, 4}, name  # no line rests on it


def rests_on_what_it_names(name):
    drawn, whole = load_figure(name), replace(results_of("on GPUs"), decision=WHOLE, device=DEVICE)
    assert drawn.draw(whole.given(used_by(name))).to_dict(validate=False) == drawn.draw(whole).to_dict(validate=False), name
    assert set(used_by(name)) <= {*Decision.model_fields, "calibration"}, name


@pytest.mark.long(part="outputs")
@pytest.mark.timeout(600)
def test_no_figure_rests_on_more_of_the_decision_than_it_names():
    for name in FIGURES:
        rests_on_what_it_names(name)


def test_a_figure_gets_of_the_decision_what_it_names_and_no_more(summary):
    """It is not drawn anew for the rest, of which the rule `figure` gives it nothing; what it names changes it."""
    for name in ("slo-margin", "gpus"):
        rests_on_what_it_names(name)
    whole = replace(results_of("on GPUs"), decision=WHOLE, device=DEVICE)
    given = whole.given(("slo", "accelerator"))
    assert given.decision == Decision(slo=WHOLE.slo, accelerator="h100")
    assert given.device is DEVICE and whole.given(("slo",)).device is None
    decided = replace(results(summary), decision=WHOLE)
    assert saved_spec("ttft", decided) != saved_spec("ttft", replace(decided, decision=Decision()))  # the limits
