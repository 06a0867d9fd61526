"""Streams of other people's servers: engines, gateways and proxies, each with its right reading. docs/reference/servers.md lists them."""

import gzip
import json

from bench.load.answer import ends_in_error
from tests.support.cases import cases
from tests.support.streams import DONE, delta, event, exchange, record, script, text, usage


@cases(
    ("name", "outcome", "said"),
    [
        ("llamacpp_error_field", "stream_error",
         "the request exceeds the available context size. try increasing the context size or enable context shift"),
        ("json_error_200", "stream_error", "context length exceeded"),
        ("html_200", "stream_error",
         "the body (text/html) is neither an event stream nor an answer: '<!doctype html><html><body>Sign in to continue</body></html>'"),
        ("harmony_ignore_eos", "stream_error", "Unexpected token 200002 while expecting start token 200006"),
        ("strict_params_400", "http_error",
         "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."),
        ("retry_after_decimal", "http_error", "slow down"),
    ],
)  # fmt: skip
def test_a_published_failure_is_one_and_says_why(name, outcome, said):
    read = script(name)
    assert (read.outcome, read.error) == (outcome, said)


COUNT = usage(2)
A, B = delta(content="A"), delta(content=" b", finish="length")


@cases(
    ("pieces", "stamps"),
    [
        # How events are written.
        ([(1, A.replace("\n", "\r\n")), (2, B.replace("\n", "\r\n")), (3, COUNT + DONE)], [1, 2]),
        ([(1, A.replace("\n", "\r")), (2, B.replace("\n", "\r")), (3, COUNT.replace("\n", "\r") + DONE.replace("\n", "\r"))], [1, 2]),
        ([(1, A[:-2] + "\r"), (1.5, "\n\r\n"), (2, B), (3, COUNT + DONE)], [1.5, 2]),  # CR LF cut in two
        ([(0.5, "\ufeff".encode()[:1]), (0.6, "\ufeff".encode()[1:]), (1, A), (2, B), (3, COUNT + DONE)], [1, 2]),
        ([(1, A.replace("data: ", "data:")), (2, B), (3, COUNT + DONE)], [1, 2]),
        ([(0.5, "data: : keepalive\n\n: OPENROUTER PROCESSING\n\n"), (1, A), (1.5, ":\n\n"), (2, B), (3, COUNT + DONE)], [1, 2]),
        ([(0.5, "event: ping\ndata: {\"type\": \"ping\"}\n\n"), (1, A), (2, B), (3, COUNT + DONE)], [1, 2]),
        ([(1, "id: 1\nretry: 3000\n" + A), (2, "id: 2\nevent: message\n" + B), (3, COUNT + DONE)], [1, 2]),
        ([(1, A[:-1]), (2, B[:-1]), (3, COUNT[:-1] + DONE[:-1])], [1, 2]),  # no blank lines, as one older gateway
        ([(1, A), (2, B), (3, COUNT + DONE.rstrip())], [1, 2]),  # the last event without its end
        ([(1, A), (2, B), (3, COUNT.rstrip())], [1, 2]),
        ([(1, A[:20]), (1.2, A[20:]), (2, B), (3, COUNT + DONE)], [1.2, 2]),  # an event arrives with its end
        ([(1, delta(content="é").encode()[:-40]), (1.1, delta(content="é").encode()[-40:]), (2, B), (3, COUNT + DONE)], [1.1, 2]),
        ([(0.5, event({"message": "warming up"})), (1, A), (2, B), (3, COUNT + DONE)], [1, 2]),
        # Chunks that carry nothing.
        ([(0.5, delta(role="assistant", content="")), (1, A), (2, B), (3, COUNT + DONE)], [1, 2]),
        ([(0.5, delta(role="assistant", content=None)), (1, A), (2, B), (3, COUNT + DONE)], [1, 2]),
        ([(0.5, delta(content="")), (1, A), (2, B), (3, COUNT + DONE)], [1, 2]),  # empty text before the first token
        ([(1, A), (2, delta(content=" b")), (2.5, delta(content="", finish="stop")), (3, COUNT + DONE)], [1, 2]),
        ([(1, A), (2, B), (2.5, event({"choices": [{"index": 0, "delta": None, "finish_reason": None}]})), (3, COUNT + DONE)], [1, 2]),
        ([(1, A), (2, B), (2.5, event({"choices": [{"index": 0, "finish_reason": None, "content_filter_results": {}}]})),
          (3, COUNT + DONE)], [1, 2]),
        ([(0.5, event({"choices": [], "prompt_filter_results": []})), (1, A), (2, B), (3, COUNT + DONE)], [1, 2]),
        ([(1, A), (2, delta(content=" b")), (2.5, delta(finish="stop")), (3, COUNT + DONE)], [1, 2]),
        ([(1, A), (2, B), (3, event({"choices": [{"index": 0}], "usage": {"prompt_tokens": 20, "completion_tokens": 2}}) + DONE)], [1, 2]),
        ([(1, text("A")), (2, text(" b")), (2.5, event({"choices": [{"finish_reason": "length", "index": 0}]})), (3, COUNT + DONE)], [1, 2]),
        ([(0.5, text("")), (1, text("A")), (2, text(" b", "length")), (3, COUNT + DONE)], [1, 2]),
        ([(1, text("A")), (2, text(" b")), (2.5, text(None, "length")), (3, COUNT + DONE)], [1, 2]),
        ([(0.5, event({"choices": [], "usage": None})), (1, A), (2, B), (3, COUNT + DONE)], [1, 2]),
        # Where the text stands.
        ([(1, delta(reasoning_content="A")), (2, B), (3, COUNT + DONE)], [1, 2]),
        ([(1, delta(reasoning="A", reasoning_content="A")), (2, B), (3, COUNT + DONE)], [1, 2]),
        ([(1, delta(reasoning_details=[{"type": "reasoning.text", "text": "A"}])), (2, B), (3, COUNT + DONE)], [1, 2]),
        ([(0.5, delta(reasoning_details=[{"type": "reasoning.encrypted", "data": "xyz"}])), (1, A), (2, B), (3, COUNT + DONE)], [1, 2]),
        ([(1, delta(content=[{"type": "text", "text": "A"}])), (2, B), (3, COUNT + DONE)], [1, 2]),
        ([(1, delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "A"}]}])), (2, B), (3, COUNT + DONE)], [1, 2]),
        ([(1, delta(tool_calls=[{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}])),
          (2, delta(tool_calls=[{"index": 0, "function": {"arguments": "{}"}}], finish="tool_calls")), (3, COUNT + DONE)], [1, 2]),
        ([(1, delta(function_call={"name": "f", "arguments": ""})), (2, delta(function_call={"arguments": "{}"})), (3, COUNT + DONE)], [1, 2]),
        ([(1, delta(refusal="I")), (2, delta(refusal=" can't")), (3, COUNT + DONE)], [1, 2]),
        # vLLM: tokens that spell no whole character have chunks of their own.
        ([(1, text("")), (2, text("A", "length")), (3, COUNT + DONE)], [1, 2]),
        ([(1, delta(content="")), (2, delta(content="A", finish="length")), (3, COUNT + DONE)], [1, 2]),
        ([(1, text("A")), (2, text("", "length")), (3, COUNT + DONE)], [1, 2]),
        # Several chunks in one piece have its moment.
        ([(1, A + B), (3, COUNT + DONE)], [1, 1]),
    ],
)  # fmt: skip
def test_a_chunk_counts_where_it_carries_a_token(pieces, stamps):
    read = record(pieces, asked=2)
    assert (read.outcome, read.error, read.completion_tokens, read.streamed_tokens) == ("ok", None, 2, 2)
    assert read.token_times_s == [float(stamp) for stamp in stamps]


@cases(
    ("reasoning", "output"),
    [({"reasoning_content": "A"}, 2.0), ({"reasoning": "A"}, 2.0), ({"content": "A"}, 1.0), ({"reasoning": "A", "content": "c"}, 1.0),
     ({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]}, 1.0),
     ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "A"}]}]}, 2.0)],
)  # fmt: skip
def test_the_answer_begins_after_the_reasoning(reasoning, output):
    read = record([(1, delta(**reasoning)), (2, B), (3, COUNT + DONE)], asked=2)
    assert (read.first_token_s, read.first_output_s) == (1.0, output)


@cases(
    ("counts", "read_as"),
    [
        ({"prompt_tokens": 20.0, "completion_tokens": 2.0}, (20, 2, None)),
        ({"input_tokens": 20, "output_tokens": 2}, (20, 2, None)),
        ({"prompt_tokens": 20, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 16}}, (20, 2, 16)),
        ({"prompt_tokens": 20, "completion_tokens": 2, "prompt_tokens_details": None}, (20, 2, None)),
        ({"prompt_tokens": 20, "completion_tokens": 2, "prompt_cache_hit_tokens": 16, "prompt_cache_miss_tokens": 4}, (20, 2, 16)),
        ({"prompt_tokens": 20, "completion_tokens": 2, "cache_read_input_tokens": 16}, (20, 2, 16)),
        ({"prompt_tokens": 0, "completion_tokens": 0}, (0, 0, None)),
    ],
)  # fmt: skip
def test_counts_are_read_however_they_are_named(counts, read_as):
    read = record([(1, A), (2, B), (3, event({"choices": [], "usage": counts}) + DONE)], asked=2)
    assert (read.prompt_tokens, read.completion_tokens, read.cached_tokens) == read_as


@cases(
    ("counts", "read_as", "said"),
    [
        *(({"prompt_tokens": 20, "completion_tokens": odd}, (20, None, None), f"completion_tokens is {odd!r}")
          for odd in (-1, float("nan"), float("inf"), True, "2", [2], {"n": 2}, 2.5, 10**30)),
        ({"prompt_tokens": "20", "completion_tokens": "2"}, (None, None, None), "prompt_tokens is '20'; completion_tokens is '2'"),
        ({"prompt_tokens": 20, "completion_tokens": 2, "total_tokens": "n/a"}, (20, 2, None), "total_tokens is 'n/a'"),
        ({"prompt_tokens": 20, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": "16"}}, (20, 2, None), "cached_tokens is '16'"),
        ({"prompt_tokens": 20, "completion_tokens": 2, "prompt_tokens_details": "none"}, (20, 2, None), "prompt_tokens_details is 'none'"),
        ({"prompt_tokens": 20, "completion_tokens": 2, "completion_tokens_details": [0]}, (20, 2, None), "completion_tokens_details is [0]"),
        ({"prompt_tokens": None, "completion_tokens": 2}, (None, 2, None), None),
        ("n/a", (None, None, None), "usage is 'n/a'"),
        ([20, 2], (None, None, None), "usage is [20, 2]"),
    ],
)  # fmt: skip
def test_what_is_no_count_costs_that_count_alone(counts, read_as, said):
    read = record([(1, A), (2, B), (3, event({"choices": [], "usage": counts}) + DONE)], asked=2)
    assert (read.outcome, read.error, read.ttft_s, read.e2e_s) == ("ok", said, 1.0, 2.0)
    assert (read.prompt_tokens, read.completion_tokens, read.cached_tokens) == read_as


def test_a_later_usage_puts_counts_right_and_erases_none():
    def read(first, last):
        read = record(
            [(1, A), (2, B + event({"choices": [], "usage": first})), (3, event({"choices": [], "usage": last}) + DONE)],
            asked=2,
        )
        return read.prompt_tokens, read.completion_tokens, read.error

    right = {"prompt_tokens": 20, "completion_tokens": 2, "total_tokens": 22}
    for odd in ("n/a", {"prompt_tokens": "20", "completion_tokens": -1, "total_tokens": "?"}):
        assert read(odd, right) == (20, 2, None), odd
    for last in ({"cost": 0.1}, {"prompt_tokens": 0, "completion_tokens": 0}, {"prompt_tokens": None}):
        assert read(right, last) == (20, 2, None), last
    assert read(right, {"prompt_tokens": "20", "completion_tokens": 2}) == (20, 2, "prompt_tokens is '20'")


@cases("streamed", [True, False])
def test_a_secret_in_place_of_a_count_is_hidden_before_it_is_cut(monkeypatch, streamed):
    monkeypatch.setenv("GATEWAY_KEY", "0123456789" * 5)
    said = {
        "error": None,
        "choices": [{"text": "a", "delta": {"content": "a"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": "0123456789" * 5},
    }
    pieces = [(1, event(said) + DONE)] if streamed else [(1, json.dumps(said))]
    read = record(pieces, streamed=streamed, **({} if streamed else {"headers": {"content-type": "application/json"}}))
    assert (read.outcome, read.error) == ("ok", "prompt_tokens is '<secret>'")


ODD = [*({"choices": odd} for odd in ({"a": 1}, "x", 5, [5], [None], ["x"], [{"delta": "x"}])), [1], "[" * 10**5]


@cases("odd", ODD)
def test_an_odd_event_ends_one_request_alone(odd):
    found = record([(1, A), (2, event(odd)), (3, DONE)])
    assert (found.outcome, len(found.token_times_s)) == ("stream_error", 1)
    assert found.error.startswith(("no chunk of an answer: '", "not JSON: '"))
    whole = record([(1, json.dumps(odd))], headers={"content-type": "application/json"}, streamed=False)
    assert whole.outcome == "stream_error"


@cases(("finish", "kept"), [("stop", "stop"), ({"type": "length", "length": 2}, "length")])
def test_a_reason_to_finish_is_text(finish, kept):
    choice = {"index": 0, "delta": {"content": "b"}, "finish_reason": finish}
    assert record([(1, A), (2, event({"choices": [choice]})), (3, COUNT + DONE)]).finish_reason == kept
    odd = event({"choices": [{**choice, "finish_reason": ["stop"]}]})
    assert record([(1, A), (2, odd), (3, COUNT + DONE)]).outcome == "stream_error"


def test_a_usage_in_a_chunk_is_read_and_is_not_an_end():
    def counted(so_far, **more):
        counts = {"usage": {"prompt_tokens": 20, "completion_tokens": so_far}}
        return event({"choices": [{"index": 0, "delta": {"content": " w"}, **more}], **counts})

    cut = record([(1, counted(1)), (2, counted(2))], asked=9)
    assert (cut.outcome, cut.completion_tokens) == ("truncated", 2)
    choice = {"index": 0, "delta": {"content": "b"}, "finish_reason": "length"}  # as Groq has it
    grouped = event({"choices": [choice], "x_groq": {"usage": {"prompt_tokens": 20, "completion_tokens": 2}}})
    read = record([(1, A), (2, grouped + DONE)])
    assert (read.prompt_tokens, read.completion_tokens) == (20, 2)


@cases(
    ("pieces", "said"),
    [
        ([(1, A), (2, event({"error": {"message": "CUDA out of memory", "code": 500}})), (3, DONE)], "CUDA out of memory"),
        ([(1, A), (2, event({"error": "queue is full"})), (3, DONE)], "queue is full"),
        ([(1, A), (2, event({"object": "error", "message": "bad length", "type": "BadRequestError", "code": 400})), (3, DONE)], "bad length"),
        ([(1, A), (2, event({"detail": "not authorised"})), (3, DONE)], "not authorised"),
        ([(1, A), (2, event({"code": "Throttling", "message": "slow down", "request_id": "r"})), (3, DONE)], "slow down"),
        ([(1, A), (2, event("upstream timed out", "error")), (3, DONE)], "upstream timed out"),
        ([(1, A), (2, event({"message": "gone"}, "error")), (3, DONE)], "gone"),
        ([(1, A), (2, "error: {\"message\": \"no slot\", \"code\": 503}\n\n"), (3, DONE)], "no slot"),
        ([(1, A), (2, event({"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error", "error": {"code": 502, "message": "provider"}}]})),
          (3, DONE)], "provider"),
        ([(1, A), (2, delta(finish="abort")), (3, COUNT + DONE)], "the server ended the answer with finish_reason abort"),
        ([(1, A), (2, event({"choices": [{"index": 0, "delta": {}, "finish_reason": {"type": "abort", "message": "no memory"}}]})), (3, DONE)],
         "no memory"),
        ([(1, A), (2, "data: Internal Server Error\n\n"), (3, DONE)], "not JSON: 'Internal Server Error'"),
        ([(1, A), (2, '{"error":{"code":500,"message":"slot failed","type":"server_error"}}\n')], "slot failed"),
        ([(1, A), (2, '{"error":"slot failed"}')], "slot failed"),
        ([(1, A), (2, json.dumps({"error": {"message": "slot failed"}}, indent=2) + "\n"), (3, DONE)], "slot failed"),
        ([(1, A), (2, '{"object": "error", "message": "bad length", "code": 400}\r\n\r\n'), (3, DONE)], "bad length"),
        ([(1, A), (2, '{"detail": "'), (2.1, 'gone"}\n'), (3, DONE)], "gone"),
    ],
)  # fmt: skip
def test_an_error_within_a_stream_is_the_request_s(pieces, said):
    read = record(pieces)
    assert (read.outcome, read.error) == ("stream_error", said)
    ended = next(end for end in range(len(pieces) + 1) if ends_in_error(exchange(pieces[:end], ended=False)))
    assert 2 <= pieces[ended - 1][0] < 3


@cases(
    "pieces",
    [
        [],
        [(1, ": ping\n\n")],
        [(1, A), (2, A[:30])],
        [(1, A), (2, A[:30]), (3, A[30:])],
        [(1, "data: cut")],
        [(1, A), (2, '{"error": {"mess')],
        [(1, A), (2, COUNT + DONE)],
        [(1, "<html>Sign")],
        [(1, '{"choices": [{"message": {"content": "a"}}]')],
    ],
)
@cases("status", [200, 500])
def test_what_may_go_on_has_not_ended_in_an_error(pieces, status):
    assert not ends_in_error(exchange(pieces, ended=False, status=status))
    assert ends_in_error(exchange([(1, '{"detail": "no"}')], ended=False, status=500))


@cases(
    ("body", "kind", "said"),
    [
        ('{"detail": "Not Found"}', "application/json", "Not Found"),
        ('{"object": "error", "message": "no", "code": 400}', "application/json", "no"),
        ("<html>\n<h1>Bad\nGateway</h1></html>", "text/html",
         "the body (text/html) is neither an event stream nor an answer: '<html>\\n<h1>Bad\\nGateway</h1></html>'"),
        ('{"model":"m","message":{"role":"assistant","content":"A"},"done":false}\n', "application/x-ndjson",
         "the body (application/x-ndjson) is neither an event stream nor an answer: "
         "'{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"A\"},\"done\":false}\\n'"),
        ("", "text/event-stream", "it ended after 0 chunks with tokens, without [DONE], a finish_reason or a usage"),
    ],
)  # fmt: skip
def test_a_200_that_is_no_answer_is_quoted(body, kind, said):
    read = record([(1, body)] if body else [], headers={"content-type": kind})
    assert (read.outcome, read.error) == ("stream_error" if body else "truncated", said)


@cases("words", ["Internal Server Error", "<html>\n<h1>502</h1>\n", 'data: {"choices', ": ping\n\n"])
def test_what_a_stream_without_an_end_ended_with_is_quoted(words):
    read = record([(1, A), (2, words)])
    last = words.strip().split("\n")[-1]
    said = "" if words.startswith(("data:", ":")) else f"; its last line is {last!r}"
    assert (read.outcome, read.error) == (
        "truncated",
        f"it ended after 1 chunk with tokens, without [DONE], a finish_reason or a usage{said}",
    )


@cases("bare", ['{"a": 1}\n', "{\n\n", "{\ndata", '{"error": null}\n', "}\n"])
def test_what_else_stands_without_a_field_s_name_is_nothing(bare):
    read = record([(1, A), (2, bare + ("" if bare.endswith("\n") else "\n") + B), (3, COUNT + DONE)], asked=2)
    assert (read.outcome, read.token_times_s) == ("ok", [1.0, 2.0])


@cases("encoding", ["gzip", "GZIP", "identity, br"])
def test_an_encoding_that_was_not_asked_for_is_named(encoding):
    for streamed in (True, False):
        read = record([(1, gzip.compress(A.encode())), (3, DONE)], headers={"content-encoding": encoding}, streamed=streamed)
        named = encoding.lower().removeprefix("identity, ")
        assert (read.outcome, read.token_times_s) == ("stream_error", [])
        assert read.error == f"content-encoding {named}, which the request did not accept"


def test_a_redirection_and_an_error_page_are_a_line_each():
    read = record([(1, "<html><body>Moved</body></html>")], status=301, headers={"location": "https://other/v1/completions"})
    assert (read.outcome, read.status) == ("http_error", 301)
    assert read.error == "<html><body>Moved</body></html>, to https://other/v1/completions"
    read = record([(1, "<html>\r\n<title>502 Bad Gateway</title>\r\n</html>\r\n")], status=502)
    assert read.error == "<html> <title>502 Bad Gateway</title> </html>"


def test_a_connection_that_breaks_after_the_end_breaks_nothing():
    whole = [(1, A), (2, B), (3, COUNT + DONE)]
    assert record(whole, ended=False, failure="disconnect", error="Connection reset by peer").outcome == "ok"
    cut = record(whole[:2], ended=False, failure="disconnect", error="Connection reset by peer")
    assert (cut.outcome, cut.error) == ("disconnect", "Connection reset by peer")


@cases(
    ("headers", "wait"),
    [({"retry-after": "1.5"}, 1.5), ({"retry-after": "2"}, 2.0), ({"retry-after": ".5"}, 0.5), ({"retry-after": "3."}, 3.0),
     ({"retry-after": "2", "retry-after-ms": "1500"}, 1.5), ({"retry-after": "soon"}, None), ({"retry-after": "-1"}, None),
     ({"retry-after": "1e3"}, None)],
)  # fmt: skip
def test_the_wait_that_a_refusal_asks_for(headers, wait):
    assert record([(1, "{}")], status=429, headers=headers).retry_after_s == wait
