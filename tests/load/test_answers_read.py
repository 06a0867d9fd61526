"""Streams of other people's servers: engines, gateways and proxies, each with its right reading. docs/reference/servers.md lists them."""

import json
from dataclasses import replace

import polars as pl
import pytest

from bench.load.answer import ends_in_error
from bench.parse.latency import latency_columns
from bench.parse.stream import gaps_between_tokens, stream_figures, supported
from bench.records.request import write_requests
from bench.records.request_table import request_table
from tests.support.streams import DONE, PROMPT, delta, event, exchange, record, script, text, usage


def tabled(tmp_path, *records):
    write_requests(records, tmp_path / "requests.jsonl")
    return latency_columns(request_table(tmp_path / "requests.jsonl").lazy()).collect()


def tpot(tmp_path, of, **more):
    return supported(tabled(tmp_path, of), **more)["tpot_s"][0]


@pytest.mark.parametrize(
    ("name", "stamps", "expected_tpot"),
    [
        ("azure_async_filter", [1.0, 1.1], 0.1),
        ("bom_first", [0.2, 0.6], 0.4),
        ("multiline_data", [0.5, 0.6], 0.1),
        ("empty_data_keepalive", [1.0, 1.1], 0.1),
        ("no_done_chat", [0.5, 0.6], 0.1),
        ("plain_ok_completions", [0.3, 0.4, 0.5, 0.6], 0.1),
        ("bundled_first_chunk", [1.0, 1.2, 1.21], 0.01),
        ("hidden_reasoning", [round(9.6 + 0.02 * i, 3) for i in range(20)], 0.02),
    ],
)
def test_a_published_stream_has_its_latencies(tmp_path, name, stamps, expected_tpot):
    read = script(name)
    assert (read.outcome, read.error) == ("ok", None)
    assert read.token_times_s == stamps
    assert (read.ttft_s, read.e2e_s) == (stamps[0], stamps[-1])
    assert tpot(tmp_path, read) == pytest.approx(expected_tpot, rel=1e-6)
    assert read.done == (name != "no_done_chat")


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    ("pieces", "stamps"),
    [
        # How events are written.
        ([(1, A.replace("\n", "\r\n")), (2, B.replace("\n", "\r\n")), (3, COUNT + DONE)], [1, 2]),
        ([(1, A.replace("\n", "\r")), (2, B.replace("\n", "\r")), (3, COUNT.replace("\n", "\r") + DONE.replace("\n", "\r"))], [1, 2]),
        ([(1, A[:-2] + "\r"), (1.5, "\n\r\n"), (2, B), (3, COUNT + DONE)], [1.5, 2]),  # CR LF cut in two
        ([(0.5, "\ufeff".encode()[:1]), (0.6, "\ufeff".encode()[1:]), (1, A), (2, B), (3, COUNT + DONE)], [1, 2]),
        ([(1, A.replace("data: ", "data:")), (2, B), (3, COUNT + DONE)], [1, 2]),
        ([(0.5, ": OPENROUTER PROCESSING\n\n"), (1, A), (1.5, ":\n\n"), (2, B), (3, COUNT + DONE)], [1, 2]),
        ([(0.5, "event: ping\ndata: {\"type\": \"ping\"}\n\n"), (1, A), (2, B), (3, COUNT + DONE)], [1, 2]),
        ([(1, "id: 1\nretry: 3000\n" + A), (2, "id: 2\nevent: message\n" + B), (3, COUNT + DONE)], [1, 2]),
        ([(1, A[:-1]), (2, B[:-1]), (3, COUNT[:-1] + DONE[:-1])], [1, 2]),  # no blank lines, as one older gateway
        ([(1, A), (2, B), (3, COUNT + DONE.rstrip())], [1, 2]),  # the last event without its end
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


@pytest.mark.parametrize(
    ("reasoning", "output"),
    [({"reasoning_content": "A"}, 2.0), ({"reasoning": "A"}, 2.0), ({"content": "A"}, 1.0),
     ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "A"}]}]}, 2.0)],
)  # fmt: skip
def test_the_answer_begins_after_the_reasoning(reasoning, output):
    read = record([(1, delta(**reasoning)), (2, B), (3, COUNT + DONE)], asked=2)
    assert (read.first_token_s, read.first_output_s) == (1.0, output)


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


def test_a_later_count_that_is_none_erases_nothing():
    odd = event({"choices": [], "usage": {"prompt_tokens": "20", "completion_tokens": 2}})
    read = record([(1, A), (2, B), (3, COUNT + odd + DONE)], asked=2)
    assert (read.prompt_tokens, read.completion_tokens, read.error) == (20, 2, "prompt_tokens is '20'")


@pytest.mark.parametrize("odd", ["n/a", {"prompt_tokens": "20", "completion_tokens": -1, "total_tokens": "?"}])
def test_a_count_that_a_later_usage_puts_right_is_not_odd(odd):
    begins = event({"choices": [], "usage": odd})
    right = event({"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 2, "total_tokens": 22}})
    read = record([(1, A), (2, B + begins), (3, right + DONE)], asked=2)
    assert (read.prompt_tokens, read.completion_tokens, read.error) == (20, 2, None)


@pytest.mark.parametrize("streamed", [True, False])
def test_a_secret_in_place_of_a_count_is_hidden_before_it_is_cut(monkeypatch, streamed):
    monkeypatch.setenv("GATEWAY_KEY", "0123456789" * 5)
    said = {
        "choices": [{"text": "a", "delta": {"content": "a"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": "0123456789" * 5},
    }
    pieces = [(1, event(said) + DONE)] if streamed else [(1, json.dumps(said))]
    read = record(pieces, streamed=streamed, **({} if streamed else {"headers": {"content-type": "application/json"}}))
    assert (read.outcome, read.error) == ("ok", "prompt_tokens is '<secret>'")


@pytest.mark.parametrize("choices", [{"a": 1}, "x", 5, [5], [None]])
def test_choices_that_are_none_end_one_request_alone(choices):
    assert record([(1, A), (2, event({"choices": choices})), (3, DONE)]).outcome == "stream_error"
    whole = record([(1, json.dumps({"choices": choices}))], headers={"content-type": "application/json"}, streamed=False)
    assert whole.outcome == "stream_error"


@pytest.mark.parametrize(("finish", "kept"), [("stop", "stop"), ({"type": "length", "length": 2}, "length")])
def test_a_reason_to_finish_is_text(finish, kept):
    choice = {"index": 0, "delta": {"content": "b"}, "finish_reason": finish}
    assert record([(1, A), (2, event({"choices": [choice]})), (3, COUNT + DONE)]).finish_reason == kept
    odd = event({"choices": [{**choice, "finish_reason": ["stop"]}]})
    assert record([(1, A), (2, odd), (3, COUNT + DONE)]).outcome == "stream_error"


@pytest.mark.parametrize("last", [{"cost": 0.1}, {"prompt_tokens": 0, "completion_tokens": 0}, {"prompt_tokens": None}])
def test_a_later_usage_erases_nothing(last):
    read = record([(1, A), (2, B), (3, COUNT), (3.1, event({"choices": [], "usage": last}) + DONE)], asked=2)
    assert (read.prompt_tokens, read.completion_tokens) == (20, 2)


def test_a_usage_in_each_chunk_is_not_an_end():
    def counted(so_far):
        return event(
            {"choices": [{"index": 0, "delta": {"content": " w"}}], "usage": {"prompt_tokens": 20, "completion_tokens": so_far}}
        )

    cut = record([(1, counted(1)), (2, counted(2))], asked=9)
    assert (cut.outcome, cut.completion_tokens) == ("truncated", 2)


def test_groq_s_usage_is_read():
    read = record([(1, A), (2, event({"choices": [{"index": 0, "delta": {"content": "b"}, "finish_reason": "length"}],
                                      "x_groq": {"usage": {"prompt_tokens": 20, "completion_tokens": 2}}}) + DONE)])  # fmt: skip
    assert (read.prompt_tokens, read.completion_tokens) == (20, 2)


class TestTokensAreNotChunks:
    """TPOT with a truth that is planted: tokens that came later, over the time that they took."""

    def test_hidden_reasoning_is_not_streamed(self, tmp_path):
        details = {"completion_tokens_details": {"reasoning_tokens": 98}}
        read = record([(9, A), (9.2, B), (9.3, usage(100, **details) + DONE)], asked=100)
        assert (read.completion_tokens, read.streamed_tokens) == (100, 2)
        assert tpot(tmp_path, read) == pytest.approx(0.2)

    def test_reasoning_beside_the_completion_is_added_to_it(self):
        counts = {"prompt_tokens": 20, "completion_tokens": 2, "total_tokens": 120,
                  "completion_tokens_details": {"reasoning_tokens": 98}}  # fmt: skip
        read = record([(9, A), (9.2, B), (9.3, event({"choices": [], "usage": counts}) + DONE)], asked=100)
        assert (read.completion_tokens, read.streamed_tokens) == (100, 2)

    def test_streamed_reasoning_is_streamed(self):
        details = {"completion_tokens_details": {"reasoning_tokens": 1}}
        read = record([(1, delta(reasoning_content="hm")), (2, B), (3, usage(2, **details) + DONE)], asked=2)
        assert read.streamed_tokens == 2

    def test_what_spells_too_little_was_not_all_streamed(self, tmp_path):
        """SGLang without details: 100 tokens are counted, and two characters came."""
        read = record([(9, A), (9.2, B), (9.3, usage(100) + DONE)], asked=100)
        assert (read.streamed_least, read.streamed_tokens, tpot(tmp_path, read)) == (2, 3, None)
        assert stream_figures(tabled(tmp_path, read))["unknown_streamed"] == 1

    def test_a_run_of_which_too_much_is_unknown_has_no_tpot(self, tmp_path):
        """A TPOT that is missing counts as met: with one in three unknown, an SLO would be judged by the others."""
        unknown = record([(9, A), (9.2, B), (9.3, usage(100) + DONE)], asked=100)
        known = record([(1, A), (2, B), (2.1, COUNT + DONE)], asked=2)
        assert supported(tabled(tmp_path, unknown, known, known))["tpot_s"].to_list() == [None] * 3
        rows = [replace(read, index=i) for i, read in enumerate([unknown, *[known] * 20])]
        few = supported(tabled(tmp_path, *rows))["tpot_s"]
        assert (few.null_count(), few.max()) == (1, 1.0)

    def test_reasoning_inside_the_answer_is_streamed(self, tmp_path):
        """LiteLLM's merge_reasoning_content_in_choices, or <think> in the content: 10 tokens, 6 of them reasoning, each with a chunk."""
        details = {"completion_tokens_details": {"reasoning_tokens": 6}}
        read = record([*((1 + i / 50, delta(content=f" w{i}")) for i in range(10)), (2, usage(10, **details) + DONE)], asked=10)
        assert (read.streamed_tokens, tpot(tmp_path, read)) == (10, pytest.approx(0.02))
        # The same, five tokens a chunk: as many words as tokens.
        bundles = [(1 + i / 10, delta(content=" word word word word word")) for i in range(2)]
        read = record([*bundles, (1.2, usage(10, **details) + DONE)], asked=10)
        assert (read.streamed_least, read.streamed_tokens, tpot(tmp_path, read)) == (10, 10, pytest.approx(0.02))
        # Words of several tokens: four of ten streamed, or ten.
        bundles = [(1 + i / 10, delta(content=" internationalisation")) for i in range(2)]
        read = record([*bundles, (1.2, usage(10, **details) + DONE)], asked=10)
        assert (read.streamed_least, read.streamed_tokens, tpot(tmp_path, read)) == (2, 10, None)

    def test_a_summary_of_reasoning_is_not_the_reasoning(self, tmp_path):
        details = {"completion_tokens_details": {"reasoning_tokens": 1000}}
        pieces = [(1, delta(reasoning_content="In short, this.")), (2, delta(content="A")), (3, usage(1001, **details) + DONE)]
        assert tpot(tmp_path, record(pieces, asked=1001)) is None

    def test_tokens_of_one_byte_in_the_mean_were_not_all_streamed(self, tmp_path):
        """100 chunks of 4 bytes, and 400 tokens: three in four never came."""
        pieces = [*((1 + i / 50, delta(content=" wor")) for i in range(100)), (9, usage(400) + DONE)]
        assert tpot(tmp_path, record(pieces, asked=400)) is None

    @pytest.mark.parametrize(
        ("wait", "chat", "expected"),
        [
            (0.05, True, 0.01),
            (0.7, True, None),
            (0.7, False, 0.01),
        ],  # hidden tokens take time, and a completion has no reasoning
    )
    def test_half_of_the_tokens_hidden_or_two_a_chunk(self, tmp_path, wait, chat, expected):
        """64 tokens in 32 chunks of eight bytes, 20 ms apart, that begin no word."""
        pieces = [(wait + i / 50, delta(content="模型，")) for i in range(32)]
        read = record([*pieces, (wait + 0.63, usage(64) + DONE)], asked=64)
        found = tpot(tmp_path, read, reasons=chat)
        assert found == (expected and pytest.approx(expected, rel=1e-6))

    def test_a_server_s_other_answers_show_what_a_chunk_carries(self, tmp_path):
        """The second answer waited in a queue."""
        reads = []
        for wait in (0.05, 3.0):
            pieces = [(wait + i / 50, delta(content="模型，")) for i in range(32)]
            reads.append(record([*pieces, (wait + 0.63, usage(64) + DONE)], asked=64))
        assert supported(tabled(tmp_path, *reads))["tpot_s"].to_list() == [pytest.approx(0.01)] * 2

    def test_special_tokens_at_the_end_are_none_of_the_stream(self, tmp_path):
        """32 tokens with a chunk each, then 32 that spell nothing, in another 0.64 s."""
        pieces = [(1 + i / 50, text(f" w{i}")) for i in range(32)]
        read = record([*pieces, (2.26, usage(64) + DONE)], asked=64)
        assert tpot(tmp_path, read, reasons=False) is None

    def test_tokens_that_chunks_list_are_those_that_were_streamed(self, tmp_path):
        """Four chunks list eight tokens in all, of 64."""
        pieces = [(9 + i / 10, text("abcdefgh", token_ids=[1, 2])) for i in range(4)]
        read = record([*pieces, (9.3, usage(64) + DONE)], asked=64)
        assert (read.streamed_tokens, read.first_tokens, tpot(tmp_path, read)) == (8, 2.0, pytest.approx(0.05))

    def test_hidden_tokens_take_time(self, tmp_path):
        """98 tokens that are said to be reasoning, and a first token after 0.1 s: they were not made before it."""
        details = {"completion_tokens_details": {"reasoning_tokens": 98}}
        read = record([(0.1, A), (0.3, B), (0.31, usage(100, **details) + DONE)], asked=100)
        assert tpot(tmp_path, read) is None

    def test_speculative_tokens_come_several_a_chunk(self, tmp_path):
        """Nine tokens in chunks of three, 30 ms apart: 10 ms each."""
        words = " one two six"
        read = record([*((1 + i * 0.03, delta(content=words)) for i in range(3)), (1.1, usage(9) + DONE)])
        assert tpot(tmp_path, read) == pytest.approx(0.01)
        figures = stream_figures(tabled(tmp_path, read))
        assert (figures["tokens_per_chunk"], gaps_between_tokens(figures)) == (3.0, False)

    @pytest.mark.parametrize(("accepted", "known"), [(6, True), (5, False), (None, False)])
    def test_accepted_drafts_explain_chunks_of_several_tokens(self, tmp_path, accepted, known):
        """Nine tokens in three chunks, after a silence in which others could have been hidden: six came with a verified draft, or not."""
        timings = {} if accepted is None else {"timings": {"draft_n": 8, "draft_n_accepted": accepted}}
        pieces = [(1 + i * 0.03, delta(content=" onetwosix")) for i in range(3)]
        read = record([*pieces, (1.1, event({"choices": [], **timings}) + usage(9) + DONE)])
        assert tpot(tmp_path, read) == (pytest.approx(0.01) if known else None)

    def test_a_usage_in_each_chunk_counts_them(self, tmp_path):
        """vLLM's continuous_usage_stats: three, then one and one; the text alone would say otherwise."""

        def counted(words, so_far):
            return event(
                {
                    "choices": [{"index": 0, "delta": {"content": words}}],
                    "usage": {"prompt_tokens": 20, "completion_tokens": so_far},
                }
            )

        read = record([(1, counted("a", 3)), (2, counted("bcdefgh", 4)), (3, counted("ijk", 5)), (4, DONE)], asked=5)
        assert (read.first_tokens, read.completion_tokens) == (3.0, 5)
        assert tpot(tmp_path, read) == pytest.approx(1.0)

    def test_a_usage_in_each_chunk_counts_hidden_tokens_too(self, tmp_path):
        """60 of 64 tokens are hidden; the other four come two a chunk, a second apart."""

        def counted(words, so_far):
            counts = {"prompt_tokens": 20, "completion_tokens": so_far, "completion_tokens_details": {"reasoning_tokens": 60}}
            return event({"choices": [{"index": 0, "delta": {"content": words}}], "usage": counts})

        read = record([(9, counted(" one two", 62)), (10, counted(" three four", 64)), (11, DONE)], asked=64)
        assert (read.streamed_tokens, read.first_tokens, tpot(tmp_path, read)) == (4, 2.0, pytest.approx(0.5))

    def test_token_ids_count_them(self, tmp_path):
        read = record([(1, text("a", token_ids=[5, 6, 7])), (2, text("bcdefgh", token_ids=[8])), (3, usage(4) + DONE)])
        assert (read.first_tokens, tpot(tmp_path, read)) == (3.0, pytest.approx(1.0))

    def test_log_probabilities_count_them(self, tmp_path):
        def said(words, n):
            choice = {"index": 0, "delta": {"content": words}, "logprobs": {"content": [{"token": "x", "logprob": -1}] * n}}
            return event({"choices": [choice]})

        read = record([(1, said("a", 3)), (2, said("bcdefgh", 1)), (3, usage(4) + DONE)])
        assert (read.first_tokens, tpot(tmp_path, read)) == (3.0, pytest.approx(1.0))

    def test_chunks_that_come_together_came_at_one_moment(self, tmp_path):
        """A proxy with a small buffer: two chunks at 1, two at 2; two tokens came in that second."""
        four = [delta(content=f" w{i}") for i in range(4)]
        read = record([(1, four[0] + four[1]), (2, four[2]), (2.0001, four[3]), (3, usage(4) + DONE)])
        assert (read.arrivals, read.first_tokens, len(read.token_times_s)) == (2, 2.0, 4)
        assert tpot(tmp_path, read) == pytest.approx(0.5, rel=1e-3)

    @pytest.mark.parametrize(
        ("last", "tokens"),
        [
            (delta(content=" w0 w1 w2 w3"), 4),
            (delta(content="w0 w1 w2 w3\n"), 4),
            (delta(content=" w0 w1 w2 w3", finish="stop"), 4),
            (delta(role="assistant", content=" w0 w1 w2 w3"), 4),
            (text(" w0 w1 w2 w3", "stop"), 4),
            (event({"choices": [{"index": 0, "delta": {}, "message": {"role": "assistant", "content": " w0 w1 w2 w3"}}]}), 4),
            (delta(content=" w0 w1 w2 w3"), None),  # a server that counts nothing
        ],
    )
    def test_an_answer_that_is_repeated_at_its_end_has_no_token_there(self, tmp_path, last, tokens):
        pieces = [(0.2 + i / 20, delta(content=f" w{i}")) for i in range(4)]
        read = record([*pieces, (0.75, last), (0.75, (usage(tokens) if tokens else delta(finish="stop")) + DONE)])
        assert (read.outcome, len(read.token_times_s), read.e2e_s) == ("ok", 4, 0.35)
        assert tpot(tmp_path, read) == (tokens and pytest.approx(0.05))

    def test_reasoning_that_is_repeated_is_none_either(self, tmp_path):
        pieces = [(0.2 + i / 20, delta(reasoning_content=f" r{i}")) for i in range(2)] + [
            (0.3, delta(content=" w0")),
            (0.35, delta(content=" w1")),
        ]
        last = delta(reasoning_content=" r0 r1", content=" w0 w1")
        read = record([*pieces, (0.75, last), (0.75, usage(4) + DONE)])
        assert (read.e2e_s, tpot(tmp_path, read)) == (0.35, pytest.approx(0.05))

    def test_several_tokens_a_chunk_that_are_repeated_are_none_either(self, tmp_path):
        pieces = [(0.01, delta(content=" w0 w1")), (1.01, delta(content=" w2 w3")), (5, delta(content=" w0 w1 w2 w3"))]
        read = record([*pieces, (5.01, usage(4) + DONE)])
        assert (read.e2e_s, tpot(tmp_path, read)) == (1.01, pytest.approx(0.5))

    @pytest.mark.parametrize("texts", [("a", "b", "ab"), ("ha", "ha"), (" 1", " 1", " 1")])
    def test_a_token_that_spells_what_came_before_is_a_token(self, texts):
        pieces = [(1 + i, delta(content=words)) for i, words in enumerate(texts)]
        assert record([*pieces, (9, usage(len(texts)) + DONE)]).e2e_s == len(texts)

    @pytest.mark.parametrize(
        "pieces",
        [
            [*((0.2 + i / 20, delta(reasoning_content=f" t{i}")) for i in range(10)),
             *((0.7 + i / 20, delta(content=f" w{i}")) for i in range(4))],  # reasoning that is not counted
            [*((0.2 + i / 20, delta(reasoning="的")) for i in range(10)), *((0.7 + i / 20, delta(content="的")) for i in range(4))],
            [(0.2, delta(reasoning=" r r r r r")), (0.7, delta(reasoning=" r r r r r")), (0.9, delta(content=" w w w w"))],  # in pieces
            [*((0.2 + i / 20, delta(content=f" w{i}")) for i in range(4)), (5, delta(content="\n\nAnswered by m"))],  # a gateway's own words
            [(0.1, delta(content="One moment.")), *((5 + i / 20, delta(content=f" w{i}")) for i in range(4))],
            [(0.2 + i / 20, delta(content=f" w{i % 4}")) for i in range(8)],  # begun again from the start
            [(0.2 + i // 2, delta(content=f" w{i // 2}")) for i in range(8)],  # each chunk twice
            [(1 + i / 10, delta(content=c)) for i, c in enumerate("abcdefgh")],  # character by character
        ],
    )  # fmt: skip
    def test_more_text_than_counted_tokens_has_no_tpot(self, tmp_path, pieces):
        read = record([*pieces, (9, usage(4) + DONE)])
        assert (read.outcome, read.completion_tokens, tpot(tmp_path, read)) == ("ok", 4, None)
        figures = stream_figures(tabled(tmp_path, read))
        assert (figures["unknown_streamed"], gaps_between_tokens(figures)) == (1, False)

    @pytest.mark.parametrize(
        "counts",
        [
            {"total_tokens": PROMPT + 14},  # Gemini's, behind OpenAI's interface
            {"total_tokens": PROMPT + 4, "completion_tokens_details": {"reasoning_tokens": 10}},
            {"total_tokens": PROMPT + 14, "completion_tokens_details": {"reasoning_tokens": 10}},
            {"total_tokens": None, "reasoning_tokens": 10},
        ],
    )
    def test_reasoning_that_is_counted_beside_the_completion_is_part_of_it(self, tmp_path, counts):
        pieces = [(0.2 + i / 20, delta(**{"reasoning_content" if i < 10 else "content": f" t{i}"})) for i in range(14)]
        read = record([*pieces, (0.9, usage(4, **counts) + DONE)], asked=14)
        assert (read.completion_tokens, read.streamed_tokens, tpot(tmp_path, read)) == (14, 14, pytest.approx(0.05))

    def test_a_chunk_too_many_in_a_long_answer_moves_nothing(self, tmp_path):
        """As where a token ends the reasoning and begins the answer."""
        read = record([*((1 + i / 50, delta(content=f" w{i}")) for i in range(41)), (2, usage(40) + DONE)], asked=40)
        assert tpot(tmp_path, read) == pytest.approx(0.02, rel=0.05)

    def test_five_tokens_in_four_chunks_still_have_gaps(self, tmp_path):
        """Words and a short silence show that nothing was hidden."""
        read = record(
            [*((0.01 + i, delta(content=" a b" if i == 3 else " wo")) for i in range(4)), (3.02, usage(5) + DONE)], asked=5
        )
        figures = stream_figures(tabled(tmp_path, read))
        assert (figures["tokens_per_chunk"], gaps_between_tokens(figures)) == (1.25, True)

    def test_what_was_hidden_and_what_did_not_end_is_counted(self, tmp_path):
        figures = stream_figures(tabled(tmp_path, script("hidden_reasoning"), script("no_done_chat"), script("bom_first")))
        hidden = script("hidden_reasoning")
        assert (figures["hidden_tokens"], figures["without_done"]) == (hidden.completion_tokens - hidden.streamed_tokens, 1)

    def test_a_token_has_a_byte_at_least(self):
        two = [(1, delta(content="abc")), (2, delta(content="abc"))]
        assert [record([*two, (3, usage(n) + DONE)]).streamed_tokens for n in (5, 6, 7)] == [5, 6, 6]

    def test_a_chunk_of_reasoning_and_answer_is_output(self):
        read = record(
            [(1, delta(reasoning="a")), (2, delta(reasoning="b", content="c")), (3, delta(content="d")), (4, usage(4) + DONE)]
        )
        assert (read.first_token_s, read.first_output_s) == (1.0, 2.0)

    def test_a_run_that_is_held_back_has_no_latencies_of_tokens(self, tmp_path):
        """A buffering proxy: all eight tokens at 5 s."""
        held = record([(5, "".join(delta(content=f" w{i}") for i in range(8)) + usage(8) + DONE)], asked=8)
        streamed = record([(1 + i, delta(content=f" w{i}")) for i in range(8)] + [(8, usage(8) + DONE)], asked=8)
        before = tabled(tmp_path, held, held, streamed)
        assert stream_figures(before)["held_back_answers"] == 2
        rows = supported(before)
        assert rows["ttft_s"].to_list() == rows["tpot_s"].to_list() == [None] * 3
        assert rows["e2e_s"].to_list() == [5.0, 5.0, 8.0]
        kept = supported(tabled(tmp_path, held, streamed, streamed))
        assert kept["ttft_s"].to_list() == [5.0, 1.0, 1.0]
        assert stream_figures(kept)["held_back_answers"] == 1

    def test_a_few_long_answers_at_one_moment_are_not_chance(self, tmp_path):
        """A pause of a busy server may bring four tokens at once; none brings sixteen, in two of ten answers."""

        def run(tokens, held):
            at_once = [(5, "".join(delta(content=f" w{i}") for i in range(tokens)) + usage(tokens) + DONE)]
            apart = [*((1 + i, delta(content=f" w{i}")) for i in range(tokens)), (tokens, usage(tokens) + DONE)]
            rows = supported(tabled(tmp_path, *(record(at_once if i < held else apart, asked=tokens) for i in range(10))))
            return rows["ttft_s"].null_count()

        assert [run(16, 2), run(15, 2), run(16, 1), run(4, 4), run(4, 5)] == [10, 0, 0, 0, 10]

    def test_a_short_answer_at_one_moment_shows_nothing(self, tmp_path):
        read = record([(5, A + B + COUNT + DONE)], asked=2)
        assert supported(tabled(tmp_path, read))["ttft_s"].to_list() == [5.0]

    def test_a_server_that_does_not_stream_has_no_first_token(self, tmp_path):
        answer = {"object": "chat.completion", "choices": [{"index": 0, "message": {"role": "assistant", "content": "A b"}, "finish_reason": "length"}],
                  "usage": {"prompt_tokens": 20, "completion_tokens": 2}}  # fmt: skip
        read = record([(1, json.dumps(answer))], asked=2, headers={"content-type": "application/json"})
        assert (read.outcome, read.ttft_s, read.e2e_s, read.completion_tokens) == ("ok", None, 1.0, 2)
        assert (read.arrivals, tpot(tmp_path, read)) == (1, None)

    def test_an_empty_answer_is_an_answer(self):
        read = record([(1, text("", finish="stop")), (2, usage(0) + DONE)])
        assert (read.outcome, read.token_times_s, read.streamed_tokens) == ("ok", [1.0], 0)

    def test_ratios_have_four_digits(self, tmp_path):
        words = (" one two", " one two", " one two three")
        read = record([*((0.01 + i, delta(content=text)) for i, text in enumerate(words)), (2.02, usage(7) + DONE)], asked=7)
        figures = stream_figures(tabled(tmp_path, read))
        assert (figures["tokens_per_chunk"], figures["tokens_per_arrival"]) == (2.3333, 2.3333)

    def test_all_reasoning_and_no_answer_is_an_answer(self):
        details = {"completion_tokens_details": {"reasoning_tokens": 8}}
        read = record(
            [(1, delta(role="assistant", content="")), (2, delta(finish="length")), (3, usage(8, **details) + DONE)], asked=8
        )
        assert (read.outcome, read.ttft_s, read.completion_tokens) == ("ok", None, 8)


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
@pytest.mark.parametrize("status", [200, 500])
def test_what_may_go_on_has_not_ended_in_an_error(pieces, status):
    assert not ends_in_error(exchange(pieces, ended=False, status=status))


def test_a_refusal_that_is_all_there_has_ended():
    assert ends_in_error(exchange([(1, '{"detail": "no"}')], ended=False, status=500))


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        ('{"detail": "Not Found"}', "application/json", "Not Found"),
        ('{"object": "error", "message": "no", "code": 400}', "application/json", "no"),
        ("<html>\n<h1>Bad\nGateway</h1></html>", "text/html",
         "the body (text/html) is neither an event stream nor an answer: '<html>\\n<h1>Bad\\nGateway</h1></html>'"),
        ('{"model":"m","message":{"role":"assistant","content":"A"},"done":false}\n', "application/x-ndjson",
         "the body (application/x-ndjson) is neither an event stream nor an answer: "
         "'{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"A\"},\"done\":false}\\n'"),
        ("", "text/event-stream", "the stream ended without a token"),
    ],
)  # fmt: skip
def test_a_200_that_is_no_answer_is_quoted(body, kind, said):
    read = record([(1, body)] if body else [], headers={"content-type": kind})
    assert (read.outcome, read.error) == ("stream_error" if body else "truncated", said)


@pytest.mark.parametrize("words", ["Internal Server Error", "<html>\n<h1>502</h1>\n", 'data: {"choices', ": ping\n\n"])
def test_what_a_stream_without_an_end_ended_with_is_quoted(words):
    read = record([(1, A), (2, words)])
    last = words.strip().split("\n")[-1]
    said = "" if words.startswith(("data:", ":")) else f"; its last line is {last!r}"
    assert (read.outcome, read.error) == (
        "truncated",
        f"the stream ended after 1 chunk with tokens, without [DONE], a finish_reason or a usage{said}",
    )


@pytest.mark.parametrize("bare", ['{"a": 1}\n', "{\n\n", "{\ndata", '{"error": null}\n', "}\n"])
def test_what_else_stands_without_a_field_s_name_is_nothing(bare):
    read = record([(1, A), (2, bare + ("" if bare.endswith("\n") else "\n") + B), (3, COUNT + DONE)], asked=2)
    assert (read.outcome, read.token_times_s) == ("ok", [1.0, 2.0])


@pytest.mark.parametrize("encoding", ["", " ", "identity", "Identity", ", identity"])
def test_no_encoding_is_none(encoding):
    assert record([(1, A), (2, B), (3, COUNT + DONE)], asked=2, headers={"content-encoding": encoding}).outcome == "ok"


@pytest.mark.parametrize("encoding", ["gzip", "identity, br"])
def test_an_encoding_that_was_not_asked_for_is_named(encoding):
    read = record([(1, A), (3, DONE)], headers={"content-encoding": encoding})
    assert read.error == f"content-encoding {encoding.removeprefix('identity, ')}, which the request did not accept"


def test_a_redirection_says_where_to():
    read = record([(1, "<html><body>Moved</body></html>")], status=301, headers={"location": "https://other/v1/completions"})
    assert (read.outcome, read.status) == ("http_error", 301)
    assert read.error == "<html><body>Moved</body></html>, to https://other/v1/completions"


def test_an_error_page_is_one_line():
    read = record([(1, "<html>\r\n<title>502 Bad Gateway</title>\r\n</html>\r\n")], status=502)
    assert read.error == "<html> <title>502 Bad Gateway</title> </html>"


def test_a_connection_that_breaks_after_the_end_breaks_nothing():
    whole = [(1, A), (2, B), (3, COUNT + DONE)]
    assert record(whole, ended=False, failure="disconnect", error="Connection reset by peer").outcome == "ok"
    cut = record(whole[:2], ended=False, failure="disconnect", error="Connection reset by peer")
    assert (cut.outcome, cut.error) == ("disconnect", "Connection reset by peer")


@pytest.mark.parametrize(
    ("headers", "wait"),
    [({"retry-after": "1.5"}, 1.5), ({"retry-after": "2"}, 2.0), ({"retry-after": ".5"}, 0.5), ({"retry-after": "3."}, 3.0),
     ({"retry-after": "2", "retry-after-ms": "1500"}, 1.5), ({"retry-after": "soon"}, None), ({"retry-after": "-1"}, None),
     ({"retry-after": "1e3"}, None)],
)  # fmt: skip
def test_the_wait_that_a_refusal_asks_for(headers, wait):
    assert record([(1, "{}")], status=429, headers=headers).retry_after_s == wait


def test_figures_without_streams_are_null():
    rows = pl.DataFrame({"first_token_s": [None]}, schema={"first_token_s": pl.Float64})
    assert set(stream_figures(rows).values()) == {None}
