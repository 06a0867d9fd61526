"""What answers where metrics should be, to whom the key goes, and where a redirection leads."""

import gzip
import json
import threading

import pytest

from bench.errors import BenchError
from bench.headers import own_headers
from bench.http import metrics_root
from bench.measure.exposition import find_metrics
from bench.measure.scraper import scrape
from bench.parse.scrapes import read_scrapes
from tests.support.answering import answering
from tests.support.command import bench
from tests.support.fake_server import fake_server
from tests.support.study import ROOT

VLLM = (ROOT / "tests/inputs/metrics/vllm_lora.prom").read_text()
LLAMACPP = (ROOT / "tests/inputs/metrics/llamacpp_plain.prom").read_text()
KEY = {"authorization": "Bearer sk-planted"}
PAGE = "<!DOCTYPE html><html><title>Sign in</title><body>Sign in to go on</body></html>"


def found_at(answer, **more):
    with answering({"/metrics": answer}) as (url, _):
        return find_metrics(url, None, {}, **more)


def scraped(found, folder):
    """How many scrapes are kept of what was found, the first of a session and its last."""
    ended, headers = threading.Event(), {found.address: found.headers}
    ended.set()
    return scrape([found.address], 0.1, folder / "t.gz", ended=ended, ready=lambda: None, headers=headers)


def test_what_answers_is_named():
    for answer, words in (
        ((200, {}, b""), "/metrics answers 200 without an exposition; llama-server has it with --metrics, SGLang with"),
        ((200, {}, b"# EOF\n"), "answers 200 without an exposition"),
        ((200, {"Content-Type": "text/html"}, PAGE.encode()), "without an exposition ('Sign in Sign in to go on')"),
        *(((200, {}, f"{begin}\n{PAGE}".encode()), "answers 200 without an exposition (") for begin in ("", "# no metrics")),
        ((200, {}, b'[{"iterLatencyMS": 3.1}]'), "TensorRT-LLM at /prometheus/metrics"),
        ((401, {}, b""), "answers 401: it wants an API key, or another one (OPENAI_API_KEY)"),
        ((403, {}, b"no"), "answers 403: it wants an API key"),
        ((404, {}, b"Not Found"), "answers 404 without an exposition ('Not Found'); llama-server has it with --metrics"),
        ((302, {"Location": "https://login.example/sso?next=x"}, b""), "answers 302 and leads to 'https://login.example/sso?next=x', another server"),
        ((200, {"Content-Encoding": "gzip"}, gzip.compress(VLLM.encode())), ""),
        ((200, {"Content-Type": "text/html"}, VLLM.encode()), ""),
        *(((200, {}, f"{VLLM}{bad}\n".encode()), f"has a line that cannot be read (line {len(VLLM.splitlines()) + 1}, {bad!r}: ")
          for bad in ("this is no metric {", "vllm:x{a=\"1\"} 1,5", "vllm:y{a=\"1\" 2", "vllm:z None")),
    ):  # fmt: skip
        found = found_at(answer)
        assert bool(found.why) == bool(words), answer
        assert words in found.why, answer


def test_an_engine_that_has_served_nothing_may_lack_a_metric():
    for count, read in {"0": True, "NaN": True, "7": False}.items():
        text = f"vllm:num_requests_running 0\nvllm:generation_tokens_total {count}\nvllm:prompt_tokens_total {count}\n"
        assert (not found_at((200, {}, text.encode())).why) == read, count


def test_the_version_is_that_of_the_server_where_the_metrics_are_elsewhere():
    """An exporter beside it does not know it."""
    pages = {"/version": (200, {}, b'{"version": "0.32.0"}')}
    with answering(pages) as (url, _), answering({"/metrics": (200, {}, VLLM.encode())}) as (other, _):
        assert find_metrics(url, f"{other}/metrics", {}).info == {"version": "0.32.0"}


def test_the_key_goes_to_the_server_s_own_metrics_and_to_no_other(monkeypatch, tmp_path):
    """llama-server with --api-key asks for it at /metrics and /props, too."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted")
    with (
        fake_server(keys=KEY, metrics=LLAMACPP, pages={"/props": '{"total_slots": 4}'}) as server,
        fake_server(metrics=VLLM) as other,
    ):
        own = find_metrics(server.base_url, None, {})
        assert (own.why, own.info["props"]["total_slots"]) == ("", 4)
        elsewhere = find_metrics(server.base_url, f"{other.base_url}/metrics", {})
        assert scraped(own, tmp_path) > 0
    assert elsewhere.why == ""
    assert {headers.get("authorization") for _, headers in other.requests} == {None}
    assert "sk-planted" not in repr(own)
    assert "sk-planted" not in json.dumps(list(read_scrapes(tmp_path / "t.gz")))


def test_a_header_of_the_study_s_own_replaces_the_key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
    assert own_headers("http://h/metrics", "http://h:80", {"authorization": "Basic x"}) == {"authorization": "Basic x"}
    assert own_headers("http://h/metrics", "http://h", {"X-Api-Key": "k"}) == {
        "Authorization": "Bearer sk-other",
        "X-Api-Key": "k",
    }
    for other in ("http://h:81/metrics", "https://h/metrics", "http://i/metrics"):
        assert own_headers(other, "http://h", {"X-Api-Key": "k"}) == {}
    monkeypatch.setenv("OPENAI_API_KEY", "two\nlines")
    with pytest.raises(BenchError, match="OPENAI_API_KEY cannot be sent in a header"):
        own_headers("http://h/metrics", "http://h", {})


def test_a_redirection_on_the_same_server_is_followed_with_its_headers(tmp_path):
    """Mounted applications answer 307 from /metrics to /metrics/."""
    headers = {"X-Api-Key": "secret", "Authorization": "Bearer secret"}
    with answering({"/metrics": (307, {"Location": "/metrics/"}, b""), "/metrics/": (200, {}, VLLM.encode())}) as (url, asked):
        found = find_metrics(url, None, headers)
        kept = scraped(found, tmp_path)
    assert found.why == ""
    assert kept == len(list(read_scrapes(tmp_path / "t.gz")))
    assert all(scrape["text"] == VLLM for scrape in read_scrapes(tmp_path / "t.gz"))
    followed = [sent for _, path, sent, _ in asked if path == "/metrics/"]
    assert all(sent[name.lower()] == value for name, value in headers.items() for sent in followed)
    assert len(followed) == 1 + kept


def test_a_redirection_to_another_server_is_named_and_gets_nothing(tmp_path):
    with answering({"/metrics": (200, {}, VLLM.encode())}) as (other, asked):
        with answering({"/metrics": (307, {"Location": f"{other}/metrics"}, b"")}) as (url, _):
            found = find_metrics(url, None, {"X-Api-Key": "secret"})
            kept = scraped(found, tmp_path)
        assert (bool(found.why), found.text, kept, asked) == (True, "", 0, [])
    errors = {scrape["error"] for scrape in read_scrapes(tmp_path / "t.gz")}
    assert errors == {f"307 in place of an exposition; it leads to another server, '{other}/metrics'"}


def test_where_the_server_of_metrics_answers_other_questions():
    for address, root in {
        "http://h:8000/metrics": "http://h:8000",
        "http://h/llm/metrics/": "http://h/llm",
        "http://h/prometheus/metrics": "http://h",
        "http://h/v1/metrics": "http://h",
        "http://h:30001/engine_metrics": "http://h:30001",
        "http://h:8080/metrics?model=a.gguf": "http://h:8080",
        "http://h:9100/": "http://h:9100",
    }.items():
        assert metrics_root(address) == root, address


def test_what_else_is_scraped_is_kept_where_the_engine_has_no_metrics(tmp_path):
    """The engine's half is not taken then, and not incomplete."""
    with fake_server() as server, answering({"/gpus": (200, {}, b"gpus 1\n")}) as (other, asked):
        run = tmp_path / "run"
        done = bench("workload", "--base-url", server.base_url, "--model", "m", "--num-requests", "2", "--prompt-length", "20",
                     "--output-length", "8", "--scrape", "--scrape-also", f"{other}/gpus", "--output-dir", str(run))  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "without telemetry: " in done.stderr
        assert len(asked) > 1
    assert {scrape["endpoint"] for scrape in read_scrapes(run / "telemetry.jsonl.gz")} == {f"{other}/gpus"}
    shown = bench("parse", str(run)).stdout
    assert "the server's counts  not taken" in shown
    assert "telemetry:" not in shown
