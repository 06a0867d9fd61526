"""What the report concludes: the sentences of a verdict, and the sections and the Markdown that carry them."""

import json
import re

import polars as pl
import pytest

from bench.analysis import aggregate
from bench.figures import Results
from bench.report import write_report
from bench.report.findings import findings
from bench.study import Decision, devices
from bench.study.config import Thresholds
from tests.test_decisions import FULL, frame

SLO = Decision(slo=["ttft_p99=1s"], peak_rps=100, price_per_hour=2, price_per_million_tokens=5)


def study(summary, decision=SLO, **curves):
    told = {"levels": (1, 2, 4), "ttft_p99_s": [0.1, 0.2, 3.0], "duration_s": [1.0] * 3, **FULL}
    runs = frame(summary, curves or {"a": told})
    return Results(runs, pl.DataFrame(schema={"deployment": pl.String, "run": pl.String}), None, decision)


@pytest.mark.parametrize(
    ("told", "decision", "words"),
    [
        ({}, SLO, "Carries 4 requests/s at 2 requests in flight: C_max is 2 (no interval)."),
        ({"kv_usage_peak": [0.2, 1.0, 1.0]}, SLO, "Carries 2 requests/s at 1 request in flight, the most up to C_max, which is 2 (no interval)."),
        ({"ttft_p99_s": [0.1] * 3}, SLO, "Carries 4 requests/s at 2 requests in flight, the most up to C_max, which is 4 or more (no interval)."),
        ({"ttft_p99_s": [2.0] * 3}, SLO, "No measured load meets the SLOs: at 1 request in flight, the lowest, it misses TTFT P99 ≤ 1 s (2 s)."),
        ({"failed": [1, 1, 1]}, SLO, "No valid run: nothing is told."),
        ({}, Decision(), "Its KV cache is full from 4 on; throughput is highest at 1."),
        ({"failed": [1, 1, 1]}, Decision(), "No run whose content can be trusted: nothing is told."),
    ],
)  # fmt: skip
def test_a_curve_in_a_sentence(summary, told, decision, words):
    curve = {"levels": (1, 2, 4), "ttft_p99_s": [0.1, 0.2, 3.0], **FULL, **told}
    assert findings(study(summary, decision, a=curve), {}, {}).curves[0].carries.startswith(words)


def test_the_fleet_in_a_sentence(summary):
    told = findings(study(summary), {}, {}).curves[0]
    assert told.takes == "25 instances for 100 requests/s; with the safety factor 1.3, 33 GPUs."
    assert told.fleet["cost"]["hour"] == 66
    alone = Decision(slo=["ttft_p99=1s"])
    assert findings(study(summary, alone), {}, {}).curves[0].takes == ""


def test_the_page_says_it_all(tmp_path, summary):
    page, short = tmp_path / "report.html", tmp_path / "report.md"
    write_report(page, title="t", results=study(summary), specs=[], facts=[], summary=short, of_study=4)
    text = page.read_text()
    for words in (
        "C_max is 2",
        "At 4 requests in flight the KV cache is full (640 tokens ÷ 64 of a request = 10): 4 requests wait for room",
        "At 4 it misses TTFT P99 ≤ 1 s (3 s).",
        "More KV memory",
        "25 instances for 100 requests/s",
        "Admit at most 2 requests in flight",
        "▲▲ far above",
        "The load that earns the most on one instance",
    ):
        assert words in text, words
    sections = re.findall(r'<section id="([a-z]+)"', text)
    assert sections[:2] == ["verdicts", "operating"]
    assert {"economics", "advice", "bands"} <= set(sections)
    assert "recovery" not in sections
    lines = short.read_text().splitlines()
    assert lines[0] == "## t"
    assert lines[2].startswith("3 of the study's 4 runs, all valid; ")
    assert "3 of the study's 4, all valid" in text
    assert "| a | 2 (no interval) | 4 | – | 0.200 | 10 | 4 | 25 |" in lines


def test_without_slos_the_page_says_how_to_get_them(tmp_path, summary):
    page = tmp_path / "report.html"
    write_report(page, title="t", results=study(summary, Decision()), specs=[], facts=[], summary=tmp_path / "report.md")
    text = page.read_text()
    assert "slo: [ttft_p99=1s]" in text
    assert not {"operating", "economics"} & set(re.findall(r'<section id="([a-z]+)"', text))
    assert "| curve |" not in (tmp_path / "report.md").read_text()


def test_a_step_has_its_recovery(tmp_path, summary):
    told = {"levels": (1, 2), "recovered": [True, False], "recovery_s": [1.25, None]}
    page = tmp_path / "report.html"
    write_report(page, title="t", results=study(summary, a=told), specs=[], facts=[])
    text = page.read_text()
    assert "How long TTFT took to come back" in text
    assert "not before the run's end" in text.replace("&#39;", "'")


def test_a_device_gives_the_band_of_its_memory(summary):
    told = {"levels": (1,), "gpu_memory_peak_bytes": [0.85 * devices()["h100"].memory]}
    results = study(summary, a=told)
    on_h100 = Results(results.runs, results.timeseries, None, SLO, devices()["h100"])
    assert findings(on_h100, {}, {}).bands["a/1"]["gpu_memory"].state == "within"
    assert "gpu_memory" not in findings(results, {}, {}).band_names


def test_goodput_is_a_column_of_the_summary(tmp_path, summary):
    folder = tmp_path / "runs/a/one"
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps({**summary, "duration_s": 2.0, "scrape_endpoint": None}))
    requests = {"outcome": ["ok", "ok"], "ttft_s": [0.5, 3.0], "tpot_s": [0.1, 0.1], "e2e_s": [1.0, 4.0], "last_token_s": [1.0, 2.0],
                "first_token_s": [0.5, 1.0], "token_times_s": [[0.5, 1.0], [1.0, 2.0]], "completion_tokens": [2, 2]}  # fmt: skip
    pl.DataFrame(requests).write_parquet(folder / "requests.parquet")
    schema = {
        "endpoint": pl.String,
        "scrape": pl.Int64,
        "elapsed_s": pl.Float64,
        "name": pl.String,
        "labels": pl.String,
        "value": pl.Float64,
    }
    pl.DataFrame(schema=schema).write_parquet(folder / "telemetry.parquet")
    for slos, told in ((SLO.slos, (0.5, 0.5)), ([], (None, None))):
        aggregate(
            [folder / "summary.json"], launches=[], facts=[], thresholds=Thresholds(), slos=slos,
            summary=tmp_path / "s.parquet", summary_csv=tmp_path / "s.csv", timeseries=tmp_path / "t.parquet",
        )  # fmt: skip
        assert pl.read_parquet(tmp_path / "s.parquet").select("goodput_requests_per_s", "slo_share").row(0) == told
