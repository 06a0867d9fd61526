"""Conversations over chats: scripted ones of exact lengths, and those whose history is what the server answered."""

import json

import pytest

from bench.errors import BenchError
from bench.load.answer import Continued, follow
from bench.load.client import Load, run_load
from bench.load.exchange import Exchange
from bench.load.introduction import introduce
from bench.load.target import Target
from bench.study.read import load_workload
from bench.workloads.endpoints import ENDPOINTS
from tests.support.cases import cases
from tests.support.fake_server import fake_server

TURNS = {"count": 3, "new_tokens": 12}
TALK = {"arrival": "burst", "endpoint": "chat", "prompt_tokens": 30, "output_tokens": 8, "turns": TURNS}


def talk(**more):
    return load_workload({**TALK, **more}, source="t")


def sent(server, load, level=2):
    """The records of a load, and what the server was sent of it."""
    target = introduce(Target(server.base_url, "m"), load.endpoint, scripted=load.scripted_chats)
    before = len(server.bodies)
    records = run_load(target, Load(load, level, "a seed", vocabulary=500, timeout_s=20.0)).records
    return records, server.bodies[before:]


@pytest.fixture
def chats(tmp_path):
    """Three chats: of two turns with an answer between, of three without, and of one."""
    rows = [
        [("system", "Be kind."), ("user", "A1"), ("assistant", "recorded"), ("user", "A2")],
        [("user", "B1"), ("user", "B2"), ("user", "B3")],
        [("user", "C1")],
    ]
    file = tmp_path / "chats.jsonl"
    messages = [[{"role": role, "content": text} for role, text in row] for row in rows]
    file.write_text("".join(json.dumps({"messages": each}) + "\n" for each in messages))
    return str(file)


def own_chats(chats, **turns):
    content = {"arrival": "closed", "num_requests": 4, "endpoint": "chat", "prompts": chats, "output_tokens": 4}
    return load_workload({**content, "turns": {"count": 2, **turns}}, source="t")


@cases("tokens_a_letter", [1, 2])
def test_scripted_chats_have_the_lengths_asked_for_and_begin_with_the_turn_before(tokens_a_letter):
    with fake_server(chat_template=7, turn_template=5, tokens_a_letter=tokens_a_letter) as server:
        records, bodies = sent(server, talk())
    assert {r.outcome for r in records} == {"ok"}
    assert [r.prompt_asked for r in records[:3]] == [30, 50, 70]
    assert all(r.prompt_tokens == r.prompt_asked for r in records)
    longest = [body["messages"] for body in bodies if len(body["messages"]) == 5]
    assert [message["role"] for message in longest[0]] == ["user", "assistant", "user", "assistant", "user"]
    for body in bodies:
        assert sum(body["messages"] == whole[: len(body["messages"])] for whole in longest) == 1  # of its conversation alone


def test_a_server_that_drops_earlier_turns_and_turns_shorter_than_its_template():
    said = []
    with fake_server(chat_template=40, turn_template=-30) as server:
        introduce(Target(server.base_url, "m"), "chat", scripted=True, say=said.append)
    assert any("its template leaves some of it out" in line for line in said)
    message = r"turns that add 12 tokens cannot be made: .* adds 12 to each\. Ask for 13 or more"
    with fake_server(chat_template=7, turn_template=12) as server, pytest.raises(BenchError, match=message):
        run_load(introduce(Target(server.base_url, "m"), "chat", scripted=True), Load(talk(), 2, "a seed", vocabulary=500))


def test_a_whole_answer_in_place_of_a_stream_stands_in_the_history_too():
    """Some servers do not heed `stream`."""
    whole = json.dumps({"choices": [{"message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}]}).encode()
    continued = Continued(b"%d ", b'{"messages":[', b'{"role":"user"}')
    before, following = (Exchange(i, continued=continued, endpoint="chat") for i in (0, 1))
    before.times, before.reads = [0.0], [b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(whole) + whole]
    follow(before, following)
    assert following.payload.endswith(b'{"messages":[{"role":"user"},{"role":"assistant","content":"hello"},{"role":"user"}]}')
    assert ENDPOINTS["chat"].message([{}]) == {"role": "assistant", "content": ""}


def test_chats_of_a_file_are_sent_turn_by_turn(chats):
    """Two of the three have two turns; the recorded answer is not sent, what the system says is."""
    with fake_server() as server:
        records, bodies = sent(server, own_chats(chats))
    assert [r.outcome for r in records] == ["ok"] * 8
    second = [body["messages"] for body in bodies if len(body["messages"]) > 2]
    heard = {tuple((m["role"], m["content"].split("\n")[-1]) for m in messages) for messages in second}
    answer = ("assistant", " t0 t1 t2 t3")
    assert heard == {(("system", "Be kind."), ("user", "A1"), answer, ("user", "A2")), (("user", "B1"), answer, ("user", "B2"))}
    assert len({messages[0]["content"] for messages in second}) == 4  # each with letters of its own, which all its turns keep
    first = {body["messages"][0]["content"] for body in bodies if len(body["messages"]) <= 2}
    assert first == {messages[0]["content"] for messages in second}


CALL = {
    "role": "assistant",
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
}
AGENT = [
    {"role": "user", "content": "Weather?"},
    CALL,
    {"role": "tool", "tool_call_id": "c1", "content": ""},
    {"role": "assistant", "content": "recorded"},
    {"role": "user", "content": "Thanks."},
]


def test_calls_of_tools_and_their_results_are_sent(tmp_path):
    """The results answer the recorded call, so it stands in place of the server's own answer; a turn follows what tools answered."""
    file = tmp_path / "agent.jsonl"
    file.write_text(json.dumps({"messages": AGENT, "tools": [{"type": "function", "function": {"name": "weather"}}]}) + "\n")
    load = own_chats(str(file), count=3)
    load = load.model_copy(update={"num_requests": 1})
    with fake_server() as server:
        records, bodies = sent(server, load, level=1)
    assert [(r.outcome, r.after) for r in records] == [("ok", None), ("ok", 0), ("ok", 1)]
    asked, *followed = [body["messages"] for body in bodies]
    assert asked[0]["content"].endswith("Weather?")
    assert followed == [
        [*asked, *AGENT[1:3]],
        [*asked, *AGENT[1:3], {"role": "assistant", "content": " t0 t1 t2 t3"}, AGENT[4]],
    ]
    assert all(body["tools"] for body in bodies)
    with pytest.raises(
        BenchError, match=r"line 1 has the messages of a chat, and endpoint completions takes a text\. Use endpoint chat"
    ):
        load.prompts.check(ENDPOINTS["completions"])


def test_the_history_of_a_file_s_chats_is_what_the_server_answered(chats):
    """Without its reasoning; a header of its own for each conversation."""
    with fake_server(reasons=1) as server:
        before = len(server.requests)
        _, bodies = sent(server, own_chats(chats, session_header="X-Session-Id"))
        answers = [m for body in bodies for m in body["messages"] if m["role"] == "assistant"]
        assert {m["content"] for m in answers} == {" t1 t2 t3"} and not any("reasoning_content" in m for m in answers)
        named = [headers["x-session-id"] for _, headers in server.requests[before:] if "x-session-id" in headers]
        assert sorted(map(named.count, named)) == [2] * 8


def test_a_failed_answer_stands_in_the_history_as_far_as_it_came(chats):
    with fake_server() as server:
        load = own_chats(chats)
        target = introduce(Target(server.base_url, "m"), "chat")
        server.behaviour, before = "truncated", len(server.bodies)
        records = run_load(target, Load(load, 2, "a seed", vocabulary=500, timeout_s=20.0)).records
    assert [r.outcome for r in records] == ["truncated"] * 8
    answers = [m["content"] for body in server.bodies[before:] for m in body["messages"] if m["role"] == "assistant"]
    assert answers == [" t0 t1"] * 4


def test_a_file_without_such_chats_is_refused(chats):
    load = own_chats(chats, count=4)
    with pytest.raises(BenchError, match="no chat has 4 turns that each end with a user's message or results of tools"):
        run_load(Target("http://127.0.0.1:9", "m"), Load(load, 1, "s"))
    described = "2 chats of 2 turns with 4 to 20 characters (20 in the median); 1 of the file with fewer are left out"
    assert own_chats(chats).prompts.described(2) == described
