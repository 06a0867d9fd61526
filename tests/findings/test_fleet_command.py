"""`bench fleet` as a user runs it."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from bench.predict import carried, instances
from tests.support.command import bench
from tests.support.predict import LOAD, training, written

SLO = ["--slo", "ttft_p95=300ms"]


@pytest.fixture(scope="module")
def measured():
    return training()


@pytest.fixture
def study(tmp_path, monkeypatch, summary, measured):
    """A folder with the results of a planted engine, of the deployment a."""
    monkeypatch.chdir(tmp_path)
    for place, name, less in ((instances, "REPLAYS", 2), (carried, "FEWEST_REQUESTS", 300)):
        monkeypatch.setattr(place, name, less)
    return written(tmp_path / "results", summary, measured)


def planned(*arguments):
    """`bench fleet` in this folder: its exit status, and all that it printed."""
    done = bench("fleet", *arguments, cwd=Path.cwd())
    return done.returncode, done.stdout + done.stderr


@pytest.mark.long(part="fleets")
def test_a_day_of_traffic_has_its_fleet(study, monkeypatch):
    monkeypatch.setattr(instances, "REPLAYS", 4)
    (study.parent / "hours.csv").write_text("seconds,requests_per_s\n0,3\n1800,20\n3600,3\n")
    given = ["--traffic", "hours.csv", "--set", "start_up_s=60", "--price-per-hour", "2", "--json"]
    status, text = planned(*SLO, *LOAD, *given)
    found = json.loads(text)
    alone, needed = found["behind"]["1"], found["instances"]
    number, together = max((int(count), rate) for count, rate in found["behind"].items() if rate != alone)
    assert status == 0 and alone["low"] <= alone["value"] <= alone["high"]
    assert together["value"] > alone["value"]  # whoever has the fewest requests is asked
    assert 2 <= number <= needed["value"]
    assert needed["low"] <= needed["value"] <= needed["high"]
    assert (needed["value"] - 1) * together["value"] < 20 <= needed["value"] * together["value"]
    fixed, autoscaled = found["days"]
    assert (fixed["least"], fixed["most"]) == (needed["high"], needed["high"])
    assert fixed["hours"]["value"] == pytest.approx(needed["high"], rel=0.02)
    assert autoscaled["hours"]["value"] < fixed["hours"]["value"]
    assert autoscaled["least"] < autoscaled["most"]
    assert fixed["meets"]
    assert 0.95 <= fixed["worst"]["value"] <= fixed["within"]["value"] <= 1
    for day in (fixed, autoscaled):
        assert all(day[name]["low"] <= day[name]["value"] <= day[name]["high"] for name in ("hours", "within", "worst"))
    (hour,) = found["hours"]
    assert (hour["number"], hour["peak"], hour["instances"], found["start_up_s"]) == (0, 20, needed, [60])


@pytest.mark.usefixtures("study")
def test_one_instance_is_enough_where_one_alone_carries_the_peak():
    status, printed = planned(*SLO, *LOAD, "--peak-rps", "1")
    assert status == 0 and "behind a router" not in printed
    assert re.search(r"instances for 1 requests/s +1 \(1 to 1\)", printed)


def test_one_instance_is_enough_for_a_course_of_traffic_that_it_carries(study):
    (study.parent / "hours.csv").write_text("seconds,requests_per_s\n0,0.1\n1800,0.2\n3600,0.1\n")
    status, text = planned(*SLO, *LOAD, "--traffic", "hours.csv", "--set", "start_up_s=60", "--price-per-hour", "2", "--json")
    found = json.loads(text)
    (day, *_), (hour,) = found["days"], found["hours"]
    assert (status, day["least"], day["most"], day["meets"], found["start_up_s"]) == (0, 1, 1, True, [60])
    assert day["hours"]["value"] == pytest.approx(1, rel=0.02)
    assert (hour["number"], hour["peak"], hour["instances"]["value"]) == (0, 0.2, 1)


@pytest.mark.long(part="outputs")
def test_what_cannot_be_answered_says_why(study):
    files = {"closed.yaml": "{arrival: closed, num_requests: 5, prompt_tokens: 9, output_tokens: 9}",
             "short.csv": "seconds,requests_per_s\n0,5\n60,40\n"}  # fmt: skip
    for name, text in files.items():
        (study.parent / name).write_text(text)
    recorded(study.parent, rate=10)
    load, replay = [*SLO, *LOAD], [*SLO, "--workload", "replay.yaml"]
    for arguments, words in (
        ([*load, "--peak-rps", "4", "--traffic", "x.csv"], "Give --peak-rps"),
        ([*load, "--peak-rps", "4", "--set", "start_up_s=9"], "--set start_up_s needs a course of traffic"),
        ([*load, "--peak-rps", "4", "--set", "time_scale=3"], "--set time_scale does not apply to a fleet for a load that was not measured"),
        ([*load, "--traffic", "short.csv"], "give an hour or more"),
        ([*SLO, "--peak-rps", "4", "--prompt-length", "9"], "--prompt-length and --output-length"),
        ([*SLO, "--peak-rps", "4", "--workload", "closed.yaml"], "levels of concurrency"),
        ([*replay, "--peak-rps", "4"], "--peak-rps does not apply to a fleet for a recorded trace, which is the traffic, on instances"),
    ):  # fmt: skip
        status, text = planned(*arguments)
        assert status == 2 and words in text, arguments


@pytest.mark.long(part="fleets")
def test_what_no_fleet_is_known_to_carry_says_why(study):
    (study.parent / "long.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,900,30\n1,10,10\n")
    (study.parent / "long.yaml").write_text("{arrival: trace, trace: long.csv}")
    recorded(study.parent, rate=10)
    lax = ["--slo", "ttft_p95=9s"]
    for arguments, status, words in (
        (["--slo", "ttft_p95=1ms", *LOAD, "--peak-rps", "4"], 2, "no rate is clearly within TTFT P95"),
        (["--slo", "ttft_p95=1ms", "--workload", "replay.yaml"], 2, "No fleet of up to 300 instances is within TTFT P95"),
        ([*lax, "--workload", "long.yaml"], 1, "requests of 930 tokens, and none"),
        ([*lax, "--prompt-length", "900", "--output-length", "30", "--peak-rps", "4"], 1, "requests of 930 tokens, and none"),
        ([*lax, "--prompt-length", "100", "--output-length", "260", "--peak-rps", "4", "--json"], 1, "requests of 360 tokens, and none"),
    ):  # fmt: skip
        ended, text = planned(*arguments)
        assert ended == status and words in text, arguments


def recorded(folder, rate):
    """A trace of 300 requests at a Poisson rate, and a workload that replays it."""
    moments = np.cumsum(np.random.default_rng(4).exponential(1 / rate, 300))
    rows = "".join(f"{moment},{60 + i % 80},{10 + i % 40}\n" for i, moment in enumerate(moments))
    (folder / "trace.csv").write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}")
    (folder / "replay.yaml").write_text("{arrival: trace, trace: trace.csv}")


@pytest.mark.long(part="fleets")
def test_a_trace_is_the_traffic(study, monkeypatch):
    monkeypatch.setattr(instances, "REPLAYS", 3)
    recorded(study.parent, rate=10)
    arguments = ["--slo", "ttft_p95=150ms", "--workload", "replay.yaml"]
    needed = {}
    for scale in (1, 3):
        status, text = planned(*arguments, "--set", f"time_scale={scale}", "--json")
        found = json.loads(text)
        needed[scale] = found["instances"]["value"]
        assert (status, found["requests"], found["seconds"]) == (0, 300, pytest.approx(30 / scale, rel=0.15)), scale
        assert found["instances"]["low"] <= needed[scale] <= found["instances"]["high"], scale
        assert found["within"][str(needed[scale])]["within"] >= 0.95, scale
    assert needed[3] > needed[1]
