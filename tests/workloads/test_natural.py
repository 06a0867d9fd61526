"""Answers that end by themselves: their lengths are measured, and whatever else a request's body says is sent and recorded."""

import json

import polars as pl
import pytest

from bench.cli import main
from bench.errors import BenchError
from bench.findings.comparison.compare import LOCKED, differences
from bench.load.payload import exchanges
from bench.load.target import Target
from bench.parse.validity import verdict
from bench.predict.sources import load_to_predict
from bench.study.config import Thresholds
from bench.study.plan import longest_request
from bench.study.read import load_workload, read_workload
from bench.workloads.schedule import PlannedRequest, schedule
from tests.support.cases import cases
from tests.support.fake_server import fake_server

NATURAL = {"distribution": "natural", "max": 20}
LOAD = {"arrival": "burst", "prompt_tokens": 8, "output_tokens": NATURAL}


def body_of(**more):
    load = load_workload({**LOAD, **more}, source="t")
    make = exchanges(Target("http://h", "m"), load, seed="s", vocabulary=100)
    return json.loads(make(PlannedRequest(0, 0, 8, 20)).payload.split(b"\r\n\r\n")[1])


def test_the_longest_is_asked_for_and_the_end_is_left_to_the_model():
    sent = body_of()
    assert (sent["max_tokens"], sent["temperature"], "ignore_eos" in sent) == (20, 0, False)
    load = load_workload(LOAD, source="t")
    assert [request.output_tokens for request in schedule(load, 3, "s")] == [20] * 3
    assert longest_request(load) == 28


@cases("endpoint", ["completions", "chat"])
def test_further_keys_of_a_body_replace_what_would_be_sent(endpoint):
    sent = body_of(endpoint=endpoint, body={"temperature": 0.7, "top_p": 0.9, "stop": ["."]})
    assert (sent["temperature"], sent["top_p"], sent["stop"]) == (0.7, 0.9, ["."])


def test_nothing_is_predicted_of_lengths_that_are_not_known(tmp_path):
    lengths = "prompt_tokens: 4\noutput_tokens: {distribution: natural, max: 9}\n"
    (tmp_path / "load.yaml").write_text(f"arrival: closed\nnum_requests: 8\n{lengths}")
    with pytest.raises(BenchError, match="no prediction for prompts from a file, natural answers"):
        load_to_predict(read_workload(tmp_path / "load.yaml"), "load.yaml")


def test_a_run_is_valid_whatever_their_lengths(here, capsys):
    with fake_server(ends=[5, 7, 99]) as server:
        options = ("--model", "m", "--output-dir", "run", "--num-requests", "9", "--prompt-length", "8")
        natural = ("--set", "output_tokens={distribution: natural, max: 20}")
        assert main(["workload", "--base-url", server.base_url, *options, *natural]) == 0
    assert main(["parse", "run"]) == 0
    summary = json.loads((here / "run/summary.json").read_text())
    said = [
        summary[key] for key in ("answers", "ok", "wrong_output_tokens", "output_fixed", "cut_answers", "asked_output_tokens")
    ]
    assert said == ["natural", 9, 0, None, 3, None]
    assert summary["output_tokens"] == summary["counted_output_tokens"] == pytest.approx((5 + 7 + 20) / 3)
    assert "answers              10.67 tokens in the mean; 3 of 9 cut at the limit" in capsys.readouterr().out
    assert [reason for reason in verdict(summary, Thresholds()).found if reason.part in ("load", "content")] == []


@cases(
    ("lengths", "found"),
    [
        (("--prompts", "p.txt", "--set", "output_tokens={distribution: natural, max: 5}"), []),
        (("--prompt-length", "8", "--output-length", "5"), ["not_counted"]),
    ],
)
def test_without_counts_tokens_are_not_known_and_only_lengths_that_were_asked_for_are_doubted(here, capsys, lengths, found):
    (here / "p.txt").write_text("Why is the sky blue?\n")
    with fake_server(usage=False) as server:
        options = ("--model", "m", "--set", "endpoint=chat", "--output-dir", "run", "--num-requests", "4")
        assert main(["workload", "--base-url", server.base_url, *options, *lengths]) == 0
    assert "4 requests in" in (said := capsys.readouterr()).out
    assert "output tokens/s not known; 4 ok" in said.out
    assert "counts no tokens in its answers (no usage)" in said.err
    assert main(["parse", "run"]) == 0
    summary = json.loads((here / "run/summary.json").read_text())
    assert [summary[f"throughput_{key}_per_s"] for key in ("tokens", "peak_tokens")] == [None, None]
    assert (summary["ttft_n"], summary["tpot_n"], summary["throughput_requests_per_s"] > 0) == (4, 0, True)
    assert [reason.check for reason in verdict(summary, Thresholds()).found if reason.part == "content"] == found
    parsed = capsys.readouterr().out
    assert " 0 tokens" not in parsed
    assert ("tokens/s and TPOT are not known" in parsed) == (found == [])


def test_lengths_that_are_measured_may_differ_a_little():
    sides = {
        "deployment": "a", "workload": "w", "level": 1.0, "prompts": "file", "answers": "natural", "prompt_tokens": 100.0, "output_tokens": 50.0,
    }  # fmt: skip

    def told(**changes):
        other = {f"{key}_candidate": value for key, value in {**sides, **changes}.items()}
        return {each.variable for each in differences(_whole({**sides, **other}))}

    assert told(prompt_tokens=100.4, output_tokens=49.0) == set()
    assert told(output_tokens=40.0) == {"output_tokens"}
    sides["answers"] = "exact"
    assert told(output_tokens=49.0) == {"output_tokens"}


def _whole(row):
    """A pair of runs with every locked variable, equal where the row does not say it."""
    missing: dict[str, float | None] = {f"{name}{side}": None for name in (*LOCKED, "axis") for side in ("", "_candidate")}
    missing |= {f"client_{name}{side}": 0.0 for name in ("cpu_s", "reads") for side in ("", "_candidate")}
    return pl.DataFrame([{**missing, **row}])
