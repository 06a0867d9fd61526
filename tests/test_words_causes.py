"""A cause in words: a sentence for each kind of evidence, and what is said where some of it is missing."""

from dataclasses import replace
from typing import get_args

import pytest

from bench.analysis.evidence import (
    Alone,
    At,
    Bottleneck,
    Evidence,
    Failures,
    FullCache,
    FullSteps,
    Gaps,
    HeldByCache,
    HeldBySlots,
    HighestLevel,
    NeverSteady,
    Preemptions,
    Prompts,
    Silent,
    Slots,
    SlowAnswers,
    SteadyMeets,
    Steps,
    UnknownLatency,
    UnknownStep,
)
from bench.analysis.judging import Unsettled
from bench.words.causes import remedy, why

HERE, BURST = At(8.0, "requests in flight"), At(8.0, burst=True)
CACHE = HeldByCache(At(8.0), 3, None, None, 1.2, 1.2, None)
SLOTS = HeldBySlots(At(8.0), None, 4.0, 1, 1.2, 2.5)
SHORT = Unsettled("short")
SAID = [
    ("unknown", NeverSteady(Unsettled("empty")), "Nothing can be said of the limit: no request was sent."),
    ("unknown", SteadyMeets(4.0, SHORT), "No load that became steady misses. The upper end is not known: at 4 its load did not become steady in "
     "the time that it lasted: send more requests."),
    ("none", HighestLevel(16.0), "No measured load misses: 16 is the highest level."),
    ("unknown", Silent(HERE, read=False), "At 8 requests in flight it misses; the server's metrics were not read, so why is not known."),
    ("unknown", Silent(HERE, queue=False, usage=False), "At 8 requests in flight it misses; the server reports neither its queue nor its KV usage, so why is not known."),
    ("unknown", Silent(BURST, queue=False), "In a burst of 8 it misses; the server does not report its queue, so why is not known."),
    ("unknown", Silent(HERE, usage=False),
     "At 8 requests in flight it misses; the server does not report its KV usage, so why is not known."),
    ("unknown", Silent(HERE, whole=False), "At 8 requests in flight it misses; the server's metrics have gaps, so why is not known."),
    ("prefill", Alone(At(1.0, "requests in flight"), "ttft", 1.466, 1.0),
     "One request alone is too slow: its TTFT is 1.47 s, and 1 s are allowed."),
    ("refusals", Failures(HERE, 1200, 4000, None), "At 8 requests in flight the server refuses or fails 1,200 of 4,000 requests."),
    ("kv", FullCache(BURST, None), "In a burst of 8 the KV cache is full."),
    ("sequences", Slots(BURST, 4), "In a burst of 8 all 4 sequences of max_num_seqs run, and requests wait."),
    ("prefill", Prompts(BURST), "In a burst of 8 prompts wait for one another's arithmetic."),
    ("unknown", SlowAnswers(BURST), "In a burst of 8 answers take too long; a burst does not show why."),
    ("kv", Preemptions(At(1.0, "requests in flight"), 0.123, None),
     "At 1 request in flight the KV cache is full: 0.12 preemptions a request throw work away that is done again."),
    ("unknown", UnknownLatency(HERE, "e2e"), "At 8 requests in flight E2E is missed; what it consists of, and so why, is not known."),
    ("unknown", UnknownStep(HERE), "At 8 requests in flight TPOT is missed; the time of a step is not known."),
    ("decode", Gaps(HERE, 0.01, 0.0), "At 8 requests in flight decoding is too slow: a step takes 10 ms, and prompts of other requests add 0 ms to "
     "it in the mean."),
    ("interference", Gaps(HERE, 0.01, 0.02), "At 8 requests in flight prompts of other requests are computed between a request's tokens: a step "
     "takes 10 ms, and prompts of other requests add 20 ms to it in the mean."),
    ("kv", CACHE, "At 8 the KV cache admits no more; 3 requests wait in the mean."),
    ("sequences", SLOTS, "At 8 never more than 4 requests run, and 1 request waits in the mean."),
    ("prefill", FullSteps(At(8.0), 2),
     "At 8, 2 requests wait in the mean, although sequences and KV cache have room: prompts fill the tokens of each step."),
    ("unknown", Steps(HERE, None), "At 8 requests in flight it takes too long; the engine's steps cannot be separated."),
    ("decode", Steps(HERE, 0.2, SLOTS), "At 8 never more than 4 requests run, and 1 request waits in the mean, but more would raise the rate by a "
     "factor of 1.2 only. At 8 requests in flight steps take too long: prompts take 20 % of the time of the engine's steps, decoding the rest."),
]  # fmt: skip


@pytest.mark.parametrize(("cause", "evidence", "text"), SAID)
def test_each_kind_of_evidence_in_words(cause, evidence, text):
    assert why(Bottleneck(cause, evidence)) == text


def test_no_kind_of_evidence_is_left_out():
    assert {type(evidence) for _, evidence, _ in SAID} == set(get_args(Evidence))


def test_where_nothing_was_judged_nothing_is_said():
    assert (why(Bottleneck("unknown")), remedy(Bottleneck("unknown"))) == ("", "")


@pytest.mark.parametrize(
    ("cause", "evidence", "text"),
    [
        ("kv", CACHE, "More KV memory. A KV type of half the bytes, or a model with half the KV bytes a token, holds twice as many. Beyond about "
         "1.2 times this rate the engine's speed is the limit."),
        ("kv", replace(CACHE, request_bytes=3 * 2**20, room=2.0), "More KV memory: 3 MiB hold one request more. A KV type of half the bytes, or a "
         "model with half the KV bytes a token, holds twice as many."),
        ("sequences", SLOTS, "Raise max_num_seqs, as far as the KV cache holds."),
        ("sequences", Slots(BURST, 4), "Raise max_num_seqs, as far as the KV cache holds."),
        ("none", HighestLevel(16.0), "Measure higher levels to find the limit."),
        ("unknown", Silent(HERE), ""),
        ("prefill", Alone(HERE, "ttft", 1.4, 1.0), "More arithmetic (a faster device, or more of them), shorter prompts, or prefixes that the "
         "cache serves."),
        ("decode", Alone(HERE, "tpot", 0.1, 0.05), "More memory bandwidth (a faster device, or more of them), or smaller weights."),
        ("unknown", Steps(HERE, None), ""),
    ],
)  # fmt: skip
def test_what_would_raise_it(cause, evidence, text):
    assert remedy(Bottleneck(cause, evidence)) == text
