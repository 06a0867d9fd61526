"""From an operating point to a fleet: the documents' worked examples by number, SLOs on curves by hand, and the command."""

import json

import polars as pl
import pytest

from bench.analysis import summary_frame
from bench.analysis.sizing import OperatingPoint, break_even, cost_per_million_tokens, cost_per_month, fleet, limits
from bench.analysis.slo import Slo, goodput, operating_points, parse_slo
from bench.cli import main
from bench.errors import BenchError
from bench.study.config import Thresholds


def test_120_requests_a_second_take_10_instances_and_52_gpus():
    found = fleet(OperatingPoint(usable_rps=12, tensor_parallel=4, c_max=48), 120, safety=1.3)
    assert (found.instances, found.gpus) == (10, 52)
    assert found.utilisation == pytest.approx(10 / 13)


def test_a_queue_of_two_seconds_at_50_a_second_is_100():
    found = limits(OperatingPoint(usable_rps=50), 2.0)
    assert (found.queue, found.shed_from, found.shed_at) == (100, 80, 90)


def test_the_api_is_dearer_from_1_25_million_requests_a_month():
    month = cost_per_month(6.0, 2, other=2000)  # "2x A100 80GB @ $12/hr" is of both together
    assert month == 8640 + 2000
    assert break_even(month, 0.0085) == pytest.approx(1.2518e6, rel=1e-3)


def test_what_the_documents_got_wrong():
    # "A fleet at 40 % utilisation pays roughly 2.5 × the cost a token of one at 70 %": it pays 70 / 40.
    ratio = cost_per_million_tokens(10, 8, 1e4, utilisation=0.4) / cost_per_million_tokens(10, 8, 1e4, utilisation=0.7)
    assert ratio == pytest.approx(1.75)


def test_littles_law_finds_numbers_that_do_not_belong_together():
    assert OperatingPoint(usable_rps=12, c_max=48, latency_s=4.0).consistent
    assert OperatingPoint(usable_rps=12, c_max=48, latency_s=1.0).consistent is False
    assert OperatingPoint(usable_rps=12).consistent is None


def test_the_longest_prompt_leaves_room_for_all_that_are_admitted():
    found = limits(OperatingPoint(usable_rps=5, c_max=10, output_tokens=100, kv_tokens=10_000), 1.0)
    assert (found.admission, found.input_tokens, found.kv_free_tokens) == (10, 800, (1000, 1500))


@pytest.mark.parametrize(
    ("text", "slo"), [("ttft_p99=2s", Slo("ttft", "p99", 2.0)), ("TPOT_P95 <= 50ms", Slo("tpot", "p95", 0.05))]
)
def test_an_slo_in_words(text, slo):
    assert parse_slo(text) == slo


@pytest.mark.parametrize("text", ["ttft=2s", "ttft_p42=2s", "ttft_p99=2", "ttft_p99=0s"])
def test_what_is_no_slo_says_how_one_looks(text):
    with pytest.raises(BenchError, match="as in ttft_p99=2s"):
        parse_slo(text)


@pytest.fixture
def curve(summary):
    """TTFT P99 of 0.5, 1, 3 and 2 s at 1, 2, 4 and 8 requests: the third misses 2 s."""
    rows = [
        {**summary, "run": f"r{level}", "level": float(level), "ttft_p99_s": ttft, "ttft_p99_bound_s": bound,
         "throughput_requests_per_s": 2.0 * level, "e2e_mean_s": 0.5}
        for level, ttft, bound in ((1, 0.5, 0.6), (2, 1.0, 2.5), (4, 3.0, 3.5), (8, 2.0, 2.5))
    ]  # fmt: skip
    return summary_frame(rows, {"a": {"model": "m"}}, {}, Thresholds())


def test_c_max_is_the_highest_level_below_the_first_that_misses(curve):
    row = operating_points(curve, [parse_slo("ttft_p99=2s")]).row(0, named=True)
    assert (row["kind"], row["c_max"], row["low"], row["high"]) == ("found", 2.0, 1.0, 4.0)
    assert (row["usable_rps"], row["missed"]) == (4.0, "TTFT P99 ≤ 2 s (3 s)")


@pytest.mark.parametrize(("limit", "kind", "c_max"), [("100ms", "below", None), ("9s", "above", 8.0)])
def test_c_max_outside_of_what_was_measured(curve, limit, kind, c_max):
    row = operating_points(curve, [parse_slo(f"ttft_p99={limit}")]).row(0, named=True)
    assert (row["kind"], row["c_max"]) == (kind, c_max)


def test_goodput_counts_requests_that_met_every_limit():
    requests = pl.DataFrame(
        {"outcome": ["ok", "ok", "ok", "error"], "ttft_s": [0.1, 0.9, 0.1, 0.1], "tpot_s": [0.01, 0.01, 0.9, 0.01]}
    )
    slos = [parse_slo("ttft_p99=500ms"), parse_slo("tpot_p99=100ms")]
    assert goodput(requests, slos, 2.0) == 0.5


def test_the_command_from_numbers(capsys):
    arguments = "size --usable-rps 12 --tensor-parallel 4 --safety 1.3 --peak-rps 120 --device h100 --json"
    assert main(arguments.split()) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["instances"], told["gpus"], told["cost"]["hour"]) == (10, 52, 520)


def test_the_command_from_results(tmp_path, curve, capsys):
    curve.write_parquet(tmp_path / "summary.parquet")
    assert main(["size", str(tmp_path), "--slo", "ttft_p99=2s", "--peak-rps", "100", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["instances"], told["usable_rps"], told["evidence"]["c_max"]) == (25, 4.0, 2.0)
    assert main(["size", str(tmp_path), "--peak-rps", "100"]) == 2
    assert "--slo is missing" in capsys.readouterr().err
