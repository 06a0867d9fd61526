"""Why a run is invalid, and what of it failed, in words."""

from typing import get_args

import pytest

from bench.analysis import PARTS
from bench.analysis.validity import Check, Reason, Verdict
from bench.drift import Drift, RoundPart
from bench.words import verdicts
from bench.words.verdicts import failures, reason_text, reason_texts


def test_every_check_and_every_part_has_words():
    for check in get_args(Check):
        drift = Drift(RoundPart(1), None, 0.1, 0.0) if check == "drift" else None
        text = reason_text(Reason("load", check, 2.0, 1.0, 0.5, ("a",), {"http_404": 2}, drift))
        assert text and "None" not in text, check
    assert tuple(verdicts.PARTS) == PARTS


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (Reason("client", "loop_stall", 0.6, 0.5), "the client's event loop stood still for 0.6 s, over 0.5 s"),
        (Reason("content", "prompt_lengths", 1), "1 request had another prompt length than asked for"),
        (Reason("content", "output_lengths", 2000), "2000 requests had another output length than asked for"),
        (Reason("content", "refused", 4, 2_000_000), "4 of 2000000 requests were refused for what they are"),
        (Reason("telemetry", "counters_fell", names=("a", "b")),
         "the server's counters fell back (a, b): it was started again, or another one answered"),
        (Reason("machine", "drift", drift=Drift(RoundPart(1, "2026-01-01T00:01:00.000+00:00"), RoundPart(1, "2026-01-01T00:09:00.000+00:00"), 0.1, 0.0)),
         "the machine was 11 % slower in round 1 from 00:01:00 UTC on than in its part from 00:09:00 UTC on (reference load 1.11 s against 1 s)"),
        (Reason("machine", "drift", drift=Drift(RoundPart(2, "2026-01-01T00:01:00.000+00:00"), RoundPart(1), -0.1, 0.0)),
         "the machine was 11 % faster in round 2 from 00:01:00 UTC on than in round 1 (reference load 0.905 s against 1 s)"),
    ],
)  # fmt: skip
def test_a_reason_with_its_numbers(reason, text):
    assert reason_text(reason) == text
    assert Reason.of(reason.code) == reason
    assert reason_texts([reason.code]) == [text]


def test_a_code_can_be_read_and_holds_whatever_is_said():
    assert Reason("client", "loop_lag", 0.2, 0.1).code == "client.loop_lag value=0.2 limit=0.1"
    missing = Reason("telemetry", "metrics_missing", names=("a", "b or 'c=d'", "; e"))
    assert Reason.of(missing.code) == missing
    counted = Reason("content", "refused", 2, 4, 1 / 3, outcomes={"http_404": 2}, counted=31.7)
    assert Reason.of(counted.code) == counted


@pytest.mark.parametrize(
    "text", ["the client was late: P99 0.2 s", "it's late", "client.late value=1", "client.loop_lag value=x", ""]
)
def test_what_an_older_version_wrote_in_words_is_shown_as_it_is(text):
    assert reason_texts([text]) == [text]


def test_where_nothing_failed_or_was_sent_there_is_nothing_to_say():
    assert failures({"failed": 0, "requests": 0}) is None
    assert Verdict(()).failed_share is None
    assert failures({"failed": 0, "requests": 4, "outcome_ok": 4}) is None
    assert failures({"failed": 1, "requests": 4, "outcome_timeout": None}) == "1 of 4 requests failed"
