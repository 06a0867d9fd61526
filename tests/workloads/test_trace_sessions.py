"""Sessions of agents, as spans of OpenTelemetry and as Weka has them: which call follows which, when, and what is no request."""

import json

import pytest

from bench.errors import BenchError
from bench.workloads.schedule import schedule
from bench.workloads.trace import read_trace
from bench.workloads.workload import Workload
from tests.support.cases import cases
from tests.support.study import ROOT
from tests.support.trace_blocks import common

BEGAN = 1_764_165_000  # s


def span(name, start, end, parent=None, *, trace="t", prompt=None, output=5, **attributes):
    """As the SDK writes one: dates, and attributes by name. With `prompt` it is a call of a model."""

    def moment(at):
        return f"2025-11-26T13:{50 + int(at // 60):02d}:{at % 60:09.6f}Z"

    if prompt:
        usage = {"gen_ai.usage.input_tokens": prompt, "gen_ai.usage.output_tokens": output}
        attributes = {"gen_ai.operation.name": "chat", **usage, **attributes}
    return {
        "name": name,
        "context": {"trace_id": f"0x{trace}", "span_id": f"0x{name}", "trace_state": "[]"},
        "parent_id": parent and f"0x{parent}",
        "start_time": moment(start),
        "end_time": moment(end),
        "status": {"status_code": "UNSET"},
        "attributes": attributes,
    }


def otlp(*spans):
    """The same as the collector's file exporter writes them: one export a line."""

    def value(x):
        kind = {bool: "boolValue", int: "intValue", float: "doubleValue", str: "stringValue"}[type(x)]
        return {kind: str(x) if kind == "intValue" else x}

    def encoded(each):
        start, end = (
            str(round((BEGAN + float(each[key][14:16]) * 60 - 3000 + float(each[key][17:-1])) * 10**6) * 1000)
            for key in ("start_time", "end_time")
        )
        return {
            "traceId": each["context"]["trace_id"][2:],
            "spanId": each["context"]["span_id"][2:],
            "parentSpanId": (each["parent_id"] or "0x")[2:],
            "name": each["name"],
            "startTimeUnixNano": start,
            "endTimeUnixNano": end,
            "status": {"code": 2} if each["status"]["status_code"] == "ERROR" else {},
            "attributes": [{"key": key, "value": value(x)} for key, x in each["attributes"].items()],
        }

    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": [encoded(each)]} for each in spans]}]}


# A session: a plan, a tool, two subagents side by side whose calls interleave in time, and what joins them.
AGENT = [
    span("main", 0, 20, **{"gen_ai.operation.name": "invoke_agent", "gen_ai.usage.input_tokens": 999}),
    span("plan", 0.5, 2, "main", prompt=10),
    span("tool", 2, 3, "main", **{"gen_ai.operation.name": "execute_tool"}),
    span("again", 3.25, 4, "main", prompt=11),
    span("one", 4, 12, "main", **{"gen_ai.operation.name": "invoke_agent"}),
    span("one-1", 5, 6, "one", prompt=21),
    span("one-2", 9, 12, "one", prompt=22),
    span("two", 4, 9.5, "main", **{"gen_ai.operation.name": "invoke_agent"}),
    span("two-1", 5.5, 8, "two", prompt=31),
    span("two-2", 8.5, 9.5, "two", prompt=32),
    span("join", 13, 15, "main", prompt=12),
]


def written(folder, *lines, name="spans.jsonl", indent=None):
    file = folder / name
    file.write_text("".join(json.dumps(line, indent=indent) + "\n" for line in lines))
    return str(file)


def found(requests):
    """Of each request, by its prompt: its moment, the prompts of those that it follows, and the wait."""
    return {x.prompt_tokens: (x.arrival_s, {requests[i].prompt_tokens for i in x.after}, round(x.after_s, 6)) for x in requests}


TRUE = {
    10: (0.0, set(), 0.0),
    11: (None, {10}, 1.25),
    21: (None, {11}, 1.0),
    22: (None, {21}, 3.0),  # not one that ended later in the other branch
    31: (None, {11}, 1.5),
    32: (None, {31}, 0.5),
    12: (None, {22}, 1.0),  # the branch that ended last
}


@cases("form", ["sdk", "printed", "otlp", "a line a span"])
def test_a_call_follows_what_had_ended_in_its_own_branch(tmp_path, form):
    """In every encoding; spans come in any order, as each is written when it ends."""
    spans = sorted(AGENT, key=lambda each: each["end_time"])
    file = {
        "sdk": lambda: written(tmp_path, *spans),
        "printed": lambda: written(tmp_path, *spans, name="spans.json", indent=4),
        "otlp": lambda: written(tmp_path, otlp(*spans)),
        "a line a span": lambda: written(tmp_path, *map(otlp, spans)),
    }[form]()
    requests = read_trace(file)
    assert found(requests) == TRUE
    assert {x.output_tokens for x in requests} == {5}
    assert {x.root for x in requests} == {0}


def failed(name, start, end, *parent, **more):
    return {**span(name, start, end, *parent, **more), "status": {"status_code": "ERROR"}}


def test_what_a_collector_writes_beside_spans_may_come_first(tmp_path):
    for other in ("resourceLogs", "resourceMetrics"):
        lines = {other: [{"resource": {}}]}, otlp(*AGENT, failed("f", 16, 17, "main", prompt=7)), {other: []}
        assert found(read_trace(written(tmp_path, *lines, name=f"{other}.jsonl"))) == TRUE
    # Log records of the SDK name the span in which they were written, and have attributes, as spans do.
    log = {
        "body": "called",
        "attributes": {"gen_ai.system": "vllm"},
        "timestamp": "2025-01-01T00:00:03.000000Z",
        "span_id": "0xa",
    }
    assert found(read_trace(written(tmp_path, log, *AGENT, log))) == TRUE


def test_traces_of_one_conversation_follow_each_other_and_others_have_their_moment(tmp_path):
    told = {"gen_ai.conversation.id": "c"}
    file = written(
        tmp_path,
        span("a", 10, 11, trace="1", prompt=10, **told),
        span("turn", 15, 19, trace="2", **told),
        span("b", 15, 16, "turn", trace="2", prompt=20),
        span("c", 17, 18, "gone", trace="3", prompt=30),
        span("d", 17.5, 18, trace="4", **{"openinference.span.kind": "LLM", "llm.token_count.prompt": 40,
                                          "llm.token_count.completion": 3, "session.id": "s"}),
        span("e", 20, 21, trace="5", **{"gen_ai.usage.prompt_tokens": 50, "gen_ai.usage.completion_tokens": 3, "session.id": "s"}),
    )  # fmt: skip
    assert found(read_trace(file)) == {
        10: (0.0, set(), 0.0),
        20: (None, {10}, 4.0),
        30: (7.0, set(), 0.0),
        40: (7.5, set(), 0.0),
        50: (None, {40}, 2.0),
    }


def test_a_trace_whose_conversation_some_of_its_calls_name_is_one_session(tmp_path):
    """In a later trace of it too."""
    c = {"gen_ai.conversation.id": "c"}
    file = written(
        tmp_path,
        span("a", 0, 1, trace="1", prompt=10),
        span("b", 2, 3, trace="1", prompt=20, **c),
        span("c", 4, 5, trace="1", prompt=30),
        span("d", 6, 7, trace="2", prompt=40, **c),
    )
    follows = {prompt: after for prompt, (_, after, _) in found(read_trace(file)).items()}
    assert follows == {10: set(), 20: {10}, 30: {20}, 40: {30}}


def test_only_answered_calls_that_generate_are_requests(tmp_path):
    """A framework's span around its client's is the same call; what failed has no answer, and what came before it is followed."""
    file = written(
        tmp_path,
        span("a", 0, 1, prompt=10),
        span("outer", 2, 3, prompt=20),
        span("inner", 2.1, 2.9, "outer", prompt=20),
        failed("failed", 3, 4, prompt=30),
        span("error", 3, 4, prompt=31, **{"error.type": "timeout"}),
        span("vectors", 3, 4, **{"gen_ai.operation.name": "embeddings", "gen_ai.usage.input_tokens": 40}),
        span("b", 5, 6, prompt=50),
    )
    assert found(read_trace(file)) == {10: (0.0, set(), 0.0), 20: (None, {10}, 1.1), 50: (None, {20}, 2.1)}


@cases(
    ("lines", "message"),
    [
        ([span("a", 0, 1, **{"gen_ai.operation.name": "chat"})], "line 1: the span of a call has no gen_ai.usage.input_tokens"),
        ([{**span("a", 0, 1, prompt=8), "start_time": "soon"}], "line 1: the span has no known start"),
        ([{**span("a", 0, 1, prompt=8), "start_time": 5}], "line 1: the span has no known start"),
        ([span("a", 0, 1)], "holds no requests"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_place(tmp_path, lines, message):
    file = written(tmp_path, *lines)
    with pytest.raises(BenchError, match=message) as refused:
        read_trace(file)
    assert str(refused.value).startswith(file)


@cases("status", [{"status_code": "StatusCode.ERROR"}, {"code": "STATUS_CODE_ERROR"}, {"code": 2}])
def test_every_form_of_a_failure_is_known(tmp_path, status):
    file = written(tmp_path, span("a", 0, 1, prompt=10), {**span("b", 2, 3, prompt=20), "status": status})
    assert [x.prompt_tokens for x in read_trace(file)] == [10]


def test_a_call_without_an_answer_leaves_the_rest_to_be_replayed(tmp_path):
    """What follows it follows what came before it, as of one that failed."""
    empty, unasked = span("empty", 2, 3, prompt=20, output=0), span("unasked", 2, 3, trace="u", prompt="0")
    file = written(
        tmp_path, span("a", 0, 1, prompt=10), empty, unasked, failed("failed", 3, 4, prompt=30), span("b", 5, 6, prompt=50)
    )
    assert found(read_trace(file)) == {10: (0.0, set(), 0.0), 50: (None, {10}, 4.0)}


# What prompts share, where messages are recorded.


def said(*texts):
    """Messages as the conventions have them. Text by text, the roles alternate."""
    return [{"role": role, "parts": [{"type": "text", "content": text}]} for role, text in zip("usususus", texts, strict=False)]


def told(form, *texts):
    match form:
        case "text":
            return {"gen_ai.input.messages": json.dumps(said(*texts))}
        case "values":
            return {"gen_ai.input.messages": said(*texts)}
        case "numbered":
            return {f"gen_ai.prompt.{i}.{key}": value for i, each in enumerate(said(*texts)) for key, value in
                    (("role", each["role"]), ("content", each["parts"][0]["content"]))}  # fmt: skip
    return {f"llm.input_messages.{i}.message.content": text for i, text in enumerate(texts)}


@cases("form", ["text", "values", "numbered", "openinference"])
def test_prompts_share_the_messages_with_which_they_begin_alike(tmp_path, form):
    """The second goes on from the first, and the third from neither but for the instructions, nine tenths of the first's letters."""
    system, task, answer = "s" * 178, "t" * 18, "a" * 50
    file = written(
        tmp_path,
        span("a", 0, 1, trace="1", prompt=100, **told(form, system, task)),
        span("b", 2, 3, trace="1", prompt=150, **told(form, system, task, answer)),
        span("c", 4, 5, trace="2", prompt=200, **told(form, system, "another task")),
        span("d", 6, 7, trace="3", prompt=40, **told(form, system, task)),
        span("e", 8, 9, trace="4", prompt=90, **told(form, "other instructions", task)),
        span("f", 9, 10, trace="5", prompt=90),
    )
    workload = Workload.model_validate({"arrival": "trace", "trace": file})
    planned = {x.prompt_tokens: x for x in schedule(workload, 1.0, "s") if x.prompt_tokens != 90}
    others = sorted(x.reusable_tokens for x in schedule(workload, 1.0, "s") if x.prompt_tokens == 90)
    assert (planned[100].reusable_tokens, planned[150].reusable_tokens) == (0, 96)  # whole blocks of 16
    assert planned[40].reusable_tokens == 32  # it has fewer tokens than the same messages had before
    assert planned[200].reusable_tokens == 80
    assert others == [0, 0]


@cases(
    ("name", "calls"),
    [
        # Of packages of PyPI (opentelemetry-instrumentation-openai, openinference-instrumentation-openai), exported by OpenTelemetry's
        # SDK: an agent's plan and its second call, then three subagents side by side, recorded while they went on.
        ("openllmetry-0.62.4", [(110, 0, 0), (139, 96, 1), (69, 0, 1), (69, 48, 1), (69, 48, 1)]),
        ("openinference-0.1.66", [(110, 0, 0), (139, 96, 1)]),
    ],
)
def test_spans_that_others_write_are_read(name, calls):
    """Prompt tokens, those that an earlier one had, and how many calls each follows."""
    workload = Workload.model_validate({"arrival": "trace", "trace": str(ROOT / f"tests/data/traces/{name}.jsonl")})
    planned = schedule(workload, 1.0, "s")
    assert [(x.prompt_tokens, x.reusable_tokens, len(x.after)) for x in planned] == calls
    assert {x.conversation for x in planned} == {0}


# Weka's sessions.


def call(t, took, prompt, ids, **more):
    return {"t": t, "type": "n", "model": "m", "in": prompt, "out": 5, "hash_ids": ids, "api_time": took, **more}


def session(*requests, **more):
    return {"id": "s", "models": ["m"], "block_size": 4, "hash_id_scope": "local", "requests": list(requests), **more}


def subagent(t, *requests):
    return {"t": t, "type": "subagent", "agent_id": "a", "subagent_type": "Explore", "requests": list(requests)}


# The main timeline waits for two subagents that run side by side, the second of which ends last.
WEKA = session(
    call(0.0, 2.0, 10, [1, 2]),
    subagent(2.5, call(2.5, 1.0, 5, [7]), call(4.0, 1.0, 9, [7, 8])),
    subagent(2.75, call(2.75, 4.0, 5, [7])),
    call(8.0, 1.0, 13, [1, 2, 3]),
    call(8.5, 1.0, 13, [1, 2, 3]),
)


def test_a_session_s_requests_follow_the_one_before_and_the_subagents_that_had_ended(tmp_path):
    requests = read_trace(written(tmp_path, WEKA))
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
