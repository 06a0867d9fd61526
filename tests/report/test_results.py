"""Results as a user of the library opens them."""

import polars as pl
import pytest

from bench import api
from bench.findings.analysis import Analysis, write_analysis
from bench.parse.slo import goodput, judged_frame
from bench.parse.windows import of_windows
from bench.study.decision import Decision
from tests.support.figures import results as drawn
from tests.support.planted import frame, steady_row


@pytest.fixture
def folder(tmp_path, summary):
    """A study's folder: two deployments at two levels, with the requests and telemetry of one run."""
    study = drawn(summary, levels=(1, 4))
    study.runs.write_parquet(tmp_path / "summary.parquet")
    study.timeseries.write_parquet(tmp_path / "timeseries.parquet")
    write_analysis(Analysis(study.runs, Decision(slo=["ttft_p99=2s"])), tmp_path / "analysis")
    row = study.runs.row(0, named=True)
    place = tmp_path / "runs" / row["deployment"] / row["run"]
    place.mkdir(parents=True)
    pl.DataFrame({"e2e_s": [1.0]}).write_parquet(place / "requests.parquet")
    return tmp_path, row


def test_a_study_s_folder_is_opened_and_asked(folder, tmp_path):
    place, row = folder
    results = api.Results.open(place)
    assert results.own.equals(results.runs)
    assert results.requests(row["deployment"], row["run"])["e2e_s"].to_list() == [1.0]
    assert row["deployment"] in set(results.analysis("capacity")["deployment"])
    assert "latency-throughput" in results.figures()
    assert results.figure("latency-throughput").to_dict()["$schema"]
    one = api.Results.open(f"{place}:{row['deployment']}")
    assert set(one.own["deployment"]) == {row["deployment"]}
    for ask, words in (
        (lambda: results.telemetry(row["deployment"], row["run"]), r"telemetry\.parquet: no such file"),
        (lambda: results.analysis("knees"), "There are: capacity, saturation, comparisons"),
        (lambda: api.Results.open(f"{place}:absent"), "no deployment 'absent'. There are: "),
        (lambda: results.capacity(["ttft"]), "is not an SLO"),
        (lambda: results.capacity(failed_share=5), "0 to 1"),
        (lambda: api.Results.open(tmp_path / "none"), "no such file or folder"),
    ):
        with pytest.raises(api.BenchError, match=words):
            ask()


def test_what_a_report_says_is_sustained_is_what_a_user_of_the_library_gets(tmp_path, summary):
    """The one is stored, and the other judges each run's requests again, as `bench fleet` does."""
    decision = Decision(slo=["ttft_p99=2s"])
    rows = [steady_row(summary, level, slow=slow) for level, slow in ((4, 0), (8, 1), (16, 200))]
    runs = frame([{**row, **goodput(row, judged_frame(row["judged"]), decision.slos)} for row in rows])
    runs.write_parquet(tmp_path / "summary.parquet")
    write_analysis(Analysis(of_windows(runs)[0], decision), tmp_path / "analysis")
    results = api.Results.open(tmp_path)
    found = results.capacity(["ttft_p99=2s"])
    assert found["c_max"].to_list() == [pytest.approx(12, abs=4)]
    assert results.analysis("capacity").equals(found)
