"""A fleet and recommendations in words, where a number is not known."""

import re
from typing import get_args

import pytest

from bench.analysis.judging import Miss
from bench.analysis.recommendation import (
    Admission,
    Advice,
    Carried,
    Eviction,
    Evidence,
    Headroom,
    KvBytes,
    MemoryBound,
    Pools,
    SecondDevice,
    Stalls,
)
from bench.words.advice import role, sentence
from bench.words.fleet import ends, interval, little, next_step, no_point, takes

FLEET = {"instances": 25, "instances_least": None, "instances_most": 28, "gpus": None, "peak_rps": 100.0, "safety": 1.3}


def test_without_a_fleet_nothing_is_said():
    assert (takes(None, "GPU"), interval(None, "instances")) == ("", "")


def test_a_number_of_gpus_that_is_not_known_is_said_to_be_so():
    assert takes(FLEET, "GPU") == (
        "25 instances for 100 requests/s (at most 28: the lower end of the 95 % interval is not established); with the safety factor 1.3, "
        "how many GPUs is not known."
    )
    one = {**FLEET, "instances": 1, "gpus": 1, "instances_most": None}
    assert takes(one, "machine") == (
        "1 instance for 100 requests/s (neither end of the 95 % interval is established); with the safety factor 1.3, 1 machine."
    )


def test_the_ends_of_an_interval():
    assert [ends(*pair) for pair in ((None, None), (12, None), (12, 1700))] == [
        "not established to not established", "12 to not established", "12 to 1,700"
    ]  # fmt: skip
    assert little(2.345).startswith("Little's law gives 2.3 times the requests/s")


@pytest.mark.parametrize(
    ("point", "text"),
    [
        ({"kind": "unknown"}, "no valid run"),
        ({"kind": "below", "low_needs": None, "missed_at": 1.0, "missed": [{"by": "growth", "growth": 0.5}]},
         "no measured load meets the SLOs: at 1 it misses steadiness (requests pile up: 50 % of those that come stay)"),
        ({"kind": "unsettled", "missed_at": 1.0, "missed": None, "unsettled": "empty", "unsettled_needs_s": None},
         "no steady state: at 1 no request was sent"),
        ({"kind": "unjudged", "missed_at": 1.0, "missed": [{"by": "ttft_p50_s", "limit_s": 1.0}]},
         "TTFT P50 ≤ 1 s cannot be judged: no answer at 1 has that latency"),
    ],
)  # fmt: skip
def test_why_there_is_nothing_to_size_by(point, text):
    assert no_point(point) == text


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        (
            "unknown",
            r"`.venv/bin/bench runs` says why\. Measure the invalid runs again: `.venv/bin/bench discard --invalid`, then",
        ),
        ("below", "Measure lower loads, or allow more with --slo"),
        ("unjudged", "Name another latency with --slo"),
    ],
)
def test_what_would_give_something_to_size_by(kind, step):
    assert re.match(step, next_step({"kind": kind}))
    assert next_step({"kind": "unsettled"}) == ""  # `no_point` says so


ADVICE = {
    KvBytes("a", "b", 1.5, (16, 4), (100, 400), 2**20, None): ("Developers", "of the 1 MiB that both have."),
    Pools("a", (Carried("chat", 15.0, True), Carried("rag", 2.0, False))):
        ("System architects", "carries, in requests/s, at least 15 of chat, 2 of rag. A mixed pool is sized by the heaviest."),
    Admission("a", "w", "requests in flight", 1.0, 1.0, 2.0, (Miss("failed", misses=1, requests=2),)):
        ("Providers", "Admit at most 1 request in flight on an instance of a (w), and add instances beyond: at 2 it misses the limit on failures "
                      "(1 of 2 requests fail)."),
    Headroom("a", "w", (8.5, 8.9), 10.0, 8.0, None, None): ("Providers", "It is full at 10 and was not at 8."),
    MemoryBound("a", "w", 8.0, (4.0, 16.0), 8.0, 16.0): ("Hardware makers", "its throughput peaks at 8 requests, between 4 and 16,"),
    SecondDevice("w", 4.0, 2, 1, 2.5): ("Hardware makers", "2 of them give 2.5 times the throughput of 1,"),
    Stalls("a", "w", 4.0, 0.01, 0.1): ("Hardware makers", "one gap between tokens in a hundred is 10 times the median (100 against 10 ms)"),
    Eviction("a", "w", (1.0, 8.0), (0.6, 0.4)): ("Hardware makers", "serves 60 % of the prompts' tokens at 1 and 40 % at 8, where it is full."),
}  # fmt: skip


@pytest.mark.parametrize(("evidence", "said"), ADVICE.items(), ids=lambda each: type(each).__name__)
def test_each_recommendation_in_words(evidence, said):
    whom, text = said
    found = Advice(evidence, ("a/1",))
    assert role(found) == whom
    assert text in sentence(found)


def test_no_recommendation_is_left_out():
    assert {type(evidence) for evidence in ADVICE} == set(get_args(Evidence))
