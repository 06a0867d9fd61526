"""Reranking: what is asked, what an answer is, and what of it counts. On a real server: tests/servers/test_llamacpp_engine.py."""

import json

import pytest

from bench.endpoints import ENDPOINTS
from bench.errors import BenchError
from bench.load.client import Load, PreparedLoad
from bench.load.payload import Payloads
from bench.load.schedule import PlannedRequest, schedule
from bench.load.target import Target
from bench.records.form import RequestForm
from bench.study import load_workload
from tests.support.cases import cases
from tests.support.streams import record

LOAD = {"arrival": "closed", "num_requests": 4, "prompt_tokens": 83, "endpoint": "rerank"}
TEN = {"source": "random", "documents": 10}
ANSWER = {
    "id": "r1",
    "model": "m",
    "results": [{"index": 1, "relevance_score": 0.5}, {"index": 0, "relevance_score": -2, "document": {"text": "a"}}],
    "usage": {"prompt_tokens": 20, "total_tokens": 20},
}


def read(answer, **more):
    return record(
        [(0.2, json.dumps(answer))], endpoint="rerank", streamed=False, headers={"content-type": "application/json"}, **more
    )


def sent(count=1, form=None, **more):
    """Bodies of requests."""
    target = Target("http://h", "m", forms={"rerank": form or RequestForm()})
    payloads = Payloads(target, load_workload({**LOAD, **more}, source="t"), seed="s", schedule_seed="s", vocabulary=100)
    asked = more.get("prompt_tokens", 83)
    whole = [payloads.of(PlannedRequest(i, i, asked, 0)).split(b"\r\n\r\n") for i in range(count)]
    assert all(head.startswith(b"POST /v1/rerank ") for head, _ in whole)
    return [json.loads(body) for _, body in whole]


def counted(body, form):
    """The tokens that a server counts which reads each document with the query."""
    texts = [body["query"] + document for document in body["documents"]]
    return [form.template_tokens + form.letter_tokens * text.count(" ") + text.count(".") for text in texts]


def test_a_request_asks_for_scores_and_nothing_else():
    (body,) = sent(body={"top_n": 1})
    assert body.keys() == {"model", "query", "documents", "top_n"}
    assert (body["query"].count(" "), [text.count(" ") for text in body["documents"]]) == (12, [71])


@cases(
    ("path", "base", "line"),
    [
        ("/classify", "http://h", b"POST /classify "),
        ("/classify", "http://h/below", b"POST /below/classify "),
        ("rerank", "http://h/below", b"POST /below/v1/rerank "),
    ],
)
def test_a_path_with_a_slash_ahead_begins_at_the_servers_address(monkeypatch, path, base, line):
    monkeypatch.setattr(type(ENDPOINTS["rerank"]), "path", path)
    payloads = Payloads(Target(base, "m"), load_workload(LOAD, source="t"), seed="s", schedule_seed="s", vocabulary=100)
    assert payloads.of(PlannedRequest(0, 0, 83, 0)).startswith(line)


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
    assert ENDPOINTS["rerank"].smallest("m") == {"model": "m", "query": "a", "documents": ["a"]}


@cases("usage", [ANSWER["usage"], {"total_tokens": 20}])
def test_an_answer_has_an_end_and_no_first_token(usage):
    found = read({**ANSWER, "usage": usage})
    assert (found.outcome, found.prompt_tokens, found.completion_tokens) == ("ok", 20, None)
    assert (found.ttft_s, found.e2e_s) == (None, 0.2)


@cases(
    "answer",
    [
        {**ANSWER, "results": []},
        {**ANSWER, "results": [{"index": 0}]},
        {**ANSWER, "results": [{"index": 0, "relevance_score": None}]},
        {**ANSWER, "results": [None]},
        {"error": {"message": "no"}},
        {"data": [{"embedding": [0.5]}]},
    ],
)
def test_what_is_no_score_has_failed(answer):
    assert read(answer).outcome == "stream_error"


def test_a_workload_has_no_output():
    load = load_workload({**LOAD, "prompts": TEN}, source="t")
    assert (load.stream, load.output_tokens, load.lengths_known) == (False, None, False)
    assert [(x.prompt_tokens, x.output_tokens) for x in schedule(load, 2, "s")] == [(83, 0)] * 4
    assert load_workload(load.model_dump(mode="json", exclude_defaults=True), source="t") == load
    unsized = {key: value for key, value in LOAD.items() if key != "prompt_tokens"}
    preset = {"archetype": "rag", **unsized, "cache": "unique"}
    assert [load_workload({**preset, "prompts": prompts}, source="t").prompt_tokens is None for prompts in (TEN, "a.csv")] == [
        False,
        True,
    ]


@cases(
    ("more", "said"),
    [
        ({"output_tokens": 8}, "endpoint rerank answers with scores, which have no length; remove output_tokens"),
        ({"cache": "shared", "shared_prefix": 0.5}, "cache shared does not go with endpoint rerank, whose documents share a query"),
        ({"body": {"documents": ["a"]}}, "body holds documents, which other keys of the workload say"),
        ({"prompts": {**TEN, "documents": 0}}, "documents"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_it_is_refused(more, said):
    with pytest.raises(BenchError, match=said):
        load_workload({**LOAD, **more}, source="t")


def test_documents_go_to_no_other_endpoint():
    load = load_workload({**LOAD, "prompts": TEN, "endpoint": "embeddings"}, source="t")
    with pytest.raises(BenchError, match=r"documents: endpoint embeddings takes none. Remove the key, or use endpoint rerank"):
        load.prompts.check(ENDPOINTS["embeddings"])
    load.prompts.check(ENDPOINTS["rerank"])


def test_documents_too_short_to_hold_a_letter_are_refused():
    target = Target("http://h", "m", forms={"rerank": RequestForm(template_tokens=4)})
    for tokens in (59, 60):
        load = Load(load_workload({**LOAD, "prompts": TEN, "prompt_tokens": tokens}, source="t"), 2, "s")
        if tokens == 60:
            PreparedLoad(target, load)
            continue
        with pytest.raises(BenchError, match=r"prompts of 59 tokens cannot be made: .* adds 4 to each. Ask for 60 or more"):
            PreparedLoad(target, load)


# One's own.


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


@cases("row", [{"query": "a", "documents": []}, {"query": "a", "documents": ["b", 3]}, {"query": " ", "documents": ["b"]}])
def test_rows_that_are_no_query_with_documents_are_refused(queries, row):
    queries.write_text(json.dumps(row))
    with pytest.raises(BenchError, match=r"line 1 is not a query, a text, with documents, a list of texts"):
        sent(prompts=str(queries), prompt_tokens=None)


def test_prompts_of_another_kind_name_their_endpoint(queries):
    load = load_workload({**LOAD, "prompt_tokens": None, "prompts": str(queries)}, source="t")
    load.prompts.check(ENDPOINTS["rerank"])
    with pytest.raises(
        BenchError, match=r"line 1 has a query and its documents, and endpoint embeddings takes a text. Use endpoint rerank"
    ):
        load.prompts.check(ENDPOINTS["embeddings"])
    queries.write_text('{"prompt": "a"}')
    other = load_workload(
        {**LOAD, "prompt_tokens": None, "prompts": str(queries.rename(queries.with_name("x.jsonl")))}, source="t"
    )
    with pytest.raises(
        BenchError, match=r"line 1 has a text, and endpoint rerank takes a query and its documents. Use endpoint completions"
    ):
        other.prompts.check(ENDPOINTS["rerank"])
