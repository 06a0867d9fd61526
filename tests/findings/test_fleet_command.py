"""`bench fleet` as a user runs it."""

import json
import re
import shutil

import numpy as np
import polars as pl
import pytest

from bench.cli import equal_fleet, main
from bench.cli.commands import fleet
from bench.predict import carried
from tests.support.predict import LOAD, training, written

SLO = ["--slo", "ttft_p95=300ms"]


@pytest.fixture(scope="module")
def measured():
    return training()


@pytest.fixture
def study(tmp_path, monkeypatch, summary, measured):
    """A folder with the results of a planted engine, of the deployment a."""
    monkeypatch.chdir(tmp_path)
    for place, name, less in ((fleet, "_MEMBERS", 4), (equal_fleet, "_REQUESTS", 400_000), (carried, "FEWEST_REQUESTS", 300)):
        monkeypatch.setattr(place, name, less)
    return written(tmp_path / "results", summary, measured)


def test_a_day_of_traffic_has_its_fleet(study, capsys):
    (study.parent / "hours.csv").write_text("seconds,requests_per_s\n0,3\n1800,20\n3600,3\n")
    arguments = ["fleet", *SLO, *LOAD, "--traffic", "hours.csv", "--start-up", "60", "--price-per-hour", "2"]
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    alone, together, needed = (found[key] for key in ("alone_rps", "together_rps", "instances"))
    assert alone["low"] <= alone["value"] <= alone["high"]
    assert together["value"] > alone["value"]  # whoever has the fewest requests is asked
    assert 2 <= found["together"] <= needed["value"]
    assert needed["low"] <= needed["value"] <= needed["high"]
    assert (needed["value"] - 1) * together["value"] < 20 <= needed["value"] * together["value"]
    fixed, autoscaled = found["traffic"]
    assert (fixed["least"], fixed["most"]) == (needed["high"], needed["high"])
    assert fixed["hours"]["value"] == pytest.approx(needed["high"], rel=0.02)
    assert autoscaled["hours"]["value"] < fixed["hours"]["value"]
    assert autoscaled["least"] < autoscaled["most"]
    assert fixed["meets"]
    assert 0.95 <= fixed["worst"]["value"] <= fixed["within"]["value"] <= 1
    for day in (fixed, autoscaled):
        assert all(day[name]["low"] <= day[name]["value"] <= day[name]["high"] for name in ("hours", "within", "worst", "lost"))
    (hour,) = found["hours"]
    assert (hour["number"], hour["peak"], hour["instances"]) == (0, 20, needed)
    assert found["start_up_s"] == [60]


def test_an_unequal_fleet_carries_what_its_instances_do(study, capsys, monkeypatch):
    """Two deployments that are the same engine: three of them are three of one."""
    monkeypatch.setattr(fleet, "_MEMBERS", 2)
    other = pl.read_parquet(study / "summary.parquet").with_columns(deployment=pl.lit("b"))
    pl.concat([pl.read_parquet(study / "summary.parquet"), other]).write_parquet(study / "summary.parquet")
    for folder in ("deployments", "runs"):
        shutil.copytree(study / folder / "a", study / folder / "b")
    (study.parent / "hours.csv").write_text("seconds,requests_per_s\n0,0.3\n3600,0.6\n")
    given = ["fleet", "results", "--deployment", "a=2", "--deployment", "b=1", *SLO, *LOAD]
    assert main([*given, "--traffic", "hours.csv", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    alone, whole = found["alone_rps"], found["fleet_rps"]
    assert found["instances"] == {"a": 2, "b": 1}
    assert 2.5 * alone["a"]["value"] < whole["value"] < 5 * alone["a"]["value"]  # a queue is shared among three
    assert found["carries_peak"]
    (day,) = found["traffic"]
    assert (day["least"], day["most"], day["hours"]["value"]) == (3, 3, pytest.approx(3, rel=0.02))
    assert 0.95 <= day["within"]["low"] <= day["within"]["value"] <= 1
    for wrong, words in (
        (["--deployment", "a=0"], "as NAME=N with 1 to 16 instances"),
        (["--kv-tokens", "9"], "--kv-tokens: of an unequal fleet"),
    ):
        assert main([*given, "--peak-rps", "1", *wrong]) == 2
        assert words in capsys.readouterr().err


def test_one_instance_is_enough_where_one_alone_carries_the_peak(study, capsys):  # noqa: ARG001
    assert main(["fleet", *SLO, *LOAD, "--peak-rps", "1"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"one instance alone carries, requests/s +\d", printed)
    assert "behind a router" not in printed
    assert re.search(r"instances for 1 requests/s +1 \(1 to 1\)", printed)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*SLO, *LOAD], "Give --peak-rps"),
        ([*SLO, *LOAD, "--peak-rps", "4", "--trough-rps", "5"], "--trough-rps 5 is above"),
        ([*SLO, *LOAD, "--peak-rps", "4", "--traffic", "x.csv"], "Give --peak-rps"),
        ([*SLO, *LOAD, "--peak-rps", "4", "--fail-every", "9"], "--fail-every needs a course of traffic"),
        ([*SLO, *LOAD, "--peak-rps", "4", "--start-up", "9"], "--start-up needs a course of traffic"),
        ([*SLO, *LOAD, "--peak-rps", "4", "--start-up", "abc"], "--start-up: 'abc' is not a number of 0 or more"),
        ([*SLO, *LOAD, "--traffic", "x.csv"], "x.csv: no such file"),
        ([*SLO, *LOAD, "--traffic", "short.csv"], "an hour is the least"),
        ([*SLO, "--peak-rps", "4"], "--prompt-length and --output-length"),
        ([*SLO, "--peak-rps", "4", "--workload", "closed.yaml"], "levels of concurrency"),
        (["--slo", "ttft_p95=1ms", *LOAD, "--peak-rps", "4"], "no rate is clearly within TTFT P95"),
    ],
)
def test_what_cannot_be_answered_says_why(study, capsys, arguments, words):
    (study.parent / "closed.yaml").write_text("{arrival: closed, num_requests: 5, prompt_tokens: 9, output_tokens: 9}")
    (study.parent / "short.csv").write_text("seconds,requests_per_s\n0,5\n60,40\n")
    assert main(["fleet", *arguments]) == 2
    assert words in capsys.readouterr().err


def recorded(folder, rate):
    """A trace of 300 requests at a Poisson rate, and a workload that replays it."""
    moments = np.cumsum(np.random.default_rng(4).exponential(1 / rate, 300))
    rows = "".join(f"{moment},{60 + i % 80},{10 + i % 40}\n" for i, moment in enumerate(moments))
    (folder / "trace.csv").write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}")
    (folder / "replay.yaml").write_text("{arrival: trace, trace: trace.csv}")


def test_a_trace_is_the_traffic(study, capsys, monkeypatch):
    monkeypatch.setattr(fleet, "_MEMBERS", 3)
    recorded(study.parent, rate=10)
    arguments = ["fleet", "--slo", "ttft_p95=150ms", "--workload", "replay.yaml"]
    needed = {}
    for scale in ("1", "3"):
        assert main([*arguments, "--time-scale", scale, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        needed[scale] = found["instances"]
        assert found["requests"] == 300
        assert found["seconds"] == pytest.approx(30 / float(scale), rel=0.15)
        assert needed[scale]["low"] <= needed[scale]["value"] <= needed[scale]["high"]
        assert found["within"][str(needed[scale]["value"])]["within"] >= 0.95
    assert needed["3"]["value"] > needed["1"]["value"]
    assert main([*arguments, "--time-scale", "3"]) == 0
    printed = capsys.readouterr().out
    assert "each hour of the replay (3 h of the trace) by itself" in printed
    assert re.search(r"requests of the trace +300 in \d+ s", printed)
    assert re.search(rf"instances behind a router \(least-requests\) +{needed['3']['value']} \(", printed)


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--peak-rps", "4"], 2, "--peak-rps: replay.yaml replays a trace, which is the traffic, on instances"),
        (["--price-per-hour", "4"], 2, "--price-per-hour: replay.yaml replays a trace"),
        (["--start-up", "0"], 2, "--start-up: replay.yaml replays a trace"),
        (["--slo", "ttft_p95=1ms"], 2, "300 instances would not be within TTFT P95"),
        (["--slo", "ttft_p95=9s", "--workload", "long.yaml"], 1, "requests of 930 tokens, and none"),
    ],
)
def test_a_trace_that_cannot_be_answered_says_why(study, capsys, monkeypatch, arguments, status, words):
    monkeypatch.setattr(fleet, "_MEMBERS", 2)
    recorded(study.parent, rate=10)
    (study.parent / "long.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,900,30\n1,10,10\n")
    (study.parent / "long.yaml").write_text("{arrival: trace, trace: long.csv}")
    slo = [] if "--slo" in arguments else SLO
    workload = [] if "--workload" in arguments else ["--workload", "replay.yaml"]
    if status == 1:
        with pytest.raises(SystemExit, match="1"):
            main(["fleet", *slo, *workload, *arguments])
    else:
        assert main(["fleet", *slo, *workload, *arguments]) == status
    printed = capsys.readouterr()
    assert words in printed.out + printed.err


def test_a_time_scale_without_a_trace_is_refused(study, capsys):  # noqa: ARG001
    assert main(["fleet", *SLO, *LOAD, "--peak-rps", "4", "--time-scale", "3"]) == 2
    assert "--time-scale belongs to a --workload that replays a trace" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lengths", "slo", "why"),
    [
        (["--prompt-length", "900", "--output-length", "30"], "ttft_p95=9s", "requests of 930 tokens, and none"),
        (["--prompt-length", "100", "--output-length", "260"], "ttft_p95=9s", "requests of 360 tokens, and none"),
    ],
)
def test_what_was_not_measured_is_refused(study, capsys, lengths, slo, why):  # noqa: ARG001
    for json_too in ([], ["--json"]):
        with pytest.raises(SystemExit) as ended:
            main(["fleet", "--slo", slo, *lengths, "--peak-rps", "4", *json_too])
        assert ended.value.code == 1
        assert why in capsys.readouterr().out
