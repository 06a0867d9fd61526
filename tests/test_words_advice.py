"""Recommendations in words: RENEW=1 renews the snapshot."""

from dataclasses import replace
from typing import get_args

import pytest

from bench.analysis.advice import Advice, Carried, Recommendation
from bench.analysis.judging import Miss
from bench.words.advice import TEXTS, role, sentence
from tests import snapshots

NUMBERS = {
    "deployment": "a", "other": "b", "workload": "w", "unit": "requests in flight", "parameters": 1.5, "requests": 16.0, "other_requests": 4.0,
    "token_bytes": 100, "other_token_bytes": 4096, "kv_bytes": 2**20, "rps": 10.0, "other_rps": 12.0, "same_bytes": "c", "operate_at": 1.0, "c_max": 2.0,
    "missed_at": 4.0, "fewest": 8.5, "most": 10.0, "full": 16.0, "below": 8.0, "loss_at": 16.0, "loss": 0.2, "peak": 12.0, "low": 4.0, "high": 16.0,
    "level": 8.0, "many": 2, "few": 1, "gain": 2.5, "itl_p50_s": 0.01, "itl_p99_s": 0.0997, "stall": 9.97, "low_rate": 0.6, "high_rate": 0.39,
}  # fmt: skip
LITTLE = dict.fromkeys(("rps", "other_rps", "same_bytes", "c_max", "loss_at", "loss"), None)
MORE = {"missed": (Miss("failed", misses=1, requests=2),), "carried": (Carried("chat", 15.0, True), Carried("rag", 2.0, False))}


def test_each_recommendation_in_words():
    """With all numbers, then without those that may not be known."""
    lines = []
    for kind in get_args(Recommendation):
        known, bare = (Advice(kind, (), {**NUMBERS, **less}, **MORE) for less in ({}, LITTLE))
        lines += [f"{kind}: {role(known)}", *(f"  {text}" for text in dict.fromkeys((sentence(known), sentence(bare))))]
    snapshots.same("advice", lines)
    assert set(TEXTS) == set(get_args(Recommendation))


@pytest.mark.parametrize(("most", "text"), [(9.9, "9 requests"), (8.9, "8 requests"), (10.0, "9 to 10 requests")])
def test_a_range_of_whole_requests(most, text):
    found = Advice("headroom", (), {**NUMBERS, "most": most})
    assert sentence(found).startswith(text)
    assert (
        sentence(replace(found, numbers={**found.numbers, "fewest": 9.0})).startswith("9 " if most < 10 else text)
        or most == 8.9
    )
