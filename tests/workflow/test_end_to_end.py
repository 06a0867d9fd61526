"""A study from nothing to figures, on a real vLLM: no mocks anywhere. It is made once, in `tests/support/end_to_end.py`.

How a study goes on, on an engine that starts in a second: tests/workflow/test_study_grows.py.
"""

import json
import re
from typing import Any

import polars as pl
import pytest

from bench.predict.calibration import Calibration
from bench.runs.files import read_known
from tests.support.study import ROOT

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def runs(vllm_study):
    """Rows of the summary, by workload and level."""
    summary = pl.read_parquet(vllm_study.folder / "results/summary.parquet")
    return {(row["workload"], row["level"]): row for row in summary.to_dicts()}


def test_one_server_measures_all_runs(vllm_study, runs):
    assert vllm_study.server_starts("one") == 1
    assert len(runs) == 7
    assert all(row["failed"] == 0 for row in runs.values())


def test_lengths_are_exact_and_the_servers_counters_agree(vllm_study, runs):
    """Every token of every request, and no other."""
    assert {key: row["reasons"] for key, row in runs.items() if not row["valid"]} == {}
    assert all(row["wrong_prompt_tokens"] == row["wrong_output_tokens"] == 0 for row in runs.values())
    few, many, closed = runs["burst", 2], runs["burst", 24], runs["closed", 2]
    assert [row["ok"] for row in (few, many, closed)] == [2, 24, 6]
    table = next((vllm_study.folder / "results/runs/one").glob("closed_*/requests.parquet"))
    answered = pl.read_parquet(table)["completion_tokens"].to_list()
    assert sorted(answered)[2:] == [32] * 4  # the two with which the loop begins are on their way
    assert sum(answered) < 6 * 32
    assert [row["server_generation_tokens"] for row in (few, many, closed)] == [2 * 64, 24 * 64, sum(answered)]
    assert [row["server_prompt_tokens"] for row in (few, closed)] == [2 * 32, 6 * 32]
    assert many["server_prompt_tokens"] >= 24 * 32  # a preempted prompt is computed again
    assert [row["in_flight_peak"] for row in (few, closed)] == [2, 2]  # the closed loop held two
    assert max(row["running_peak"] or 0 for row in (few, closed)) <= 2  # a burst may end before a scrape sees it
    assert (runs["talk", 2]["ttft_n"], runs["talk", 2]["prompt_tokens"]) == (2, 96)
    turns = runs["turns", 2]
    assert (turns["ok"], turns["in_flight_peak"]) == (3 * 4, 2)
    assert (turns["axis"], turns["users"], turns["concurrency"]) == ("users", 2, None)
    assert "_u0002_" in turns["run"]


def test_the_kv_cache_is_as_planned_and_full_where_predicted(vllm_study, runs):
    burst, closed = (runs["burst", 2], runs["burst", 24]), runs["closed", 2]
    assert {row["kv_tokens_planned"] for row in runs.values()} == {row["kv_tokens"] for row in runs.values()} == {1024}
    assert [row["predicted_saturation"] for row in (*burst, closed)] == [1024 / 96, 1024 / 96, 1024 / 64]
    assert [bool(row["saturated"]) for row in (*burst, closed)] == [False, True, False]  # null where no scrape saw it
    assert {(row["max_num_seqs"], row["dtype"], row["kv_cache_dtype"]) for row in runs.values()} == {
        (256, "float32", "float32")
    }
    facts = json.loads((vllm_study.folder / "results/deployments/one/deployment.json").read_text())
    assert facts["engine_version"].startswith("0.32.0")


def test_prefixes_come_from_the_cache_as_the_workload_implies(runs):
    """Blocks of 32: 67 of 96 tokens are two blocks; a repeated prompt keeps its last block to compute; turns reuse 96 and 152 of 152 and 208."""
    assert runs["alike", 2]["prefix_hit_rate"] == pytest.approx(64 / 96)
    assert runs["same", 2]["prefix_hit_rate"] == pytest.approx(64 / 96)
    assert runs["turns", 2]["prefix_hit_rate"] == pytest.approx((96 + 128) / (96 + 152 + 208))
    assert runs["closed", 2]["prefix_hit_rate"] == 0


def test_the_engine_has_a_model_or_a_doubt_that_is_beyond_what_is_allowed(vllm_study):
    """Of so few requests it says little, but its steps take milliseconds. On a machine whose cores are shared they stray too far."""
    (model,) = read_known(Calibration, vllm_study.folder / "results/calibration.json").models
    assert (model.deployment, model.why_not) == ("one", None)
    assert bool(model.parameters) != bool(model.doubts)
    assert all(doubt.value > doubt.most for doubt in model.doubts)
    if model.parameters:
        assert 1e-4 < model.parameters["step_s"].high < 1
        assert {load.workload for load in model.measured} >= {"burst", "closed"}


def test_figures_and_report_are_there(vllm_study):
    manifest = json.loads((vllm_study.folder / "results/figures/all").read_text())
    assert len(manifest["figures"]) == 18
    for name in manifest["figures"]:
        assert (vllm_study.folder / "results/figures" / name).stat().st_size > 500
    page = (vllm_study.folder / "results/report.html").read_text()
    assert "End to end" in page
    assert not re.findall(r'(?:src|href)="https?:', page)


def test_the_notebook_of_the_results_runs(vllm_study, monkeypatch):
    monkeypatch.chdir(vllm_study.folder)
    cells = json.loads((ROOT / "docs/how-to/results.ipynb").read_text())["cells"]
    found: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), found)  # noqa: S102 - our own
    assert len(found["by_load"]) == 7
    assert found["slowest"].shape[0] == 10
    assert 0.5 < max(found["usage"]["value"]) <= 1
