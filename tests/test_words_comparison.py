"""A comparison in words, where nothing tells of the noise, of a variable or of a difference."""

from types import SimpleNamespace

import polars as pl
import pytest

from bench.analysis.gate import Sight
from bench.analysis.locked import Differs, SlowerMachine
from bench.words.comparison import assumed_text, difference_text, overlooked, sentence, sentences, sight_text

TOKENS = "throughput_tokens_per_s"
ROW = {"metric": TOKENS, "scope": "all", "verdict": "no evidence", "pooled": "no evidence", "ratio": 0.95, "low": None, "high": None,
       "could_see": None, "workload": None, "axis": None, "level": None, "loads": [1.0], "region": None}  # fmt: skip


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (Differs("kv_tokens", None, 640), "kv_tokens: unknown → 640"),
        (Differs("kv_tokens", 640.5, None, deployment="a"), "kv_tokens of a: 640.5 → unknown"),
        (Differs("seed", 0, 1, loads=(("short", 8.0),)), "seed: 0 → 1 (short at 8)"),
        (SlowerMachine("baseline", 0.5, "a"),
         "machine of a: the client's own work took 50 % more CPU time beside the baseline: most likely the machine was slower then, or shared"),
    ],
)  # fmt: skip
def test_what_differs_besides(found, text):
    assert difference_text(found) == text


def test_without_noise_there_is_a_difference_and_no_verdict():
    assert sentence([ROW]).endswith(": −5.0 %, without a measure of the noise")


def test_what_is_not_seen_has_the_size_that_would_have_been():
    assert sentence([{**ROW, "low": 0.9, "high": 1.1, "could_see": 0.1234}]).endswith(
        ": no difference seen; one of 12 % or more would have been"
    )


def test_a_comparison_of_nothing_has_no_sentences():
    empty = pl.DataFrame(schema={"deployment": pl.String, "metric": pl.String})
    assert sentences(SimpleNamespace(replica=False, effects=empty, overall=empty)) == []
    assert sentences(SimpleNamespace(replica=True, effects=empty, overall=empty)) == []


def test_what_could_have_been_seen():
    assert sight_text(None) is None
    text = sight_text(Sight(TOKENS, 12.0, None, True))
    assert "differences of 12 % or more" in text
    assert text.endswith("; 6 % takes more than 100 sessions of each deployment (how far sessions differ is assumed).")


def test_what_could_have_been_overlooked():
    assert overlooked({"could_see": None, "sessions": None}, 5).startswith("nothing shows how far runs differ by chance")
    assert overlooked({"could_see": 12.5, "sessions": None}, 5) == (
        "a regression of 5 % over all levels could be overlooked; this comparison sees 12 % or more. 5 % takes more than 100 sessions of "
        "each side, interleaved"
    )


def level(load, verdict, ratio=0.8):
    return {**ROW, "scope": "level", "workload": "chat", "axis": "concurrency", "level": load, "verdict": verdict, "ratio": ratio,
            "low": 0.7, "high": 0.9}  # fmt: skip


@pytest.mark.parametrize(
    ("worse", "place"),
    [
        ([1, 2, 4, 8], "−20.0 % over all loads (−30.0 to −10.0 %), worse"),
        ([4, 8], "from 4 in flight on −20.0 %, worse"),
        ([1, 2], "up to 2 in flight −20.0 %, worse"),
        ([2, 4], "at 2, 4 in flight −20.0 %, worse"),
        ([1, 8], "at 1, 8 in flight −20.0 %, worse"),
        ([2], "at 2 in flight −20.0 %, worse"),
    ],
)
def test_levels_are_named_by_the_end_of_the_ladder_that_they_are(worse, place):
    rows = [level(load, "worse" if load in worse else "no evidence") for load in (1, 2, 4, 8)]
    whole = {**ROW, "ratio": 0.8, "low": 0.7, "high": 0.9, "pooled": "no evidence"}
    text = sentence([*rows, whole]).partition(": ")[2]
    assert text == place + ("" if len(worse) == 4 else "; elsewhere no difference seen")


def test_where_no_level_is_sure_the_region_that_is_gets_named():
    regions = [
        {**ROW, "scope": "region", "region": name, "loads": loads, "verdict": verdict, "ratio": 0.9, "low": 0.8, "high": 0.99}
        for name, loads, verdict in (("low loads", [1.0], "no evidence"), ("high loads", [4.0, 8.0], "worse"))
    ]
    rows = [level(load, "no evidence") for load in (1, 4, 8)]
    whole = {**ROW, "low": 0.9, "high": 1.1}
    assert sentence([*rows, *regions, whole]).partition(": ")[2] == (
        "high loads (4, 8) −10.0 %, worse; elsewhere no difference seen"
    )


def test_what_is_assumed_of_sessions_is_named_in_percent():
    assert "so the intervals allow for 10 % (standard deviation" in assumed_text(2, 0.1)
