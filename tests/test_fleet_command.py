"""`bench fleet` as a user runs it."""

import json

import pytest

from bench.cli import fleet, main
from bench.predict import carried
from tests.test_predict import training
from tests.test_predict_command import LOAD, written

SLO = ["--slo", "ttft_p95=300ms"]


@pytest.fixture
def study(tmp_path, monkeypatch, summary):
    """A folder with the results of a planted engine, of the deployment a."""
    monkeypatch.chdir(tmp_path)
    for place, name, less in (
        (fleet, "_MEMBERS", 4),
        (fleet, "_FEWER_MEMBERS", 2),
        (fleet, "_REQUESTS", 20_000),
        (carried, "_FEWEST_REQUESTS", 300),
    ):
        monkeypatch.setattr(place, name, less)
    return written(tmp_path / "results", summary, training())


def test_a_day_of_traffic_has_its_fleet(study, capsys):
    (study.parent / "hours.csv").write_text("seconds,requests_per_s\n0,5\n3600,40\n7200,5\n")
    arguments = ["fleet", *SLO, *LOAD, "--traffic", "hours.csv", "--start-up", "60", "--price-per-hour", "2"]
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    alone, together, needed = (found[key] for key in ("alone_rps", "together_rps", "instances"))
    assert alone["low"] <= alone["value"] <= alone["high"]
    assert together["value"] > alone["value"]  # whoever has the fewest requests is asked
    assert needed["low"] <= needed["value"] <= needed["high"]
    assert (needed["value"] - 1) * together["value"] < 40 <= needed["value"] * together["value"]
    fixed, follows = found["traffic"]
    assert (fixed["least"], fixed["most"]) == (needed["high"], needed["high"])
    assert fixed["hours"] == pytest.approx(2 * needed["high"], rel=0.02)
    assert follows["hours"] < fixed["hours"]
    assert follows["least"] < follows["most"]
    assert fixed["meets"]
    assert 0.95 <= fixed["worst"] <= fixed["within"] <= 1
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    for words in (
        "one instance alone carries, requests/s",
        "surely enough, and one of them may fail",
        "follows the load",
        "USD",
    ):
        assert words in printed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*SLO, *LOAD], "Give --peak-rps"),
        ([*SLO, *LOAD, "--peak-rps", "4", "--trough-rps", "5"], "--trough-rps 5 is above"),
        ([*SLO, *LOAD, "--peak-rps", "4", "--traffic", "x.csv"], "Give --peak-rps"),
        ([*SLO, *LOAD, "--traffic", "x.csv"], "x.csv: no such file"),
        ([*SLO, "--peak-rps", "4"], "--prompt-length and --output-length"),
        ([*SLO, "--peak-rps", "4", "--workload", "closed.yaml"], "levels of concurrency"),
        (["--slo", "ttft_p95=1ms", *LOAD, "--peak-rps", "4"], "no rate is surely within TTFT P95"),
    ],
)
def test_what_cannot_be_answered_says_why(study, capsys, arguments, words):
    (study.parent / "closed.yaml").write_text("{arrival: closed, num_requests: 5, prompt_tokens: 9, output_tokens: 9}")
    assert main(["fleet", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_longer_requests_than_were_measured_are_refused(study, capsys):  # noqa: ARG001
    with pytest.raises(SystemExit) as ended:
        main(["fleet", "--slo", "ttft_p95=9s", "--prompt-length", "900", "--output-length", "30", "--peak-rps", "4"])
    assert ended.value.code == 1
    assert "Not predicted: requests of 930 tokens" in capsys.readouterr().out
