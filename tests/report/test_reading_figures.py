"""What a reader sees at once: titles, legends, axes and marks that state what the data show, in print and in any colours."""

from dataclasses import replace

import polars as pl

from bench.findings.registry import draw_figure
from bench.findings.tables import Tables
from bench.parse.windows import of_windows, whole_runs
from bench.report.theme import curve_colour, curve_shape
from bench.study.decision import Decision
from tests.support.figures import drawn_rows, results, saved_spec
from tests.support.planted import steady_row
from tests.support.summaries import table


def test_curves_differ_in_shape_as_well_as_in_colour(summary):
    study = results(summary, deployments=tuple("abcdefghijklmn"), known=False)
    colour, shape = (channel(study).to_dict() for channel in (curve_colour, curve_shape))
    assert colour["title"] == shape["title"] and colour["scale"]["domain"] == shape["scale"]["domain"]  # or two legends
    assert len(set(zip(colour["scale"]["range"], shape["scale"]["range"], strict=True))) == 14
    assert all(one != darker for one, darker in zip(shape["scale"]["range"], shape["scale"]["range"][7:], strict=False))
    part = Tables(study.runs.filter(pl.col("deployment") == "c"), study.timeseries, study.runs)
    assert curve_shape(part).to_dict()["scale"]["range"] == shape["scale"]["range"][2:3]


def mixed(summary):
    """Two curves, of which one has a level without a steady window."""
    short = {"steady": False, "steady_why": "short"}
    speed = {"throughput_tokens_per_s": 1.0, "steady_tokens_per_s": 2.0, "ttft_p50_s": 0.5, "steady_ttft_p50_s": 0.1}
    rows = [
        {**steady_row({**summary, "deployment": name, "workload": name, "family": name}, level), **speed, **more}
        for name in "ab"
        for level, more in ((1, {}), (2, short if name == "a" else {}), (4, {}), (8, {}))
    ]
    return table(*rows)


def test_whole_runs_among_windows_are_known_before_and_after(summary):
    rows = mixed(summary)
    for frame in (rows, of_windows(rows)[0]):
        found = whole_runs(frame)
        assert found.select("deployment", "level").rows() == [("a", 2.0)]
        assert found.columns == frame.columns
    assert whole_runs(rows.filter(level=2)).is_empty()  # each curve of one kind
    burst = rows.with_columns(arrival=pl.lit("burst"), steady_from_s=None, steady_why=None)
    assert whole_runs(burst).is_empty()


def test_whole_runs_among_windows_are_marked(summary):
    study = Tables(of_windows(mixed(summary))[0], results(summary).timeseries)
    clean = Tables(study.runs.filter(deployment="b"), study.timeseries)
    for name, marks in (("throughput", "Hollow"), ("ttft", "Hollow")):
        spec = saved_spec(name, study)
        noted = " ".join(spec["title"].get("subtitle", []))
        assert f"{marks}: 1 whole run, ramp and drain included, among steady windows." in noted, name
        rows = [row for row in drawn_rows(spec, "whole") if row["whole"] is True]
        assert {(row["curve"], row["level"]) for row in rows} == {("a · a", 2)}, name
        assert marks not in " ".join(saved_spec(name, clean)["title"].get("subtitle", [])), name


def tensor_parallel(summary, *invalid, counts=(1, 2, 4)):
    """A model on several numbers of devices at three levels; `invalid` are pairs of devices and level."""
    study = results(summary, deployments=tuple(f"d{n}" for n in counts), known=False)
    devices = pl.col("deployment").str.strip_prefix("d").cast(pl.Int64)
    rows = study.runs.with_columns(model=pl.lit("m"), engine=pl.lit("e"), tensor_parallel=devices)
    bad = pl.any_horizontal(
        pl.lit(False), *((pl.col("tensor_parallel") == n) & (pl.col("level") == level) for n, level in invalid)
    )
    return Tables(rows.with_columns(valid=~bad), study.timeseries)


def test_a_level_of_which_no_pair_is_valid_is_left_out(summary):
    for invalid, shown in (
        (set(), {("d2", 1), ("d2", 4), ("d2", 16), ("d4", 1), ("d4", 4), ("d4", 16)}),
        ({(4, 16)}, {("d2", 1), ("d2", 4), ("d2", 16), ("d4", 1), ("d4", 4)}),
        ({(1, 16)}, {("d2", 1), ("d2", 4), ("d4", 1), ("d4", 4)}),
        ({(1, 1), (1, 4), (1, 16)}, set()),
    ):
        spec = saved_spec("settings", tensor_parallel(summary, *invalid))
        assert {(row["deployment"], row["level"]) for row in drawn_rows(spec, "series")} == shown, invalid


def test_pairs_with_an_invalid_run_are_counted_in_a_comparison(summary):
    study = results(summary)
    assert saved_spec("comparison", study)["usermeta"]["note"] == ""
    bad = pl.col("deployment").eq("b") & pl.col("level").eq(4)
    spec = saved_spec("comparison", Tables(study.runs.with_columns(valid=~bad), study.timeseries, None, Decision()))
    assert spec["usermeta"]["note"].endswith("Pairs that are not compared for that: 1.")
    assert "4" not in {row["load"] for row in drawn_rows(spec, "load")}


def test_a_gap_of_one_curve_of_several_is_no_gap_of_all(summary):
    """One load of one curve has no value; the other curve, and another kind of load, lack other ones or none."""
    study = results(summary, deployments=("a", "b"), known=False, ttft_p99_s=[1.0, 3.0, 5.0])
    gap = pl.when(~(pl.col("deployment").eq("b") & pl.col("level").eq(4))).then("ttft_p99_s")
    study = replace(study, runs=study.runs.with_columns(ttft_p99_s=gap))
    why = "as no run there has a value."
    note = saved_spec("ttft", study)["usermeta"]["note"]
    assert f"Not known: TTFT P99 at b 4 requests in flight, {why}" in note
    rates = study.runs.with_columns(axis=pl.lit("request_rate"), level=pl.col("level") / 2, workload=pl.lit("rates"))
    both = replace(study, runs=pl.concat([study.runs, rates]))
    note = saved_spec("ttft", both)["usermeta"]["note"]
    said = [f"Not known: TTFT P99 at b · {at}, {why}" for at in ("short 4 requests in flight", "rates 2 requests/s")]
    assert " ".join(said) in note


def test_a_figure_without_anything_to_show_may_be_left_out(summary, tmp_path):
    study, told = results(summary, known=False), []
    assert draw_figure("gpus", study, tmp_path / "gpus", leave_out=told.append) == []
    assert told == ["no run has the utilisation, the memory, the power or the energy of its GPUs"]
    assert not list(tmp_path.iterdir())
    assert len(draw_figure("gpus", study, tmp_path / "gpus")) == 3  # a study's workflow expects it
    assert draw_figure("kv-saturation", study, tmp_path / "kv", leave_out=told.append)
