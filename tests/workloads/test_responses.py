"""The Responses API: its typed events, and answers that come whole."""

import json

from bench.load.exchange import Exchange
from bench.load.records import record_of
from tests.support.cases import cases

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
USAGE = {
    "input_tokens": 20,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens": 3,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 23,
}


def response(status="completed", usage=USAGE, **more):
    part = {"type": "output_text", "text": " a b c", "annotations": []}
    output = [{"type": "message", "role": "assistant", "content": [part]}]
    return {"id": "r1", "object": "response", "status": status, "output": output, "usage": usage, **more}


def event(kind, **content):
    text = json.dumps({"type": kind, "sequence_number": 1, **content})
    return f"event: {kind}\ndata: {text}\n\n".encode()


def delta(text, kind="response.output_text.delta"):
    return event(kind, item_id="m1", output_index=0, content_index=0, delta=text)


def read(*pieces, streamed=True, head=HEAD):
    """The record of an answer whose pieces come 0.1 s apart."""
    chunks = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces]
    times = [round(0.1 * i, 1) for i in range(len(chunks) + 1)]
    return record_of(
        Exchange(
            0, prompt_asked=20, output_asked=3, scheduled=0.0, sent=0.0, end=times[-1], times=[*times, times[-1]],
            reads=[head, *chunks, b"0\r\n\r\n"], streamed=streamed, endpoint="responses",
        ),
        0.0,
    )  # fmt: skip


BEGUN = (
    event("response.created", response=response("in_progress", None)),
    event("response.output_item.added", output_index=0, item={"type": "message", "content": []}),
)
WHOLE = event("response.output_text.done", text=" a b c")


def test_each_delta_is_a_token_and_what_repeats_them_is_none():
    found = read(*BEGUN, delta(" a"), delta(" b"), delta(" c"), WHOLE, event("response.completed", response=response()))
    assert (found.outcome, found.finish_reason, found.done) == ("ok", "completed", True)
    assert found.token_times_s == [0.3, 0.4, 0.5]
    assert (found.ttft_s, found.e2e_s) == (0.3, 0.5)
    assert (found.prompt_tokens, found.completion_tokens, found.cached_tokens) == (20, 3, 4)
    assert (found.streamed_least, found.streamed_tokens) == (3, 3)


def test_an_answer_that_reached_its_limit_is_whole_and_says_so():
    cut = response("incomplete", incomplete_details={"reason": "max_output_tokens"})
    found = read(*BEGUN, delta(" a"), delta(" b"), delta(" c"), event("response.incomplete", response=cut))
    assert (found.outcome, found.finish_reason, found.completion_tokens) == ("ok", "max_output_tokens", 3)


def test_reasoning_comes_ahead_of_the_answer():
    thought = delta("hm", "response.reasoning_text.delta")
    found = read(*BEGUN, thought, delta(" b"), delta(" c"), event("response.completed", response=response()))
    assert (found.first_token_s, found.first_output_s) == (0.3, 0.4)


@cases(
    ("last", "error"),
    [
        (event("response.failed", response=response("failed", None, error={"code": "x", "message": "out of memory"})), "out of memory"),
        (event("error", message="overloaded", code="server_error"), "overloaded"),
    ],
)  # fmt: skip
def test_a_failure_in_the_stream_fails_the_request(last, error):
    found = read(*BEGUN, delta(" a"), last)
    assert (found.outcome, found.error) == ("stream_error", error)


@cases("status", ["failed", "cancelled", "queued"])
def test_a_whole_answer_that_did_not_succeed_is_none(status):
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    found = read(json.dumps(response(status, error=None)).encode(), streamed=False, head=head)
    assert (found.outcome, found.error) == ("stream_error", f"the server ended the answer with status {status}")


@cases(
    "broken",
    [
        event("response.output_text.delta", text=" a"),
        event("response.completed"),
        event("response.output_item.added", output_index=1),
    ],
)
def test_an_event_that_lacks_what_it_should_have_fails_the_request_alone(broken):
    assert read(*BEGUN, delta(" a"), broken).outcome == "stream_error"


def test_a_call_of_a_tool_is_output_too():
    call = delta("{", "response.mcp_call_arguments.delta")
    found = read(*BEGUN, call, delta(" b"), delta(" c"), event("response.completed", response=response()))
    assert (found.first_token_s, found.first_output_s) == (0.3, 0.3)


def test_the_name_of_a_tool_is_the_first_of_its_call():
    """As vLLM and OpenAI send it, and chats have it."""
    item = {"type": "function_call", "id": "f1", "call_id": "c1", "name": "weather", "arguments": ""}
    call = event("response.output_item.added", output_index=0, item=item)
    parts = delta("{", "response.function_call_arguments.delta"), delta("}", "response.function_call_arguments.delta")
    found = read(BEGUN[0], call, *parts, event("response.completed", response=response()))
    assert (found.token_times_s, found.first_output_s) == ([0.2, 0.3, 0.4], 0.2)


def test_a_stream_that_breaks_off_is_truncated():
    assert read(*BEGUN, delta(" a"), delta(" b")).outcome == "truncated"


def test_a_whole_answer_has_its_counts_and_no_first_token():
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    found = read(json.dumps(response()).encode(), streamed=False, head=head)
    assert (found.outcome, found.finish_reason, found.completion_tokens, found.ttft_s) == ("ok", "completed", 3, None)
