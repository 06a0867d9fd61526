"""`bench find` against a server whose limit is known: it refuses from so many requests in flight on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fake_server import fake_server

MOST = 6
COMMON = ["--model", "m", "--concurrency", "--prompt-length", "16", "--output-length", "4", "--slo", "ttft_p90=500ms"]


def find(server, folder, *options):
    command = [sys.executable, "-m", "bench.cli", "find", "--base-url", server.base_url, *COMMON, "--output-dir", str(folder)]
    return subprocess.run([*command, *options], capture_output=True, text=True, timeout=300)


@pytest.fixture
def server():
    with fake_server(first_s=0.02, gap_s=0.002, pages={"/v1/models": '{"data": [{"id": "m"}]}'}) as running:
        running.refuse = lambda _: (503, {}) if running.in_flight > MOST else None
        yield running


@pytest.mark.workflow
def test_the_limit_is_found_and_a_second_search_measures_nothing(server, tmp_path):
    done = find(server, tmp_path / "found", "--json", "--at-least", "4")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["low"] <= MOST <= result["high"], result
    assert result["high"] - result["low"] <= 1
    assert (result["axis"], result["why"]) == ("concurrency", "found")
    assert json.loads((tmp_path / "found/find.json").read_text()) == result
    assert (tmp_path / "found/limit.png").read_bytes().startswith(b"\x89PNG")
    before = len(server.requests)
    again = find(server, tmp_path / "found", "--json")
    assert json.loads(again.stdout)["limit"] == result["limit"]
    assert sum(path.endswith("completions") for path, _ in server.requests[before:]) == 0
    lower = find(server, tmp_path / "found", "--at-least", "12")
    assert lower.returncode == 1
    assert "in flight" in lower.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--request-rate"], "either --concurrency or --request-rate"),
        (["--burstiness", "0.5"], "--burstiness is for --request-rate"),
        (["--precision", "0"], "--precision is 0"),
        (["--start", "600"], "above --most"),
        (["--at-least", "600"], "Raise --most"),
        (["--slo", "ttft_p90=1s"], "limited twice"),
        (["--archetype", "chat"], "has conversations"),
        (["--failed-share", "2"], "--failed-share is 2"),
        (["--slo", "ttft=1"], "ttft"),
    ],
)
def test_options_that_contradict_each_other_are_refused(tmp_path, options, words):
    command = [sys.executable, "-m", "bench.cli", "find", "--base-url", "http://127.0.0.1:9", *COMMON, *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert not list(Path(tmp_path).iterdir())


def test_a_server_that_is_not_there_is_named(tmp_path):
    command = [sys.executable, "-m", "bench.cli", "find", "--base-url", "http://127.0.0.1:9", *COMMON]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert "127.0.0.1:9" in done.stderr
    assert "Traceback" not in done.stderr
