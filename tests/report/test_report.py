"""The report's page: what it says, and that it is sound HTML that asks no network for anything. What it does in a browser was tried in one."""

import io
import json
import re
import subprocess
from dataclasses import replace
from itertools import pairwise

import polars as pl
import pytest

from bench.errors import BenchError
from bench.findings.provenance import deployments, overview, workloads
from bench.findings.registry import FIGURES, chart, draw_figure, load_figure
from bench.findings.tables import Tables
from bench.report.blocks import Column, Section, Table, Text
from bench.report.page import write_manifest, write_markdown
from bench.report.paper import Paper, data_of, on_paper, written
from bench.runs.files import write_record
from bench.runs.launch import Settings
from bench.shipped import commit_of
from bench.study.decision import Decision
from tests.support.figures import FACTS, cells, drawn, results, results_of


def test_a_figure_is_saved_and_stands_on_a_page_that_needs_no_network(tmp_path, summary):
    """What is not known of a machine is left out."""
    study = results(summary, wrong_output_tokens=[0, 0, 1])
    page = drawn(tmp_path, study, names=["kv-saturation"], title="A <study>")
    svg = (tmp_path / "kv-saturation.svg").read_text()
    assert svg.startswith("<svg") and "invalid" in svg
    assert "A &lt;study&gt;" in page.text
    assert "1 request had another output length" in page.text
    assert "Some part of 2 of 6 runs cannot be trusted" in page.text
    assert "HF_HUB_OFFLINE=1 NOTE=&#39;&lt;secret&gt;&#39; vllm &#39;&lt;serve&gt;&#39;" in page.text
    assert not re.findall(r'(?:src|href)="https?:', page.text)
    paths = [tmp_path / f"kv-saturation.{kind}" for kind in ("svg", "png", "json")]
    write_manifest(tmp_path / "all", figures=paths, page=tmp_path / "report.html", runs=study.runs, closing=[])
    manifest = json.loads((tmp_path / "all").read_text())
    assert set(manifest["figures"]) == {path.name for path in paths} and len(manifest["runs"]) == 6
    assert "Client on c, 2 cores, 1.0 GiB, Linux." in page.text
    for unknown, said in ((("cores", "system"), "Client on c, 1.0 GiB."), (("memory_bytes",), "Client on c, 2 cores, Linux.")):
        write_record(replace(FACTS, hardware=replace(FACTS.hardware, **dict.fromkeys(unknown))), tmp_path / "facts.json")
        assert said in drawn(tmp_path, study, facts=[tmp_path / "facts.json"]).text, unknown


def test_a_study_whose_search_ended_before_its_first_run_has_a_report(tmp_path, summary):
    study = results(summary, known=False)
    nothing = Tables(study.runs.clear(), study.timeseries.clear(), None, study.decision)
    page = drawn(tmp_path, nothing, names=["ttft", "latency-throughput"], of_study=0)
    assert "No run was measured" in page.text
    assert "no run was measured" in (tmp_path / "ttft.svg").read_text()


def test_the_page_is_sound(tmp_path, summary):
    study = results(summary, levels=(1, 4, 4), repeat=[1, 1, 2], workloads=("short", "long"), wrong_output_tokens=[0, 0, 1])
    page = drawn(tmp_path, study, names=["comparison", "kv-saturation", "ttft"], pictures=False)
    ids = [attributes["id"] for _, attributes, _ in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {attributes["href"] for attributes, _ in page.find("a")} <= {f"#{each}" for each in ids}
    for _, attributes, _ in page.elements:
        assert not {"src", "action", "srcset", "ping", "background"} & set(attributes)
        assert attributes.get("aria-labelledby", ids[0]) in ids
    assert [a["href"] for a, _ in page.find("link")] == ["data:,"]
    headings = [int(tag[1]) for tag, _, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert headings[0] == 1 and headings.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(headings))
    assert dict(page.elements[0][1])["lang"] == "en"
    tables, captions = page.find("table"), page.find("caption")
    assert len(tables) == len(captions) > 3 and all(text.strip() for _, text in captions)
    assert {a["scope"] for a, _ in page.find("th")} == {"col", "row"}
    specs = [json.loads(text) for a, text in page.find("script") if a.get("type") == "application/json"]
    titles = ["Against the baseline", "No load filled the KV cache", "Time to first token against load"]
    assert [spec["title"]["text"] for spec in specs if "title" in spec] == titles
    named = [text for a, text in page.find("h3") if a.get("id", "").startswith("figure-")]
    assert [text.replace("#", "").strip() for text in named] == titles
    charts = [a for a, _ in page.find("div") if a.get("class") == "chart"]
    assert len(charts) == 3 and all(a["role"] == "img" and a["aria-label"] for a in charts)
    # Nothing that a style or a policy could fetch.
    assert not re.search(r"url\(|@import", page.find("style")[0][1])
    policy = next(a["content"] for a, _ in page.find("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'") and "http" not in policy


def test_no_engine_is_taken_for_another_and_no_cache_of_which_no_server_tells_for_empty(tmp_path, summary):
    """The engine of these runs is called `e`."""
    page = drawn(tmp_path, results(summary))
    assert "not known" not in cells(page)
    assert "not known" in cells(drawn(tmp_path, results(summary, kv_usage_peak=[None] * 3)))
    assert "e 1" in cells(page) and "vLLM" not in page.text
    for figure in map(load_figure, FIGURES):
        assert not re.search("vLLM|SGLang|TGI|llama", f"{figure.title} {figure.question} {figure.reading}")


def test_each_section_is_there_and_named(tmp_path, summary):
    study = results(summary, levels=(1, 4, 4), repeat=[1, 1, 2])
    page = drawn(tmp_path, study, names=["ttft", "throughput"], pictures=False)
    sections = [a["id"] for a, _ in page.find("section")]
    assert all(cell["data-head"] for cell, _ in page.find("td"))  # a phone has no row of heads
    decided = ["verdicts", "saturation", "comparison", "models", "economics"]
    assert sections == ["headline", "answers", "figures", "levels", *decided, "runs", "provenance", "methods"]
    assert [a["href"] for a, _ in page.find("a") if a["href"][1:] in sections[2:4]] == ["#figures", "#levels"]
    undecided = replace(results(summary, known=False, baseline=None, kv_usage_peak=[None] * 3), decision=Decision())
    without = drawn(tmp_path, undecided, facts=[])
    left = ["answers", "levels", "saturation", "runs", "provenance", "methods"]
    assert [a["id"] for a, _ in without.find("section")] == left
    assert "knee" in [text for _, text in without.find("th")]  # which takes no SLO


def test_the_part_at_fault_is_named_with_what_it_takes_away(tmp_path, summary):
    broken = {"scrape_gap_max_s": [0.3, 9.0, 0.3], "client_loop_lag_max_s": [0, 0, 9]}
    page = drawn(tmp_path, results(summary, deployments=("a",), **broken))
    marked = [text for _, text in page.find("th") if text.startswith("✕ invalid")]
    level = "✕ invalid: a · short"  # its row among the levels
    assert set(marked) == {level, "✕ invalid counts: a/short_4", "✕ invalid latencies: a/short_16"}
    assert {"telemetry", "the server's counts", "client", "latency and throughput"} <= set(cells(page))


def test_a_table_sorts_by_numbers_and_marks_the_invalid_with_a_word(tmp_path, summary):
    page = drawn(tmp_path, results(summary, deployments=("a",), wrong_output_tokens=[0, 0, 1], tpot_p50_s=[0.01, None, 0.5]))
    values = [(a["data-value"], text) for a, text in page.find("td") if text in ("0.010", "0.500", "16")]
    assert {("0.01", "0.010"), ("0.5", "0.500"), ("16.0", "16")} <= set(values)
    assert ("", "–") in [(a.get("data-value"), text) for a, text in page.find("td")]
    marked = [text for _, text in page.find("th") if text.startswith("✕ invalid")]
    assert marked == ["✕ invalid: a · short", *2 * ["✕ invalid: a/short_16"]]  # of the levels, and of both tables of runs
    assert {a["data-family"] for a, _ in page.find("tr") if a.get("class") == "invalid"} == {"short"}


def test_what_was_locked_is_read_from_the_records(summary):
    study = results(summary, prompt_tokens=[32, 40.0, 48])
    (found,) = deployments([FACTS], study.runs)
    assert (found["dtype"], found["kv_dtype"], found["max_model_len"]) == ("float16", "fp8", 1024)
    assert found["cache"] == "640 (20 blocks of 32)"
    bare = replace(FACTS, command=(), settings=Settings(), cache_config={})
    (unknown,) = deployments([bare], study.runs)
    assert (unknown["dtype"], unknown["kv_dtype"], unknown["shell"]) == ("engine's choice", "engine's choice", None)
    (sent,) = workloads(study.runs)
    assert (sent["arrival"], sent["prompt"], sent["output"], sent["stream"]) == ("burst", "32 to 48", "32", "yes")


def test_the_page_says_what_measured_when_and_from_which_sources(tmp_path, summary):
    moments = ["2026-01-31T23:10:00.000+00:00", "2026-02-01T00:20:00.000+00:00", "2026-01-31T22:00:30.000+00:00"]
    study = results(summary, started=moments, deployments=("a",))
    assert overview(study.runs, [FACTS])["started"] == "2026-01-31 22:00 to 2026-02-01 00:20"
    page = drawn(tmp_path, study, commit="0123456789abcdef, with changes that are not committed")
    told = " ".join(text for _, text in page.find("dd"))
    assert "2026-01-31 22:00 to 2026-02-01 00:20 UTC" in told and "NVIDIA X" in told and "commit 0123456789ab" in told
    measured = results(summary, commit=["fedcba9876543210", "fedcba9876543210", "aaaa"], deployments=("a",))
    assert "commit fedcba9876543210" in drawn(tmp_path, measured).text


def test_a_commit_is_told_with_what_changed_since(tmp_path):
    assert commit_of(tmp_path) is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e"]
    (tmp_path / "file").write_text("1")
    for arguments in (["init", "-q"], ["add", "file"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *arguments], check=True)
    clean = commit_of(tmp_path)
    assert re.fullmatch("[0-9a-f]{40}", clean)
    (tmp_path / "file").write_text("2")
    assert commit_of(tmp_path) == f"{clean}, with changes that are not committed"
    assert commit_of(tmp_path / "absent") is None


def test_nothing_that_a_server_said_is_live_in_markdown(tmp_path):
    said = "busy <b>now</b> ![x](https://a.test/p.png) [here](https://a.test) @team a|b"
    blocks = [Text(said), Table("t", [Column("said", "said")], [{"said": said}])]
    write_markdown(tmp_path / "report.md", [Section("s", "S", [], short=blocks)], title="t", said="", where="w")
    text = (tmp_path / "report.md").read_text()
    assert not re.search(r"<b>|\]\(|@team", text)
    assert text.count("busy") == 2 and text.count("|") == 7  # no more cells than one


# A figure as a paper takes it: millimetres that come out as millimetres, one panel, other words and colours, the data beside it


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


def test_a_layer_of_which_another_one_has_all_rows_is_no_part_of_a_figure_s_data():
    line = [{"curve": "a", "level": level, "seconds": level / 10} for level in (1, 4)]  # of its loads
    points = [
        {**line[0], "run": "a1", "valid": True, "beside": None},
        {**line[1], "run": "a4", "valid": True, "beside": None},
        {**line[1], "seconds": 0.5, "run": "a4r2", "valid": True, "beside": None},
    ]
    alone = [(1, 0.1, "a1"), (4, 0.4, "a4"), (4, 0.5, "a4r2")]
    for more, rows in (
        ([], alone),
        ([{"curve": "a", "level": 8, "seconds": 0.9}], [(1, 0.1, None), (4, 0.4, None), (8, 0.9, None), *alone]),
    ):
        data = data_of({**small(), "datasets": {"d1": [*line, *more], "d2": points}})
        assert set(data.columns) == {"curve", "level", "seconds", "run", "valid"}
        assert data.select("level", "seconds", "run").rows() == rows


def test_a_figure_is_saved_in_the_forms_asked_for(tmp_path):
    study = results_of("as it should be")
    files = draw_figure("ttft", study, tmp_path / "ttft", paper=Paper(panel=1), kinds=["csv", "json"])
    assert [file.suffix for file in files] == [".csv", ".json"]
    assert "concat" not in json.loads(files[1].read_text())
    assert set(pl.read_csv(files[0])["ttft_p50_s"].drop_nulls()) == {0.1, 0.4, 1.6}
    study = replace(study, decision=Decision(slo=["ttft_p50=500ms"]))  # drawn in its unit
    (data,) = draw_figure("ttft", study, tmp_path / "limited", paper=Paper(panel=1), kinds=["csv"])
    assert set(pl.read_csv(data)["ttft_p50_ms"].drop_nulls()) == {100, 400, 1600}


def test_a_shipped_figure_is_an_altair_chart(summary):
    """With its title and its limits, and to be altered."""
    study = replace(results(summary), decision=Decision(slo=["ttft_p99=1s"]))
    found = chart("ttft", study)
    assert found.to_dict(validate=False)["title"]["text"].startswith("TTFT P99 passes 1 s")
    assert found.properties(title="mine").to_dict(validate=False)["title"] == "mine"
