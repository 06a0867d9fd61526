"""What `bench fleet` refuses to predict. What it predicts: test_predict_fleet.py."""

import pytest
import scipy.optimize  # noqa: F401 - a second, which is no test's

from bench.cli import main
from bench.findings import predicted, sizing  # noqa: F401 - as above
from bench.predict import fleet, predict  # noqa: F401 - as above
from tests.support.predict import LOAD, run_of, written


@pytest.fixture
def study(here, summary, runs):
    """A folder with the results of a planted engine, of the deployment a."""
    return written(here / "results", summary, runs)


def test_wrong_arguments(study, capsys):  # noqa: ARG001
    peak = ("--slo", "ttft_p90=1s", "--peak-rps", "2")
    for argv, words in [
        (["--prompt-length", "4", *peak], "give both --prompt-length and --output-length"),
        (
            ["--prompt-length", "4", "--slo", "chat.ttft_p90=1s", "--gpus", "2"],
            "bench: give both --prompt-length and --output-length, or --workload FILE.\n"
            "--slo: TTFT P90 of chat ≤ 1 s limits a class, but a fleet is predicted for all requests together. Leave the class out.\n"
            "Give --peak-rps, the requests/s of the busiest moment, or --traffic FILE.\n"
            "--gpus needs a course of traffic: --traffic FILE.\n",
        ),
        ([*LOAD, *peak, "--set", "kv_tokens=999"], "this engine has slots"),
        ([*LOAD, *peak, "--set", "flops=2"], "--set: flops is not a key. Known here: kv_tokens, "),
        ([*LOAD, *peak, "--set", "prefix_caching=2"], "--set: prefix_caching is 2: it should be a valid boolean"),
        ([*LOAD, *peak, "--set", "limit=2"], "--set limit does not apply to a fleet for a load that was not measured"),
        (["results:b", *LOAD, *peak], "has no deployment 'b'"),
    ]:
        assert main(["fleet", *argv]) == 2
        assert words in capsys.readouterr().err, argv


def test_an_engine_whose_admission_is_not_known_or_which_shows_too_few_steps(tmp_path, summary, runs, capsys):
    folder = written(tmp_path / "r", summary, runs, kind="sglang")
    assert main(["fleet", str(folder), *LOAD, "--slo", "ttft_p90=1s", "--peak-rps", "2"]) == 2
    assert "how sglang admits requests is not known; only" in capsys.readouterr().err
    folder = written(tmp_path / "few", summary, [run_of([(0, 20, 5, 0.0)])])
    assert main(["fleet", str(folder), *LOAD, "--slo", "ttft_p90=1s", "--peak-rps", "2"]) == 2
    assert "too few steps" in capsys.readouterr().err
