"""From an operating point to a fleet: the documents' worked examples by number, those that they got wrong beside the right value, and the command."""

import json

import polars as pl
import pytest

from bench.analysis import summary_frame
from bench.analysis.sizing import (
    OperatingPoint,
    break_even,
    cost_per_million_tokens,
    cost_per_month,
    fleet,
    gpus_of,
    limits,
)
from bench.cli import main
from bench.study.config import Thresholds


def test_120_requests_a_second_take_10_instances_and_52_gpus():
    found = fleet(OperatingPoint(usable_rps=12, tensor_parallel=4, c_max=48), 120, safety=1.3)
    assert (found.instances, found.gpus) == (10, 52)
    assert found.utilisation == pytest.approx(10 / 13)  # within the 60 to 80 % that are wanted


def test_no_instance_lacks_some_of_its_gpus():
    assert fleet(OperatingPoint(usable_rps=12, tensor_parallel=4), 84, safety=1.3).gpus == 40  # 7 × 4 × 1.3 is 36.4


def test_a_queue_of_two_seconds_at_50_a_second_is_100():
    found = limits(OperatingPoint(usable_rps=50), 2.0)
    assert (found.queue, found.shed_from, found.shed_at) == (100, 80, 90)


def test_48_in_flight_for_two_seconds_are_24_a_second_of_which_half_was_measured():
    point = OperatingPoint(usable_rps=12, c_max=48, latency_s=2)
    assert point.little * point.usable_rps == 24
    assert point.consistent  # a gap of 2 is the documents' own example; over it, the inputs do not match
    assert OperatingPoint(usable_rps=11, c_max=48, latency_s=2).consistent is False
    assert OperatingPoint(usable_rps=12).consistent is None


def test_the_api_is_dearer_from_1_25_million_requests_a_month():
    month = cost_per_month(6.0, 2, other=2000)  # "2x A100 80GB @ $12/hr" is of both together
    assert month == 8640 + 2000
    assert break_even(month, 0.0085) == pytest.approx(1.25e6, rel=2e-3)


def test_a_fleet_at_40_percent_pays_1_75_times_as_much_as_one_at_70_and_not_2_5_times():
    printed, right = 2.5, 0.70 / 0.40
    ratio = cost_per_million_tokens(10, 8, 1e4, utilisation=0.4) / cost_per_million_tokens(10, 8, 1e4, utilisation=0.7)
    assert ratio == pytest.approx(right) == 1.75
    assert ratio < printed


def test_a_gpu_of_10_dollars_that_gives_2500_tokens_a_second_charges_1_11_a_million():
    assert cost_per_million_tokens(10, 1, 2500) == pytest.approx(10 / 9)


def test_the_longest_prompt_leaves_room_for_all_others_that_are_admitted():
    found = limits(OperatingPoint(usable_rps=5, c_max=10, prompt_tokens=400, output_tokens=100, kv_tokens=10_000), 1.0)
    assert (found.admission, found.kv_free_tokens) == (10, (1000, 1500))
    assert found.input_tokens == 10_000 - 9 * 500 - 100


def test_a_load_by_rate_admits_the_most_that_were_in_flight_and_not_their_mean():
    row = {"c_max": 12.0, "operate_at": 12.0, "usable_rps": 10.2, "latency_s": 0.47, "prompt_tokens": 331.0, "output_tokens": 14.0,
           "in_flight": 4.8, "in_flight_peak": 20.0, "unit": "requests/s"}  # fmt: skip
    found = OperatingPoint.of(row, {"kv_tokens": 8192})
    assert found.little == pytest.approx(1, abs=0.01)
    assert (limits(found, 1.0).admission, limits(found, 1.0).input_tokens) == (20, 8192 - 3.8 * 345 - 14)
    held = OperatingPoint.of({**row, "unit": "requests in flight"}, {"kv_tokens": 8192})
    assert (held.c_max, limits(held, 1.0).admission) == (12, 12)
    quiet = OperatingPoint.of({**row, "in_flight": 0.4, "in_flight_peak": 0.6}, {"kv_tokens": 8192})
    assert (limits(quiet, 1.0).admission, limits(quiet, 1.0).input_tokens) == (1, 8192 - 14)


@pytest.mark.parametrize(
    ("run", "gpus"), [({"device": "cuda", "tensor_parallel": 2}, 2), ({"device": "cpu", "tensor_parallel": 2}, 1), ({}, 1)]
)
def test_workers_on_a_cpu_share_one_machine(run, gpus):
    assert gpus_of(run) == gpus


@pytest.fixture
def curve(summary):
    """TTFT P99 of 0.5, 1, 3 and 2 s at 1, 2, 4 and 8 requests: the third misses 2 s."""
    rows = [
        {**summary, "run": f"r{level}", "level": float(level), "ttft_p99_s": ttft, "throughput_requests_per_s": 2.0 * level, "e2e_mean_s": 0.5}
        for level, ttft in ((1, 0.5), (2, 1.0), (4, 3.0), (8, 2.0))
    ]  # fmt: skip
    return summary_frame(rows, {"a": {"model": "m"}}, {"a": {"kv_tokens": 1000, "kv_blocks": 10}}, Thresholds())


def size(capsys, *arguments):
    assert main(["size", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_command_from_numbers(capsys):
    told = size(
        capsys,
        *[
            "--usable-rps",
            "12",
            "--tensor-parallel",
            "4",
            "--safety",
            "1.3",
            "--peak-rps",
            "120",
            "--device",
            "h100",
            "--c-max",
            "48",
            "--latency",
            "2",
        ],
    )
    assert (told["instances"], told["gpus"], told["cost"]["hour"], told["cost"]["month"]) == (10, 52, 520, 374_400)
    assert (told["little"], told["limits"]["admission"], told["limits"]["queue"]) == (2, 48, None)


def test_the_command_from_results(tmp_path, curve, capsys):
    curve.write_parquet(tmp_path / "summary.parquet")
    told = size(capsys, tmp_path, "--slo", "ttft_p99=2s", "--peak-rps", 100, "--price-per-hour", 3, "--api-price", 2)
    assert (told["instances"], told["gpus"], told["usable_rps"], told["evidence"]["c_max"]) == (25, 33, 4.0, 2.0)
    assert told["limits"] == {
        "admission": 2,
        "queue": 8,
        "shed_from": 6,
        "shed_at": 7,
        "input_tokens": 904,
        "kv_free_tokens": [100, 150],
    }
    assert told["cost"]["break_even_million_tokens_a_month"] == 33 * 3 * 720 / 2
    assert main(["size", str(tmp_path), "--slo", "ttft_p99=2s", "--peak-rps", "100"]) == 0
    assert "up to concurrency 2" in (text := capsys.readouterr().out) and "at 4 it misses TTFT P99 ≤ 2 s (3 s)" in text


def test_goodput_is_that_of_the_slos_that_were_asked_for(tmp_path, curve, capsys):
    curve.with_columns(goodput_requests_per_s=pl.lit(99.0), duration_s=pl.lit(2.0)).write_parquet(tmp_path / "summary.parquet")
    arguments = (tmp_path, "--slo", "ttft_p99=2s", "--peak-rps", 100)
    assert size(capsys, *arguments)["evidence"]["goodput_rps"] is None
    run = tmp_path / "runs/a/r2"
    run.mkdir(parents=True)
    pl.DataFrame({"outcome": ["ok", "ok"], "ttft_s": [1.0, 3.0], "tpot_s": [0.1, 0.1], "e2e_s": [1.0, 1.0]}).write_parquet(
        run / "requests.parquet"
    )
    assert size(capsys, *arguments)["evidence"]["goodput_rps"] == 0.5


def test_the_sensitivity_is_a_chart(tmp_path, curve, capsys):
    curve.write_parquet(tmp_path / "summary.parquet")
    (tmp_path / "fleet.svg").write_text("drawn before")
    size(capsys, tmp_path, "--slo", "ttft_p99=2s", "--peak-rps", 100, "--chart", tmp_path / "fleet.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fleet.json", "fleet.svg", "summary.parquet"]
    assert (tmp_path / "fleet.svg").read_text() == "drawn before"
    spec = json.loads((tmp_path / "fleet.json").read_text())
    rows = [row for data in spec["datasets"].values() for row in data]
    steps = [(round(row["limit_s"], 6), row["usable_rps"]) for row in rows if "usable_rps" in row]
    assert steps == [(0.5, 2.0), (1.0, 4.0), (3.0, 16.0), (6.0, 16.0)]
    assert {row["gpus"] for row in rows if row.get("peak") == 100 and "gpus" in row} == {33}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("RESULTS --peak-rps 100", "--slo is missing"),
        ("RESULTS --peak-rps 100 --usable-rps 3", "give one of them"),
        (
            "RESULTS --peak-rps 100 --slo ttft_p99=100ms",
            "no measured load meets the SLOs: at 1 it misses TTFT P99 ≤ 100 ms (0.5 s)",
        ),
        ("RESULTS --peak-rps 100 --slo ttft_p99=2s --workload chat", "the results have short"),
        ("RESULTS --peak-rps 100 --slo tpot_p99=2s", "TPOT P99 ≤ 2 s cannot be judged: no run at 1 has that latency"),
        ("RESULTS --peak-rps 100 --slo ttft_p99=2s --c-max 3", "--c-max belongs to --usable-rps"),
        ("RESULTS --peak-rps 100 --slo ttft_p99=2s --chart x.pdf", "its name ends in .svg, .png or .json"),
        ("--usable-rps 1 --peak-rps 100 --chart x.svg", "drawn from measured curves"),
        ("--usable-rps 1 --peak-rps 100 --api-price 2", "--price-per-hour or --device"),
        ("--usable-rps 1 --peak-rps 100 --workload x", "--workload chooses among results"),
        (
            "--usable-rps 1 --peak-rps 9 --c-max 48 --prompt-length 128 --output-length 64 --kv-tokens 1000",
            "are 9,216, more than --kv-tokens",
        ),
        ("RESULTS --peak-rps 100 --slo ttft_p99=2s --tensor-parallel 4", "--tensor-parallel belongs to --usable-rps"),
        ("RESULTS --peak-rps 100 --slo ttft_p99=2s --chart /no/where.svg", "there is no folder /no"),
        ("--usable-rps 1 --peak-rps 100 --device l4", "l4 has no price here"),
    ],
)
def test_what_cannot_be_sized_says_why(tmp_path, curve, capsys, arguments, told):
    curve.write_parquet(tmp_path / "summary.parquet")
    assert main(["size", *arguments.replace("RESULTS", str(tmp_path)).split()]) == 2
    assert told in capsys.readouterr().err


def test_several_curves_are_named(tmp_path, curve, capsys):
    both = curve.vstack(curve.with_columns(deployment=curve["deployment"] + "b"))
    both.write_parquet(tmp_path / "summary.parquet")
    assert main(["size", str(tmp_path), "--slo", "ttft_p99=2s", "--peak-rps", "1"]) == 2
    assert "a with short, ab with short" in capsys.readouterr().err
