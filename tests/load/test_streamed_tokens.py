"""Tokens are not chunks. TPOT with a truth that is planted: tokens that came later, over the time that they took."""

import json
from dataclasses import replace

import polars as pl
import pytest

from bench.parse.latency import latency_columns
from bench.parse.stream import gaps_between_tokens, stream_figures, supported
from bench.runs.request import write_requests
from bench.runs.request_table import request_table
from tests.support.cases import cases
from tests.support.streams import DONE, PROMPT, delta, event, record, script, text, usage

A, B = delta(content="A"), delta(content=" b", finish="length")


def tabled(tmp_path, *records):
    write_requests(records, tmp_path / "requests.jsonl")
    return latency_columns(request_table(tmp_path / "requests.jsonl").lazy()).collect()


def tpot(tmp_path, of, **more):
    return supported(tabled(tmp_path, of), **more)["tpot_s"][0]


def each(texts, start, apart, key="content"):
    """A chunk for each of the texts, so long apart (s)."""
    return [(round(start + i * apart, 6), delta(**{key: words})) for i, words in enumerate(texts)]


def numbered(count, start, apart, key="content"):
    return each([f" {key[0]}{i}" for i in range(count)], start, apart, key)


def end(at, tokens, **more):
    return at, usage(tokens, **more) + DONE


def reasoned(tokens):
    return {"completion_tokens_details": {"reasoning_tokens": tokens}}


def counted(words, so_far, **more):
    counts = {"prompt_tokens": 20, "completion_tokens": so_far, **more}
    return event({"choices": [{"index": 0, "delta": {"content": words}}], "usage": counts})


def probable(words, tokens):
    logprobs = {"content": [{"token": "x", "logprob": -1}] * tokens}
    return event({"choices": [{"index": 0, "delta": {"content": words}, "logprobs": logprobs}]})


# Of each: its pieces, what the record says, and TPOT (s).
STREAMS = {
    "hidden reasoning is not streamed": (
        [(9, A), (9.2, B), end(9.3, 100, **reasoned(98))], {"completion_tokens": 100, "streamed_tokens": 2}, 0.2),
    "reasoning beside the completion is added to it": (
        [(9, A), (9.2, B), end(9.3, 2, total_tokens=120, **reasoned(98))], {"completion_tokens": 100, "streamed_tokens": 2}, 0.2),
    "streamed reasoning is streamed": (
        [(1, delta(reasoning_content="hm")), (2, B), end(3, 2, **reasoned(1))], {"streamed_tokens": 2}, 1.0),
    "what spells too little was not all streamed: SGLang without details counts 100 tokens, and two characters came": (
        [(9, A), (9.2, B), end(9.3, 100)], {"streamed_least": 2, "streamed_tokens": 3}, None),
    "reasoning inside the answer, as LiteLLM merges it: six of ten tokens, each with a chunk": (
        [*numbered(10, 1, 0.02), end(2, 10, **reasoned(6))], {"streamed_tokens": 10}, 0.02),
    "the same, five tokens a chunk: as many words as tokens": (
        [*each([" word" * 5] * 2, 1, 0.1), end(1.2, 10, **reasoned(6))], {"streamed_least": 10, "streamed_tokens": 10}, 0.02),
    "words of several tokens: four of ten streamed, or ten": (
        [*each([" internationalisation"] * 2, 1, 0.1), end(1.2, 10, **reasoned(6))], {"streamed_least": 2, "streamed_tokens": 10}, None),
    "a summary of reasoning is not the reasoning": (
        [(1, delta(reasoning_content="In short, this.")), (2, delta(content="A")), end(3, 1001, **reasoned(1000))], {}, None),
    "100 chunks of four bytes, and 400 tokens: three in four never came": ([*each([" wor"] * 100, 1, 0.02), end(9, 400)], {}, None),
    "tokens that chunks list are those that were streamed: eight in four chunks, of 64": (
        [*((9 + i / 10, text("abcdefgh", token_ids=[1, 2])) for i in range(4)), end(9.3, 64)],
        {"streamed_tokens": 8, "first_tokens": 2.0}, 0.05),
    "hidden tokens take time: 98 of reasoning were not made before a first token after 0.1 s": (
        [(0.1, A), (0.3, B), end(0.31, 100, **reasoned(98))], {}, None),
    "a usage in each chunk counts them (continuous_usage_stats): three, then one and one": (
        [(1, counted("a", 3)), (2, counted("bcdefgh", 4)), (3, counted("ijk", 5)), (4, DONE)],
        {"first_tokens": 3.0, "completion_tokens": 5}, 1.0),
    "and hidden tokens too: 60 of 64, and the others come two a chunk": (
        [(9, counted(" one two", 62, **reasoned(60))), (10, counted(" three four", 64, **reasoned(60))), (11, DONE)],
        {"streamed_tokens": 4, "first_tokens": 2.0}, 0.5),
    "token ids count them": (
        [(1, text("a", token_ids=[5, 6, 7])), (2, text("bcdefgh", token_ids=[8])), end(3, 4)], {"first_tokens": 3.0}, 1.0),
    "log probabilities count them": ([(1, probable("a", 3)), (2, probable("bcdefgh", 1)), end(3, 4)], {"first_tokens": 3.0}, 1.0),
    "two chunks at 1 s and two at 2 s, of a proxy with a small buffer: two tokens came in that second": (
        [(1, delta(content=" w0") + delta(content=" w1")), (2, delta(content=" w2")), (2.0001, delta(content=" w3")), end(3, 4)],
        {"arrivals": 2, "first_tokens": 2.0}, 0.5),
    "a chunk too many in a long answer moves nothing, as where a token ends the reasoning": (
        [*numbered(41, 1, 0.02), end(2, 40)], {}, 0.0205),
    "reasoning that is repeated at the end has no token there": (
        [*numbered(2, 0.2, 0.05, "reasoning_content"), *numbered(2, 0.3, 0.05),
         (0.75, delta(reasoning_content=" r0 r1", content=" c0 c1")), end(0.75, 4)], {"e2e_s": 0.35}, 0.05),
    "nor have several tokens a chunk": (
        [*each((" w0 w1", " w2 w3"), 0.01, 1), (5, delta(content=" w0 w1 w2 w3")), end(5.01, 4)], {"e2e_s": 1.01}, 0.5),
    "speculative tokens come three a chunk, 30 ms apart": ([*each([" one two six"] * 3, 1, 0.03), end(1.1, 9)], {}, 0.01),
}  # fmt: skip


@cases("name", STREAMS)
def test_time_per_token_counts_the_tokens_that_came(tmp_path, name):
    pieces, said, expected = STREAMS[name]
    read = record(pieces)
    assert {key: getattr(read, key) for key in said} == said
    assert tpot(tmp_path, read) == (expected and pytest.approx(expected, rel=1e-3))


@cases(
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


def test_a_run_of_which_too_much_is_unknown_has_no_tpot(tmp_path):
    """A TPOT that is missing counts as met: with one in three unknown, an SLO would be judged by the others."""
    unknown = record([(9, A), (9.2, B), end(9.3, 100)], asked=100)
    known = record([(1, A), (2, B), end(2.1, 2)], asked=2)
    rows = tabled(tmp_path, unknown, known, known)
    assert stream_figures(rows)["unknown_streamed"] == 1
    assert supported(rows)["tpot_s"].to_list() == [None] * 3
    few = supported(tabled(tmp_path, *(replace(read, index=i) for i, read in enumerate([unknown, *[known] * 20]))))["tpot_s"]
    assert (few.null_count(), few.max()) == (1, 1.0)


def test_half_of_the_tokens_hidden_or_two_a_chunk(tmp_path):
    """64 tokens in 32 chunks of eight bytes, 20 ms apart, that begin no word. Hidden ones take time; a completion has no reasoning."""

    def read(wait):
        return record([*each(["模型，"] * 32, wait, 0.02), end(wait + 0.63, 64)], asked=64)

    found = [tpot(tmp_path, read(wait), reasons=chat) for wait, chat in ((0.05, True), (0.7, True), (0.7, False))]
    assert found == [pytest.approx(0.01), None, pytest.approx(0.01)]
    # A server's other answers show what a chunk carries: the second one waited in a queue.
    rows = supported(tabled(tmp_path, read(0.05), read(3.0)))
    assert rows["tpot_s"].to_list() == [pytest.approx(0.01)] * 2
    # Of 32 tokens with a chunk each, and 32 special ones at the end that spell nothing, none is known to have been streamed.
    ended = [(1 + i / 50, text(f" w{i}")) for i in range(32)]
    assert tpot(tmp_path, record([*ended, end(2.26, 64)], asked=64), reasons=False) is None


@cases(("accepted", "known"), [(6, True), (5, False), (None, False)])
def test_accepted_drafts_explain_chunks_of_several_tokens(tmp_path, accepted, known):
    """Nine tokens in three chunks, after a silence in which others could have been hidden: six came with a verified draft, or not."""
    timings = {} if accepted is None else {"timings": {"draft_n": 8, "draft_n_accepted": accepted}}
    read = record([*each([" onetwosix"] * 3, 1, 0.03), (1.1, event({"choices": [], **timings}) + usage(9) + DONE)])
    assert tpot(tmp_path, read) == (pytest.approx(0.01) if known else None)


@cases(
    ("last", "tokens"),
    [
        (delta(content=" c0 c1 c2 c3"), 4),
        (delta(content="c0 c1 c2 c3\n"), 4),
        (delta(content=" c0 c1 c2 c3", finish="stop"), 4),
        (delta(role="assistant", content=" c0 c1 c2 c3"), 4),
        (text(" c0 c1 c2 c3", "stop"), 4),
        (event({"choices": [{"index": 0, "delta": {}, "message": {"role": "assistant", "content": " c0 c1 c2 c3"}}]}), 4),
        (delta(content=" c0 c1 c2 c3"), None),  # a server that counts nothing
    ],
)
def test_an_answer_that_is_repeated_at_its_end_has_no_token_there(tmp_path, last, tokens):
    read = record([*numbered(4, 0.2, 0.05), (0.75, last), (0.75, (usage(tokens) if tokens else delta(finish="stop")) + DONE)])
    assert (read.outcome, len(read.token_times_s), read.e2e_s) == ("ok", 4, 0.35)
    assert tpot(tmp_path, read) == (tokens and pytest.approx(0.05))


def test_a_token_that_spells_what_came_before_is_a_token():
    for texts in (("a", "b", "ab"), ("ha", "ha"), (" 1", " 1", " 1")):
        assert record([*each(texts, 1, 1), end(9, len(texts))]).e2e_s == len(texts), texts


@cases(
    "pieces",
    [
        [*numbered(10, 0.2, 0.05, "reasoning_content"), *numbered(4, 0.7, 0.05)],  # reasoning that is not counted
        [*each("的" * 10, 0.2, 0.05, "reasoning"), *each("的" * 4, 0.7, 0.05)],
        [*each([" r r r r r"] * 2, 0.2, 0.5, "reasoning"), (0.9, delta(content=" w w w w"))],  # in pieces
        [*numbered(4, 0.2, 0.05), (5, delta(content="\n\nAnswered by m"))],  # a gateway's own words
        [(0.1, delta(content="One moment.")), *numbered(4, 5, 0.05)],
        [*numbered(4, 0.2, 0.05), *numbered(4, 0.4, 0.05)],  # begun again from the start
        [(0.2 + i // 2, delta(content=f" w{i // 2}")) for i in range(8)],  # each chunk twice
        each("abcdefgh", 1, 0.1),  # character by character
    ],
)
def test_more_text_than_counted_tokens_has_no_tpot(tmp_path, pieces):
    read = record([*pieces, end(9, 4)])
    assert (read.outcome, read.completion_tokens, tpot(tmp_path, read)) == ("ok", 4, None)
    figures = stream_figures(tabled(tmp_path, read))
    assert (figures["unknown_streamed"], gaps_between_tokens(figures)) == (1, False)


@cases(
    "counts",
    [
        {"total_tokens": PROMPT + 14},  # Gemini's, behind OpenAI's interface
        {"total_tokens": PROMPT + 4, **reasoned(10)},
        {"total_tokens": PROMPT + 14, **reasoned(10)},
        {"total_tokens": None, "reasoning_tokens": 10},
    ],
)
def test_reasoning_that_is_counted_beside_the_completion_is_part_of_it(tmp_path, counts):
    pieces = [*numbered(10, 0.2, 0.05, "reasoning_content"), *numbered(4, 0.7, 0.05)]
    read = record([*pieces, end(0.9, 4, **counts)], asked=14)
    assert (read.completion_tokens, read.streamed_tokens, tpot(tmp_path, read)) == (14, 14, pytest.approx(0.05))


@cases(
    ("texts", "tokens", "figure", "gaps"),
    [
        ([" wo", " wo", " wo", " a b"], 5, 1.25, True),  # words and a short silence show that nothing was hidden
        ([" one two six"] * 3, 9, 3.0, False),
        ([" one two", " one two", " one two three"], 7, 2.3333, False),
    ],
)
def test_a_chunk_of_few_tokens_still_has_gaps(tmp_path, texts, tokens, figure, gaps):
    read = record([*each(texts, 0.01, 1), end(len(texts), tokens)], asked=tokens)
    figures = stream_figures(tabled(tmp_path, read))
    assert (figures["tokens_per_chunk"], figures["tokens_per_arrival"], gaps_between_tokens(figures)) == (figure, figure, gaps)


def test_what_was_hidden_and_what_did_not_end_is_counted(tmp_path):
    hidden = script("hidden_reasoning")
    figures = stream_figures(tabled(tmp_path, hidden, script("no_done_chat"), script("bom_first")))
    assert (figures["hidden_tokens"], figures["without_done"]) == (hidden.completion_tokens - hidden.streamed_tokens, 1)
    rows = pl.DataFrame({"first_token_s": [None]}, schema={"first_token_s": pl.Float64})
    assert set(stream_figures(rows).values()) == {None}  # without streams


def test_a_token_has_a_byte_at_least():
    assert [record([*each(["abc"] * 2, 1, 1), end(3, n)]).streamed_tokens for n in (5, 6, 7)] == [5, 6, 6]


# Answers whose tokens come at one moment, or not at all.


def test_a_run_that_is_held_back_has_no_latencies_of_tokens(tmp_path):
    """A buffering proxy: all eight tokens at 5 s."""
    held = record([(5, "".join(delta(content=f" w{i}") for i in range(8)) + usage(8) + DONE)], asked=8)
    streamed = record([*numbered(8, 1, 1), end(8, 8)], asked=8)
    before = tabled(tmp_path, held, held, streamed)
    assert stream_figures(before)["held_back_answers"] == 2
    rows = supported(before)
    assert rows["ttft_s"].to_list() == rows["tpot_s"].to_list() == [None] * 3
    assert rows["e2e_s"].to_list() == [5.0, 5.0, 8.0]
    kept = supported(tabled(tmp_path, held, streamed, streamed))
    assert kept["ttft_s"].to_list() == [5.0, 1.0, 1.0]
    assert stream_figures(kept)["held_back_answers"] == 1
    short = record([(5, A + B + usage(2) + DONE)], asked=2)  # which shows nothing
    assert supported(tabled(tmp_path, short))["ttft_s"].to_list() == [5.0]


def test_a_few_long_answers_at_one_moment_are_not_chance(tmp_path):
    """A pause of a busy server may bring four tokens at once; none brings sixteen, in two of ten answers."""

    def run(tokens, held):
        at_once = [(5, "".join(delta(content=f" w{i}") for i in range(tokens)) + usage(tokens) + DONE)]
        apart = [*numbered(tokens, 1, 1), end(tokens, tokens)]
        rows = supported(tabled(tmp_path, *(record(at_once if i < held else apart, asked=tokens) for i in range(10))))
        return rows["ttft_s"].null_count()

    assert [run(16, 2), run(15, 2), run(16, 1), run(4, 4), run(4, 5)] == [10, 0, 0, 0, 10]


def test_a_server_that_does_not_stream_has_no_first_token(tmp_path):
    choice = {"index": 0, "message": {"role": "assistant", "content": "A b"}, "finish_reason": "length"}
    answer = {"object": "chat.completion", "choices": [choice], "usage": {"prompt_tokens": 20, "completion_tokens": 2}}
    read = record([(1, json.dumps(answer))], asked=2, headers={"content-type": "application/json"})
    assert (read.outcome, read.ttft_s, read.e2e_s, read.completion_tokens) == ("ok", None, 1.0, 2)
    assert (read.arrivals, tpot(tmp_path, read)) == (1, None)


def test_an_empty_answer_and_one_of_reasoning_alone_are_answers():
    read = record([(1, text("", finish="stop")), end(2, 0)])
    assert (read.outcome, read.token_times_s, read.streamed_tokens) == ("ok", [1.0], 0)
    read = record([(1, delta(role="assistant", content="")), (2, delta(finish="length")), end(3, 8, **reasoned(8))], asked=8)
    assert (read.outcome, read.ttft_s, read.completion_tokens) == ("ok", None, 8)
