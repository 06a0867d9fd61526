"""Records from raw bytes: server-sent events, however the network cuts them."""

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from bench.workload import RequestRecord, read_requests, write_requests
from bench.workload.transport import Exchange

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


def exchange(pieces):
    return Exchange(0, scheduled=10.0, sent=10.5, headers=10.6, end=20.0, status=200, pieces=pieces)


@given(st.lists(st.integers(1, len(BODY) - 1), max_size=30))
def test_the_cut_of_the_stream_changes_nothing_but_the_stamps(cuts):
    edges = [0, *sorted(set(cuts)), len(BODY)]
    pieces = [(11.0 + i, BODY[a:b]) for i, (a, b) in enumerate(itertools.pairwise(edges))]
    record = RequestRecord.of(exchange(pieces), 10.0)
    assert record.outcome == "ok"
    assert (record.prompt_tokens, record.completion_tokens, len(record.token_times_s)) == (5, 4, 3)
    assert record.token_times_s == sorted(record.token_times_s)


def test_by_hand():
    first, second = BODY.index(b"data", 5), BODY.index(b'"usage"')
    record = RequestRecord.of(exchange([(11.0, BODY[:first]), (12.0, BODY[first:second]), (13.0, BODY[second:])]), 10.0)
    assert record.token_times_s == [1.0, 2.0, 2.0]
    assert (record.scheduled_s, record.sent_s, record.first_byte_s, record.end_s) == (0.0, 0.5, 1.0, 10.0)
    assert (record.ttft_s, record.e2e_s) == (0.5, 1.5)


def test_an_exchange_that_was_never_sent_has_no_stamps():
    record = RequestRecord.of(Exchange(3, scheduled=10.0, failure="disconnect", end=11.0), 10.0)
    assert (record.outcome, record.sent_s, record.ttft_s, record.token_times_s) == ("disconnect", None, None, [])


def test_records_survive_the_file(tmp_path):
    records = [RequestRecord.of(exchange([(11.0, BODY)]), 10.0)]
    write_requests(records, tmp_path / "requests.jsonl")
    assert read_requests(tmp_path / "requests.jsonl") == records
