"""Tables and figures of one run, by hand."""

import csv
import gzip
import json

import polars as pl
import pytest

from bench.errors import BenchError
from bench.parse.latency import latency_columns, throughput_series
from bench.parse.run import parse_run, summarise
from bench.parse.scrapes import TELEMETRY_SCHEMA, read_scrapes, scrape_tables, wide_table
from bench.runs.files import checksums, write_record
from bench.runs.request import write_requests
from bench.runs.request_table import REQUEST_SCHEMA
from bench.runs.run import RECORD, REQUESTS, TELEMETRY, Client, Host, Prefix
from tests.support import records
from tests.support.scrapes import write_scrapes
from tests.support.study import METRICS


def test_tpot_and_normalised_latency():
    for ttft, e2e, n, streamed, first, tpot, normalised in [
        (0.5, 2.5, 5, 5, 1.0, 0.5, 0.5),
        (0.5, 2.5, 5, None, 1.0, 0.5, 0.5),  # recorded before chunks were counted
        (0.5, 0.5, 1, 1, 1.0, None, 0.5),  # one token has no gap
        (0.5, 2.5, 5, 5, 3.0, 1.0, 0.5),  # three came at once
        (0.5, 2.5, 5, 3, 1.0, 1.0, 0.5),  # two were not streamed
        (0.5, 2.5, 5, 5, 5.0, None, 0.5),
        (0.5, 2.5, 5, None, None, None, 0.5),  # not known
        (None, None, 0, None, 1.0, None, None),
        (None, None, None, None, 1.0, None, None),
    ]:
        columns = {"sent_s": 0.25, "first_output_s": 0.75, "ttft_s": ttft, "e2e_s": e2e, "first_tokens": first}
        kinds = dict.fromkeys(columns, pl.Float64) | {"completion_tokens": pl.Int64, "streamed_tokens": pl.Int64}
        frame = pl.LazyFrame([{**columns, "completion_tokens": n, "streamed_tokens": streamed}], schema=kinds)
        row = latency_columns(frame).collect().row(0, named=True)
        assert (row["ttfo_s"], row["tpot_s"], row["normalised_latency_s"]) == (0.5, tpot, normalised), n


def test_throughput_over_time_by_hand():
    rows = (([0.1, 0.6, 1.0], 6), ([0.2, 0.9], 2))  # 2 tokens a chunk, and 1
    table = pl.DataFrame([{"token_times_s": times, "completion_tokens": n, "last_token_s": max(times)} for times, n in rows])
    assert throughput_series(table, 0.5).select("elapsed_s", "tokens_per_s").rows() == [(0.25, 6), (0.75, 6)]


def exposition(step):
    """What a vLLM would say after `step` seconds: every metric of the catalogue, counters that rise."""
    lines = []
    for name in METRICS.values():
        value = {"vllm:kv_cache_usage_perc": 0.25 * step, "vllm:num_requests_running": step}.get(name, 10 + 2 * step)
        if name.endswith("_count"):
            lines.append(f'{name}{{engine="0"}} {step}')
        else:
            lines.append(f'{name}{{engine="0",model_name="m\\"x"}} {value}')
    if step == 1:
        lines.append('odd{reason="capacity"} NaN')
    return "\n".join(lines) + "\n"


@pytest.fixture
def run(tmp_path):
    """A run's folder, with requests and three scrapes."""
    requests = [
        records.request(index=i, last_token_s=0.5 + i, end_s=0.6 + i, e2e_s=0.5 + i, token_times_s=[0.1, 0.3, 0.5 + i])
        for i in range(2)
    ]
    write_requests(requests, tmp_path / "requests.jsonl")
    with gzip.open(tmp_path / "telemetry.jsonl.gz", "wt") as file:
        for slot in range(3):
            scrape = {"slot": slot, "endpoint": "u", "due": 99.0 + slot, "sent": 99.0 + slot, "received": 99.02 + slot}
            file.write(json.dumps({**scrape, "text": exposition(slot)}) + "\n")
        file.write(json.dumps({"slot": 3, "endpoint": "u", "sent": 102.0, "received": 103.0, "error": "timed out"}) + "\n")
    record = records.run(
        commit="c0ffee", clock_start_s=100.0, scrape_interval_s=0.2, scrape_endpoint="u", prefix=Prefix(expected_tokens=2),
        client=Client(loop_lag_p99_s=0.001, send_spread_s=0.0), host=Host(busy_share=0.5, steal_share=0.0),
        files=checksums(tmp_path, (REQUESTS, TELEMETRY)),
    )  # fmt: skip
    write_record(record, tmp_path / RECORD)
    return tmp_path


def rewrite_requests(folder, change):
    """Change the lines of a run's requests, and let its record have them so."""
    file = folder / REQUESTS
    lines = [change(i, json.loads(line)) for i, line in enumerate(file.read_text().splitlines())]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    seal(folder)


def seal(folder, **changed):
    """Let the record of a run have its files as they are now; `changed` are keys of its parts."""
    record = json.loads((folder / RECORD).read_text())
    parts = {part: {**record[part], **keys} for part, keys in changed.items()}
    (folder / RECORD).write_text(json.dumps({**record, **parts, "files": checksums(folder, (REQUESTS, TELEMETRY))}))


def parse(folder):
    return parse_run(
        folder, requests=folder / "requests.parquet", telemetry=folder / "telemetry.parquet",
        wide=folder / "metrics.csv", summary=folder / "summary.json",
    )  # fmt: skip


def test_a_runs_summary_by_hand(run):
    told = parse(run)
    assert (told["requests"], told["ok"], told["failed"], told["wrong_output_tokens"]) == (2, 2, 0, 0)
    assert told["commit"] == "c0ffee"
    assert told["duration_s"] == 1.5  # first sent at 0, last token at 1.5
    assert told["throughput_tokens_per_s"] == 6 / 1.5
    # Windows end at a token: (−0.7, 0.3] holds four, (−0.5, 0.5] five, (0.5, 1.5] one.
    assert (told["throughput_peak_tokens_per_s"], told["ttft_p50_s"]) == (5, pytest.approx(0.1))
    assert (told["tpot_p50_s"], told["tpot_mean_s"]) == (pytest.approx(0.2), pytest.approx((0.2 + 0.7) / 2))
    assert (told["ttft_n"], told["tpot_n"], told["itl_n"]) == (2, 2, 4)
    assert (told["ttft_p99_s"], told["ttft_p99_bound_s"]) == (pytest.approx(0.1), None)  # two requests carry no P99
    assert "itl_p99_bound_s" not in told  # gaps of one step are not independent
    assert (told["itl_mean_s"], told["kv_usage_peak"]) == (pytest.approx((0.2 + 0.2 + 0.2 + 1.2) / 4), 0.5)
    assert told["preemptions"] == 4
    assert told["server_ttft_mean_s"] == 2.0  # the sum rose by 4, the count by 2
    assert (told["axis"], told["level"], told["concurrency"], told["num_requests"]) == ("concurrency", 2.0, 2, 2)
    assert (told["prompt_tokens"], told["output_tokens"]) == (4.0, 3.0)
    assert (told["in_flight_peak"], told["offered_rate"]) == (2, None)  # both left at once: no rate
    # two scrapes during the load say little
    assert (told["client_in_flight_mean"], told["server_in_flight_mean"]) == (None, None)
    assert (told["prefix_hit_rate"], told["prefix_hit_rate_expected"]) == (1.0, 2 / 8)  # hits and queries rise alike here
    assert (told["metrics_missing"], told["scrape_gap_max_s"]) == ([], 1.0)
    assert (told["scraped"], told["scraped_before"], told["scraped_after"]) == (True, True, False)  # the last one timed out
    assert told["scrape_share"] == 2 / 7  # at 0.02 and 1.02 s; seven were due in 1.5 s
    assert json.loads((run / "summary.json").read_text()) == told


def test_tables_of_a_run(run):
    parse(run)
    telemetry = pl.read_parquet(run / "telemetry.parquet")
    assert telemetry["elapsed_s"].unique().sort().to_list() == [-0.99, 0.01, 1.01]
    assert telemetry.filter(pl.col("name") == "odd")["value"].is_nan().to_list() == [True]
    with (run / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    usage = 'vllm:kv_cache_usage_perc{engine="0",model_name="m\\"x"}'
    assert [float(row[usage]) for row in rows] == [0.0, 0.25, 0.5]
    assert [row['odd{reason="capacity"}'] for row in rows] == ["", "NaN", ""]  # seen in one scrape only: empty in the others


def test_only_the_engines_endpoint_makes_the_figures(run):
    """A second endpoint that exposes the same names, and more of everything, changes nothing but its own gap."""
    alone = parse(run)
    lines = list(read_scrapes(run / TELEMETRY))
    others = []
    for line in lines[:2]:
        other = {**line, "endpoint": "v", "received": line["received"] + 0.01}
        others.append({**other, "text": line["text"].replace("} 1", "} 91") + "dcgm_power 5\n"})
    others.append({**others[-1], "slot": 2})
    del others[-1]["text"]
    others[-1]["error"] = "refused"
    write_scrapes(run / TELEMETRY, [lines[0], *others, *lines[1:]])
    seal(run)
    both = parse(run)
    assert (both.pop("scrape_gaps"), both) == ({"v": 1.47}, alone)
    assert alone["scrape_endpoint"] == "u"
    telemetry = pl.read_parquet(run / "telemetry.parquet")
    assert telemetry.filter(pl.col("name") == "dcgm_power").select("endpoint", "scrape").rows() == [("v", 0), ("v", 1)]


def test_the_engine_is_the_endpoint_that_the_record_names(run):
    """Neither the one that came first is taken for it, nor another one where it never answered."""
    record = (run / RECORD).read_text()
    (run / RECORD).write_text(json.dumps({**json.loads(record), "scrape_endpoint": "w"}))
    told = parse(run)
    assert (told["scraped"], told["kv_usage_peak"], told["scrape_gaps"]) == (False, None, {"u": 1.0})
    (run / RECORD).write_text(record)
    said = {"u": {"error": "refused"}, "v": {"text": exposition(0)}}
    times = {"slot": 0, "sent": 100.0, "received": 100.1}
    write_scrapes(run / TELEMETRY, ({**times, "endpoint": name, **each} for name, each in said.items()))
    seal(run)
    told = parse(run)
    assert (told["scraped"], told["scrapes"], told["kv_usage_peak"], told["scrape_endpoint"]) == (False, 0, None, "u")


def lists(*values):
    """Values of one series at slots 0, 1, …; None where the exposition lacks it."""
    return dict(enumerate(values))


@pytest.fixture
def paced():
    """An open loop of six requests, one of which fails, at an endpoint of two engines that is scraped eight times.

    Request 5 is sent when 4 ends, and later than it was due.
    """
    times = [  # scheduled, sent, first token, last token (and end)
        (1.0, 1.1, 1.3, 2.0), (2.0, 2.1, 2.2, 2.4), (3.0, 3.1, 3.3, 4.1), (4.0, 4.1, None, 4.6), (5.0, 5.1, 5.3, 6.6), (6.0, 6.6, 6.8, 7.1),
    ]  # fmt: skip
    requests = latency_columns(
        pl.LazyFrame(
            [
                {
                    "index": i, "outcome": "ok" if first else "disconnect", "prompt_asked": 10, "output_asked": 3,
                    "prompt_tokens": 10 if first else None, "completion_tokens": 3 if first else None,
                    "scheduled_s": due, "sent_s": sent, "first_token_s": first, "last_token_s": last if first else None, "end_s": last,
                    "ttft_s": first - sent if first else None, "e2e_s": last - sent if first else None,
                    "token_times_s": [first, (first + last) / 2, last] if first else [],
                }
                for i, (due, sent, first, last) in enumerate(times)
            ],
            schema=REQUEST_SCHEMA,
        )
    ).collect()  # fmt: skip
    zeros = lists(*[0.0] * 8)
    samples = {name: {"0": zeros} for name in METRICS.values()}
    samples[METRICS["running"]] = {"0": lists(9, 1, 0, 1, 1, 1, 1, 9), "1": lists(0, 0, 0, 0, 0, 0, 1, 0)}
    samples[METRICS["waiting"]] = {"0": lists(0, 0, 0, 0, 0, 1, 0, 0)}
    samples[METRICS["kv_usage"]] = {"0": lists(0, 0.6, 0.2, 0, 0, 0, 0, 0), "1": lists(0, 0.55, 0.5, 0, 0, 0, 0, 0)}
    samples[METRICS["preemptions"]] = {
        "0": lists(7, 7, 8, 8, 8, 8, 9, 9),
        "1": lists(*[3] * 8),
        "2": lists(*[None] * 4, 1, 1, 1, 1),
    }
    samples[METRICS["prefix_queries"]] = {"0": lists(100, *[120] * 6, 160)}
    samples[METRICS["prefix_hits"]] = {"0": lists(50, *[55] * 6, 65)}
    definition = {**records.DEFINITION, "arrival": "constant", "axis": "request_rate", "level": 1}
    record = records.run(
        definition=definition, scrape_interval_s=0.5, scrape_endpoint="u", prefix=Prefix(expected_tokens=20),
        client=Client(), host=Host(),
    )  # fmt: skip
    return record, requests, samples


def told_of(paced):
    record, requests, samples = paced
    telemetry = pl.DataFrame(
        [
            (slot, 0.5 + slot, "u", name, f'engine="{engine}"', float(value))
            for name, engines in samples.items()
            for engine, values in engines.items()
            for slot, value in values.items()
            if value is not None
        ],
        schema=TELEMETRY_SCHEMA,
        orient="row",
    )
    return summarise(record, requests, telemetry, sorted(0.5 + slot for slot in telemetry["scrape"].unique()))


def test_a_paced_run_s_load_by_hand(paced):
    told = told_of(paced)
    assert (told["ok"], told["failed"], told["outcome_disconnect"]) == (5, 1, 1)
    assert told["duration_s"] == pytest.approx(6.0)  # 1.1 to 7.1
    assert told["throughput_tokens_per_s"] == pytest.approx(15 / 6)
    assert (told["throughput_requests_per_s"], told["offered_rate"]) == (pytest.approx(5 / 6), pytest.approx(5 / (6 - 1)))
    assert told["achieved_rate"] == pytest.approx(5 / (6.6 - 1.1))
    assert told["in_flight_peak"] == 1  # an end makes room for what is sent at that moment
    assert (told["ttft_n"], told["ttft_due_n"], told["ttft_mean_s"]) == (5, 5, pytest.approx((4 * 0.2 + 0.1) / 5))
    assert told["ttft_due_mean_s"] == pytest.approx((3 * 0.3 + 0.2 + 0.8) / 5)
    # At 1.5, 2.5, … 6.5; what the gauge says before and after is not of the load.
    assert (told["client_in_flight_mean"], told["server_in_flight_mean"]) == (pytest.approx(5 / 6), pytest.approx(7 / 6))
    assert told["held_back_requests"] is None  # the client never held two
    assert (told["kv_usage_peak"], told["running_peak"]) == (0.6, 9.0)  # shares do not add up
    assert told["preemptions"] == 2 + 0 + 1  # a label set that comes later counts from 0
    assert (told["prefix_hit_rate"], told["prefix_hit_rate_expected"]) == (pytest.approx(15 / 60), pytest.approx(20 / 60))
    assert (told["scrapes"], told["scrape_gap_max_s"], told["scrape_share"]) == (8, 1.0, 6 / 12)
    assert (told["scraped_before"], told["scraped_after"]) == (True, True)
    assert (told["metrics_missing"], told["counters_fell"]) == ([], [])


def test_what_a_failed_request_got_counts_nowhere(paced):
    for outcome in ["http_error", "timeout"]:
        record, requests, samples = paced
        failed = pl.col("index") == 3
        got = {"outcome": outcome, "first_token_s": 4.2, "ttft_s": 0.1, "completion_tokens": 7, "token_times_s": [4.2, 4.6]}
        partly = requests.with_columns(
            pl.when(failed).then(pl.lit(each)).otherwise(name).alias(name) for name, each in got.items()
        )
        got, none = told_of((record, partly, samples)), told_of(paced)
        changed = {key for key in got.keys() | none.keys() if got.get(key) != none.get(key)}
        assert changed == {"outcome_disconnect", "outcome_http_0" if outcome == "http_error" else "outcome_timeout"}


def test_the_tokens_of_a_joule_are_those_of_whole_answers(run):
    """100 W from −1 to 3 s; from 0 to 1.5 s, two requests got three tokens each, and one of them timed out."""
    rewrite_requests(run, lambda i, line: line if i else {**line, "outcome": "timeout"})
    text = 'DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a"} 100\n'
    with gzip.open(run / "telemetry.jsonl.gz", "at") as file:
        for slot in range(17):
            at = 99 + slot / 4
            file.write(json.dumps({"slot": slot, "endpoint": "nvml:0", "sent": at, "received": at, "text": text}) + "\n")
    seal(run)
    told = parse(run)
    assert (told["gpu_energy_j"], told["tokens_per_joule"]) == (pytest.approx(150), pytest.approx(3 / 150))
    assert told["scrape_gaps"] == {"nvml:0": 0.25}


def test_a_counter_that_falls_is_no_figure(paced):
    paced[2][METRICS["preemptions"]]["0"] = lists(7, 7, 8, 0, 1, 20, 30, 40)
    paced[2][METRICS["prefix_hits"]]["1"] = lists(0, 0, 5, 5, None, None, None, None)  # an engine that went away
    told = told_of(paced)
    assert told["counters_fell"] == sorted([METRICS["prefix_hits"], METRICS["preemptions"]])
    assert (told["preemptions"], told["prefix_hits"], told["prefix_hit_rate"]) == (None, None, None)


def test_a_metric_that_goes_away_is_missing_and_whole_answers_have_no_peak(paced):
    for gone in [None, float("nan")]:
        paced[2][METRICS["kv_usage"]] = {"0": lists(0, 0.6, *[gone] * 6)}
        assert told_of(paced)["metrics_missing"] == ["kv_usage (vllm:kv_cache_usage_perc was there at first)"], gone
    record, requests, samples = paced
    whole = requests.with_columns(first_token_s=pl.lit(None, dtype=pl.Float64))
    assert told_of((record, whole, samples))["throughput_peak_tokens_per_s"] is None


def test_a_server_that_counts_no_tokens_is_no_silent_success(run):
    rewrite_requests(run, lambda _, line: {**line, "completion_tokens": None, "prompt_tokens": None})
    told = parse(run)
    assert (told["wrong_prompt_tokens"], told["wrong_output_tokens"], told["throughput_peak_tokens_per_s"]) == (2, 2, None)


def test_what_was_sent_again_is_a_column(run):
    rewrite_requests(run, lambda i, line: {**line, "resent": 2 * i})
    seal(run, client={"resent": 2})
    assert parse(run)["client_resent"] == 2
    assert pl.read_parquet(run / "requests.parquet")["resent"].to_list() == [0, 2]


def test_a_file_that_changed_is_refused_and_one_whose_end_was_lost_gives_what_it_has(run):
    raw = run / "telemetry.jsonl.gz"
    raw.write_bytes(raw.read_bytes()[:-20])
    table = scrape_tables(raw, 100.0)[1]
    assert table["scrape"].n_unique() >= 1
    assert wide_table(table).columns[0] == "elapsed_s"
    (run / "requests.jsonl").write_text("")
    with pytest.raises(BenchError, match=r"requests\.jsonl: differs from what was measured.*bench runs --discard"):
        parse(run)
    (run / "requests.jsonl").unlink()
    with pytest.raises(BenchError, match=r"requests\.jsonl: missing"):
        parse(run)
