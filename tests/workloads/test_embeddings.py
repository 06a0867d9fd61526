"""Embeddings: what is asked, what an answer is, and what of it counts. On a real server: tests/servers/test_llamacpp_engine.py."""

import json

import pytest

from bench.endpoints import ENDPOINTS
from bench.errors import BenchError
from bench.load.exchange import Exchange
from bench.load.payload import Payloads
from bench.load.records import record_of
from bench.load.schedule import PlannedRequest, schedule
from bench.load.target import Target
from bench.study import load_workload
from bench.study.plan import longest_request
from bench.work import unit_of
from tests.support.cases import cases

LOAD = {"arrival": "closed", "num_requests": 4, "prompt_tokens": 20, "endpoint": "embeddings"}
ANSWER = {
    "object": "list",
    "data": [{"index": 0, "embedding": [0.5, -0.25]}],
    "model": "m",
    "usage": {"prompt_tokens": 20, "total_tokens": 20},
}


def read(answer, status=b"200 OK"):
    body = json.dumps(answer).encode()
    head = b"HTTP/1.1 " + status + b"\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    exchange = Exchange(
        0, prompt_asked=20, scheduled=0.0, sent=0.0, end=0.2, times=[0.1, 0.2], reads=[head, body], streamed=False, endpoint="embeddings",
    )  # fmt: skip
    return record_of(exchange, 0.0)


def test_a_request_asks_for_vectors_and_nothing_else():
    payloads = Payloads(Target("http://h", "m"), load_workload(LOAD, source="t"), seed="s", vocabulary=100)
    head, body = payloads.of(PlannedRequest(0, 0, 20, 0)).split(b"\r\n\r\n")
    sent = json.loads(body)
    assert head.startswith(b"POST /v1/embeddings ")
    assert len(sent.pop("input")) == 20
    assert sent == {"model": "m", "encoding_format": "float"}


def test_an_answer_has_an_end_and_no_first_token():
    record = read(ANSWER)
    assert (record.outcome, record.prompt_tokens, record.output_asked) == ("ok", 20, None)
    assert (record.ttft_s, record.e2e_s) == (None, 0.2)


@cases(
    ("answer", "outcome"),
    [
        ({**ANSWER, "data": []}, "stream_error"),
        ({**ANSWER, "data": [{"embedding": []}]}, "stream_error"),
        ({**ANSWER, "data": [{"embedding": None}]}, "stream_error"),
        ({"error": {"message": "no"}}, "stream_error"),
        ({"choices": [{"text": "a"}]}, "stream_error"),
    ],
)
def test_what_is_no_vector_has_failed(answer, outcome):
    assert read(answer).outcome == outcome


def test_a_workload_has_no_output():
    load = load_workload(LOAD, source="t")
    assert (load.stream, load.output_tokens) == (False, None)
    assert [(x.prompt_tokens, x.output_tokens, x.tokens) for x in schedule(load, 2, "s")] == [(20, 0, 20)] * 4
    assert longest_request(load) == 20
    assert load_workload(load.model_dump(mode="json", exclude_defaults=True), source="t") == load
    assert load_workload({"archetype": "chat", **LOAD}, source="t").turns is None


@cases(
    ("more", "said"),
    [
        ({"output_tokens": 8}, "endpoint embeddings answers with vectors, which have no length; remove output_tokens"),
        ({"stream": True}, "endpoint embeddings answers at once; remove stream"),
        ({"prompt_tokens": None}, "prompt_tokens says how long prompts are"),
        ({"arrival": "trace", "trace": "t.csv", "num_requests": None, "prompt_tokens": None}, "a trace says how long answers are"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_it_is_refused(more, said):
    with pytest.raises(BenchError, match=said):
        load_workload({**LOAD, **more}, source="t")


def test_an_axis_says_what_throughput_counts():
    assert unit_of(["generation", None]) == "output tokens"
    assert unit_of(["embedding"]) == "prompt tokens"
    assert unit_of(["embedding", "generation"]) == "tokens"
    assert not ENDPOINTS["embeddings"].work.generates
