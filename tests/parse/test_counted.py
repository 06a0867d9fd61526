"""Which tokens a server's counter must have, by hand."""

import polars as pl
import pytest

from bench.parse.counted import counted_bounds, counted_tokens
from bench.parse.scrapes import TELEMETRY_SCHEMA
from bench.work import GENERATION

ROW = {"outcome": "ok", "sent_s": 1.0, "end_s": 2.0, "completion_tokens": 10, "output_asked": 10}
SCHEMA = {
    "outcome": pl.String,
    "sent_s": pl.Float64,
    "end_s": pl.Float64,
    "completion_tokens": pl.Int64,
    "output_asked": pl.Int64,
}


def bounds(*changes, at=(0.0, 9.0), name="vllm:generation_tokens_total"):
    requests = pl.DataFrame([{**ROW, **change} for change in changes], schema=SCHEMA)
    samples = [(slot, moment, "u", name, "", 1.0) for slot, moment in enumerate(at)]
    found = counted_bounds(requests, pl.DataFrame(samples, schema=TELEMETRY_SCHEMA, orient="row"))
    return found["server_tokens_least"], found["server_tokens_most"]


@pytest.mark.parametrize(
    ("changes", "scrapes", "expected"),
    [
        ([{}, {}], (0.0, 9.0), (20, 20)),
        ([{}, {"sent_s": 0.5}], (0.7, 9.0), (10, 20)),  # the first scrape may have counted a part of what was sent before it
        ([{}, {"end_s": 9.5}], (0.0, 9.0), (10, 20)),  # the last one lacks what was still to come
        ([{"end_s": 9.5}], (0.0, 9.0), (None, 10)),
        ([{}, {"outcome": "timeout", "completion_tokens": None}], (0.0, 9.0), (10, 20)),
        ([{}, {"outcome": "http_error", "completion_tokens": None}], (0.0, 9.0), (10, 20)),
        ([{}, {"outcome": "disconnect", "sent_s": None, "completion_tokens": None}], (0.0, 9.0), (10, 10)),
        ([{}, {"completion_tokens": None}], (0.0, 9.0), (10, 20)),  # without a count it may have been as long as asked for
        ([{"completion_tokens": 4}], (0.0, 9.0), (4, 4)),
        ([{}], (), (None, None)),
    ],
)  # fmt: skip
def test_an_answer_counts_for_certain_between_the_scrapes(changes, scrapes, expected):
    assert bounds(*changes, at=scrapes) == expected


def test_values_that_come_late_count_later():
    """Ray passes values on that are up to ten seconds old: the first may lack an earlier load's tokens, the last these."""
    late = {"name": "ray_vllm_generation_tokens_total"}
    assert bounds({}, {"end_s": 20.0}, at=(0.0, 29.0), **late) == (10, None)
    assert bounds({}, at=(0.0, 11.0), **late) == (None, None)


@pytest.mark.parametrize(("counts", "expected"), [([3, 4], 7), ([3, None], None), ([None], None), ([], 0)])
def test_the_sum_of_some_answers_is_no_sum(counts, expected):
    answered = pl.DataFrame({"completion_tokens": counts}, schema={"completion_tokens": pl.Int64})
    assert counted_tokens(answered, GENERATION) == expected
