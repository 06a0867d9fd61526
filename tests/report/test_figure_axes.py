"""Axes, colours, labels and panels: what a reader takes from any figure without its words."""

import json
from dataclasses import replace

import polars as pl

from bench.findings.tables import Tables
from bench.report.theme import HEIGHT, Span, curve_colour, curve_dash, curve_shape, level_axis
from bench.study.decision import Decision
from tests.support.figures import drawn_rows, encodings, results, spec_of
from tests.support.planted import answers


def test_an_axis_of_loads_has_a_tick_at_each_measured_one(summary):
    """A panel of 18 to 29 of a study of 1 to 64 had none: of powers of two there is none between."""
    study = results(summary, levels=(1, 18, 29, 64))
    for log in (True, False):
        assert level_axis(study, log=log).to_dict()["axis"]["values"] == [1, 18, 29, 64]


def test_margins_far_beyond_an_end_stand_at_the_edge(summary):
    study = replace(results(summary, ttft_p99_s=(0.001, 1.0, 100.0)), decision=Decision(slo=["ttft_p99=1s"]))
    spec = spec_of("slo-margin", study)
    found = {(row["level"], row["ttft_p99_s"]) for row in drawn_rows(spec, "ttft_p99_s")}
    assert found == {(1, 0.05), (4, 1.0), (16, 20.0)}


def test_the_line_of_a_margin_stays_in_its_panel(summary):
    """At 4 so many fail that P99 is infinite; at 16 none is answered, so the level has its line alone."""
    judged, seconds = [answers(100, failed=count) for count in (0, 10, 100)], [0.1, 0.1, None]
    study = replace(
        results(summary, judged=judged, ttft_p99_s=seconds, deployments=("a",)), decision=Decision(slo=["ttft_p99=1s"])
    )
    spec = spec_of("slo-margin", study)
    json.dumps(spec, allow_nan=False)
    rows = drawn_rows(spec, "ttft_p99_s")
    assert {row["level"]: row["ttft_p99_s"] for row in rows if "run" not in row} == {1: 0.1, 4: 20.0, 16: 20.0}
    assert {row["level"]: row["ttft_p99_s"] for row in rows if "run" in row} == {1: 0.1, 4: 0.1}
    ((low, high),) = {tuple(each["scale"]["domain"]) for each in encodings(spec) if each.get("field") == "ttft_p99_s"}
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
    span = Span(0.0, 1.1 * 1.6)
    up = [HEIGHT * (1 - span.share(row["beside"])) for row in names]
    assert up[1] - up[0] >= 15 and up[2] - up[1] >= 15
    assert not drawn_rows(spec_of("ttft", results(summary, deployments=("a",))), "ink")
    assert curve_colour(study).to_dict()["legend"] is None
    many = results(summary, deployments=tuple("abcdefghi"), known=False)
    assert not drawn_rows(spec_of("ttft", many), "ink") and curve_colour(many).to_dict()["legend"] is not None
