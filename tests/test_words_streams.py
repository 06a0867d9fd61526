"""What is said of a run's streams."""

import pytest

from bench.words.streams import stream_notes

PLAIN = {"ok": 8, "tokens_per_chunk": 1.0, "ttft_n": 8, "held_back_answers": 0, "hidden_tokens": 0, "unknown_streamed": 0,
         "without_done": 0, "requests_omit": None, "short_answers": 0, "sdk_differs": None}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "notes"),
    [
        ({}, []),
        (dict.fromkeys(("tokens_per_chunk", "hidden_tokens", "without_done")), []),  # not streamed
        ({"tokens_per_chunk": 3.0}, ["a chunk carries 3 tokens on average: TPOT counts the tokens behind the first chunk, and there is no ITL"]),
        ({"tokens_per_chunk": 0.25}, ["a chunk carries 0.25 tokens on average, because something cuts answers into smaller pieces: there is no ITL"]),
        ({"held_back_answers": 8, "ttft_n": 0, "tokens_per_chunk": 1.0},
         ["8 answers of 8 came at one moment: something between the server and its client holds them back, so there is no TTFT, TPOT or ITL"]),
        ({"held_back_answers": 1}, ["1 answer of 8 came at one moment: TTFT of these is the time of the whole answer"]),
        ({"hidden_tokens": 480}, ["reasoning that was not streamed: 480 tokens; TPOT is that of the others"]),
        ({"unknown_streamed": 1, "tpot_n": 7},
         ["no TPOT in 1 answer: 1 answer of 8 had fewer chunks than tokens and silence long enough for hidden ones, such as reasoning or "
          "special tokens, so it is unknown how many a chunk carries"]),
        ({"unknown_streamed": 4, "tpot_n": 0},
         ["no TPOT: 4 answers of 8 had fewer chunks than tokens and silence long enough for hidden ones, such as reasoning or special "
          "tokens, so it is unknown how many a chunk carries"]),
        ({"unknown_streamed": 8, "tpot_n": 0, "spec_accepted_tokens": 30.0},
         ["no TPOT: 8 answers of 8 had fewer chunks than tokens and silence long enough for hidden ones, such as reasoning or special "
          "tokens, so it is unknown how many a chunk carries; vLLM says it with --per-request-spec-decode-metrics summary"]),
        ({"unknown_streamed": 8, "uncounted_answers": 8, "tpot_n": 0}, []),  # the verdict has the reason
        ({"tokens_per_arrival": 4.0},
         ["4 tokens arrive together on average, though each has a chunk: something gathers them, so TTFT is late by up to as many, TPOT "
          "counts the tokens after the first moment, and there is no ITL"]),
        ({"tokens_per_arrival": 4.0, "spec_accepted_tokens": 30.0},
         ["4 tokens arrive together on average, accepted drafts with the token that the model adds: TPOT counts the tokens after the "
          "first moment, and there is no ITL"]),
        ({"axis": "concurrency", "client_schedule_delay_p50_s": 0.06, "e2e_p50_s": 1.0},
         ["requests left 0.06 s after they were due, as connections take that long to open: fewer were in flight than the load says"]),
        ({"axis": "request_rate", "client_schedule_delay_p50_s": 0.06, "e2e_p50_s": 1.0}, []),
        ({"without_done": 8}, ["8 streams ended without [DONE], though the answer was whole"]),
        ({"requests_omit": "ignore_eos, token_ids"},
         ["requests leave out ignore_eos: answers may end before the length that was asked for",
          "requests leave out token_ids: prompts are text, whose lengths follow from the server's own counts"]),
        ({"short_answers": 4, "counted_output_tokens": 5.0, "asked_output_tokens": 8.0},
         ["4 answers of 8 ended early, as the model did: 5 tokens on average for 8 asked for"]),
        ({"sdk_differs": "text is 'a' to the SDK, 'b' to Saturate"}, ["the openai SDK reads an answer differently: text is 'a' to the SDK, 'b' to Saturate"]),
    ],
)  # fmt: skip
def test_what_a_reader_should_know_is_said(change, notes):
    assert list(stream_notes({**PLAIN, **change})) == notes
