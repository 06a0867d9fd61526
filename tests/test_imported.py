"""Result files of other tools: planted ones give exactly what was planted, real ones what their tool itself reports."""

import json
import re

import polars as pl
import pytest

from bench.errors import BenchError
from bench.imported import FORMATS, imported, read_peers
from bench.records.run_summary import read_run_summary
from tests.command import bench
from tests.foreign import EPOCH, FILES, TRUTH, Sent, aiperf, guidellm, inference_perf, vllm

OK = [each for each in TRUTH if not each.error]
STAMPS = [name for name in FILES if name != "guidellm"]  # those that keep the moment of every token


def figures(path, own=()):
    (run,) = imported(read_peers(path), own)
    return run.figures


@pytest.mark.parametrize("tool", FILES)
def test_planted_requests_are_read_exactly(tool, tmp_path):
    ((form, _, peer),) = read_peers(FILES[tool](tmp_path))
    assert form.name == tool
    assert (peer.model, peer.arrival, peer.axis, peer.level, peer.endpoint) == ("m", "closed", "concurrency", 2.0, "completions")
    assert [each.outcome for each in peer.requests] == ["ok"] * 4 + ["http_error"]
    assert peer.requests[4].status == 503
    for planted, read in zip(OK, peer.requests, strict=False):
        near = pytest.approx([planted.at, planted.ttft, planted.tokens[-1] - planted.at], abs=1e-6)  # of a clock of 2026
        assert [read.sent_s, read.ttft_s, read.e2e_s] == near
        assert (read.prompt_tokens, read.completion_tokens) == (planted.prompt, len(planted.tokens))
        assert read.token_times_s == (pytest.approx(planted.tokens, abs=1e-6) if tool in STAMPS else [])


@pytest.mark.parametrize("tool", FILES)
def test_columns_follow_by_our_definitions(tool, tmp_path):
    row = figures(FILES[tool](tmp_path))
    tokens = sum(len(each.tokens) for each in OK)
    span = max(each.tokens[-1] for each in OK)
    assert (row["requests"], row["ok"], row["failed"], row["outcome_http_503"]) == (5, 4, 1, 1)
    assert row["duration_s"] == pytest.approx(span, abs=1e-6)
    assert row["throughput_tokens_per_s"] == pytest.approx(tokens / span, rel=1e-5)
    assert row["ttft_p50_s"] == pytest.approx(0.060, abs=1e-6)  # the nearest rank, whatever the tool takes
    assert row["tpot_p50_s"] == pytest.approx(0.021, abs=1e-6)
    assert row["e2e_p99_s"] == pytest.approx(0.131, abs=1e-6)
    gaps = [gap for each in OK for gap in each.gaps]
    assert row["itl_n"] == (len(gaps) if tool in STAMPS else None)
    assert row["counted_prompt_tokens"] == pytest.approx(64.25)


@pytest.mark.parametrize("tool", FILES)
def test_what_a_file_does_not_say_is_null(tool, tmp_path):
    row = figures(FILES[tool](tmp_path))
    said = [name for name in row if name.startswith(("client_", "host_", "kv_", "server_", "prefix_")) and row[name] is not None]
    assert [name for name in said if not name.startswith("client_in_flight")] == []
    assert [row.get(name) for name in ("cache", "seed", "commit", "drain_s", "reference_s", "scraped")] == [None] * 6


def test_a_start_is_known_where_the_clock_is_a_wall_s(tmp_path):
    starts = {name: figures(write(tmp_path))["started"] for name, write in FILES.items()}
    assert starts["guidellm"] == starts["aiperf"] == "2026-09-21T14:13:20.000+00:00"
    assert starts["vllm"] is starts["inference-perf"] is None
    assert EPOCH == 1_790_000_000


def test_chunks_fewer_than_tokens_leave_no_itl(tmp_path):
    def doubled(folder):
        file = vllm(folder)
        content = json.loads(file.read_text())
        file.write_text(json.dumps(content | {"output_lens": [2 * n for n in content["output_lens"]]}))
        return file

    row = figures(doubled(tmp_path))
    assert row["tokens_per_chunk"] == pytest.approx(2.0)
    assert row["itl_p50_s"] is None


@pytest.mark.parametrize(
    ("write", "load"),
    [
        (lambda folder: vllm(folder, max_concurrency=None), ("burst", "concurrency", 5.0)),
        (lambda folder: vllm(folder, request_rate=3.5), ("poisson", "request_rate", 3.5)),
        (lambda folder: vllm(folder, request_rate=3.5, burstiness=2.0), ("gamma", "request_rate", 3.5)),
        (
            lambda folder: inference_perf(folder, stage={"load_summary": {"count": 5, "requested_rate": 9.0}}),
            ("constant", "request_rate", 9.0),
        ),
    ],
)
def test_loads(write, load, tmp_path):
    ((_, _, peer),) = read_peers(write(tmp_path))
    assert (peer.arrival, peer.axis, peer.level) == load


def test_one_load_has_one_name(tmp_path):
    """That of our own run, if lengths are within a tenth, and else the first one's."""
    for name, write in FILES.items():
        (tmp_path / name).mkdir()
        write(tmp_path / name)
    peers = read_peers(tmp_path)
    assert len(peers) == 4
    assert {run.figures["workload"] for run in imported(peers)} == {"closed_p64_o4"}
    own = {"arrival": "closed", "prompt_tokens": 66.0, "output_tokens": 3.6, "workload": "chat"}
    assert {run.figures["workload"] for run in imported(peers, [own])} == {"chat"}
    assert {run.figures["workload"] for run in imported(peers, [own | {"prompt_tokens": 80.0}])} == {"closed_p64_o4"}
    twice = [*peers, *peers]
    assert sorted({(run.figures["deployment"], run.figures["repeat"]) for run in imported(twice)})[:2] == [("m (AIPerf)", 1), ("m (AIPerf)", 2)]


def test_aggregates_alone_are_a_line_of_the_table(tmp_path):
    short = [Sent(0.0, 0.05, (0.01,))]
    content = json.loads(vllm(tmp_path, short).read_text())
    gone = ("start_times", "ttfts", "itls", "input_lens", "output_lens", "errors")
    (tmp_path / "vllm.json").write_text(json.dumps({name: value for name, value in content.items() if name not in gone}))
    done = bench("import", tmp_path / "vllm.json", "--output-dir", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "vLLM bench, as it reports" in done.stdout
    assert "--save-detailed" in done.stdout
    assert not (tmp_path / "out").exists()


def test_written_runs_are_drawn_and_compared(tmp_path):
    many = [Sent(0.1 * i, 0.05 + 0.001 * (i % 7), (0.01, 0.011, 0.012)) for i in range(40)]
    for name, write in FILES.items():
        (tmp_path / name).mkdir()
        write(tmp_path / name, many)
    out = tmp_path / "out"
    done = bench("import", *(tmp_path / name for name in FILES), "--output-dir", out, "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert len(said["written"]) == 4
    assert {each["tool"] for each in said["imported"]} == {form.title for form in FORMATS.values()}
    for file in out.rglob("summary.json"):
        assert read_run_summary(file).figures["ttft_n"] == 40
        origin = json.loads((file.parent / "import.json").read_text())
        assert origin["file"] in {"vllm.json", "guidellm.json", "profile_export_aiperf.json", "per_request_lifecycle_metrics.json"}
        assert pl.read_parquet(file.parent / "requests.parquet").height == 40
    runs = {name: next(out.glob(f"{name}_*")) for name in FILES}
    compared = bench("compare", runs["vllm"], runs["inference-perf"], "--metric", "ttft_p50_s", "--json")
    assert compared.returncode == 0, compared.stderr
    found = json.loads(compared.stdout)
    assert found["pairs"] == 1
    assert found["overall"][0]["ratio"] == pytest.approx(1.0)
    drawn = bench("figures", out, "--output-dir", tmp_path / "drawn", "--figure", "latency-throughput")
    assert drawn.returncode == 0, drawn.stderr


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("cut.json", '{"backend": "openai", "model_id"', r"cut\.json: cannot be read: .*cut off.*--save-detailed"),
        ("other.json", '{"results": []}', r"other\.json: no result file .*vLLM bench.*GuideLLM.*AIPerf.*inference-perf"),
        ("missing.json", None, r"missing\.json: cannot be read: No such file"),
    ],
)
def test_a_file_that_is_no_result_says_what_was_expected(file, content, said, tmp_path):
    if content is not None:
        (tmp_path / file).write_text(content)
    with pytest.raises(BenchError, match=said):
        read_peers(tmp_path / file)


def test_a_file_that_is_not_as_its_tool_writes_it_names_the_key(tmp_path):
    for write, changes, said in (
        (vllm, {"num_prompts": "many"}, "num_prompts is 'many'"),
        (vllm, {"ttfts": [0.1]}, "not of one length"),
        (vllm, {"backend": "openai-embeddings"}, "backend is 'openai-embeddings'"),
        (guidellm, {"benchmarks": []}, "benchmarks is empty"),
        (aiperf, {"input_config": {}}, "input_config.phases is missing"),
    ):
        with pytest.raises(BenchError, match=re.escape(said)):
            read_peers(write(tmp_path, **changes))


def test_files_that_stand_together_are_asked_for(tmp_path):
    file = inference_perf(tmp_path)
    with pytest.raises(BenchError, match="a part of inference-perf's results"):
        read_peers(tmp_path / "stage_0_lifecycle_metrics.json")
    inference_perf(tmp_path, stage={"load_summary": {"count": 7, "concurrency": 2}})
    with pytest.raises(BenchError, match="5 requests, and the stages beside it 7"):
        read_peers(file)
    (tmp_path / "stage_0_lifecycle_metrics.json").unlink()
    with pytest.raises(BenchError, match=r"stage_0_lifecycle_metrics\.json: no such file"):
        read_peers(file)
    aiperf(tmp_path)
    with pytest.raises(BenchError, match="a part of AIPerf's results"):
        read_peers(tmp_path / "profile_export.jsonl")
    (tmp_path / "profile_export.jsonl").write_text('{"metadata": 1}\n')
    with pytest.raises(BenchError, match="line 1 is no record of a request of AIPerf"):
        read_peers(tmp_path / "profile_export_aiperf.json")
