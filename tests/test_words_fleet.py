"""A fleet in words, where a number is not known."""

import re

import pytest

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
