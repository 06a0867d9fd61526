"""Turns of conversations, as a run's records show them."""

import polars as pl

from bench.findings.turns import turn_rows
from bench.parse.latency import by_turn
from bench.runs.columns import TURN_FIELDS


def test_each_turn_has_its_latency_and_what_the_cache_served():
    """Two conversations of two turns, one of which ended early; a chain of requests is a conversation, whatever lies between."""
    rows = [
        {"index": 0, "after": None, "outcome": "ok", "ttft_s": 0.4, "prompt_tokens": 100, "cached_tokens": 0},
        {"index": 1, "after": 0, "outcome": "ok", "ttft_s": 0.1, "prompt_tokens": 150, "cached_tokens": 120},
        {"index": 2, "after": None, "outcome": "ok", "ttft_s": 0.6, "prompt_tokens": 100, "cached_tokens": 0},
        {"index": 3, "after": 2, "outcome": "timeout", "ttft_s": None, "prompt_tokens": None, "cached_tokens": None},
    ]
    turns = by_turn(pl.DataFrame(rows))
    assert [(x["turn"], x["requests"], x["ttft_p50_s"], x["prompt_tokens"], x["cached_tokens"]) for x in turns] == [
        (1, 2, 0.5, 200, 0),
        (2, 1, 0.1, 150, 120),
    ]
    assert by_turn(pl.DataFrame(rows[::2])) is None
    runs = pl.DataFrame(
        [
            {
                "deployment": "a",
                "workload": "w",
                "family": "w",
                "axis": "users",
                "turns": 2,
                "level": 4.0,
                "valid": True,
                "by_turn": turns,
            }
        ],
        schema_overrides={"by_turn": pl.List(pl.Struct(TURN_FIELDS))},
    )
    found = turn_rows(pl.concat([runs, runs]))
    assert [(x["turn"], x["requests"], x["prompt"], x["cached"], x["hit_rate"]) for x in found] == [
        (1, 4, 100.0, 0.0, 0.0),
        (2, 2, 150.0, 120.0, 0.8),
    ]
