"""A comparison in words, where nothing tells of the noise, of a variable or of a difference."""

from types import SimpleNamespace

import polars as pl
import pytest

from bench.analysis.gate import Sight
from bench.analysis.locked import Differs, SlowerMachine
from bench.words.comparison import difference_text, overlooked, sentence, sentences, sight_text

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
         "machine of a: the client's own work took 50% more CPU time beside the baseline: most likely the machine was slower then, or shared"),
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
    assert overlooked({"could_see": None, "sessions": None}, 5).startswith("nothing tells how far runs differ by chance")
    assert overlooked({"could_see": 12.5, "sessions": None}, 5) == (
        "a regression of 5 % over all levels could be overlooked; this comparison sees 12 % or more. 5 % takes more than 100 sessions of "
        "each side, interleaved"
    )
