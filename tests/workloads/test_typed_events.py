"""Answers of typed events. Anthropic's Messages: requests and readings against its own SDK, and what of an answer counts; and the
Responses API. On a real server: tests/servers/test_llamacpp_engine.py.
"""

import json

import httpx2
import pytest

from bench.load.answer import follow
from bench.load.exchange import Exchange
from bench.load.payload import Payloads
from bench.load.target import Target
from bench.study.read import load_workload
from bench.workloads.endpoints import ENDPOINTS
from bench.workloads.schedule import PlannedRequest
from tests.support.cases import cases
from tests.support.streams import event, record

LOAD = {"arrival": "closed", "num_requests": 4, "prompt_tokens": 20, "output_tokens": 7, "endpoint": "messages"}
SAMPLING = {"temperature": 0, "ignore_eos": True}  # which its SDK knows no more, or never did
JSON = {"content-type": "application/json"}


def named(kind, **content):
    return event({"type": kind, **content}, kind)


def message(content=(), stop=None, **usage):
    return {"id": "m1", "type": "message", "role": "assistant", "model": "m", "content": list(content), "stop_reason": stop,
            "stop_sequence": None, "usage": {"input_tokens": 20, "output_tokens": 1, **usage}}  # fmt: skip


def begin(**usage):
    return named("message_start", message=message(**usage))


def block(kind="text", index=0, **content):
    return named("content_block_start", index=index, content_block={"type": kind, **content})


def delta(kind, index=0, **content):
    return named("content_block_delta", index=index, delta={"type": f"{kind}_delta", **content})


def said(text, index=0):
    return delta("text", index, text=text)


def stop(index=0):
    return named("content_block_stop", index=index)


def end(tokens, reason="max_tokens", **usage):
    return named(
        "message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage={"output_tokens": tokens, **usage}
    ) + named("message_stop")


PING = named("ping")
PLAIN = [
    (0.1, begin()),
    (0.2, block(text="") + PING),
    (0.3, said("a")),
    (0.4, said(" b")),
    (0.5, said(" c") + stop()),
    (0.6, end(3)),
]
# As llama.cpp and vLLM write them, with part of the prompt from a cache.
LLAMA = [
    (0.1, begin(cache_read_input_tokens=16, input_tokens=4, output_tokens=0) + block(text="")),
    (0.2, said("a")),
    (0.3, said(" b") + stop() + end(2)),
]
VLLM = [
    (0.1, begin(output_tokens=0)),
    (0.2, block(text="") + said("a")),
    (0.3, said(" b") + stop() + end(2, input_tokens=4, cache_read_input_tokens=16)),
]
# As Anthropic does: thinking, an answer, and a call of a tool, whose first part is empty.
CALLS = [
    (0.1, begin(input_tokens=5, cache_creation_input_tokens=7, cache_read_input_tokens=8)),
    (0.2, block("thinking", thinking="", signature="")),
    (0.3, delta("thinking", thinking="Hm.")),
    (0.4, delta("signature", signature="EqQBCgIYAhIM") + stop()),
    (0.5, block(index=1, text="") + said("So:", 1) + stop(1)),
    (0.6, block("tool_use", 2, id="t1", name="weather", input={})),
    (0.7, delta("input_json", 2, partial_json="")),
    (0.8, delta("input_json", 2, partial_json='{"city":')),
    (0.9, delta("input_json", 2, partial_json=' "Bonn"}') + stop(2)),
    (1.0, end(5, "tool_use", output_tokens_details={"thinking_tokens": 1})),
]
STREAMS = {"plain": PLAIN, "llama.cpp": LLAMA, "vllm": VLLM, "calls": CALLS}


def read(pieces, asked=7, **more):
    return record(pieces, asked=asked, endpoint="messages", **more)


def payloads(target=None, **more):
    load = load_workload({**LOAD, **more}, source="t")
    return Payloads(target or Target("http://h", "m"), load, seed="s", vocabulary=100)


def sent(payload):
    return json.loads(payload.split(b"\r\n\r\n")[1])


def chats(folder, *rows):
    """A file of chats: their messages' roles, which are what they say, or messages."""
    messages = [[{"role": each, "content": each} if isinstance(each, str) else each for each in row] for row in rows]
    (folder / "chats.jsonl").write_text("".join(json.dumps({"messages": each}) + "\n" for each in messages))
    return {"prompt_tokens": None, "prompts": str(folder / "chats.jsonl")}


def second_turn(**load):
    """Two turns of a chat, the first of which was answered as CALLS: what is sent in each."""
    writing = payloads(**load)
    planned = [PlannedRequest(0, 0, None, 7), PlannedRequest(1, 0, None, 9, after=(0,), turn=1)]
    before, following = (
        Exchange(i, writing.of(each), writing.continued(each), endpoint="messages") for i, each in enumerate(planned)
    )
    body = "".join(text for _, text in CALLS).encode()
    before.times, before.reads = [0.1], [b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body]
    follow(before, following)
    return sent(before.payload), sent(following.payload)


@pytest.fixture
def client(anthropic):
    """Anthropic's SDK, of what answers it."""
    return lambda answer: anthropic.Anthropic(
        api_key="key", base_url="http://h", http_client=httpx2.Client(transport=httpx2.MockTransport(answer)), max_retries=0
    )


@cases("stream", [True, False])
def test_a_request_means_what_anthropic_s_sdk_sends(stream, client):
    caught = []

    def answer(request):
        caught.append(request)
        return httpx2.Response(200, json=message([{"type": "text", "text": "a"}], "end_turn"))

    head, body = payloads(Target("http://h", "m", "key"), stream=stream).of(PlannedRequest(3, 3, 20, 7)).split(b"\r\n\r\n")
    ours = json.loads(body)
    with client(answer) as sdk:
        sdk.messages.create(model="m", max_tokens=7, messages=ours["messages"], stream=stream, extra_body=SAMPLING)
    (theirs,) = caught
    assert ours == json.loads(theirs.content)
    line, *lines = head.split(b"\r\n")
    ours = dict(each.lower().split(b": ", 1) for each in lines)
    assert line == b"POST " + theirs.url.raw_path + b" HTTP/1.1"
    assert ours[b"anthropic-version"] == b"2023-06-01"
    assert ours[b"authorization"] == theirs.headers["authorization"].lower().encode() == b"bearer key"
    assert {name.decode() for name in ours} >= {"content-type", "content-length", "host"} | (
        {"anthropic-version"} & theirs.headers.keys()
    )


@cases("name", STREAMS)
def test_a_stream_is_read_as_anthropic_s_sdk_reads_it(name, client):
    pieces = STREAMS[name]
    body = "".join(text for _, text in pieces)

    def answer(_):
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body.encode())

    with (
        client(answer) as sdk,
        sdk.messages.stream(model="m", max_tokens=7, messages=[{"role": "user", "content": "a"}]) as stream,
    ):
        theirs = stream.get_final_message()
    ours = read(pieces)
    usage = theirs.usage
    prompt = usage.input_tokens + (usage.cache_creation_input_tokens or 0) + (usage.cache_read_input_tokens or 0)
    assert (ours.outcome, ours.error, ours.done) == ("ok", None, True)
    assert (ours.finish_reason, ours.prompt_tokens, ours.completion_tokens, ours.cached_tokens) == (
        theirs.stop_reason, prompt, usage.output_tokens, usage.cache_read_input_tokens,
    )  # fmt: skip
    assert ours.prompt_tokens == 20
    contents = [json.loads(line.removeprefix("data: ")) for line in body.splitlines() if line.startswith("data: ")]
    text = "".join(ENDPOINTS["messages"].text(content) for content in contents)
    assert text == "".join(block.text for block in theirs.content if block.type == "text")


def test_a_whole_answer_is_read_as_anthropic_s_sdk_reads_it(client):
    content = [
        {"type": "thinking", "thinking": "Hm.", "signature": "x"},
        {"type": "text", "text": "a"},
        {"type": "text", "text": " b"},
    ]
    body = message(content, "end_turn", output_tokens=3, input_tokens=4, cache_read_input_tokens=16)
    with client(lambda _: httpx2.Response(200, json=body)) as sdk:
        theirs = sdk.messages.create(model="m", max_tokens=7, messages=[{"role": "user", "content": "a"}])
    ours = read([(0.5, json.dumps(body))], streamed=False, headers=JSON)
    assert (ours.outcome, ours.finish_reason, ours.prompt_tokens, ours.completion_tokens, ours.cached_tokens, ours.ttft_s) == (
        "ok", theirs.stop_reason, 20, theirs.usage.output_tokens, theirs.usage.cache_read_input_tokens, None,
    )  # fmt: skip
    assert ENDPOINTS["messages"].text(body) == "".join(block.text for block in theirs.content if block.type == "text")


def test_each_delta_is_a_token_and_nothing_else_is():
    found = read(PLAIN)
    assert found.token_times_s == [0.3, 0.4, 0.5]
    assert (found.ttft_s, found.e2e_s, found.streamed_least, found.streamed_tokens) == (0.3, 0.5, 3, 3)


def test_thinking_comes_ahead_of_the_answer_and_a_call_of_a_tool_is_output():
    found = read(CALLS)
    assert (found.first_token_s, found.first_output_s) == (0.3, 0.5)
    assert found.token_times_s == [0.3, 0.5, 0.6, 0.8, 0.9]  # not the signature, nor an empty part of a call
    assert read([*CALLS[:1], *CALLS[5:]]).first_output_s == 0.6
    result = block("web_search_tool_result", 3, tool_use_id="t1", content=[{"type": "web_search_result", "title": "Bonn"}])
    assert read([*CALLS[:5], (0.55, result), *CALLS[5:]]).token_times_s == found.token_times_s


def last(counts):
    return named("message_delta", delta={"stop_reason": "max_tokens"}, usage=counts)


@cases(
    ("pieces", "outcome", "error"),
    [
        *((PLAIN[:kept], "truncated", ...) for kept in (3, 5)),  # the count in its first event ends nothing
        *(([*PLAIN[:3], (0.4, event({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, name))],
           "stream_error", "Overloaded") for name in ("error", None)),
        # An event that lacks what it should have.
        *(([*PLAIN[:4], (0.5, broken)], "stream_error", ...) for broken in (
            named("message_start"), named("content_block_start", index=0), named("content_block_delta", index=0), said(5),
            named("message_delta", delta={"stop_reason": {}}))),
        # What is no count costs that count alone.
        ([*PLAIN[:4], (0.5, last({"output_tokens": "3"}))], "ok", "completion_tokens is '3'"),
        ([*PLAIN[:4], (0.5, last({"output_tokens": 3, "input_tokens": "2"}))], "ok", "prompt_tokens is '2'"),
        ([*PLAIN[:4], (0.5, last({"output_tokens": 3, "input_tokens": 2, "cache_read_input_tokens": "1"}))], "ok",
         "prompt_tokens is '1'; cached_tokens is '1'"),
        ([*PLAIN[:4], (0.5, last([3]))], "ok", "usage is [3]"),
    ],
)  # fmt: skip
def test_what_goes_wrong_in_a_stream_costs_that_request_or_count_alone(pieces, outcome, error):
    found = read(pieces)
    assert found.outcome == outcome
    assert error is ... or found.error == error


@cases("content", [None, [None], {}, "a"])
def test_a_whole_answer_that_is_none_fails_the_request_alone(content):
    body = {**message(), "content": content}
    outcome = read([(0.5, json.dumps(body))], streamed=False, headers=JSON).outcome
    assert outcome == ("ok" if content == {} else "stream_error")


def test_a_conversation_keeps_its_system_prompt_and_what_was_answered(tmp_path):
    load = chats(tmp_path, ["system", "user", "assistant", "user"])
    first, second = second_turn(**load, turns={"count": 2})
    assert first["system"] == second["system"]
    assert second["system"][0]["text"].endswith("\nsystem")
    assert (first["max_tokens"], second["max_tokens"]) == (7, 9)
    asked = {"role": "user", "content": "user"}
    assert second["messages"] == [asked, {"role": "assistant", "content": "So:"}, asked]


@cases("first", [["system"], []])
def test_a_system_message_in_the_middle_keeps_its_place(tmp_path, first):
    load = chats(tmp_path, [*first, "user", "assistant", {"role": "system", "content": "Now in verse."}, "user"])
    _, second = second_turn(**load, turns={"count": 2})
    assert [each["role"] for each in second["messages"]] == ["user", "assistant", "system", "user"]
    assert second["messages"][2]["content"] == "Now in verse."
    assert [part["text"].split("\n")[-1] for part in second.get("system", [])] == first


def test_a_version_of_the_user_s_own_is_sent_in_its_place():
    own = Target("http://h", "m", headers={"Anthropic-Version": "2026-10-21"})
    head = payloads(own).of(PlannedRequest(0, 0, 20, 7)).split(b"\r\n\r\n")[0]
    assert [line for line in head.lower().split(b"\r\n") if line.startswith(b"anthropic")] == [b"anthropic-version: 2026-10-21"]


# The Responses API.


USAGE = {"input_tokens": 20, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 3,
         "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 23}  # fmt: skip


def response(status="completed", usage=USAGE, **more):
    part = {"type": "output_text", "text": " a b c", "annotations": []}
    output = [{"type": "message", "role": "assistant", "content": [part]}]
    return {"id": "r1", "object": "response", "status": status, "output": output, "usage": usage, **more}


def typed(kind, **content):
    return event({"type": f"response.{kind}", "sequence_number": 1, **content}, f"response.{kind}")


def part(text, kind="output_text"):
    return typed(f"{kind}.delta", item_id="m1", output_index=0, content_index=0, delta=text)


def responded(*pieces, **more):
    """The record of an answer whose pieces come 0.1 s apart."""
    return record([(round(0.1 * i, 1), piece) for i, piece in enumerate(pieces, 1)], asked=3, endpoint="responses", **more)


def whole_response(**more):
    return responded(json.dumps(response(**more)), streamed=False, headers=JSON)


CREATED = typed("created", response=response("in_progress", None))
BEGUN = CREATED, typed("output_item.added", output_index=0, item={"type": "message", "content": []})
COMPLETED = typed("completed", response=response())


def test_each_delta_of_a_response_is_a_token_and_what_repeats_them_is_none():
    found = responded(*BEGUN, part(" a"), part(" b"), part(" c"), typed("output_text.done", text=" a b c"), COMPLETED)
    assert (found.outcome, found.finish_reason, found.done) == ("ok", "completed", True)
    assert found.token_times_s == [0.3, 0.4, 0.5]
    assert (found.ttft_s, found.e2e_s) == (0.3, 0.5)
    assert (found.prompt_tokens, found.completion_tokens, found.cached_tokens) == (20, 3, 4)
    assert (found.streamed_least, found.streamed_tokens) == (3, 3)
    assert responded(*BEGUN, part(" a"), part(" b")).outcome == "truncated"
    cut = response("incomplete", incomplete_details={"reason": "max_output_tokens"})  # which is whole, and says so
    found = responded(*BEGUN, part(" a"), part(" b"), part(" c"), typed("incomplete", response=cut))
    assert (found.outcome, found.finish_reason, found.completion_tokens) == ("ok", "max_output_tokens", 3)


def test_reasoning_comes_ahead_of_a_response_and_a_call_of_a_tool_is_one():
    for kind, output in (("reasoning_text", 0.4), ("mcp_call_arguments", 0.3)):
        found = responded(*BEGUN, part("{", kind), part(" b"), part(" c"), COMPLETED)
        assert (found.first_token_s, found.first_output_s) == (0.3, output)
    # The name of a tool is the first of its call, as vLLM and OpenAI send it, and chats have it.
    item = {"type": "function_call", "id": "f1", "call_id": "c1", "name": "weather", "arguments": ""}
    arguments = (part(text, "function_call_arguments") for text in "{}")
    found = responded(CREATED, typed("output_item.added", output_index=0, item=item), *arguments, COMPLETED)
    assert (found.token_times_s, found.first_output_s) == ([0.2, 0.3, 0.4], 0.2)


@cases(
    ("last", "error"),
    [
        (typed("failed", response=response("failed", None, error={"code": "x", "message": "out of memory"})), "out of memory"),
        (event({"type": "error", "message": "overloaded", "code": "server_error"}, "error"), "overloaded"),
        (typed("output_text.delta", text=" a"), None),  # events that lack what they should have
        (typed("completed"), None),
        (typed("output_item.added", output_index=1), None),
    ],
)
def test_a_failure_in_a_response_fails_the_request_alone(last, error):
    found = responded(*BEGUN, part(" a"), last)
    assert found.outcome == "stream_error"
    assert error is None or found.error == error


def test_a_whole_response_has_its_counts_or_says_how_it_failed():
    found = whole_response()
    assert (found.outcome, found.finish_reason, found.completion_tokens, found.ttft_s) == ("ok", "completed", 3, None)
    for status in ("failed", "cancelled", "queued"):
        found = whole_response(status=status, error=None)
        assert (found.outcome, found.error) == ("stream_error", f"the server ended the answer with status {status}")
