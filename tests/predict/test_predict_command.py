"""Loads of one instance, as `bench fleet` predicts them."""

import json

import pytest
import scipy.optimize  # noqa: F401 - a second, which is no test's

from bench.cli import main
from bench.findings import predicted, sizing  # noqa: F401 - as above
from bench.predict import fleet, predict  # noqa: F401 - as above
from tests.support.predict import LOAD, run_of, written


@pytest.fixture
def study(tmp_path, monkeypatch, summary, runs):
    """A folder with the results of a planted engine, of the deployment a."""
    monkeypatch.chdir(tmp_path)
    return written(tmp_path / "results", summary, runs)


def test_a_load_is_predicted_with_intervals(study, capsys):  # noqa: ARG001
    assert main(["fleet", "--concurrency", "4,10", *LOAD, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    low, high = found["predictions"]
    assert [low["level"], high["level"]] == [4, 10]
    for each in (low, high):
        interval = each["numbers"]["throughput_tokens_per_s"]
        assert interval["low"] < interval["value"] < interval["high"]
        assert each["doubts"] == []
    rates = [each["numbers"]["throughput_tokens_per_s"]["value"] for each in (low, high)]
    assert rates[0] < rates[1]


def test_a_rate_beyond_what_is_sustained_is_said_to_pile_up(study, capsys):  # noqa: ARG001
    assert main(["fleet", "--request-rate", "40", *LOAD]) == 0
    printed = capsys.readouterr().out
    assert "Predicted, latencies and rates each with a 90 % interval" in printed and "TPOT P90 (s)" in printed
    assert "At 40 requests pile up" in printed


@pytest.mark.long(part="outputs")
def test_a_prefix_cache_is_a_what_if(study, capsys):
    text = "arrival: poisson\nnum_requests: 60\nprompt_tokens: 100\noutput_tokens: 10\ncache: shared\nshared_prefix: 0.8\n"
    (study.parent / "shared.yaml").write_text(text)
    load = ["fleet", "--request-rate", "2", "--workload", "shared.yaml"]
    found = []
    for caching in ("prefix_caching=false", "prefix_caching=true"):
        assert main([*load, "--set", caching, "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out)["predictions"][0])
    off, on = found
    assert off["cached"] == 0.0
    assert on["cached"] > 0.7
    assert on["numbers"]["ttft_p50_s"]["value"] < 0.7 * off["numbers"]["ttft_p50_s"]["value"]
    assert main([*load, "--set", "prefix_caching=true"]) == 0
    printed = capsys.readouterr().out
    assert "from cache" in printed
    assert "requests pile up" not in printed


def test_what_was_not_measured_is_refused_and_said(study, capsys):  # noqa: ARG001
    with pytest.raises(SystemExit) as ended:
        main(["fleet", "--concurrency", "4", "--prompt-length", "700", "--output-length", "30"])
    assert ended.value.code == 1
    assert "Not predicted at 4: requests of 730 tokens, and none that was measured had more than" in capsys.readouterr().out


def test_wrong_arguments(study, capsys):  # noqa: ARG001
    for argv, words in [
        (["--concurrency", "4"], "give both --prompt-length and --output-length"),
        (["--concurrency", "4.5", *LOAD], "--concurrency 4.5: not whole numbers of 1 or more"),
        (["--request-rate", "fast", *LOAD], "--request-rate fast: not numbers above 0"),
        (["--concurrency", "4", "--request-rate", "4", *LOAD], "Give --concurrency or --request-rate, not both."),
        (["--concurrency", "4", *LOAD, "--set", "kv_tokens=999"], "this engine has slots"),
        (["--concurrency", "4", "--set", "flops=2"], "--set flops=2: no such key"),
        (["--concurrency", "4", "--set", "prefix_caching=2"], "--set prefix_caching=2: it has to be true or false"),
        (["--concurrency", "4", "--set", "slots=2"], "no such key"),
        (["--concurrency", "4", "--set", "limit=2"], "--set limit does not apply to a load of one instance"),
        (["--concurrency", "4", "--peak-rps", "2"], "--peak-rps does not apply to a load of one instance"),
        (["results:b", "--concurrency", "4", *LOAD], "has no deployment 'b'"),
    ]:
        assert main(["fleet", *argv]) == 2
        assert words in capsys.readouterr().err, argv


def test_an_engine_whose_admission_is_not_known_or_which_shows_too_few_steps(tmp_path, summary, runs, capsys):
    folder = written(tmp_path / "r", summary, runs, kind="sglang")
    assert main(["fleet", str(folder), "--concurrency", "4", *LOAD]) == 2
    assert "how sglang admits requests is not known; only" in capsys.readouterr().err
    folder = written(tmp_path / "few", summary, [run_of([(0, 20, 5, 0.0)])])
    assert main(["fleet", str(folder), "--concurrency", "4", *LOAD]) == 2
    assert "too few steps" in capsys.readouterr().err
