"""Expositions of other engines, versions, routers and proxies (`tests/inputs/metrics`): read rightly, or left alone with a reason.

Each file names what it imitates. Its truth is planted: an engine of 8 requests of 128 + 16 tokens, 3 running and 1 waiting unless the
file's first line says otherwise.
"""

import json
import re
from unittest.mock import Mock

import polars as pl
import pytest

from bench.errors import BenchError
from bench.measure.exposition import find_metrics, kv_facts, metric_names, worth_reading
from bench.measure.served import find_workers
from bench.parse.exposition import reference_samples
from bench.parse.load import in_flight_figures
from bench.parse.server import gauges, server_figures
from bench.runs.run import DECODE, PREFILL, of_role
from bench.servers.engines import ENGINES
from bench.servers.metrics import find_catalogue
from tests.support.fake_server import fake_server
from tests.support.scrapes import scraped
from tests.support.study import ROOT

FOLDER = ROOT / "tests/inputs/metrics"
KNOWN = ", ".join(kind.title for kind in ENGINES)
MEANS = {
    **{"server_ttft_mean_s": 0.5, "server_itl_mean_s": 0.05, "server_queue_time_mean_s": 0.125},
    **{"server_prefill_time_mean_s": 0.375, "server_decode_time_mean_s": 0.75, "server_e2e_mean_s": 1.25},
}
COUNTS = {
    **{"preemptions": 1, "server_prompt_tokens": 1024, "server_generation_tokens": 128},
    **{"prefix_queries": 1024, "prefix_hits": 64},
}
ONE = {"running_peak": 3, "waiting_peak": 1, "kv_usage_peak": 0.25, **COUNTS, **MEANS}
FOUR = {key: 4 * value for key, value in COUNTS.items()}
TWO = {key: 2 * value for key, value in COUNTS.items()}
LATE = dict.fromkeys((*COUNTS, *MEANS, "server_ttft_n"))  # what Ray passes on late is no count of a run
SGLANG = {
    "kv_usage_peak": 0.5, "server_prompt_tokens": 1024, "prefix_hits": 64, "server_ttft_mean_s": 0.5,
    "server_e2e_mean_s": 1.25,
}  # fmt: skip

# File: (engine, its version, what a run has that ends with it, tokens of the KV cache).
READ = {
    "sglang_priority": ("SGLang", None, {"running_peak": 8, "waiting_peak": 0, "kv_usage_peak": 0.02}, 400_000),
    "vllm_hybrid_serveA": ("vLLM", None, {"running_peak": 0, "kv_usage_peak": 0.0}, 1_394_221),
    "ray_vllm": ("vLLM", None, {"running_peak": None, **LATE}, 16_000),  # nothing is known to have run
    "llamacpp_plain": ("llama.cpp", None, {"running_peak": 0, "waiting_peak": 0, "server_prompt_tokens": 0}, None),
    "vllm_dp4": ("vLLM", "0.32.0", {"running_peak": 8, "waiting_peak": 0, "kv_usage_peak": 0.4, **FOUR, **MEANS}, 64_000),
    "vllm_lora": ("vLLM", "0.32.0", ONE, 16_000),
    "vllm_0.6.4": ("vLLM", "0.6.4", {**ONE, "prefix_queries": None, "prefix_hits": None, "server_queue_time_mean_s": None,
                                     "server_prefill_time_mean_s": None, "server_decode_time_mean_s": None}, 16_000),
    "vllm_0.11_hybrid": ("vLLM", "0.11.2", ONE, None),
    "sglang_dp2_tp4": ("SGLang", "0.5.23", {"running_peak": 8, "preemptions": 4, **SGLANG}, 800_000),
    "sglang_cp8": ("SGLang", "0.5.23", {"running_peak": 8, "preemptions": 2, **SGLANG}, 400_000),
    "sglang_dp2_priority": ("SGLang", "0.5.23", {"running_peak": 8, "waiting_peak": 2, "kv_usage_peak": 0.75, "preemptions": 2,
                                                 "server_ttft_mean_s": 0.5, "server_queue_time_mean_s": 0.125}, 800_000),
    "smg_engine_metrics": ("SGLang", None, {"running_peak": 8, "preemptions": 4, **SGLANG, "server_prompt_tokens": 2048,
                                            "prefix_hits": 128}, 800_000),
    "sglang_idle": ("SGLang", "0.5.23", {"running_peak": 0, "kv_usage_peak": 0.0}, 400_000),
    "ray_vllm_two_replicas": ("vLLM", None, {"running_peak": 6, "waiting_peak": 2, "kv_usage_peak": 0.5, **LATE}, 32_000),
    "trtllm_1.3": ("TensorRT-LLM", "1.3.0", {**ONE, "preemptions": None, "server_itl_mean_s": None}, None),
    "trtllm_1.1_dynamo": ("TensorRT-LLM", "1.1.0", {"running_peak": None, "server_prompt_tokens": None, "server_ttft_mean_s": 0.5,
                                                    "server_queue_time_mean_s": 0.125, "server_e2e_mean_s": 1.25}, None),
    "lmdeploy_dp2": ("LMDeploy", None, {"running_peak": 6, "waiting_peak": 2, "kv_usage_peak": 0.5, **TWO, **MEANS, "preemptions": None},
                     None),
    "aphrodite": ("Aphrodite", "0.20.0", ONE, 16_000),
    "kserve_vllm": ("vLLM", "0.32.0", ONE, 16_000),
    "dynamo_worker_vllm": ("vLLM", "0.32.0", ONE, 16_000),
    "llamacpp_router": ("llama.cpp", None, {"running_peak": 4, "waiting_peak": 1, "server_prompt_tokens": 1024,
                                            "server_generation_tokens": 128, "prefix_hits": 64}, None),
    "vllm_ngram": ("vLLM", "0.32.0", {"spec_drafts": 39, "spec_draft_tokens": 144, "spec_accepted_tokens": 144}, 1024),
    "llamacpp_ngram": ("llama.cpp", None, {"spec_drafts": 10, "spec_draft_tokens": 38, "spec_accepted_tokens": 38}, None),
    "openmetrics_vllm": ("vLLM", "0.32.0", ONE, 16_000),
}  # fmt: skip

LACKS = f"lacks the metrics of any engine that is known ({KNOWN})"
LEFT = {
    "production_stack_router": "lacks ",
    **dict.fromkeys(
        (
            "vllm_router",
            "sgl_router",
            "dynamo_frontend",
            "inference_extension",
            "aibrix",
            "litellm",
            "nim",
            "triton_trtllm",
            "kserve_transformers",
        ),
        f"{LACKS}; it has ",
    ),
    "vllm_simulator": "lacks preemptions (vllm:num_preemptions_total in vLLM); prefix_hits (vllm:prefix_cache_hits_total in vLLM)",
}


def text_of(name):
    return (FOLDER / f"{name}.prom").read_text()


def test_every_exposition_is_looked_at():
    assert {path.stem for path in FOLDER.glob("*.prom")} == READ.keys() | LEFT.keys()


def begun(text):
    """The same exposition before anything happened."""
    return re.sub(r"^([^#\n{ ]+(?:\{[^\n]*?\})?) [^ \n]+", r"\1 0", text, flags=re.MULTILINE)


def test_what_is_read(tmp_path):
    for name, (engine, version, expected, tokens) in READ.items():
        pages = {"/version": json.dumps({"version": version})} if version else {}
        with fake_server(metrics=text_of(name), pages=pages) as server:
            found = find_metrics(server.base_url, None, {}, served=name != "sglang_idle")
        assert found.why == "", name
        assert find_catalogue(metric_names(found.text), version).engine == (f"{engine} {version}" if version else engine), name
        assert kv_facts(found.text, found.info).kv_tokens == tokens, name
        figures = server_figures(scraped(tmp_path, begun(found.text), found.text), scraped=True, version=version)
        assert {key: figures[key] for key in expected} == {
            key: value if value is None else pytest.approx(value) for key, value in expected.items()
        }, name
        assert figures["counters_fell"] == [], name
        assert name == "sglang_idle" or figures["metrics_missing"] == []


def test_workers_have_the_roles_that_the_study_gives_them():
    named = {"server": text_of("vllm_lora"), "other": text_of("sglang_priority")}
    with fake_server(metrics=named["server"]) as first, fake_server(metrics=named["server"]) as second:
        addresses = {"a": first.base_url, "b": second.base_url}
        workers = find_workers("http://127.0.0.1:9", addresses, {}, named="workers", prefill=1)
        assert [(worker.name, worker.role) for worker in workers] == [("a (prefill)", PREFILL), ("b (decode)", DECODE)]
        assert [worker.name for worker in of_role(workers, DECODE)] == ["b (decode)"]
        assert {worker.role for worker in find_workers("http://127.0.0.1:9", addresses, {}, named="workers")} == {None}
    with fake_server(metrics=named["other"]) as first, fake_server(metrics=named["other"]) as second:
        addresses = {"a": first.base_url, "b": second.base_url}
        with pytest.raises(BenchError, match=r"a \(prefill\) is sglang, but prefill_workers .* only vLLM's counts"):
            find_workers("http://127.0.0.1:9", addresses, {}, named="workers", prefill=1)


def test_what_is_left_alone():
    for name, why in LEFT.items():
        with fake_server(metrics=text_of(name)) as server:
            found = find_metrics(server.base_url, None, {}, served=True)
            assert why in found.why, name
            told = []
            assert worth_reading(found, named=None, say=told.append) is False, name
            assert told == [f"without telemetry: {found.why}; causes and KV cache stay unknown"], name
            with pytest.raises(BenchError, match=rf"^--metrics: {re.escape(found.why)}\."):
                worth_reading(found, named="--metrics", say=told.append)


def test_other_forms_of_the_same_exposition(tmp_path):
    forms = {
        "CRLF": lambda text: text.replace("\n", "\r\n"),
        "timestamps": lambda text: re.sub(r"^([^#\n].*)$", r"\1 1758000000250", text, flags=re.MULTILINE),
        "spaces": lambda text: re.sub(r"\{(.*)\} ", r"{ \1, } ", text),
        "tabs": lambda text: re.sub(r"^(\S+) ", "\\1\t", text, flags=re.MULTILINE),
        "no colons": lambda text: text.replace("vllm:", "vllm_"),
    }
    for name, change in forms.items():
        text = change(text_of("vllm_lora"))
        first, expected = (text, {"running_peak": 3, "kv_usage_peak": 0.25}) if name == "tabs" else (begun(text), ONE)
        figures = server_figures(scraped(tmp_path, first, text), scraped=True, version="0.32.0")
        assert {key: figures[key] for key in expected} == {key: pytest.approx(value) for key, value in expected.items()}, name
        assert (figures["metrics_missing"], kv_facts(text, {}).kv_tokens) == ([], 16_000), name


def test_an_exposition_is_read_once_for_all_its_facts(monkeypatch):
    read = Mock(side_effect=reference_samples)
    monkeypatch.setattr("bench.measure.exposition.reference_samples", read)
    assert kv_facts(text_of("vllm_lora"), {}).kv_tokens == 16_000
    assert read.call_count == 1


def test_gauges_of_a_request_into_which_no_scrape_fell_are_not_known(tmp_path):
    rests = re.sub(r"(?m)^(vllm:(num_requests_|kv_cache_usage)\S*) .*$", r"\1 0.0", text_of("vllm_lora"))
    figures = server_figures(scraped(tmp_path, begun(rests), rests), scraped=True, version="0.32.0")
    assert (figures["kv_usage_peak"], figures["running_peak"], figures["metrics_missing"]) == (None, None, [])
    assert server_figures(scraped(tmp_path, rests, rests), scraped=True, version="0.32.0")["kv_usage_peak"] == 0


def test_what_is_no_number_is_no_count_and_parts_of_a_total_that_is_not_there_add_up(tmp_path):
    text = text_of("vllm_dp4")
    part = re.sub(r'(num_requests_running\{engine="3".*\}) .*', r"\1 NaN", text)
    assert server_figures(scraped(tmp_path, text, part), scraped=True)["running_peak"] == 8
    values = dict(gauges(scraped(tmp_path, part)).select("gauge", "value").iter_rows())
    assert values["running"] == 6
    # A version of SGLang that has series of priorities and no total.
    text = "\n".join(
        line for line in text_of("sglang_dp2_priority").splitlines() if not ('priority=""' in line and "reqs{" in line)
    )
    values = dict(gauges(scraped(tmp_path, text)).select("gauge", "value").iter_rows())
    assert (values["running"], values["waiting"]) == (8, 2)


def test_what_ray_passes_on_is_late_and_what_it_drops_is_not_missing(tmp_path):
    """Its gauges may be ten seconds old: who is in flight is not judged by them. They go away when an engine rests."""
    sent = pl.DataFrame({"sent_s": [0.0] * 6, "end_s": [11.0] * 6, "token_times_s": [[1.0, 5.0, 9.0]] * 6})
    for name, expected in (("ray_vllm_two_replicas", None), ("vllm_lora", 4)):
        figures = in_flight_figures(sent, scraped(tmp_path, *[text_of(name)] * 12), (0.0, 11.0))
        assert figures["server_in_flight_mean"] == expected
    text = text_of("ray_vllm_two_replicas") + "ray_serve_num_router_requests_total 8.0\n"  # Ray Serve's own beside them
    resting = "".join(line + "\n" for line in text.splitlines() if not re.search("preemptions|num_requests|usage_perc", line))
    with fake_server(metrics=resting) as server:
        assert find_metrics(server.base_url, None, {}, served=True).why == ""
    figures = server_figures(scraped(tmp_path, resting, text, resting), scraped=True)
    assert (figures["running_peak"], figures["kv_usage_peak"]) == (6, 0.5)
    assert (figures["metrics_missing"], figures["counters_fell"]) == ([], [])


def test_the_words_of_a_server_do_not_repeat_the_key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted-and-long")
    with fake_server(keys={"authorization": "Bearer another"}, metrics="") as server:
        found = find_metrics(server.base_url, None, {"X-Api-Key": "planted-too"})
    assert "planted" not in found.why
