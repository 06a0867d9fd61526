"""Embeddings: what is asked, what an answer is, and what of it counts. On a real server: tests/servers/test_llamacpp_engine.py."""

import json

from bench.load.payload import Payloads
from bench.load.target import Target
from bench.study.plan import longest_request
from bench.study.read import load_workload
from bench.workloads.schedule import PlannedRequest, schedule
from tests.support.cases import cases
from tests.support.streams import record

EMBED = {"arrival": "closed", "num_requests": 4, "prompt_tokens": 20, "endpoint": "embeddings"}
VECTORS = {
    "object": "list",
    "data": [{"index": 0, "embedding": [0.5, -0.25]}],
    "model": "m",
    "usage": {"prompt_tokens": 20, "total_tokens": 20},
}


def workload(**more):
    return load_workload({**EMBED, **more}, source="t")


def read(answer):
    headers = {"content-type": "application/json"}
    return record([(0.2, json.dumps(answer))], endpoint="embeddings", streamed=False, headers=headers, asked=None)


def test_a_request_asks_for_vectors_and_nothing_else():
    payloads = Payloads(Target("http://h", "m"), workload(), seed="s", vocabulary=100)
    head, body = payloads.of(PlannedRequest(0, 0, 20, 0)).split(b"\r\n\r\n")
    asked = json.loads(body)
    assert head.startswith(b"POST /v1/embeddings ")
    assert len(asked.pop("input")) == 20
    assert asked == {"model": "m", "encoding_format": "float"}


def test_an_answer_has_an_end_and_no_first_token():
    found = read(VECTORS)
    assert (found.outcome, found.prompt_tokens, found.completion_tokens, found.output_asked) == ("ok", 20, None, None)
    assert (found.ttft_s, found.e2e_s) == (None, 0.2)


@cases("odd", [{"data": data} for data in ([], [{"embedding": []}], [{"embedding": None}])])
def test_what_is_no_vector_has_failed(odd):
    for answer in ({**VECTORS, **odd}, {"error": {"message": "no"}}, {"choices": [{"text": "a"}]}):
        assert read(answer).outcome == "stream_error"


def test_a_workload_has_no_output():
    load = workload()
    assert (load.stream, load.output_tokens) == (False, None)
    assert [(x.prompt_tokens, x.output_tokens, x.tokens) for x in schedule(load, 2, "s")] == [(20, 0, 20)] * 4
    assert longest_request(load) == 20
    assert load_workload(load.model_dump(mode="json", exclude_defaults=True), source="t") == load
    assert not load.lengths_known
