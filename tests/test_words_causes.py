"""Causes in words: a sentence for each kind of evidence, and what would help. RENEW=1 renews the snapshot."""

from dataclasses import replace
from typing import get_args

import pytest

from bench.analysis.evidence import CAUSES, Bottleneck, Evidence
from bench.words.causes import REMEDIES, WHY, remedy, why
from bench.words.templates import filled, numbers_of
from tests import snapshots

NUMBERS = {
    "level": 8.0, "unit": "requests in flight", "unsettled": "short", "needs_s": 50, "failed": 1200, "requests": 4000, "in_flight": 6.5, "said": "no",
    "metric": "ttft", "value_s": 1.466, "limit_s": 0.5, "per_request": 0.123, "step_s": 0.01, "others_s": 0.02, "prefill_share": 0.2, "slots": 4,
    "running": 3.8, "waiting": 3, "free_tokens": 1600.0, "prompt_tokens": 3200.0, "gain": 1.2, "room": 1.54, "request_bytes": 3.0 * 2**20,
}  # fmt: skip
LITTLE = dict.fromkeys(("in_flight", "said", "free_tokens", "prompt_tokens", "request_bytes"), None)


def test_each_kind_of_evidence_in_words():
    """With all numbers, then without those that may not be known."""
    lines = []
    for evidence in get_args(Evidence):
        known, bare = (Bottleneck(evidence=evidence, **{**NUMBERS, **less}) for less in ({}, LITTLE))
        lines += [f"{evidence}: {known.cause}", f"  {why(known)}"]
        lines += [
            f"  {text}"
            for say in (why, remedy)
            for text in dict.fromkeys((say(known), say(bare)))
            if text and text != why(known)
        ]
    snapshots.same("causes", lines)


def test_every_kind_of_evidence_has_a_sentence():
    assert set(WHY) == set(get_args(Evidence)) >= set(CAUSES) | set(REMEDIES)


@pytest.mark.parametrize(
    ("changed", "at"),
    [
        ({}, "At 8 requests in flight, the KV"),
        ({"level": 1.0}, "At 1 request in flight, the KV"),
        ({"unit": None}, "At 8, the KV"),
        ({"unit": None, "burst": True}, "In a burst of 8, the KV"),
    ],
)
def test_the_load_at_which_it_shows(changed, at):
    assert why(Bottleneck(evidence="full_cache", **{**NUMBERS, **changed})).startswith(at)


def test_what_holds_requests_back_for_little_gain_comes_first():
    limit = Bottleneck(evidence="decode_steps", **NUMBERS, held="pinned", held_level=16.0)
    assert why(limit) == (
        "At 16, never more than 4 requests run, and 3 requests wait on average, but more room would raise the rate by a factor of 1.2 only. "
        + why(replace(limit, held=None))
    )


def test_where_nothing_was_judged_nothing_is_said():
    assert (why(Bottleneck()), remedy(Bottleneck())) == ("", "")


def test_a_part_in_brackets_needs_its_numbers():
    template = "{a:share}[, {b:requests} of {c}][: {d:quoted}]"
    assert numbers_of(template) == ["a", "b", "c", "d"]
    assert filled(template, {"a": 0.5, "b": 1, "c": 2, "d": "[x] {y}"}) == "50 %, 1 request of 2: '[x] {y}'"
    assert filled(template, {"a": 0.5, "b": None, "c": 2, "d": None}) == "50 %"
    with pytest.raises(KeyError):
        filled(template, {"a": 0.5})
