"""The tables of all runs, from runs that are written by hand; turns of conversations; and what is parsed once."""

import polars as pl
import pytest

from bench.errors import BenchError
from bench.findings.turns import turn_rows
from bench.parse.deployed import deployed
from bench.parse.latency import by_turn
from bench.parse.session import parse_session
from bench.parse.table import aggregate, summary_frame, timeseries_frame
from bench.runs.columns import TURN_FIELDS
from bench.runs.files import checksum, read, write_record
from bench.runs.store import ParsedSession
from bench.study.config import Thresholds
from bench.study.plan import Plan
from bench.study.read import load_config
from bench.study.slo import parse_slo
from tests.support import records
from tests.support.made import made_study, make_run
from tests.support.summaries import written


def course(frame, series):
    return frame.filter(series=series).select("elapsed_s", "value").rows()


def test_the_course_of_a_run_by_hand(tmp_path, summary):
    frame = timeseries_frame([written(tmp_path / "r", summary)])
    # One token in each of the bins 0.2–0.4 and 0.6–0.75 s; an answer that came as a whole has no rate.
    throughput = frame.filter(series="throughput")
    assert throughput["elapsed_s"].to_list() == pytest.approx([0.1, 0.3, 0.5, 0.675])
    assert throughput["value"].to_list() == pytest.approx([0, 5, 0, 1 / 0.15])
    assert course(frame, "completed") == [(0.0, 0.0), (0.75, 1.0), (1.0, 2.0)]
    one = written(tmp_path / "one", summary)  # an odd number of answers
    pl.read_parquet(one / "requests.parquet").head(1).write_parquet(one / "requests.parquet")
    assert course(timeseries_frame([one]), "completed") == [(0.0, 0.0), (0.75, 1.0)]
    assert course(frame, "running") == [(0.0, 1.0), (0.5, 2.0)]
    assert course(frame, "gpu_power_w/0") == [(0.0, 100.0), (0.5, 200.0)]
    assert set(frame["series"]) == {"throughput", "completed", "running", "gpu_power_w/0"}
    assert frame.select("deployment", "run", "level", "repeat").unique().rows() == [("a", summary["run"], 4.0, 1)]


def test_the_share_of_slots_at_work_is_the_usage_of_their_cache(tmp_path, summary):
    folder = written(tmp_path / "r", summary)
    slots = timeseries_frame([folder], {"a": records.launch(max_num_seqs=4, slots=True)})
    assert course(slots, "kv_usage") == [(0.0, 0.25), (0.5, 0.5)]
    blocks = timeseries_frame([folder], {"a": records.launch(max_num_seqs=4)})
    assert "kv_usage" not in set(blocks["series"])


def test_a_run_without_scrapes_or_gpus_has_a_course_too(tmp_path, summary):
    frame = timeseries_frame([written(tmp_path / "r", summary, scrape_endpoint=None, gpu_count_seen=None)])
    assert set(frame["series"]) == {"throughput", "completed"}
    assert timeseries_frame([]).is_empty()


def made(folder, summary, **more):
    """The tables of one run: the summary as Parquet and CSV, and the time series."""
    run = written(folder / "r", summary)
    facts = {"launches": [folder / "launch.json"], "facts": [folder / "deployment.json"]}
    write_record(records.launch(), folder / "launch.json")
    write_record(records.facts(engine_version="1"), folder / "deployment.json")
    files = {"summary": "s.parquet", "summary_csv": "s.csv", "timeseries": "t.parquet"}
    paths = {name: folder / "tables" / file for name, file in files.items()}
    aggregate([run / "summary.json"], thresholds=Thresholds(), **facts, **paths, **more)
    return pl.read_parquet(paths["summary"]), pl.read_csv(paths["summary_csv"]), pl.read_parquet(paths["timeseries"])


def test_the_tables_of_a_study(tmp_path, summary):
    slow = {**summary, "client_loop_lag_max_s": 9.0, "wrong_output_tokens": 1, "duration_s": 2.0}
    frame, texts, course = made(tmp_path, slow, slos=[parse_slo("ttft_p50=300ms")], baseline="a")
    row = frame.row(0, named=True)
    assert (row["model"], row["engine_version"], row["baseline"]) == ("m", "1", True)
    # One of three met the limit, and 1.5 requests/s were sent.
    assert (row["slo_share"], row["goodput_requests_per_s"]) == (pytest.approx(1 / 3), pytest.approx(0.5))
    assert row["judged"][0] == {"ok": True, "ttft": 0.25, "ttfo": None, "tpot": 0.25, "e2e": 0.75, "request_class": None}
    assert texts["faults"].to_list() == ["content, client"]
    assert texts["reasons"][0] == "; ".join(row["reasons"]) and len(row["reasons"]) == 2
    assert "judged" not in texts.columns
    assert course["run"].unique().to_list() == [summary["run"]]


def test_a_run_of_another_definition_is_refused(tmp_path, summary):
    key = f"a/{summary['run']}"
    with pytest.raises(BenchError, match=rf"1 of 1 run measured under another definition .* `bench runs --discard '{key}'`"):
        made(tmp_path, summary, expected={key: "other"})


def test_a_run_of_the_same_definition_is_taken(tmp_path, summary):
    assert made(tmp_path, summary, expected={f"a/{summary['run']}": summary["digest"]})[0].height == 1


def test_what_some_of_the_gpus_drew_is_not_what_the_instance_draws(summary):
    """Of a deployment over two nodes the first node's GPUs alone are read: half of its energy would double its tokens a joule."""
    drawn = {"gpu_power_mean_w": 700.0, "gpu_energy_j": 7000.0, "tokens_per_joule": 3.0}
    run = {**summary, "requests": 0, "gpu_count_seen": 2, **drawn}
    assert {name: deployed(run, records.launch(gpus=4), None).get(name, "kept") for name in drawn} == dict.fromkeys(drawn)
    assert not set(drawn) & set(deployed(run, records.launch(gpus=2), None))
    assert not set(drawn) & set(deployed({**run, "gpu_count_seen": 8}, records.launch(gpus=2), None))


def test_each_setting_of_a_deployment_is_a_column(summary):
    """Its keys, with what the command line says in place of `auto`, and its flags as text."""
    configured = {"dtype": "auto", "max_num_seqs": 64, "prefix_caching": True, "flag_max_num_batched_tokens": "2048"}
    launches = {"a": records.launch(configured=configured, dtype="float32", block_size=32), "b": records.launch(deployment="b")}
    table = summary_frame([summary, {**summary, "deployment": "b"}], launches, {}, Thresholds())
    known = {**configured, "dtype": "float32", "block_size": 32}
    assert table.select(list(known)).rows(named=True) == [known, dict.fromkeys(known)]
    slots = deployed({**summary, "requests": 0}, records.launch(block_size=256, slots=True, max_num_seqs=12), None)
    assert "block_size" not in slots and slots["max_num_seqs"] == 12  # a slot is no block


KV = {"requests": 4, "prompt_tokens": 900.0, "output_tokens": 100.0}


def test_how_many_requests_a_cache_holds_is_known_where_its_layers_and_prompts_are():
    """A hybrid of attention and state-space layers: its tokens are those of the longest sequences alone."""
    hybrid = records.facts(kv_tokens=1_394_221, kv_blocks=17_903, block_size=4)
    assert deployed(KV, None, hybrid)["predicted_saturation"] is None
    assert deployed(KV, None, hybrid)["kv_tokens"] == 1_394_221
    plain = records.facts(kv_tokens=16_000, kv_blocks=1001, block_size=16)  # the engine keeps a block for itself
    assert deployed(KV, None, plain)["predicted_saturation"] == pytest.approx(16_000 / 1008)
    # Nor is it known of prompts of a trace that share blocks.
    plain = records.facts(kv_tokens=16_000, kv_blocks=1000, block_size=16)
    alone, shared = ({**KV, "arrival": "trace", "prefix_hit_rate_expected": rate} for rate in (0.0, 0.4))
    assert deployed(alone, None, plain)["predicted_saturation"] is not None
    assert deployed(shared, None, plain)["predicted_saturation"] is None
    # One group of layers keeps all tokens, one those of a window of 129: 63 blocks and 9 of a request of 1,000 tokens.
    groups = {"kv_groups": ((None, 1), (129, 1)), "block_size": 16, "kv_tokens": 16_000}
    launch = records.launch(plan=groups, max_model_len=4096)
    reported = records.facts(kv_tokens=15_000, kv_blocks=1000, block_size=16)
    row = deployed(KV, launch, reported)
    assert row["predicted_saturation"] == pytest.approx(16_000 / ((63 + 9) * 16))
    # As vLLM reports it: 1,000 blocks, 265 for each of the longest sequences.
    assert row["kv_tokens_planned"] == int(1000 / (256 + 9) * 4096)
    assert deployed(KV, records.launch(plan=groups), reported)["kv_tokens_planned"] is None


def test_each_turn_has_its_latency_and_what_the_cache_served():
    """Two conversations of two turns, one of which ended early; a chain of requests is a conversation, whatever lies between."""
    rows = [
        {"index": 0, "after": None, "outcome": "ok", "ttft_s": 0.4, "prompt_tokens": 100, "cached_tokens": 0},
        {"index": 1, "after": 0, "outcome": "ok", "ttft_s": 0.1, "prompt_tokens": 150, "cached_tokens": 120},
        {"index": 2, "after": None, "outcome": "ok", "ttft_s": 0.6, "prompt_tokens": 100, "cached_tokens": 0},
        {"index": 3, "after": 2, "outcome": "timeout", "ttft_s": None, "prompt_tokens": None, "cached_tokens": None},
    ]
    turns = by_turn(pl.DataFrame(rows))
    assert [(x["turn"], x["requests"], x["ttft_p50_s"], x["prompt_tokens"], x["cached_tokens"]) for x in turns] == [
        (1, 2, 0.5, 200, 0),
        (2, 1, 0.1, 150, 120),
    ]
    assert by_turn(pl.DataFrame(rows[::2])) is None
    place = {"deployment": "a", "workload": "w", "family": "w", "axis": "users", "turns": 2, "level": 4.0, "valid": True}
    runs = pl.DataFrame([{**place, "by_turn": turns}] * 2, schema_overrides={"by_turn": pl.List(pl.Struct(TURN_FIELDS))})
    found = turn_rows(runs)
    assert [(x["turn"], x["requests"], x["prompt"], x["cached"], x["hit_rate"]) for x in found] == [
        (1, 4, 100.0, 0.0, 0.0),
        (2, 2, 150.0, 120.0, 0.8),
    ]


def test_what_is_parsed_already_is_kept(tmp_path):
    runs, file = tmp_path / "d000", tmp_path / "1-parsed.json"
    names = []
    for run in Plan.of(load_config(made_study(4, 4), source="made")).runs[:2]:
        (runs / run.name).mkdir(parents=True)
        make_run(run, runs / run.name, series=5)
        names.append(run.name)
    one, other = names
    records = {name: checksum(runs / name / "run.json") for name in names}

    def parsed(code="a", of=records):
        """The runs that are parsed, whose summaries are marked before."""
        for name in names:
            (runs / name / "summary.json").write_text("{}")
        parse_session(runs, of, file, code=code)
        return {name for name in names if (runs / name / "summary.json").read_text() != "{}"}

    assert parsed() == {one, other}
    assert read(ParsedSession, file) == ParsedSession(code="a", runs=records)
    assert parsed() == set()
    assert parsed(of={**records, one: "another"}) == {one}
    (runs / other / "metrics.csv").unlink()
    assert parsed(of={**records, one: "another"}) == {other}
    assert parsed(code="b") == {one, other}
    next((runs / one).glob("requests.jsonl*")).write_bytes(b"")
    said = []
    with pytest.raises(BenchError, match=r"1 of 2 runs cannot be parsed.*bench runs --discard 'd000/RUN'"):
        parse_session(runs, records, file, code="c", say=said.append)
    assert [line.partition(": ")[0] for line in said] == [one]
