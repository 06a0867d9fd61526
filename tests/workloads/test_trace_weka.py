"""Weka's sessions of agents: which request follows which, when, and what their prompts share."""

import pytest

from bench.errors import BenchError
from bench.study.trace import read_trace
from tests.support.cases import cases
from tests.support.trace_blocks import common, written


def call(t, took, prompt, ids, **more):
    return {"t": t, "type": "n", "model": "m", "in": prompt, "out": 5, "hash_ids": ids, "api_time": took, **more}


def session(*requests, **more):
    return {"id": "s", "models": ["m"], "block_size": 4, "hash_id_scope": "local", "requests": list(requests), **more}


def subagent(t, *requests):
    return {"t": t, "type": "subagent", "agent_id": "a", "subagent_type": "Explore", "requests": list(requests)}


# The main timeline waits for two subagents that run side by side, the second of which ends last.
AGENT = session(
    call(0.0, 2.0, 10, [1, 2]),
    subagent(2.5, call(2.5, 1.0, 5, [7]), call(4.0, 1.0, 9, [7, 8])),
    subagent(2.75, call(2.75, 4.0, 5, [7])),
    call(8.0, 1.0, 13, [1, 2, 3]),
    call(8.5, 1.0, 13, [1, 2, 3]),
)


def test_a_session_s_requests_follow_the_one_before_and_the_subagents_that_had_ended(tmp_path):
    requests = read_trace(written(tmp_path, AGENT))
    place = {x.blocks: i for i, x in enumerate(requests)}
    assert len(place) == 6
    first, second = requests[0], next(x for x in requests if x.prompt_tokens == 9)
    assert (first.arrival_s, first.after) == (0.0, ())
    side = [i for i, x in enumerate(requests) if x.prompt_tokens == 5]
    assert {(requests[i].after, requests[i].after_s) for i in side} == {((0,), 0.5), ((0,), 0.75)}
    assert (requests[second.after[0]].prompt_tokens, second.after_s) == (5, 0.5)
    joined = [x for x in requests if x.prompt_tokens == 13]
    slow = next(i for i in side if requests[i].after_s == 0.75)
    assert ({*joined[0].after}, joined[0].after_s) == ({0, requests.index(second), slow}, 1.25)  # 8.0 − 6.75
    # It had begun before that one's answer was complete.
    assert (joined[1].after, joined[1].after_s) == ((requests.index(joined[0]),), 0.0)
    assert {x.root for x in requests} == {0}


def test_ids_are_those_of_a_session_unless_their_scope_is_global(tmp_path):
    one = session(call(0.0, 1.0, 9, [1, 2]))
    local = read_trace(written(tmp_path, one, one))
    assert common(local[0].blocks, local[1].blocks) == 0
    everywhere = read_trace(written(tmp_path, *([{**one, "hash_id_scope": "global"}] * 2), name="global.jsonl"))
    assert common(everywhere[0].blocks, everywhere[1].blocks) == 2  # the rest behind the whole blocks is each one's own
    assert [x.arrival_s for x in everywhere] == [0.0, 0.0]
    assert [x.block_tokens for x in everywhere] == [4, 4]


@cases(
    ("line", "message"),
    [
        (session(call(0.0, 1.0, 9, [1])), "line 1, request 1, hash_ids: 1 ids do not fit a prompt of 9 tokens, which has 3 blocks of 4"),
        (session(call(-1, 1.0, 9, [1, 2])), r"line 1, request 1: t and api_time .* are not seconds"),
        (session(call(None, 1.0, 9, [1, 2])), r"line 1, request 1: t and api_time"),
        (session(call(0, 1.0, 9, [1, 2]), subagent(1, subagent(1))), r"line 1, request 2.1: a subagent of a subagent is not read"),
        (session(call(0, 1.0, 0, [])), "line 1, request 1, prompt_tokens: '0' is less than 1 token"),
        (session(call(0, 1.0, 9, "x")), "line 1, request 1, hash_ids: 'x' is not a list of ids"),
        (session(), "holds no requests"),
        ({**session(), "requests": 5}, "line 1, requests: '5' is not a list of requests"),
        (session(call(0.0, 1.0, 9, [1, 2]), block_size=0), "line 1, request 1, block_tokens: '0' is less than 1 token"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_place(tmp_path, line, message):
    file = written(tmp_path, line)
    with pytest.raises(BenchError, match=message) as refused:
        read_trace(file)
    assert str(refused.value).startswith(file)
