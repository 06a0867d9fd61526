"""Tables and figures of one run, by hand."""

import csv
import gzip
import hashlib
import json

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.analysis import timeseries_frame
from bench.errors import BenchError
from bench.parse import latency_columns, parse_run, telemetry_table, throughput_series, wide_table
from bench.parse.run import summarise
from bench.telemetry import METRICS, missing_metrics
from bench.workload import RequestRecord, write_requests
from tests.conftest import ROOT


@pytest.mark.parametrize(
    ("ttft", "e2e", "n", "tpot", "normalised"),
    [
        (0.5, 2.5, 5, 0.5, 0.5),
        (0.5, 0.5, 1, None, 0.5),  # one token has no gap
        (None, None, 0, None, None),
        (None, None, None, None, None),
    ],
)
def test_tpot_and_normalised_latency(ttft, e2e, n, tpot, normalised):
    frame = pl.LazyFrame(
        {"ttft_s": [ttft], "e2e_s": [e2e], "completion_tokens": [n]},
        schema={"ttft_s": pl.Float64, "e2e_s": pl.Float64, "completion_tokens": pl.Int64},
    )
    row = latency_columns(frame).collect().row(0, named=True)
    assert (row["tpot_s"], row["normalised_latency_s"]) == (tpot, normalised)


def requests_table(*rows):
    return pl.DataFrame(
        [{"token_times_s": times, "completion_tokens": n, "last_token_s": max(times)} for times, n in rows],
        schema={"token_times_s": pl.List(pl.Float64), "completion_tokens": pl.Int64, "last_token_s": pl.Float64},
    )


def test_throughput_over_time_by_hand():
    table = requests_table(([0.1, 0.6, 1.0], 6), ([0.2, 0.9], 2))  # 2 tokens a chunk, and 1
    series = throughput_series(table, 0.5)
    assert series["elapsed_s"].to_list() == [0.25, 0.75]
    assert series["tokens_per_s"].to_list() == [pytest.approx(3 / 0.5), pytest.approx(3 / 0.5)]


@given(st.lists(st.lists(st.floats(0.001, 30), min_size=1, max_size=40), min_size=1, max_size=10))
def test_throughput_over_time_loses_at_most_the_last_sliver(requests):
    table = requests_table(*((sorted(times), len(times)) for times in requests))
    series = throughput_series(table, 0.5)
    last = max(max(times) for times in requests)
    widths = [min(0.5, last - 0.5 * int(e / 0.5)) for e in series["elapsed_s"]]
    counted = sum(r * w for r, w in zip(series["tokens_per_s"], widths, strict=True))
    dropped = sum(t >= 0.5 * len(series) for times in requests for t in times)
    assert counted + dropped == pytest.approx(sum(map(len, requests)))


def exposition(step):
    """What a vLLM would say after `step` seconds: every metric of the catalogue, counters that rise."""
    lines = []
    for name in METRICS.values():
        value = {"vllm:kv_cache_usage_perc": 0.25 * step, "vllm:num_requests_running": step}.get(name, 10 + 2 * step)
        lines.append(f'{name}{{engine="0",model_name="m\\"x"}} {value}')
        if name.endswith("_sum"):
            lines.append(f'{name.removesuffix("_sum")}_count{{engine="0"}} {step}')
    if step == 1:
        lines.append('odd{reason="capacity"} NaN')
    return "\n".join(lines) + "\n"


@pytest.fixture
def run(tmp_path):
    """A run's folder, with requests and three scrapes."""
    records = [
        RequestRecord(
            index=i,
            after=None,
            outcome="ok",
            error=None,
            status=200,
            prompt_asked=4,
            output_asked=3,
            prompt_tokens=4,
            completion_tokens=3,
            cached_tokens=None,
            scheduled_s=0.0,
            sent_s=0.0,
            headers_s=0.05,
            first_byte_s=0.1,
            first_token_s=0.1,
            first_output_s=0.1,
            last_token_s=0.5 + i,
            end_s=0.6 + i,
            ttft_s=0.1,
            e2e_s=0.5 + i,
            token_times_s=[0.1, 0.3, 0.5 + i],
        )
        for i in range(2)
    ]
    write_requests(records, tmp_path / "requests.jsonl")
    with gzip.open(tmp_path / "telemetry.jsonl.gz", "wt") as file:
        for slot in range(3):
            scrape = {"slot": slot, "endpoint": "u", "due": 99.0 + slot, "sent": 99.0 + slot, "received": 99.02 + slot}
            file.write(json.dumps({**scrape, "text": exposition(slot)}) + "\n")
        file.write(json.dumps({"slot": 3, "endpoint": "u", "sent": 102.0, "received": 103.0, "error": "timed out"}) + "\n")
    record = {
        "digest": "d",
        "definition": {"deployment": "a", "run": "r", "workload": "w", "arrival": "burst", "prompt_tokens": 4,
                       "output_tokens": 3, "num_requests": 2, "axis": "concurrency", "level": 2, "repeat": 1, "seed": 0},
        "started": "2026-01-01T00:00:00+00:00", "clock_start_s": 100.0, "drain_s": 0.0, "scrape_interval_s": 0.2,
        "prefix": {"primed_tokens": 0, "expected_tokens": 2}, "client": {"loop_lag_p99_s": 0.001, "send_spread_s": 0.0}, "host": {"busy_share": 0.5, "steal_share": 0.0},
        "files": {n: hashlib.sha256((tmp_path / n).read_bytes()).hexdigest() for n in ("requests.jsonl", "telemetry.jsonl.gz")},
    }  # fmt: skip
    (tmp_path / "run.json").write_text(json.dumps(record))
    return tmp_path


def parse(folder):
    return parse_run(
        folder,
        requests=folder / "requests.parquet",
        telemetry=folder / "telemetry.parquet",
        wide=folder / "metrics.csv",
        summary=folder / "summary.json",
    )


def test_a_runs_summary_by_hand(run):
    told = parse(run)
    assert (told["requests"], told["ok"], told["failed"], told["wrong_output_tokens"]) == (2, 2, 0, 0)
    assert told["duration_s"] == 1.5  # first sent at 0, last token at 1.5
    assert told["throughput_tokens_per_s"] == 6 / 1.5
    # Windows end at a token: (−0.7, 0.3] holds four, (−0.5, 0.5] five, (0.5, 1.5] one.
    assert told["throughput_peak_tokens_per_s"] == 5
    assert told["ttft_p50_s"] == pytest.approx(0.1)
    assert (told["tpot_p50_s"], told["tpot_mean_s"]) == (pytest.approx(0.2), pytest.approx((0.2 + 0.7) / 2))
    assert (told["ttft_n"], told["tpot_n"], told["itl_n"]) == (2, 2, 4)
    assert (told["ttft_p99_s"], told["ttft_p99_bound_s"]) == (pytest.approx(0.1), None)  # two requests carry no P99
    assert "itl_p99_bound_s" not in told  # gaps of one step are not independent
    assert told["itl_mean_s"] == pytest.approx((0.2 + 0.2 + 0.2 + 1.2) / 4)
    assert told["kv_usage_peak"] == 0.5
    assert told["preemptions"] == 4
    assert told["server_ttft_mean_s"] == 2.0  # the sum rose by 4, the count by 2
    assert (told["axis"], told["level"], told["concurrency"], told["num_requests"]) == ("concurrency", 2.0, 2, 2)
    assert (told["prompt_tokens"], told["output_tokens"]) == (4.0, 3.0)
    assert (told["in_flight_peak"], told["offered_rate"]) == (2, None)  # both left at once: no rate
    assert (told["client_in_flight_mean"], told["server_in_flight_mean"]) == (
        None,
        None,
    )  # two scrapes during the load say little
    assert (told["prefix_hit_rate"], told["prefix_hit_rate_expected"]) == (1.0, 2 / 8)  # hits and queries rise alike here
    assert told["metrics_missing"] == []
    assert told["scrape_gap_max_s"] == 1.0
    assert told["scraped"] is True
    assert told["scrape_share"] == 2 / 7  # at 0.02 and 1.02 s; seven were due in 1.5 s
    assert json.loads((run / "summary.json").read_text()) == told


def test_tables_of_a_run(run):
    parse(run)
    telemetry = pl.read_parquet(run / "telemetry.parquet")
    assert telemetry["elapsed_s"].unique().sort().to_list() == [-0.99, 0.01, 1.01]
    assert telemetry.filter(pl.col("name") == "odd")["value"].is_nan().to_list() == [True]
    wide = (run / "metrics.csv").read_text().splitlines()
    assert wide[0].startswith("elapsed_s,")
    assert len(wide) == 4
    with (run / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    usage = 'vllm:kv_cache_usage_perc{engine="0",model_name="m\\"x"}'
    assert [float(row[usage]) for row in rows] == [0.0, 0.25, 0.5]
    assert [row['odd{reason="capacity"}'] for row in rows] == ["", "NaN", ""]  # seen in one scrape only: empty in the others


def test_only_the_engines_endpoint_makes_the_figures(run):
    """A second endpoint that exposes the same names, and more of everything, changes nothing but its own gap."""
    alone = parse(run)
    with gzip.open(run / "telemetry.jsonl.gz", "rt") as file:
        lines = [json.loads(line) for line in file]
    others = []
    for line in lines[:2]:
        other = {**line, "endpoint": "v", "received": line["received"] + 0.01}
        others.append({**other, "text": line["text"].replace("} 1", "} 91") + "dcgm_power 5\n"})
    others.append({**others[-1], "slot": 2})
    del others[-1]["text"]
    others[-1]["error"] = "refused"
    with gzip.open(run / "telemetry.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(line) + "\n" for line in [lines[0], *others, *lines[1:]])
    record = json.loads((run / "run.json").read_text())
    record["files"]["telemetry.jsonl.gz"] = hashlib.sha256((run / "telemetry.jsonl.gz").read_bytes()).hexdigest()
    (run / "run.json").write_text(json.dumps(record))
    both = parse(run)
    assert both.pop("scrape_gaps") == {"v": 1.47}
    assert both == alone
    assert alone["scrape_endpoint"] == "u"
    telemetry = pl.read_parquet(run / "telemetry.parquet")
    assert telemetry.filter(pl.col("name") == "dcgm_power").select("endpoint", "scrape").rows() == [("v", 0), ("v", 1)]
    (run / "summary.json").write_text(json.dumps({**both, "scrape_gaps": {"v": 1.47}}))
    running = timeseries_frame([run]).filter(pl.col("series") == "running")
    assert running.select("elapsed_s", "value").rows() == [(0.01, 1.0), (1.01, 2.0)]


def test_an_engine_that_never_answered_is_not_replaced_by_another_endpoint(run):
    record = json.loads((run / "run.json").read_text())
    with gzip.open(run / "telemetry.jsonl.gz", "wt") as file:
        for endpoint, told in (("u", {"error": "refused"}), ("v", {"text": exposition(0)})):
            file.write(json.dumps({"slot": 0, "endpoint": endpoint, "sent": 100.0, "received": 100.1, **told}) + "\n")
    record["files"]["telemetry.jsonl.gz"] = hashlib.sha256((run / "telemetry.jsonl.gz").read_bytes()).hexdigest()
    (run / "run.json").write_text(json.dumps(record))
    told = parse(run)
    assert (told["scraped"], told["scrapes"], told["kv_usage_peak"], told["scrape_endpoint"]) == (False, 0, None, "u")


def test_a_renamed_metric_is_named(run):
    raw = run / "telemetry.jsonl.gz"
    table = telemetry_table(raw, 100.0).filter(pl.col("name") != "vllm:kv_cache_usage_perc")
    record = json.loads((run / "run.json").read_text())
    parse(run)
    told = summarise(record, pl.read_parquet(run / "requests.parquet"), table, [])
    assert told["metrics_missing"] == ["vllm:kv_cache_usage_perc"]
    assert told["kv_usage_peak"] is None


def test_a_server_that_counts_no_tokens_is_no_silent_success(run):
    lines = [json.loads(line) for line in (run / "requests.jsonl").read_text().splitlines()]
    text = "".join(json.dumps({**line, "completion_tokens": None, "prompt_tokens": None}) + "\n" for line in lines)
    (run / "requests.jsonl").write_text(text)
    record = json.loads((run / "run.json").read_text())
    record["files"]["requests.jsonl"] = hashlib.sha256(text.encode()).hexdigest()
    (run / "run.json").write_text(json.dumps(record))
    told = parse(run)
    assert (told["wrong_prompt_tokens"], told["wrong_output_tokens"], told["throughput_peak_tokens_per_s"]) == (2, 2, 0)


def test_a_file_that_changed_is_refused(run):
    (run / "requests.jsonl").write_text("")
    with pytest.raises(BenchError, match=r"requests\.jsonl: differs from what was measured.*bench discard"):
        parse(run)
    (run / "requests.jsonl").unlink()
    with pytest.raises(BenchError, match=r"requests\.jsonl: missing"):
        parse(run)


def test_a_telemetry_file_whose_end_was_lost_gives_what_it_has(run):
    raw = run / "telemetry.jsonl.gz"
    raw.write_bytes(raw.read_bytes()[:-20])
    table = telemetry_table(raw, 100.0)
    assert table["scrape"].n_unique() >= 1
    assert wide_table(table).columns[0] == "elapsed_s"


def test_a_real_exposition_is_read_whole(tmp_path):
    """A scrape of vLLM 0.32, as it was served."""
    text = (ROOT / "tests/data/vllm-0.32.0.prom").read_text()
    with gzip.open(tmp_path / "t.jsonl.gz", "wt") as file:
        file.write(json.dumps({"slot": 0, "endpoint": "u", "sent": 1.0, "received": 1.0, "text": text}) + "\n")
    table = telemetry_table(tmp_path / "t.jsonl.gz", 0.0)
    assert missing_metrics(table["name"]) == []
    assert len(table) == sum(bool(line) and not line.startswith("#") for line in text.splitlines())
    running = table.filter(pl.col("name") == "vllm:num_requests_running")
    assert running["labels"].to_list() == ['engine="0",model_name="mha4"']
