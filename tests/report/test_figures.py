"""Every figure, on results as they come: invalid runs, no telemetry, a single level, several workloads."""

import html
import json
import re
import subprocess
import sys
from dataclasses import replace

import polars as pl
import pytest

from bench.analysis import saturation
from bench.errors import BenchError
from bench.figures import Results, figure_names, figures_of, save, selection
from bench.figures.regions import region_bands
from bench.figures.registry import load_figure
from bench.figures.save import save_figure
from bench.figures.theme import curve_colour
from bench.published import Accelerator
from bench.report import write_manifest, write_report
from bench.study import Decision
from tests.support.figures import CASES, DECISION, GPUS, PEAK, data_of, drawn_of, drawn_rows, planted, results, results_of
from tests.support.planted import answers

WHOLE = Decision(
    slo=["ttft_p99=1s"], peak_rps=10, safety=1.5, accelerator="h100", price_per_hour=1, energy_price_per_kwh=0.2,
    cost_per_million_requests=3, price_per_million_tokens=10,
)  # fmt: skip
DEVICE = Accelerator(
    title="a GPU", memory="80GiB", bandwidth_tb_s=3, bf16_tflops=900, power_w=700, price_per_hour=10, source="a test"
)


def test_what_is_earned_has_no_panel_for_a_burst(summary):
    study = results(summary, deployments=("a",), workloads=("short", "chat"), judged=[answers(100)] * 3)
    closed = pl.col("workload") == "chat"
    runs = study.runs.with_columns(
        arrival=pl.when(closed).then(pl.lit("closed")).otherwise("arrival"),
        steady_tokens_per_s=pl.when(closed).then("throughput_tokens_per_s"),
    )
    earned = Results(runs, study.timeseries, None, DECISION)
    assert earned.points.filter(workload="short")["operate_at"].item() == 1
    chart = load_figure("economics").draw(earned).to_dict()
    assert {row["curve"] for rows in chart["datasets"].values() for row in rows} == {"a · chat"}


# No other figure looks at GPUs; the cost of energy comes from their power.
OF_GPUS = {"gpu-balance", "gpu-memory-power", "utilisation-by-batch", "economics"}


@pytest.mark.parametrize(
    ("case", "name"), [(c, n) for c in CASES for n in figure_names() if n in OF_GPUS or not c.startswith("on GPUs")]
)
def test_every_figure_draws_whatever_comes(name, case):
    drawn = load_figure(name)
    assert drawn_of(name, case)
    assert drawn.title
    assert drawn.question.endswith("?")


@pytest.mark.parametrize("name", figure_names())
def test_every_axis_has_a_title(name):
    spec = json.dumps(drawn_of(name, "as it should be"))
    axes = re.findall(r'"[xy]": (\{.*?"type": "quantitative"\})', spec)
    assert axes or "Nothing to show" in spec
    assert all('"title":' in axis or '"field": "predicted"' in axis for axis in axes)


def test_the_interval_of_a_limit_is_the_one_of_the_capacity_table(summary):
    study = replace(results(summary, ttft_p99_s=(0.5, 0.8, 2.0)), decision=Decision(slo=["ttft_p99=1s"]))
    drawn = {(row["low"], row["high"]) for row in drawn_rows(load_figure("slo-margin").draw(study).to_dict(), "reached")}
    assert drawn == set(study.points.select("low", "high").iter_rows())


def test_a_p99_that_its_requests_cannot_carry_is_hollow(summary):
    study = results(summary, ttft_p99_bound_s=[None, None, 3.5], ttft_n=[4, 4, 700], deployments=("a",))
    panels = load_figure("latencies").draw(study).to_dict()
    rows = drawn_rows({"datasets": {"ttft": panels["datasets"][data_of(panels["concat"][0])]}}, "unbounded")
    assert {row["level"]: (row["unbounded"], row["bound"]) for row in rows} == {
        1: (True, None),
        4: (True, None),
        16: (False, 3.5),
    }


def test_loads_of_different_kinds_share_no_axis(tmp_path, summary, monkeypatch):
    monkeypatch.setattr(save, "vl_convert", Undrawn)
    burst, paced = results(summary, deployments=("a",)), results(summary, deployments=("b",))
    rates = paced.runs.with_columns(axis=pl.lit("request_rate"), concurrency=pl.lit(None, dtype=pl.Int64))
    mixed = Results(pl.concat([burst.runs, rates]), pl.concat([burst.timeseries, paced.timeseries]))
    for name in figure_names():
        spec = json.loads(save_figure(name, mixed, tmp_path / name)[2].read_text())
        assert len(spec["vconcat"]) == 2 if load_figure(name).by_axis else "vconcat" not in spec
    text = json.dumps(load_figure("latencies").draw(mixed.by_axis()[1]).to_dict())
    assert "request rate (requests/s)" in text
    assert "concurrency (requests" not in text
    row = saturation(rates).row(0, named=True)
    assert (row["axis"], row["predicted"]) == ("request_rate", None)  # a number of requests says nothing of a rate


def test_a_kind_of_load_that_shows_nothing_leaves_no_gap(tmp_path, summary, monkeypatch):
    monkeypatch.setattr(save, "vl_convert", Undrawn)
    shown, empty = results(summary, deployments=("a",)), results(summary, deployments=("b",))
    rates = empty.runs.with_columns(axis=pl.lit("request_rate"), concurrency=pl.lit(None, dtype=pl.Int64))
    mixed = Results(pl.concat([shown.runs, rates]), shown.timeseries)
    assert "Nothing to show" in str(load_figure("throughput-over-time").draw(mixed.by_axis()[1]).to_dict())
    text = save_figure("throughput-over-time", mixed, tmp_path / "x")[2].read_text()
    assert "Nothing to show" not in text


class Undrawn:
    """In place of what makes pictures, where the specification is looked at alone."""

    @staticmethod
    def vegalite_to_svg(_):
        return ""

    @staticmethod
    def svg_to_png(_, scale):  # noqa: ARG004
        return b""


def test_levels_with_repeats_have_their_interval(summary):
    once = results(summary, deployments=("a",))
    assert not drawn_rows(load_figure("peak-throughput").draw(once).to_dict(), "low")
    study = results(summary, levels=(1, 4, 4), deployments=("a",), throughput_tokens_per_s=[10.0, 40.0, 44.0])
    rows = drawn_rows(load_figure("peak-throughput").draw(study).to_dict(), "low")
    mean = next(row for row in rows if row["mean"] == 42.0)
    assert (mean["level"], mean["low"], mean["high"]) == (
        4,
        pytest.approx(42 - 25.41, abs=0.01),
        pytest.approx(42 + 25.41, abs=0.01),
    )


def test_half_of_a_pair_is_no_comparison_of_streaming(summary):
    study = results(summary, deployments=("a",))
    whole = study.runs.with_columns(pl.format("{}_whole", "run").alias("run"), stream=pl.lit(False), workload=pl.lit("whole"))
    bad = pl.col("level") == 4
    both = Results(pl.concat([study.runs, whole.with_columns(valid=~bad)]), study.timeseries)
    spec = load_figure("streaming").draw(both).to_dict()
    assert {row["case"] for row in drawn_rows(spec, "answer")} == {f"a: 32 + 32 tokens at {level}" for level in (1, 16)}
    none = Results(pl.concat([study.runs, whole.with_columns(valid=pl.lit(False))]), study.timeseries)
    assert "no two workloads whose runs are valid" in json.dumps(load_figure("streaming").draw(none).to_dict())


def test_missing_scrapes_are_crosses_where_the_server_s_counts_are_drawn_alone(summary):
    study = results(summary, deployments=("a",), scrape_gap_max_s=[0.3, 0.3, 9.0])
    for name, column, marked in (("kv-saturation", "kv_usage_peak", [16]), ("latencies", "tail", [])):
        rows = drawn_rows(load_figure(name).draw(study).to_dict(), column)
        assert sorted({row["level"] for row in rows if row.get("valid") is False}) == marked


ORDER = """latency-throughput user-speed comparison fleet kv-saturation peak-throughput performance-profile latencies saturation-by-kv-bytes memory-pressure economics
throughput-over-time settings gpu-balance gpu-memory-power ttft-by-prompt-length latency-by-output-length streaming
factor-correlations factor-importance factor-panels utilisation-by-batch"""


def test_what_is_read_of_the_charts_is_what_they_declare():
    assert [name for name in figure_names() if name in ORDER.split()] == ORDER.split()  # there may be more
    charts = [load_figure(name) for name in figure_names()]
    assert [chart.name for chart in charts] == figure_names()
    assert [chart.order for chart in charts] == sorted({chart.order for chart in charts})
    plain = {
        "workload": "w",
        "family": "w",
        "deployment": "d",
        "axis": "concurrency",
        "arrival": "burst",
        "device": "cuda",
        "slo": True,
    }
    rows = [{**plain, "level": level, "repeat": 1, "baseline": level == 1} for level in (1, 2, 4, 8)]
    assert len(figures_of(rows)) > 7
    assert figures_of(rows, tuned=True) == [chart.name for chart in charts if chart.applies(rows)]


def chart_file(folder, declared):
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "a_new_one.py").write_text(
        f'import nothing_of_the_kind\n\n@figure("a-new-one", {declared})\ndef draw(results): ...\n'
    )
    return folder


def test_a_figure_is_one_file(tmp_path, monkeypatch):
    """Which is not imported to find out whether it applies."""
    row = {"workload": "w", "family": "w", "level": 1.0, "replica": True}
    for number, applies in enumerate(("levels(1)", "lambda rows: any(row['replica'] for row in plain(rows))")):
        charts = chart_file(tmp_path / str(number), f"applies={applies}, order=5, title=nothing")
        monkeypatch.setattr(selection, "_CHARTS", charts)
        assert (figure_names(), figures_of([row]), figures_of([])) == (["a-new-one"], ["a-new-one"], [])


@pytest.mark.parametrize(
    "declared", ["order=5", "applies=levels(1)", "applies=my_own, order=5", "applies=levels(1), order=LAST"]
)
def test_a_chart_that_does_not_say_when_it_applies_is_named(tmp_path, monkeypatch, declared):
    monkeypatch.setattr(selection, "_CHARTS", chart_file(tmp_path / "charts", declared))
    with pytest.raises(BenchError, match=r"a_new_one\.py: no function under @figure.*`order` and `applies`.*Give it both"):
        figures_of([])


def test_which_figures_a_study_has_is_known_without_what_draws_them():
    """Or each start of the workflow, and each of its jobs, would wait for it."""
    told = "import sys; from bench.figures import figures_of; figures_of([]); print({'altair', 'polars', 'scipy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_a_comparison_shows_every_load_its_regions_and_all_together(summary):
    study = results(summary, levels=(1, 1, 4, 4, 16, 64), repeat=[1, 2, 1, 2, 1, 1], deployments=("a", "b", "c"))
    half = pl.when((pl.col("deployment") == "c") & (pl.col("level") > 4)).then(0.4).otherwise(1.0)
    study = replace(study, runs=study.runs.with_columns(pl.col("throughput_tokens_per_s") * half))
    spec = load_figure("comparison").draw(study).to_dict()
    assert [strip["title"]["text"] for strip in spec["vconcat"]] == [
        f"{name} against a, by concurrency (requests in flight)" for name in "bc"
    ]
    assert spec["vconcat"][0]["title"]["subtitle"] == []
    assert spec["vconcat"][1]["title"]["subtitle"][0].startswith("tokens/s: from 16 in flight on −60.0 %, worse")
    rows = drawn_rows(spec, "verdict")
    assert {row["load"] for row in rows} == {"1", "4", "16", "64", "low loads", "middle loads", "high loads", "all"}
    assert {row["verdict"] for row in rows} == {"no evidence", "worse"}


def test_a_wrong_name_lists_the_right_ones():
    with pytest.raises(
        BenchError,
        match=r"'pie' is no figure\. There are: tuning, latency-throughput, user-speed, comparison, answers, fleet, slo-margin, kv-saturation",
    ):
        load_figure("pie")


def test_a_curve_keeps_its_colour_in_every_part_of_a_figure(summary):
    told = results(summary, deployments=("a", "b", "c"))
    axis = pl.when(pl.col("deployment") == "b").then(pl.lit("request_rate")).otherwise("axis")
    colours = {}
    for part in (told, *Results(told.runs.with_columns(axis=axis), told.timeseries).by_axis()):
        scale = curve_colour(part).to_dict()["scale"]
        for curve, colour in zip(scale["domain"], scale["range"], strict=True):
            assert colours.setdefault(curve, colour) == colour
    assert len(set(colours.values())) == 3


@pytest.mark.parametrize(
    ("name", "late", "wrong"),
    [
        ("latencies", "Crosses, kept out of the lines: 2 of 6 runs", "Crosses"),
        ("throughput-over-time", "Named in their panels' titles where they are drawn: 2 of 6 runs", "Named"),
        ("kv-saturation", None, "Crosses"),  # a late client takes nothing from what the server counted
        ("saturation-by-kv-bytes", None, "Left out"),
    ],
)
def test_the_note_says_how_invalid_runs_are_drawn(name, late, wrong, summary, tmp_path, monkeypatch):
    monkeypatch.setattr(save, "vl_convert", Undrawn)
    for change, note in (({"client_loop_lag_max_s": [0, 0, 9]}, late), ({"wrong_output_tokens": [0, 0, 1]}, wrong)):
        save_figure(name, results(summary, **change), tmp_path / name)
        subtitle = " ".join(json.loads((tmp_path / f"{name}.json").read_text())["title"]["subtitle"])
        assert ("which are invalid" in subtitle) == (note is not None)
        assert note is None or note in subtitle


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Every figure's SVG and specification by its name, and the page and the manifest that have them all."""
    folder = tmp_path_factory.mktemp("saved")
    files = {name: save_figure(name, results_of("an invalid run"), folder / name) for name in figure_names()}
    study, page = results_of("as it should be"), folder / "report.html"
    write_report(page, title="t", results=study, specs=[spec for _, _, spec in files.values()], facts=[])
    write_manifest(
        folder / "all", figures=[file for three in files.values() for file in three], page=page, results=study, closing=[]
    )
    return files, page.read_text().replace("&#39;", "&#x27;"), json.loads((folder / "all").read_text())


@pytest.mark.parametrize("name", figure_names())
def test_how_to_read_a_figure_stands_beside_it_and_not_in_it(name, saved):
    files, page, manifest = saved
    svg, _, spec = files[name]
    content, reading = json.loads(spec.read_text()), load_figure(name).reading
    assert content["usermeta"].keys() == {"title", "question", "reading", "note"}
    assert content["usermeta"]["reading"] == reading
    subtitle = content["title"]["subtitle"]
    assert [subtitle[0], " ".join(subtitle[1:])] == [content["usermeta"][key] for key in ("question", "note")]
    assert max(map(len, subtitle)) <= 130  # no wider than a panel or two
    start = " ".join(reading.split()[:4])
    assert start not in svg.read_text()
    assert html.escape(reading) in page
    assert manifest["texts"][name] == content["usermeta"]


def test_each_gpu_has_its_line_and_the_spread_its_bar(summary):
    study = results(summary, deployments=("a",), **{**GPUS, "gpu_utilisation_mean": [None, 0.35, 0.35]})
    spec = load_figure("gpu-balance").draw(study).to_dict()
    rows = drawn_rows(spec, "share")
    # Over 0.5, 1.0 and 1.5 s the planted series are 0.3 and 0.4 times the time; of the first level too little was read.
    assert {(row["level"], row["gpu"], round(row["share"], 9)) for row in rows} == {
        (level, gpu, share) for level in (4, 16) for gpu, share in (("0", 0.3), ("1", 0.4))
    }
    spread = [(row["level"], row["low"], row["high"]) for row in drawn_rows(spec, "low")]
    assert spread == [(level, pytest.approx(0.3), pytest.approx(0.4)) for level in (4, 16)]
    assert spec["concat"][0]["title"] == {
        **spec["concat"][0]["title"],
        "text": "a",
        "subtitle": ["widest spread 10 points, at 4 requests in flight"],
    }


def test_a_gpu_s_line_goes_through_the_means_of_its_levels(summary):
    """As any value of a level does: of 0.1, 0.2 and 0.9 it is 0.4."""
    study = results(summary, deployments=("a",), **GPUS)
    shares = study.timeseries.filter(pl.col("series") == "gpu_utilisation/0")
    runs = pl.concat([study.runs.with_columns(run=pl.format("{}-{}", "run", pl.lit(i)), repeat=pl.lit(i)) for i in range(3)])
    series = pl.concat(
        [
            shares.with_columns(run=pl.format("{}-{}", "run", pl.lit(i)), value=pl.lit(value))
            for i, value in enumerate((0.1, 0.2, 0.9))
        ]
    )
    spec = load_figure("gpu-balance").draw(replace(study, runs=runs, timeseries=series)).to_dict()
    assert {round(row["share"], 9) for row in drawn_rows(spec, "share") if "run" not in row} == {0.4}


def test_gpus_that_drain_after_the_load_count_no_more(summary):
    study = results(summary, deployments=("a",), duration_s=[1.2] * 3, **GPUS)
    rows = drawn_rows(load_figure("gpu-balance").draw(study).to_dict(), "share")
    assert {round(row["share"], 9) for row in rows} == {0.225, 0.3}  # at 0.5 and 1.0 s; not at 1.5


@pytest.mark.parametrize("name", ["gpu-balance", "gpu-memory-power"])
def test_without_gpus_a_figure_of_theirs_says_so(name, summary, tmp_path):
    save_figure(name, results(summary), tmp_path / name)
    assert "Nothing to show: no run has the" in (tmp_path / f"{name}.svg").read_text()


@pytest.mark.parametrize("device", ["cpu", "cuda", None])
def test_figures_of_gpus_are_those_of_runs_on_gpus(device):
    row = {"deployment": "a", "workload": "w", "family": "w", "axis": "concurrency", "level": 1.0, "device": device}
    assert ({"gpu-balance", "gpu-memory-power"} <= set(figures_of([row]))) == (device == "cuda")


@pytest.mark.parametrize("name", ["peak-throughput", "performance-profile"])
def test_regions_and_their_points_are_drawn_on_throughput_curves(name, summary):
    spec = load_figure(name).draw(planted(summary, PEAK)).to_dict()
    bands = {(row["region"], row["begin"], row["end"]) for row in drawn_rows(spec, "region")}
    found = {
        (row["point"], row["low"], row["high"]): row for row in drawn_rows(spec, "point") if "throughput_tokens_per_s" in row
    }
    assert set(found) == {("A|B", 4, 8), ("B|C", 8, 16)}
    left, top = found["A|B", 4, 8], found["B|C", 8, 16]
    assert {("A", 1, left["level"]), ("B", left["level"], 12), ("C", 12, 24)} <= bands
    assert (top["level"], top["throughput_tokens_per_s"]) == (12, pytest.approx(75 * 1.005))
    assert 40 < left["throughput_tokens_per_s"] < 60  # on its curve's line


@pytest.mark.parametrize(
    ("throughput", "regions"),
    [
        ({1: 10, 2: 20, 4: 40, 8: 80}, {("A", 1, 8)}),  # proportional as far as it was measured
        ({1: 10, 2: 20, 4: 40, 8: 80, 16: 60}, {("A", 1, 8), ("C", 8, 16)}),  # nothing between
        ({8: 20, 12: 21, 16: 22, 24: 30, 32: 24}, {("B", 8, 24), ("C", 24, 32)}),  # the proportional part lies below
        ({8: 20, 12: 18, 16: 16, 24: 14}, {("C", 12, 24)}),
        ({1: 10, 2: 20, 4: 40}, set()),  # too few levels
    ],
)
def test_a_stretch_of_which_nothing_is_sure_belongs_to_no_region(throughput, regions, summary):
    study = planted(summary, throughput)
    rows = region_bands(study, study.saturation)
    assert {(row["region"], row["begin"], row["end"]) for row in rows.iter_rows(named=True)} == regions


def test_the_profile_says_why_a_point_is_missing(summary):
    text = json.dumps(load_figure("performance-profile").draw(results(summary)).to_dict())
    assert "A|B: only 3 levels with a valid run, and 4" in text
    none = json.dumps(load_figure("performance-profile").draw(results(summary, wrong_output_tokens=[1, 1, 1])).to_dict())
    assert "B|C: no valid run" in none


@pytest.mark.parametrize("name", figure_names())
def test_no_figure_rests_on_more_of_the_decision_than_it_names(name):
    """It is not drawn anew for the rest, of which the rule `figure` gives it nothing."""
    drawn = load_figure(name)
    for case in ("as it should be", "on GPUs") if drawn.uses else ("on GPUs",):
        whole = replace(results_of(case), decision=WHOLE, device=DEVICE)
        assert drawn.draw(whole.given(drawn.uses)).to_dict() == drawn.draw(whole).to_dict()
    assert selection.used_by(name) == drawn.uses
    assert set(drawn.uses) <= {*Decision.model_fields, "calibration", "grades", "searches", "tuning"}


def test_a_figure_gets_what_it_names_and_no_more(summary, tmp_path, monkeypatch):
    monkeypatch.setattr(save, "vl_convert", Undrawn)
    whole = replace(results(summary), decision=WHOLE, device=DEVICE)
    given = whole.given(("slo", "accelerator"))
    assert given.decision == Decision(slo=WHOLE.slo, accelerator="h100")
    assert given.device is DEVICE
    assert whole.given(("slo",)).device is None
    undecided = replace(whole, decision=Decision(), device=None)
    specs = [save_figure("latencies", study, tmp_path / "latencies")[2].read_text() for study in (whole, undecided)]
    assert specs[0] != specs[1]  # the limits
