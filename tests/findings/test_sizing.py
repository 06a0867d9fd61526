"""From an operating point to a fleet: the documents' worked examples by number, those that they got wrong beside the right value, and the command."""

import json
import math
from dataclasses import replace

import polars as pl
import pytest

from bench.findings.sizing import (
    Limits,
    OperatingPoint,
    gpus_of,
    is_machine,
    limits,
    sized,
    with_devices,
)
from bench.parse.table import summary_frame
from bench.study.config import Thresholds
from bench.study.slo import parse_slo
from tests.support import records
from tests.support.command import bench
from tests.support.planted import frame, short_row, steady_row, summary_row, summary_rows


def test_a_fleets_instances_gpus_and_queue_by_the_documents_examples():
    found = sized(OperatingPoint(usable_rps=12, gpus=4, c_max=48), 120)
    assert (found["instances"], found["gpus"]) == (10, 52)
    assert found["utilisation_at_peak"] == pytest.approx(10 / 13)  # within the 60 to 80 % that are wanted
    assert sized(OperatingPoint(usable_rps=12, gpus=4), 84)["gpus"] == 40  # 7 × 4 × 1.3 is 36.4: no instance lacks a GPU
    for usable, queue_s, told in ((50, 2.0, (100, 80, 90)), (2.9, 10.0, (29, 23, 26))):  # and not 28.999…
        found = limits(OperatingPoint(usable_rps=usable), queue_s)
        assert (found.queue, found.shed_from, found.shed_at, found.admission) == (*told, None), usable
    assert limits(OperatingPoint(usable_rps=50), None) == Limits(None, None, None, None, None)
    # 48 in flight for two seconds are 24 a second: a gap of 2 is the documents' own example; over it, the inputs do not match.
    assert OperatingPoint(usable_rps=12, c_max=48, latency_s=2).little * 12 == 24
    for usable, consistent in ((12, True), (11.9, False), (48, True), (48.1, False)):
        assert OperatingPoint(usable_rps=usable, c_max=48, latency_s=2).consistent is consistent, usable
    assert OperatingPoint(usable_rps=12).consistent is None
    # A point that carries nothing sizes nothing.
    row = {"c_max": 4.0, "operate_at": 2.0, "usable_rps": 10.2, "latency_s": 0.47, "prompt_tokens": 331.0, "output_tokens": 14.0,
           "in_flight": 4.8, "in_flight_peak": 20.0, "unit": "requests in flight", "usable_low": 9.0, "usable_high": 11.0}  # fmt: skip
    assert OperatingPoint.of({**row, "c_max": None}, summary_row()) is None
    assert OperatingPoint.of({**row, "usable_rps": 0.0}, summary_row()) is None
    found = OperatingPoint.of(row, summary_row(gpus=2, engines=3, max_model_len=99, kv_tokens=8192))
    assert (found.c_max, found.admit, found.gpus, found.engines, found.max_model_len) == (2, None, 2, 3, 99)
    assert (found.usable_low, found.usable_high) == (9, 11)
    assert OperatingPoint.of(row, summary_row()).engines == 1


def test_the_longest_prompt_by_hand():
    """10,000 tokens leave room for all others that are admitted, nine of 500, and for the 100 of its answer."""
    ten = {"c_max": 10, "prompt_tokens": 400, "output_tokens": 100, "kv_tokens": 10_000}
    # Eight slots of 256 tokens: no free tokens of another help, and none have to be kept.
    eight = {"c_max": 8, "prompt_tokens": 64, "output_tokens": 32, "kv_tokens": 8 * 256, "max_model_len": 256}
    for point, more, tokens in (
        (ten, {}, 5400), (ten, {"max_model_len": 4096}, 3996), (ten, {"max_model_len": 9999}, 5400),
        (ten, {"c_max": 30}, None),  # the others take all of it
        (ten, {"c_max": 0.5}, 9900),  # there are none
        (ten, {"output_tokens": None}, None), (ten, {"prompt_tokens": None}, None), (ten, {"kv_tokens": None}, None),
        (ten, {"engines": 2}, 5000 - 4 * 500 - 100),
        (eight, {}, 224), (eight, {"prompt_tokens": 220}, 224), (eight, {"prompt_tokens": 220, "c_max": 12}, None),
        (eight, {"prompt_tokens": 220, "slots": True}, 224), (eight, {"prompt_tokens": 220, "slots": True, "c_max": 12}, 224),
        (eight, {"slots": True, "max_model_len": None}, None),
    ):  # fmt: skip
        assert limits(OperatingPoint(usable_rps=5, **{**point, **more}), None).input_tokens == tokens, (point, more)
    for point in (ten, eight, {**eight, "slots": True}):
        assert limits(OperatingPoint(usable_rps=5, **point), 1.0).admission == point["c_max"], point
    # A load by rate admits the most that were in flight and not their mean.
    row = {"c_max": 12.0, "operate_at": 12.0, "usable_rps": 10.2, "latency_s": 0.47, "prompt_tokens": 331.0, "output_tokens": 14.0,
           "in_flight": 4.8, "in_flight_peak": 20.0, "unit": "requests/s", "usable_low": 9.0, "usable_high": None}  # fmt: skip
    run = summary_row(kv_tokens=8192)
    found = OperatingPoint.of(row, run)
    assert found.little == pytest.approx(1, abs=0.01)
    assert (limits(found, 1.0).admission, limits(found, 1.0).input_tokens) == (20, 8192 - 3.8 * 345 - 14)
    held = OperatingPoint.of({**row, "unit": "requests in flight"}, run)
    assert (held.c_max, limits(held, 1.0).admission) == (12, 12)
    quiet = OperatingPoint.of({**row, "in_flight": 0.4, "in_flight_peak": 0.6}, run)
    assert (limits(quiet, 1.0).admission, limits(quiet, 1.0).input_tokens) == (1, 8192 - 14)


def test_workers_on_a_cpu_share_one_machine():
    for run, gpus in (
        ({"gpus": 8, "device": "cuda", "tensor_parallel": 1}, 8),
        ({"gpus": 0, "device": "cpu", "tensor_parallel": 2}, 1),
        ({"gpus": None, "device": "cpu", "tensor_parallel": 1}, None),
    ):
        assert gpus_of(run) == gpus, run
    # A machine is what has no gpus.
    told = [({"gpus": 0}, True), ({"gpus": 1, "device": "cpu"}, False), ({"gpus": None}, False)]
    assert all(is_machine(run) is machine for run, machine in told)
    # Devices are the product of what is parallel.
    runs = pl.DataFrame({"tensor_parallel": [2, 2, None], "pipeline_parallel": [3, 1, 1], "data_parallel": [None, 4, 1]})
    assert with_devices(runs)["devices"].to_list() == [6, 8, None]
    assert with_devices(summary_rows(runs.select("tensor_parallel")))["devices"].to_list() == [2, 2, None]


@pytest.fixture
def curve(summary):
    """A closed loop of single tokens with a TTFT of 0.5, 1, 3 and 2 s at 1, 2, 4 and 8 in flight: the third misses 2 s."""
    rows = [
        steady_row(summary, level, ttft=ttft, tpot=None, steady_ttft_p99_s=ttft, ttft_p99_s=ttft)
        for level, ttft in ((1, 0.5), (2, 1.0), (4, 3.0), (8, 2.0))
    ]
    return summary_frame(rows, {"a": records.launch()}, {"a": records.facts(kv_tokens=1000, kv_blocks=10)}, Thresholds())


def size(arguments):
    done = bench("fleet", *arguments.split(), "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refused(arguments):
    """What is said where nothing is sized."""
    done = bench("fleet", *arguments.split())
    assert done.returncode == 2, arguments
    return done.stderr


def test_the_command_from_numbers_and_from_results(tmp_path, curve):
    numbers = "--sustained-rps 12 --gpus 4 --peak-rps 120 --price-per-hour 10 --set limit=48 --set latency_s=2"
    told = size(numbers)
    assert (told["instances"], told["gpus"], told["cost"]["hour"], told["cost"]["month"]) == (10, 52, 520, 374_400)
    assert (told["little"], told["limits"]["admission"], told["limits"]["queue"]) == (2, 48, None)
    curve.write_parquet(tmp_path / "summary.parquet")
    given = f"{tmp_path} --slo ttft_p99=2s --peak-rps 100"
    told = size(f"{given} --price-per-hour 3 --api-price 2")
    assert (told["instances"], told["instances_most"], told["gpus"]) == (25, 49, 64)
    assert (told["usable_rps"], told["evidence"]["c_max"]) == (4.0, 2.0)
    kept = {"admission": 2, "queue": 8, "shed_from": 6, "shed_at": 7, "input_tokens": 904}
    assert told["limits"] == kept
    assert told["cost"]["break_even_million_tokens_a_month"] == 64 * 3 * 720 / 2
    # GPUs that the results do not say can be given.
    curve.with_columns(gpus=pl.lit(None, dtype=pl.Int64)).write_parquet(tmp_path / "summary.parquet")
    told = size(f"{given} --price-per-hour 2")
    assert (told["instances"], told["gpus"], told["cost"]) == (25, None, None)
    assert "How many GPUs an instance has is not recorded" in bench("fleet", *given.split()).stdout
    told = size(f"{given} --price-per-hour 2 --gpus 8")
    assert (told["instances"], told["gpus"], told["cost"]["hour"]) == (25, 8 * 64, 2 * 8 * 64)


def test_a_fleet_has_both_ends_or_says_that_one_is_not_established(tmp_path, curve):
    curve.write_parquet(tmp_path / "summary.parquet")
    given = f"{tmp_path} --slo ttft_p99=2s --peak-rps 100"
    told = size(given)
    # TTFT falls from 4 to 8, so runs differ, and 1 is the last level that is significantly within. There it carries 2/s, with 1 % of
    # error, 2.262 × 1 %, and what one session is off from the next, 2.447 × 4 %: 10.05 % together. At most 3 are
    # within, as 4 significantly misses, with 6/s. The interval lies within the worst of both.
    assert 2 * (1 - 0.1005) < told["usable_low"] < 2.2
    assert 6 < told["usable_high"] < 6 * (1 + 0.1005)
    least, most = (math.ceil(100 / told[f"usable_{end}"]) for end in ("high", "low"))
    assert (told["instances_least"], told["instances"], told["instances_most"]) == (least, 25, most)
    few = curve.with_columns(judged=pl.col("judged").list.head(20))
    few.write_parquet(tmp_path / "summary.parquet")
    told = size(given)
    assert (told["instances_most"], told["instances"]) == (None, 25)


def test_goodput_is_that_of_the_slos_that_were_asked_for(tmp_path, curve):
    stored = curve.with_columns(goodput_requests_per_s=pl.lit(99.0), duration_s=pl.lit(2.0))
    stored.write_parquet(tmp_path / "summary.parquet")
    given = f"{tmp_path} --slo ttft_p99=2s --peak-rps 100"
    assert size(given)["evidence"]["goodput_rps"] == 4.0  # from the latencies in the table
    for level, ttft in ((1, 0.5), (2, 1.0), (4, 3.0), (8, 2.0)):  # and from the tables of requests, where they are
        run = tmp_path / f"runs/a/r{level}"
        run.mkdir(parents=True)
        times = {"sent_s": [10.0, 20.0, 63.0], "ttft_s": [ttft, ttft, 99.0], "tpot_s": [None] * 3, "e2e_s": [9.0] * 3}
        outcome = ["ok", "error" if level == 2 else "ok", "ok"]
        pl.DataFrame({"outcome": outcome, **times}).write_parquet(run / "requests.parquet")
    found = size(given)["evidence"]
    assert (found["c_max"], found["goodput_rps"]) == (1, 2.0)  # half fail at 2; what was sent at 63 s is not judged


def test_what_cannot_be_sized_says_why(tmp_path, curve, summary):
    table = tmp_path / "summary.parquet"
    curve.write_parquet(table)
    for arguments, told in (
        ("RESULTS --peak-rps 100", "--slo is missing"),
        ("RESULTS --peak-rps 100 --sustained-rps 3", "RESULTS does not apply to a fleet from --sustained-rps"),
        ("RESULTS --peak-rps 100 --slo ttft_p99=100ms", "less than 1 request in flight, the lowest load that can be judged: there it misses TTFT P99 ≤ 100 ms (measured: 500 ms)"),
        ("RESULTS --peak-rps 100 --slo ttft_p99=2s --workload chat", "the results, which have short"),
        ("RESULTS --peak-rps 100 --slo tpot_p99=2s", "no answer at 1 request in flight has that latency"),
        ("RESULTS --peak-rps 100 --slo ttft_p99=2s --set limit=3", "--set limit does not apply to a fleet for a measured load"),
        ("RESULTS --peak-rps 100 --slo ttft_p99=2s --set failed_share=5", "--set: failed_share is 5: it should be less than 1"),
        ("RESULTS --peak-rps 100 --slo ttft_p99=2s --gpus 4", "--gpus 4: an instance of a has 1, as the results say"),
    ):  # fmt: skip
        assert told in refused(arguments.replace("RESULTS", str(tmp_path))), arguments
    curve.vstack(curve.with_columns(deployment=curve["deployment"] + "b")).write_parquet(table)
    assert "a with short, ab with short" in refused(f"{tmp_path} --slo ttft_p99=2s --peak-rps 1")
    curve.drop("judged").write_parquet(table)
    assert "does not have the latencies of r1" in refused(f"{tmp_path} --slo ttft_p99=2s --peak-rps 1")
    frame([short_row(steady_row(summary, 4), 47.2)]).write_parquet(table)
    told = refused(f"{tmp_path} --slo ttft_p99=2s --peak-rps 1")
    assert "at 4 requests in flight the load did not become steady" in told and "let it last 48 s" in told
    # A limit of a class that no run has; another deployment's class is not this one's.
    for axis in ("request_rate", "concurrency"):
        mixed = curve.with_columns(axis=pl.lit(axis), classes=pl.lit(json.dumps({"chat": {}, "rag": {}})))
        mixed.write_parquet(table)
        told = refused(f"{tmp_path} --slo cht.ttft_p99=2s --peak-rps 1")
        assert "a class that these runs do not have; the classes are chat, rag." in told, axis
        both = curve.with_columns(axis=pl.lit(axis)).vstack(mixed.select(curve.columns).with_columns(deployment=pl.lit("b")))
        both.write_parquet(table)
        assert "there are no classes." in refused(f"{tmp_path}:a --slo chat.ttft_p99=2s --peak-rps 1"), axis


def test_a_whole_fleet_by_hand():
    """120 requests/s at 12 (10 to 15) an instance of four GPUs: 10 (8 to 12) instances, and ⌈15.6⌉ of them bought."""
    point = OperatingPoint(
        usable_rps=12, gpus=4, c_max=48, latency_s=4, prompt_tokens=400, output_tokens=100, usable_low=10, usable_high=15
    )
    slos = [parse_slo(text) for text in ("ttft_p99=3s", "ttft_p50=2s", "tpot_p99=50ms")]
    told = sized(point, 120, slos=slos, gpu_hour=2, token_price=5)
    assert (told["instances_least"], told["instances"], told["instances_most"]) == (8, 10, 12)
    assert (told["gpus"], told["utilisation_at_peak"]) == (64, pytest.approx(10 / 16))
    assert (told["limits"]["queue"], told["limits"]["shed_from"], told["limits"]["shed_at"]) == (24, 19, 21)
    # 12,000 tokens/s are 43.2 million an hour, for 128 USD; a month has 720 hours.
    cost = {"price_per_hour": 2, "hour": 128, "month": 92_160, "million_output_tokens_at_peak": 128 / 43.2}
    assert told["cost"] == pytest.approx({**cost, "break_even_million_tokens_a_month": 18_432}, rel=1e-9)
    # Without an upper end, those of the most likely rate: ⌈13⌉.
    bare = sized(replace(point, output_tokens=None, usable_low=0.0, usable_high=None), 120, gpu_hour=2, token_price=5)
    assert bare["cost"] == {"price_per_hour": 2, "hour": 104, "month": 74_880, "break_even_million_tokens_a_month": 14_976}
    assert (bare["instances_least"], bare["instances_most"], bare["limits"]["queue"]) == (None, None, None)
    assert sized(point, 120)["cost"] is None
