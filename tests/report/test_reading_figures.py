"""What a reader sees at once: titles, legends, axes and marks that state what the data show, in print and in any colours."""

import json
from dataclasses import replace

import polars as pl
import pytest

from bench.analysis.windows import of_windows, whole_runs
from bench.figures import Results
from bench.figures.registry import load_figure
from bench.figures.save import save_figure
from bench.figures.theme import NEUTRAL, curve_colour, curve_shape
from bench.study import Decision
from bench.words.charts import WINDOWS, profile_note
from tests.support.figures import drawn_rows, planted, results
from tests.support.planted import steady_row
from tests.support.summaries import table


def marks_of(spec, kind):
    """Every layer whose mark is `kind`."""
    found = []
    for value in spec.values() if isinstance(spec, dict) else spec:
        if isinstance(value, dict | list):
            found += marks_of(value, kind)
    if isinstance(spec, dict) and isinstance(spec.get("mark"), dict) and spec["mark"]["type"] == kind:
        found.append(spec)
    return found


def test_a_figure_takes_the_title_that_its_data_allow(summary, tmp_path):
    def title(study):
        return json.loads(save_figure("peak-throughput", study, tmp_path / "peak-throughput")[2].read_text())["title"]["text"]

    found = planted(summary, {1: 10, 2: 20, 4: 40, 8: 60, 12: 75, 16: 60, 24: 50})
    assert title(found) == "Throughput stops growing at 12 requests in flight"
    assert title(results(summary)) == "Throughput against load"  # three levels
    rates = found.runs.with_columns(axis=pl.lit("request_rate"), deployment=pl.lit("b"))
    two = Results(pl.concat([found.runs, rates]), found.timeseries)
    assert title(two) == "Throughput against load"  # of two kinds of load


def rules_of(study, name):
    spec = load_figure(name).draw(study).to_dict()
    rule = next(mark for mark in marks_of(spec, "rule") if "condition" in mark["encoding"].get("color", {}))
    assert rule["encoding"]["color"]["condition"] == {"test": "datum.shared", "value": NEUTRAL}
    return {row["curve"]: row["shared"] for row in spec["datasets"][rule["data"]["name"]]}


@pytest.mark.parametrize("name", ["kv-saturation", "peak-throughput"])
def test_a_prediction_that_curves_share_has_the_colour_of_none(name, summary):
    study = results(summary, deployments=("a", "b", "c"), known=False)
    at = pl.col("deployment").replace_strict({"a": 4.0, "b": 12.0, "c": 12.0})
    shared = Results(study.runs.with_columns(predicted_saturation=at), study.timeseries)
    assert rules_of(shared, name) == {"a": False, "b": True, "c": True}


def test_curves_differ_in_shape_as_well_as_in_colour(summary):
    study = results(summary, deployments=tuple("abcdefghijklmn"), known=False)
    colour, shape = (channel(study).to_dict() for channel in (curve_colour, curve_shape))
    assert colour["title"] == shape["title"] and colour["scale"]["domain"] == shape["scale"]["domain"]  # or two legends
    assert len(set(zip(colour["scale"]["range"], shape["scale"]["range"], strict=True))) == 14
    assert all(one != darker for one, darker in zip(shape["scale"]["range"], shape["scale"]["range"][7:], strict=False))
    part = Results(study.runs.filter(pl.col("deployment") == "c"), study.timeseries, study.runs)
    assert curve_shape(part).to_dict()["scale"]["range"] == shape["scale"]["range"][2:3]


def test_panels_that_are_compared_have_one_kind_of_axis(summary):
    wide = results(summary, levels=(1, 4, 8, 64), deployments=("a",), known=False)
    narrow = results(summary, levels=(4, 6, 8, 12), deployments=("b",), known=False)
    both = Results(pl.concat([wide.runs, narrow.runs]), pl.concat([wide.timeseries, narrow.timeseries]))
    for study, kinds in ((both, {"log"}), (narrow, {None})):
        spec = load_figure("performance-profile").draw(study).to_dict()
        assert {line["encoding"]["x"]["scale"].get("type") for line in marks_of(spec, "line")} == kinds


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


@pytest.mark.parametrize(
    ("name", "marks"), [("peak-throughput", "Hollow"), ("performance-profile", "Hollow"), ("latencies", "In grey squares")]
)
def test_whole_runs_among_windows_are_marked(name, marks, summary, tmp_path):
    study = Results(of_windows(mixed(summary))[0], results(summary).timeseries)
    spec = json.loads(save_figure(name, study, tmp_path / name)[2].read_text())
    noted = " ".join(spec["title"]["subtitle"][1:])
    assert f"{marks}: 1 whole run, ramp and drain included, among steady windows." in noted
    rows = [row for row in drawn_rows(spec, "whole") if row["whole"] is True]
    assert {(row["curve"], row["level"]) for row in rows} == {("a · a", 2)}
    clean = Results(study.runs.filter(deployment="b"), study.timeseries)
    noted = " ".join(json.loads(save_figure(name, clean, tmp_path / name)[2].read_text())["title"]["subtitle"])
    assert marks not in noted


def test_a_number_of_windows_and_one_of_whole_runs_are_told_apart(summary, tmp_path):
    study = Results(of_windows(mixed(summary))[0], results(summary).timeseries)
    bursts = Results(study.runs.with_columns(arrival=pl.lit("burst"), steady_from_s=None, steady_why=None), study.timeseries)
    for found, said in ((study, True), (bursts, False)):
        spec = json.loads(save_figure("latency-throughput", found, tmp_path / "latency-throughput")[2].read_text())
        assert (WINDOWS in " ".join(spec["title"]["subtitle"])) == said
    spec = load_figure("predicted-loads").draw(results(summary)).to_dict()
    titles = {mark["encoding"]["y"]["title"][0]: mark["encoding"]["y"]["title"][1:] for mark in marks_of(spec, "line")}
    assert titles["TTFT P99 (s, log)"] == ["of whole runs"]


def test_a_profile_explains_the_marks_that_it_has(summary, tmp_path):
    study = Results(of_windows(mixed(summary))[0], results(summary).timeseries)
    spec = json.loads(save_figure("performance-profile", study, tmp_path / "profile")[2].read_text())
    noted = " ".join(spec["title"]["subtitle"])
    assert "Ground: A spare capacity, B shared, C overload" in noted
    assert ("triangle" in noted) == study.saturation["measured"].is_not_null().any()
    whole = profile_note(points=True, predicted=True, full=True, waits=True)
    assert [name for name in ("diamonds", "dashed", "triangle", "circle") if name in whole] == [
        "diamonds",
        "dashed",
        "triangle",
        "circle",
    ]
    assert profile_note(points=False, predicted=False, full=False, waits=False).count(";") == 0


def tensor_parallel(summary, *invalid, counts=(1, 2, 4)):
    """A model on several numbers of devices at three levels; `invalid` are pairs of devices and level."""
    study = results(summary, deployments=tuple(f"d{n}" for n in counts), known=False)
    devices = pl.col("deployment").str.strip_prefix("d").cast(pl.Int64)
    rows = study.runs.with_columns(model=pl.lit("m"), engine=pl.lit("e"), tensor_parallel=devices)
    bad = pl.any_horizontal(
        pl.lit(False), *((pl.col("tensor_parallel") == n) & (pl.col("level") == level) for n, level in invalid)
    )
    return Results(rows.with_columns(valid=~bad), study.timeseries)


@pytest.mark.parametrize(
    ("invalid", "shown", "pairs"),
    [
        ([], {(n, level) for n in (1, 2, 4) for level in (1, 4, 16)}, 0),
        ([(4, 16)], {(n, level) for n in (1, 2, 4) for level in (1, 4, 16)} - {(4, 16)}, 1),
        ([(2, 16), (4, 16)], {(n, level) for n in (1, 2, 4) for level in (1, 4)}, 2),
        ([(n, level) for n in (1, 2, 4) for level in (1, 4, 16)], set(), 6),
        ([(n, 16) for n in (1, 2, 4)], {(n, level) for n in (1, 2, 4) for level in (1, 4)}, 2),
    ],
)
def test_half_of_a_pair_of_devices_is_left_out_and_counted(invalid, shown, pairs, summary, tmp_path):
    study = tensor_parallel(summary, *invalid)
    path = save_figure("settings", study, tmp_path / "settings")[2]
    spec = json.loads(path.read_text())
    assert {(int(row["series"][3:]), row["level"]) for row in drawn_rows(spec, "run")} == shown
    assert (f"Pairs that are not compared for that: {pairs}." in spec["usermeta"]["note"]) == bool(pairs)


def test_a_level_that_one_number_of_devices_has_alone_stays(summary):
    study = tensor_parallel(summary, counts=(1, 2))
    alone = study.runs.filter((pl.col("tensor_parallel") == 2) | (pl.col("level") < 16))
    rows = drawn_rows(load_figure("settings").draw(Results(alone, study.timeseries)).to_dict(), "run")
    assert {row["series"] for row in rows if row["level"] == 16} == {"TP=2"}


def test_pairs_with_an_invalid_run_are_counted_in_a_comparison(summary, tmp_path):
    def note(**change):
        study = results(summary, **change)
        return json.loads(save_figure("comparison", study, tmp_path / "comparison")[2].read_text())["usermeta"]["note"]

    assert note() == ""
    study = results(summary)
    bad = pl.col("deployment").eq("b") & pl.col("level").eq(4)
    one = Results(study.runs.with_columns(valid=~bad), study.timeseries, None, Decision())
    save_figure("comparison", one, tmp_path / "comparison")
    spec = json.loads((tmp_path / "comparison.json").read_text())
    assert spec["usermeta"]["note"].endswith("Pairs that are not compared for that: 1.")
    assert "4" not in {row["load"] for row in drawn_rows(spec, "load")}


def test_repeats_and_levels_of_streaming_are_not_added_up(summary, tmp_path):
    """Bars of one place would stand on one another."""
    study = results(summary, levels=(1, 1, 4), repeat=[1, 2, 1], deployments=("a",), e2e_p50_s=[1.0, 3.0, 5.0])
    whole = study.runs.with_columns(pl.format("{}_whole", "run").alias("run"), stream=pl.lit(False), workload=pl.lit("whole"))
    both = Results(pl.concat([study.runs, whole]), study.timeseries)
    path = save_figure("streaming", both, tmp_path / "streaming")[2]
    rows = drawn_rows(json.loads(path.read_text()), "seconds")
    places = [(row["case"], row["answer"], row["measure"]) for row in rows]
    assert len(places) == len(set(places)) == 8
    ends = {row["case"]: row["seconds"] for row in rows if row["answer"] == "whole answer"}
    assert ends == {"a: 32 + 32 tokens at 1": 2.0, "a: 32 + 32 tokens at 4": 5.0}
    bad = (pl.col("stream") == False) & (pl.col("repeat") == 2)  # noqa: E712
    half = Results(both.runs.with_columns(valid=~bad), study.timeseries)
    spec = json.loads(save_figure("streaming", half, tmp_path / "streaming")[2].read_text())
    assert spec["usermeta"]["note"].endswith("Pairs that are not compared for that: 1.")
    first = {row["case"]: row["seconds"] for row in drawn_rows(spec, "seconds") if row["answer"] == "whole answer"}
    assert first["a: 32 + 32 tokens at 1"] == 1.0  # the first repeat alone


def test_a_level_that_a_panel_lacks_is_named_with_the_reason(summary, tmp_path):
    waiting = [None, 3.0, 5.0]
    study = results(summary, deployments=("a", "b"), known=False, waiting_standing=waiting)
    study = replace(study, runs=study.runs.with_columns(waiting_standing=pl.when(deployment="a").then("waiting_standing")))
    note = json.loads(save_figure("latencies", study, tmp_path / "latencies")[2].read_text())["usermeta"]["note"]
    why = "as runs there had too few scrapes once the load stood."
    assert f"Not known: requests that wait at a 1; b 1, 4 and 16 requests in flight, {why}" in note
    nowhere = replace(study, runs=study.runs.with_columns(waiting_standing=pl.lit(None, dtype=pl.Float64)))
    assert not json.loads(save_figure("latencies", nowhere, tmp_path / "latencies")[2].read_text())["usermeta"]["note"]


def test_a_gap_of_one_curve_of_several_is_no_gap_of_all(summary, tmp_path):
    """One load of one curve has no value; the other curve, and another kind of load, lack other ones or none."""
    study = results(summary, deployments=("a", "b"), known=False, waiting_standing=[1.0, 3.0, 5.0])
    gap = pl.when(~(pl.col("deployment").eq("b") & pl.col("level").eq(4))).then("waiting_standing")
    study = replace(study, runs=study.runs.with_columns(waiting_standing=gap))
    why = "as runs there had too few scrapes once the load stood."
    note = json.loads(save_figure("latencies", study, tmp_path / "latencies")[2].read_text())["usermeta"]["note"]
    assert f"Not known: requests that wait at b 4 requests in flight, {why}" in note
    rates = study.runs.with_columns(axis=pl.lit("request_rate"), level=pl.col("level") / 2, workload=pl.lit("rates"))
    both = replace(study, runs=pl.concat([study.runs, rates]))
    note = json.loads(save_figure("latencies", both, tmp_path / "latencies")[2].read_text())["usermeta"]["note"]
    said = [f"Not known: requests that wait at b · {at}, {why}" for at in ("short 4 requests in flight", "rates 2 requests/s")]
    assert " ".join(said) in note


def test_crosses_have_the_label_of_their_load_where_there_is_room(summary):
    study = results(summary, deployments=("a",), known=False)
    study = replace(study, runs=study.runs.with_columns(valid=pl.col("level") != 16))
    spec = load_figure("latency-throughput").draw(study).to_dict()
    rows = [row for row in drawn_rows(spec, "dx") if row["run"]]
    assert {(row["label"], row["align"] is not None) for row in rows} == {("16", True)}
    crosses = [mark for mark in marks_of(spec, "point") if mark["mark"].get("shape") == "cross"]
    assert all(mark["transform"][-1]["filter"] == "isValid(datum.run)" for mark in crosses)


def test_a_figure_without_anything_to_show_may_be_left_out(summary, tmp_path):
    study, told = results(summary, known=False), []
    assert save_figure("gpu-memory-power", study, tmp_path / "gpus", leave_out=told.append) == []
    assert told == ["no run has the memory, the power or the energy of its GPUs"]
    assert not list(tmp_path.iterdir())
    assert len(save_figure("gpu-memory-power", study, tmp_path / "gpus")) == 3  # a study's workflow expects it
    assert save_figure("kv-saturation", study, tmp_path / "kv", leave_out=told.append)
