"""A figure as a paper takes it: millimetres that come out as millimetres, one panel, other words and colours, the data beside it."""

import io
import json
import re
from dataclasses import replace

import polars as pl
import pytest

from bench.errors import BenchError
from bench.findings.registry import chart, draw_figure
from bench.report.paper import Paper, data_of, on_paper, written
from bench.study.decision import Decision
from tests.support.figures import results, results_of

COLOURS = {"a": ("#0072B2", "#003C5E"), "b": ("#CC79A7", "#7A2E58")}


def small():
    """A chart of two panels side by side, as Altair writes one."""
    rows = [{"curve": name, "level": level, "seconds": level / 10, "beside": "a"} for name in "ab" for level in (1, 4)]
    colour = {"field": "curve", "scale": {"domain": ["a", "b"], "range": ["#0072B2", "#CC79A7"]}, "legend": None}
    panels = [
        {"data": {"name": f"d{i}"}, "mark": {"type": "line"}, "width": 300, "height": 100,
         "encoding": {"x": {"field": "level", "type": "quantitative", "title": "level of a"}, "y": {"field": "seconds", "type": "quantitative"},
                      "color": colour}}
        for i in (1, 2)
    ]  # fmt: skip
    title = {"text": "What a does", "subtitle": ["a note"]}
    return {"$schema": "https://vega.github.io/schema/vega-lite/v6.json", "title": title, "concat": panels, "columns": 2,
            "datasets": {"d1": rows, "d2": rows[:1], "names": [{"ink": "#003C5E", "curve": "a"}]}}  # fmt: skip


def test_millimetres_come_out_as_millimetres():
    width = 85.0
    whole = on_paper(small(), Paper(width), COLOURS)
    pdf, svg = written(whole, "pdf", width), written(whole, "svg", width).decode()
    ((box,),) = [re.findall(rb"/MediaBox \[0 0 ([\d.]+) [\d.]+\]", pdf)]
    assert float(box) * 25.4 / 72 == pytest.approx(width, abs=0.05)
    assert f' width="{width:g}mm" height="' in svg[:300]
    letters = float(re.search(r'viewBox="0 0 ([\d.]+)', svg)[1]) / (width * 96 / 25.4)
    assert letters == pytest.approx(1.31, abs=0.02)  # 14 pixels of layout are 8 points on paper
    assert on_paper(small(), Paper(60.0), COLOURS)["columns"] == 1  # or each panel would be too narrow


def test_words_colours_and_panels_are_as_wanted():
    paper = Paper(title="Mine", labels={"a": "MHA", "level of MHA": "load"}, colours={"a": "black"}, panel=2)
    whole = on_paper(small(), paper, COLOURS)
    assert whole["title"]["text"] == "Mine" and "concat" not in whole
    assert whole["encoding"]["color"]["scale"] == {"domain": ["MHA", "b"], "range": ["black", "#CC79A7"]}
    assert whole["encoding"]["x"]["title"] == "load" and whole["encoding"]["x"]["field"] == "level"
    assert whole["datasets"]["names"] == [{"ink": "black", "curve": "MHA"}]
    assert whole["datasets"]["d2"][0]["curve"] == "MHA"
    assert on_paper(small(), Paper(title=""), COLOURS)["title"] is None
    assert small() == on_paper(small(), Paper(), COLOURS)
    for wrong, said in (
        (Paper(panel=3), "--panel 3: the figure has 2"),
        (Paper(colours={"c": "red"}), "--colors: no deployment 'c'. There are: a, b"),
    ):
        with pytest.raises(BenchError, match=re.escape(said)):
            on_paper(small(), wrong, COLOURS)


def test_the_data_stand_beside_it():
    assert data_of(small()).height == 4 and "ink" not in data_of(small()).columns
    alone = on_paper(small(), Paper(panel=2), {})
    table = pl.read_csv(io.BytesIO(written(alone, "csv")))
    assert table.select("curve", "level", "seconds").rows() == [("a", 1, 0.1)]


def test_a_figure_is_saved_in_the_forms_asked_for(tmp_path):
    study = results_of("as it should be")
    files = draw_figure("ttft", study, tmp_path / "ttft", paper=Paper(panel=1), kinds=["csv", "json"])
    assert [file.suffix for file in files] == [".csv", ".json"]
    assert "concat" not in json.loads(files[1].read_text())
    assert set(pl.read_csv(files[0])["ttft_p50_s"].drop_nulls()) == {0.1, 0.4, 1.6}


def test_a_shipped_figure_is_an_altair_chart(summary):
    """With its title and its limits, and to be altered."""
    study = replace(results(summary), decision=Decision(slo=["ttft_p99=1s"]))
    found = chart("ttft", study)
    assert found.to_dict(validate=False)["title"]["text"].startswith("TTFT P99 passes 1 s")
    assert found.properties(title="mine").to_dict(validate=False)["title"] == "mine"
