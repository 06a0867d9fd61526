"""Records from raw bytes: server-sent events, however the network cuts them."""

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from bench.load.exchange import Exchange
from bench.load.records import record_of
from tests.support.cases import cases

BODY = (
    b"".join(
        b"data: " + json.dumps(event).encode() + b"\r\n\r\n"
        for event in [
            {"choices": [{"text": "a"}]},
            {"choices": [{"text": ""}]},
            {"choices": [{"text": "é"}]},
            {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 4}},
        ]
    )
    + b": a comment\n\ndata: [DONE]\n\n"
)


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunked(body):
    return b"%x\r\n" % len(body) + body + b"\r\n"


def exchange(pieces, *, head=HEAD, last=b"0\r\n\r\n", streamed=True, failure=None):
    """An exchange whose head arrived at 10.6, and each piece of whose body as a chunk of its own."""
    reads = [(10.6, head), *((t, chunked(piece)) for t, piece in pieces)]
    if last:
        reads.append((reads[-1][0], last))
    return Exchange(
        0, scheduled=10.0, sent=10.5, end=20.0, streamed=streamed, failure=failure,
        times=[t for t, _ in reads], reads=[read for _, read in reads],
    )  # fmt: skip


def events(*contents):
    return [
        (11.0 + i, b"data: " + (c if isinstance(c, bytes) else json.dumps(c).encode()) + b"\n\n")
        for i, c in enumerate(contents)
    ]


@given(st.lists(st.integers(1, len(BODY) - 1), max_size=30))
def test_the_cut_of_the_stream_changes_nothing_but_the_stamps(cuts):
    edges = [0, *sorted(set(cuts)), len(BODY)]
    pieces = [(11.0 + i, BODY[a:b]) for i, (a, b) in enumerate(itertools.pairwise(edges))]
    record = record_of(exchange(pieces), 10.0)
    assert record.outcome == "ok"
    assert (record.prompt_tokens, record.completion_tokens, len(record.token_times_s)) == (5, 4, 3)
    assert record.token_times_s == sorted(record.token_times_s)


def test_by_hand():
    first, second = BODY.index(b"data", 5), BODY.index(b'"usage"')
    record = record_of(exchange([(11.0, BODY[:first]), (12.0, BODY[first:second]), (13.0, BODY[second:])]), 10.0)
    assert record.token_times_s == [1.0, 2.0, 2.0]
    assert (record.scheduled_s, record.sent_s, record.first_byte_s, record.end_s) == (0.0, 0.5, 1.0, 10.0)
    assert (record.ttft_s, record.e2e_s) == (0.5, 1.5)


def completion(text, finish=None, **more):
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
    return {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m", "choices": [choice], **more}


def counted(count):
    return {"prompt_tokens": 5, "completion_tokens": count, "total_tokens": 5 + count}


def vllm(*texts, count=None):
    """As vLLM streams: the last token's chunk ends the answer, and the usage comes alone."""
    *first, last = texts
    closing = completion(last, "length"), {**completion(""), "choices": [], "usage": counted(count or len(texts))}
    return [*map(completion, first), *closing, b"[DONE]"]


def llama(*texts, count=None):
    """As llama.cpp does (b11549): a chunk beyond the last token's ends the answer, with the usage in it."""
    timings = {"prompt_n": 5, "predicted_n": count or len(texts), "predicted_ms": 9.0}
    closing = completion("", "length", usage=counted(count or len(texts)), timings=timings)
    return [*map(completion, texts), closing, b"[DONE]"]


@cases(
    ("stream", "chunks"),
    [
        (vllm("a", "b", "c"), 3),
        (vllm("a", "b", ""), 3),  # the last token spells no whole character
        (vllm("a", "", ""), 3),
        (vllm("", "", ""), 3),
        (vllm(""), 1),
        (vllm("a", "b", count=5), 2),  # several tokens in a chunk
        (vllm("a", "", count=5), 2),
        (llama("a", "b", "c"), 3),
        (llama("a", "", "c"), 3),  # a token without a text
        (llama("a"), 1),
        (llama("a", "é", count=3), 3),  # two of the tokens in a chunk, or one in the last: this cannot be known
        ([*llama("a", "b", "c")[:-2], completion("", "length"), b"[DONE]"], 3),  # without a count, only text counts
        (llama(count=1)[:-1], 1),  # an answer has a stamp
    ],
)
def test_a_chunk_beyond_the_tokens_is_none_of_them(stream, chunks):
    record = record_of(exchange(events(*stream)), 10.0)
    assert record.token_times_s == [1.0 + i for i in range(chunks)]
    assert (record.first_token_s, record.first_output_s, record.last_token_s) == (1.0, 1.0, float(chunks))
    assert record.e2e_s == chunks - 0.5


def test_what_a_server_said_before_it_hung_up_counts():
    pieces = events({"choices": [{"text": "a"}]}, {"error": {"message": "out of memory"}})
    record = record_of(exchange(pieces, last=b"", failure="disconnect"), 10.0)
    assert (record.outcome, record.error) == ("stream_error", "out of memory")
    refused = HEAD.replace(b"200 OK", b"500 Internal Server Error")
    record = record_of(exchange([(11.0, b"oh no")], head=refused, last=b"", failure="disconnect"), 10.0)
    assert (record.outcome, record.error) == ("http_error", "oh no")
    record = record_of(exchange(pieces[:1], last=b"", failure="timeout"), 10.0)
    assert (record.outcome, record.error) == ("timeout", None)


@cases("interim", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"])
def test_an_interim_answer_has_no_stamps_and_is_none(interim):
    answered = exchange([(11.0, BODY)])
    answered.times.insert(0, 10.55)
    answered.reads.insert(0, interim)
    assert record_of(answered, 10.0) == record_of(exchange([(11.0, BODY)]), 10.0)
    switched = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\nx"
    for alone in (interim, switched):
        record = record_of(Exchange(0, sent=10.5, end=11.0, times=[10.6], reads=[alone], failure="timeout"), 10.0)
        assert (record.outcome, record.status) == ("timeout", None)
