"""Embeddings and reranking: what is asked, what an answer is, and what of it counts. On a real server:
tests/servers/test_llamacpp_engine.py.
"""

import json

import pytest

from bench.errors import BenchError
from bench.load.client import Load, PreparedLoad
from bench.load.payload import exchanges
from bench.load.target import Target
from bench.runs.request import RequestForm
from bench.study.plan import longest_request
from bench.study.read import load_workload
from bench.workloads.endpoints import ENDPOINTS
from bench.workloads.schedule import PlannedRequest, schedule
from tests.support.cases import cases
from tests.support.streams import record

EMBED = {"arrival": "closed", "num_requests": 4, "prompt_tokens": 20, "endpoint": "embeddings"}
RANK = {"arrival": "closed", "num_requests": 4, "prompt_tokens": 83, "endpoint": "rerank"}
TEN = {"source": "random", "documents": 10}
VECTORS = {
    "object": "list",
    "data": [{"index": 0, "embedding": [0.5, -0.25]}],
    "model": "m",
    "usage": {"prompt_tokens": 20, "total_tokens": 20},
}
SCORES = {
    "id": "r1",
    "model": "m",
    "results": [{"index": 1, "relevance_score": 0.5}, {"index": 0, "relevance_score": -2, "document": {"text": "a"}}],
    "usage": {"prompt_tokens": 20, "total_tokens": 20},
}
ANSWERS = {"embeddings": VECTORS, "rerank": SCORES}


def workload(endpoint="rerank", **more):
    return load_workload({**(RANK if endpoint == "rerank" else EMBED), **more}, source="t")


def read(endpoint, answer):
    headers = {"content-type": "application/json"}
    return record([(0.2, json.dumps(answer))], endpoint=endpoint, streamed=False, headers=headers, asked=None)


def sent(count=1, form=None, **more):
    """Bodies of requests to rank."""
    target = Target("http://h", "m", forms={"rerank": form or RequestForm()})
    make = exchanges(target, workload(**more), seed="s", schedule_seed="s", vocabulary=100)
    asked = more.get("prompt_tokens", 83)
    whole = [make(PlannedRequest(i, i, asked, 0)).payload.split(b"\r\n\r\n") for i in range(count)]
    assert all(head.startswith(b"POST /v1/rerank ") for head, _ in whole)
    return [json.loads(body) for _, body in whole]


def counted(body, form):
    """The tokens that a server counts which reads each document with the query."""
    texts = [body["query"] + document for document in body["documents"]]
    return [form.template_tokens + form.letter_tokens * text.count(" ") + text.count(".") for text in texts]


def test_a_request_asks_for_vectors_or_scores_and_nothing_else():
    make = exchanges(Target("http://h", "m"), workload("embeddings"), seed="s", vocabulary=100)
    head, body = make(PlannedRequest(0, 0, 20, 0)).payload.split(b"\r\n\r\n")
    asked = json.loads(body)
    assert head.startswith(b"POST /v1/embeddings ")
    assert len(asked.pop("input")) == 20
    assert asked == {"model": "m", "encoding_format": "float"}
    (body,) = sent(body={"top_n": 1})
    assert body.keys() == {"model", "query", "documents", "top_n"}
    assert (body["query"].count(" "), [text.count(" ") for text in body["documents"]]) == (12, [71])


@cases(
    ("form", "tokens"),
    [(RequestForm(), 83), (RequestForm(letter_tokens=2, template_tokens=3), 200), (RequestForm(template_tokens=4), 403)],
)
def test_the_documents_with_the_query_have_the_tokens_asked_for(form, tokens):
    bodies = sent(3, form, prompts=TEN, prompt_tokens=tokens)
    each = [counted(body, form) for body in bodies]
    assert [(len(sizes), sum(sizes), max(sizes) - min(sizes) <= 1) for sizes in each] == [(10, tokens, True)] * 3
    assert len({text for body in bodies for text in (body["query"], *body["documents"])}) == 33
    assert sent(prompts=TEN) == sent(prompts=TEN)


def test_first_requests_have_each_letter_once_and_nothing_is_empty():
    """An empty text ends llama.cpp."""
    for text in ("", "a", " a b c d e f g h"):
        body = {}
        ENDPOINTS["rerank"].put(body, text)
        assert body["query"]
        assert all(body["documents"])
    assert body == {"query": " a b c d", "documents": [" e f g h"]}


def test_documents_too_short_to_hold_a_letter_are_refused():
    target = Target("http://h", "m", forms={"rerank": RequestForm(template_tokens=4)})
    PreparedLoad(target, Load(workload(prompts=TEN, prompt_tokens=60), 2, "s"))
    with pytest.raises(BenchError, match=r"prompts of 59 tokens cannot be made: .* adds 4 to each. Ask for 60 or more"):
        PreparedLoad(target, Load(workload(prompts=TEN, prompt_tokens=59), 2, "s"))


def test_an_answer_has_an_end_and_no_first_token():
    for endpoint, answer in (*ANSWERS.items(), ("rerank", {**SCORES, "usage": {"total_tokens": 20}})):
        found = read(endpoint, answer)
        assert (found.outcome, found.prompt_tokens, found.completion_tokens, found.output_asked) == ("ok", 20, None, None)
        assert (found.ttft_s, found.e2e_s) == (None, 0.2), endpoint


@cases(
    ("endpoint", "odd"),
    [
        *(("embeddings", {"data": data}) for data in ([], [{"embedding": []}], [{"embedding": None}])),
        *(
            ("rerank", {"results": results})
            for results in ([], [{"index": 0}], [{"index": 0, "relevance_score": None}], [None])
        ),
    ],
)
def test_what_is_no_vector_or_score_has_failed(endpoint, odd):
    other = {"embeddings": {"choices": [{"text": "a"}]}, "rerank": {"data": [{"embedding": [0.5]}]}}[endpoint]
    for answer in ({**ANSWERS[endpoint], **odd}, {"error": {"message": "no"}}, other):
        assert read(endpoint, answer).outcome == "stream_error"


def test_a_workload_has_no_output():
    for endpoint, tokens in (("embeddings", 20), ("rerank", 83)):
        load = workload(endpoint, **({"prompts": TEN} if endpoint == "rerank" else {}))
        assert (load.stream, load.output_tokens) == (False, None)
        assert [(x.prompt_tokens, x.output_tokens, x.tokens) for x in schedule(load, 2, "s")] == [(tokens, 0, tokens)] * 4
        assert longest_request(load) == tokens
        assert load_workload(load.model_dump(mode="json", exclude_defaults=True), source="t") == load
        assert not load.lengths_known


def test_documents_go_to_no_other_endpoint():
    load = workload(prompts=TEN, endpoint="embeddings")
    with pytest.raises(BenchError, match=r"documents: endpoint embeddings takes none. Remove the key, or use endpoint rerank"):
        load.prompts.check(ENDPOINTS["embeddings"])
    load.prompts.check(ENDPOINTS["rerank"])


# Queries of one's own.


@pytest.fixture
def queries(tmp_path):
    file = tmp_path / "queries.jsonl"
    rows = [{"query": f"Question {i}?", "documents": [f"Answer {i}.", "No answer."]} for i in range(3)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@cases("suffix", [".jsonl", ".csv"])
def test_queries_of_a_file_are_sent_with_their_documents(queries, suffix):
    if suffix == ".csv":
        rows = [json.loads(line) for line in queries.read_text().splitlines()]
        cells = [(row["query"], json.dumps(row["documents"]).replace('"', '""')) for row in rows]
        queries = queries.with_suffix(".csv")
        queries.write_text("query,documents\n" + "".join(f'{query},"{documents}"\n' for query, documents in cells))
    bodies = sent(3, prompts=str(queries), prompt_tokens=None)
    assert sorted(body["query"].split("\n")[1] for body in bodies) == [f"Question {i}?" for i in range(3)]
    assert all(body["documents"] == [f"Answer {body['query'][-2]}.", "No answer."] for body in bodies)
    assert len({body["query"].split("\n")[0] for body in bodies}) == 3
