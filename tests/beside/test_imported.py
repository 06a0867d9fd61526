"""Result files of other tools: planted ones give exactly what was planted, real ones what their tool itself reports."""

import json
import re
import shutil

import numpy as np
import polars as pl
import pytest

from bench.beside.interop.imported import FORMATS, imported, read_peers
from bench.errors import BenchError
from bench.findings.registry import figures_of
from bench.runs.summary import read_run_summary
from tests.support.command import bench
from tests.support.foreign import FILES, TRUTH, Sent, aiperf, guidellm, inference_perf, vllm
from tests.support.study import ROOT

REAL = ROOT / "tests/data/imported"
REAL_FILES = {
    "vllm": REAL / "vllm",
    "guidellm": REAL / "guidellm.json",
    "aiperf": REAL / "aiperf",
    "inference-perf": REAL / "inference-perf",
}
RATE = {"load_summary": {"count": 5, "requested_rate": 9.0}}  # of inference-perf
OK = [each for each in TRUTH if not each.error]
STAMPS = [name for name in FILES if name != "guidellm"]  # those that keep the moment of every token


def figures(path, own=()):
    (run,) = imported(read_peers(path), own)
    return run.run.figures


def fresh(folder):
    """A new folder in this one."""
    made = folder / f"{len(list(folder.iterdir()))}"
    made.mkdir()
    return made


def test_planted_requests_are_read_exactly(tmp_path):
    for tool, write in FILES.items():
        ((form, _, peer),) = read_peers(write(tmp_path))
        assert form.name == tool
        assert (peer.model, peer.load, peer.endpoint) == ("m", ("closed", "concurrency", 2.0), "completions"), tool
        assert [each.outcome for each in peer.requests] == ["ok"] * 4 + ["http_error"], tool
        assert peer.requests[4].status == 503, tool
        for planted, read in zip(OK, peer.requests, strict=False):
            near = pytest.approx([planted.at, planted.ttft, planted.tokens[-1] - planted.at], abs=1e-6)  # of a clock of 2026
            assert [read.sent_s, read.ttft_s, read.e2e_s] == near, tool
            assert (read.prompt_tokens, read.completion_tokens) == (planted.prompt, len(planted.tokens)), tool
            assert read.token_times_s == (pytest.approx(planted.tokens, abs=1e-6) if tool in STAMPS else []), tool


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


@pytest.mark.parametrize("character", ["\0", "\x1b", "\uffff"])
def test_a_name_that_no_chart_can_show_is_refused(tmp_path, character):
    """The process would be aborted while the chart is drawn."""
    content = json.loads(vllm(tmp_path).read_text())
    (tmp_path / "vllm.json").write_text(json.dumps(content | {"model_id": f"a{character}b"}))
    with pytest.raises(BenchError, match=r"^deployment is 'a\\.*b \(.*\)', with a control character") as refused:
        figures(tmp_path / "vllm.json")
    assert character not in str(refused.value)


def test_what_a_client_cancelled_is_no_failure(tmp_path):
    row = figures(aiperf(tmp_path, [*TRUTH, Sent(0.45, error="RequestCancellationError", code=499)]))
    assert (row["requests"], row["ok"], row["failed"], row["outcome_http_503"]) == (5, 4, 1, 1)


def test_chunks_fewer_than_tokens_leave_no_itl(tmp_path):
    content = json.loads(vllm(tmp_path).read_text())
    (tmp_path / "vllm.json").write_text(json.dumps(content | {"output_lens": [2 * n for n in content["output_lens"]]}))
    row = figures(tmp_path / "vllm.json")
    assert row["tokens_per_chunk"] == pytest.approx(2.0)
    assert row["itl_p50_s"] is None


def test_loads(tmp_path):
    near, apart = [77.0 + 0.01 * i for i in range(5)], {"max_concurrency": None}  # a tenth of a second apart, as written
    for write, changes, load in (
        (vllm, apart | {"start_times": [77.0] * 5}, ("burst", "concurrency", 5.0)),
        (vllm, {"max_concurrency": 9, "start_times": near}, ("burst", "concurrency", 5.0)),
        (vllm, {"max_concurrency": 1}, ("closed", "concurrency", 1.0)),
        (vllm, apart | {"request_rate": 3.5}, ("poisson", "request_rate", 3.5)),
        (vllm, apart | {"request_rate": 3.5, "burstiness": 2.0}, ("gamma", "request_rate", 3.5)),
        (guidellm, {"strategy": {"type_": "throughput"}}, ("burst", "concurrency", 5.0)),
        (guidellm, {"strategy": {"type_": "synchronous"}}, ("closed", "concurrency", 1.0)),
        (guidellm, {"strategy": {"type_": "throughput", "max_concurrency": 3}}, ("closed", "concurrency", 3.0)),
        (guidellm, {"strategy": {"type_": "poisson", "rate": 3.5}}, ("poisson", "request_rate", 3.5)),
        (aiperf, {"phases": [{"type": "gamma", "rate": 3.5}]}, ("gamma", "request_rate", 3.5)),
        (inference_perf, {"stage": RATE, "load": "constant"}, ("constant", "request_rate", 9.0)),
        (inference_perf, {"stage": RATE, "load": "poisson"}, ("poisson", "request_rate", 9.0)),
    ):
        ((_, _, peer),) = read_peers(write(fresh(tmp_path), **changes))
        assert peer.load == load, changes


NO_LOAD = "cannot be read"


def test_a_load_with_a_cap_a_ramp_or_another_type_is_refused(tmp_path):
    rate, poisson = {"request_rate": 3.5}, {"type_": "poisson", "rate": 3.5}
    streams, held = {"type_": "concurrent", "streams": 2}, {"type": "concurrency", "concurrency": 2}
    for write, changes, said in (
        (vllm, rate | {"ramp_up_strategy": "linear", "max_concurrency": None}, "ramp_up_strategy"),
        (vllm, rate, "max_concurrency is 2"),
        (
            vllm,
            {"max_concurrency": 3, "start_times": [1, 2, 3, 4, 5]},
            "the time in which the first 3 requests were sent is '2 s'",
        ),
        (guidellm, {"strategy": poisson | {"max_concurrency": 3}}, "max_concurrency is 3"),
        (guidellm, {"strategy": streams | {"rampup_duration": 9.0}}, "rampup_duration is 9"),
        (guidellm, {"strategy": {"type_": "sweep"}}, "type_ is 'sweep'"),
        (aiperf, {"phases": [{"type": "poisson", "rate": 3.5, "concurrency": 3}]}, "concurrency is 3"),
        (aiperf, {"phases": [held | {"concurrency_ramp": {"duration": 9}}]}, "concurrency_ramp"),
        (aiperf, {"phases": 2 * [held]}, "2 phases after warm-up"),
        (inference_perf, {"load": "trace_replay"}, "load.type of config.yaml is 'trace_replay'"),
        (inference_perf, {"stage": RATE, "load": "concurrent"}, "load.type of config.yaml is 'concurrent'"),
        (inference_perf, {"stage": RATE, "load": "other"}, "load.type of config.yaml is 'other'"),
    ):
        with pytest.raises(BenchError, match=f"{NO_LOAD}.*{re.escape(said)}|{re.escape(said)}.*{NO_LOAD}"):
            read_peers(write(fresh(tmp_path), **changes))


def test_one_load_has_one_name(tmp_path):
    """That of our own run, if lengths are within a tenth, and else the first one's."""
    for name, write in FILES.items():
        (tmp_path / name).mkdir()
        write(tmp_path / name)
    peers = read_peers(tmp_path)
    assert len(peers) == 4
    assert {run.run.figures["workload"] for run in imported(peers)} == {"closed_p64_o4"}
    own = {"arrival": "closed", "prompt_tokens": 66.0, "output_tokens": 3.6, "workload": "chat"}
    assert {run.run.figures["workload"] for run in imported(peers, [own])} == {"chat"}
    assert {run.run.figures["workload"] for run in imported(peers, [own | {"prompt_tokens": 80.0}])} == {"closed_p64_o4"}
    twice = {(run.run.figures["deployment"], run.run.figures["repeat"]) for run in imported([*peers, *peers])}
    assert sorted(twice)[:2] == [("m (AIPerf)", 1), ("m (AIPerf)", 2)]


def test_another_file_with_a_tool_s_keys_is_left_out(tmp_path):
    """Requests of inference-perf are a list: one object is no result of it."""
    file = vllm(tmp_path)
    (tmp_path / "span.json").write_text('{"start_time": 1, "end_time": 2, "info": {}}')
    assert [path for _, path, _ in read_peers(tmp_path)] == [file]


def test_aggregates_alone_are_refused(tmp_path):
    content = json.loads(vllm(tmp_path).read_text())
    (tmp_path / "vllm.json").write_text(json.dumps({name: value for name, value in content.items() if name != "itls"}))
    done = bench("import", tmp_path / "vllm.json")
    assert done.returncode == 2 and "--save-detailed" in done.stderr
    with pytest.raises(BenchError, match="it has 4 requests, and counts 5"):
        read_peers(of_guidellm(lambda _, each: each["requests"]["errored"].clear())(tmp_path))


def test_written_runs_are_read_and_compared(tmp_path):
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
        assert json.loads((file.parent / "import.json").read_text())["file"].endswith(".json")
        assert pl.read_parquet(file.parent / "requests.parquet").height == 40
    runs = {name: next(out.glob(f"{name}_*")) for name in FILES}
    compared = bench("compare", runs["vllm"], runs["inference-perf"], "--metric", "ttft_p50_s", "--json")
    assert compared.returncode == 0, compared.stderr
    found = json.loads(compared.stdout)
    assert found["pairs"] == 1
    assert found["overall"][0]["ratio"] == pytest.approx(1.0)
    rows = [read_run_summary(file).figures for file in out.rglob("summary.json")]
    assert figures_of(rows) == ["memory-pressure"]  # of one load


def test_no_run_takes_the_place_of_another(tmp_path):
    """Two models of one load in one call, and a third in a later call into the same folder."""
    out = tmp_path / "out"
    for models in (("one", "two"), ("three",), ("three",)):
        for model in models:
            (tmp_path / model).mkdir(exist_ok=True)
            vllm(tmp_path / model, model_id=model)
        assert bench("import", *(tmp_path / model for model in models), "--output-dir", out).returncode == 0
    rows = [read_run_summary(file).figures for file in out.rglob("summary.json")]
    assert sorted(row["deployment"] for row in rows) == [f"{model} (vLLM bench)" for model in ("one", "three", "two")]
    assert {file.parent.name for file in out.rglob("summary.json")} == {row["run"] for row in rows}


def test_a_folder_is_searched_for_runs_of_our_own_and_of_other_tools(tmp_path):
    shutil.copytree(REAL / "own", tmp_path / "own")
    vllm(tmp_path)
    said = json.loads(bench("import", tmp_path, "--json").stdout)
    assert len(said["own"]) == 2 and [each["tool"] for each in said["imported"]] == ["vLLM bench"]
    (tmp_path / "vllm.json").unlink()
    said = json.loads(bench("import", tmp_path, "--json").stdout)
    assert len(said["own"]) == 2 and said["imported"] == []


def test_a_file_that_is_no_result_does_not_stop_the_import_of_its_folder(tmp_path):
    vllm(tmp_path)
    (tmp_path / "stray.json").write_text("{,}")
    done = bench("import", tmp_path, "--json")
    assert done.returncode == 0 and len(json.loads(done.stdout)["imported"]) == 1


def test_a_file_that_is_not_as_its_tool_writes_it_names_the_key(tmp_path):
    nan = float("nan")
    for write, changes, said in (
        (vllm, {"ttfts": [nan] * 5}, "ttfts[0] is nan"),
        (guidellm, {"strategy": {"type_": "poisson", "rate": nan}}, "rate is nan"),
        (inference_perf, {"stage": RATE, "load": None}, "config.yaml"),
        (vllm, {"request_rate": "4.0"}, "request_rate is '4.0'"),
        (vllm, {"ttfts": ["0.05"] * 5}, "ttfts[0] is '0.05'"),
        (vllm, {"completed": 9}, "it has 5 requests, and counts 10"),
        (vllm, {"failed": None}, "failed is missing"),
        (aiperf, {"request_count": {"avg": 12.0}}, "it has 5 requests, and counts 13"),
        (vllm, {"ttfts": [0.1]}, "differ in length"),
        (vllm, {"backend": "openai-embeddings"}, "backend is 'openai-embeddings'"),
        (aiperf, {"input_config": {}}, "input_config.phases is missing"),
    ):
        with pytest.raises(BenchError, match=re.escape(said)):
            read_peers(write(fresh(tmp_path), **changes))
    # What is not read stops no file.
    assert len(read_peers(vllm(tmp_path, median_ttft_ms=nan, request_goodput=nan))) == 1


def of_guidellm(change):
    """Writes GuideLLM's report with its benchmark changed."""

    def write(folder):
        file = guidellm(folder)
        content = json.loads(file.read_text())
        change(content, content["benchmarks"][0])
        file.write_text(json.dumps(content))
        return file

    return write


def test_another_version_s_file_is_told_which_are_read(tmp_path):
    for write, title in (
        (of_guidellm(lambda _, each: each.pop("requests")), "GuideLLM 0.8.1"),
        (lambda folder: aiperf(folder, aiperf_version="0.3.0", input_config={"loadgen": {"concurrency": 2}}), "AIPerf 0.13"),
        (lambda folder: vllm(folder, start_times=None), "vLLM bench 0.32"),
    ):
        with pytest.raises(BenchError, match=rf"not as {re.escape(title)} writes it.*Expected: "):
            read_peers(write(fresh(tmp_path)))


def test_files_that_stand_together_are_asked_for(tmp_path):
    def changed_of(write, name, text):
        """Writes a tool's files with one of them changed, or gone."""
        folder = fresh(tmp_path)
        file = write(folder)
        (folder / name).unlink() if text is None else (folder / name).write_text(text)
        return file

    stage, records = "stage_0_lifecycle_metrics.json", "profile_export.jsonl"
    seven = json.dumps({"load_summary": {"count": 7, "concurrency": 2}, "benchmark_time_seconds": 1.0})
    for write, name, text, said in (
        (inference_perf, stage, seven, "it has 5 requests, and counts 7"),
        (inference_perf, stage, None, "it has 5 requests, and counts 0"),
        (inference_perf, "config.yaml", None, "config.yaml"),
        (aiperf, records, '{"metadata": 1}\n', f"{records}:1, metadata.benchmark_phase is 1"),
        (aiperf, records, None, records),
    ):
        with pytest.raises(BenchError, match=re.escape(said)):
            read_peers(changed_of(write, name, text))
    with pytest.raises(BenchError, match=r"cannot be read: .*Expected: .*profile_export_aiperf\.json"):
        read_peers(aiperf(fresh(tmp_path)).with_name(records))


# --- Files that the tools wrote, all of one load on one server


def weighted(values, weights=None):
    """Mean and percentiles as GuideLLM takes them: the first value at which the share of weights reaches the percentile's."""
    weights = [1] * len(values) if weights is None else weights
    ranked = sorted(zip(values, weights, strict=True))
    shares = np.cumsum([weight for _, weight in ranked]) / sum(weights)
    at = {f"p{p}": ranked[int(np.searchsorted(shares, p / 100 - 1e-9))][0] for p in (50, 90, 95, 99)}
    return {"mean": np.average(values, weights=weights), **at}


def interpolated(values):
    return {"mean": np.mean(values), **{f"p{p}": np.percentile(values, p) for p in (50, 90, 95, 99)}}


def as_its_tool_computes(tool, ok):
    """What a tool reports, from the records that were read: by its own definitions."""
    n = [each.completion_tokens for each in ok]
    ttft, e2e = [each.ttft_s for each in ok], [each.e2e_s for each in ok]
    body = [each.end_s - each.sent_s for each in ok]
    later = [(b - a) / (k - 1) for a, b, k in zip(ttft, e2e, n, strict=True)]
    gaps = [gap for each in ok for gap in np.diff(each.token_times_s)]
    if tool == "guidellm":
        return {
            "ttft": weighted(ttft),
            "tpot": weighted([b / k for b, k in zip(e2e, n, strict=True)], n),
            "itl": weighted(later, [k - 1 for k in n]),
            "e2e": weighted(body),
        }
    if tool == "aiperf":
        return {"ttft": interpolated(ttft), "itl": interpolated(later), "e2e": interpolated(e2e)}
    if tool == "inference-perf":  # its TPOT and ITL are of tokens by its own tokenizer, which no column keeps
        return {"ttft": interpolated(ttft), "e2e": interpolated(body)}
    return {"ttft": interpolated(ttft), "tpot": interpolated(later), "itl": interpolated(gaps), "e2e": interpolated(e2e)}


def as_its_tool_reports(tool, source, number):
    """Mean and median of each latency (s), as its file has them. Args: number: of the load in a file of several."""
    content = json.loads(source.read_text())
    names = {"ttft": "time_to_first_token", "itl": "inter_token_latency", "e2e": "request_latency"}
    if tool == "vllm":
        keys = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2e": "e2el"}
        return {ours: (content[f"mean_{its}_ms"] / 1e3, content[f"median_{its}_ms"] / 1e3) for ours, its in keys.items()}
    if tool == "aiperf":
        return {ours: (content[its]["avg"] / 1e3, content[its]["p50"] / 1e3) for ours, its in names.items()}
    if tool == "inference-perf":
        stage = json.loads(source.with_name(f"stage_{number}_lifecycle_metrics.json").read_text())["successes"]["latency"]
        return {ours: (stage[names[ours]]["mean"], stage[names[ours]]["median"]) for ours in ("ttft", "e2e")}
    metrics = content["benchmarks"][number]["metrics"]
    keys = {"ttft": "time_to_first_token_ms", "tpot": "time_per_output_token_ms", "itl": "inter_token_latency_ms"}
    found = {ours: metrics[its]["successful"] for ours, its in keys.items()}
    found = {ours: (each["mean"] / 1e3, each["percentiles"]["p50"] / 1e3) for ours, each in found.items()}
    whole = metrics["request_latency"]["successful"]
    return found | {"e2e": (whole["mean"], whole["percentiles"]["p50"])}


def test_real_files_give_what_their_tool_reports():
    for tool, place in REAL_FILES.items():
        runs = read_peers(place)
        loads = [peer.load for _, _, peer in runs]
        assert loads == [("closed", "concurrency", 4), ("closed", "concurrency", 8)], tool
        for number, (form, source, peer) in enumerate(runs):
            assert (form.name, peer.model) == (tool, "tiny-mqa")
            times = as_its_tool_computes(tool, [each for each in peer.requests if each.outcome == "ok"])
            expected = {name: pytest.approx((values["mean"], values["p50"]), rel=2e-3) for name, values in times.items()}
            assert as_its_tool_reports(tool, source, number) == expected, tool


def test_real_files_stand_in_one_table_with_our_own_run():
    done = bench("import", REAL / "own", *REAL_FILES.values())
    assert done.returncode == 0, done.stderr
    named = [line.split("  ")[0] for line in done.stdout.partition("\n\n")[0].splitlines()[1:]]
    assert named == [
        *["tiny-mqa, invalid", "GuideLLM 0.8.1", "AIPerf 0.13.0", "inference-perf"] * 2,  # of our run's load
        *["vLLM bench"] * 2,  # which counts its own tokens, and so is of another
    ]
    said = json.loads(bench("import", REAL / "own", *REAL_FILES.values(), "--json").stdout)
    by = {(each["tool"], each["figures"]["level"]): each for each in said["imported"]}
    assert by["inference-perf", 4]["figures"]["counted_output_tokens"] == 16
    assert by["vLLM bench", 4]["figures"]["outcome_stream_error"] == 4
