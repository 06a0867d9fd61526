"""Requests in flight by two accounts, on courses that can be counted by hand."""

import numpy as np
import polars as pl
import pytest

from bench.parse.load import in_flight_figures
from bench.parse.scrapes import TELEMETRY_SCHEMA
from bench.parse.server import counted_bounds, counted_tokens
from bench.runs.request_table import REQUEST_SCHEMA
from bench.workloads.endpoints.kind import GENERATION

END = 10.0


def requests(count, *, first=0.1, gap=0.1, end=END):
    """A burst of `count` requests, whose tokens come `gap` apart from `first` on (s)."""
    times = np.arange(first, end + 1e-9, gap).tolist()
    return pl.DataFrame([{"sent_s": 0.0, "end_s": end, "token_times_s": times}] * count, schema=REQUEST_SCHEMA)


def scrapes(running, *, prefix="vllm:num_requests_running", waiting="vllm:num_requests_waiting", every_s=0.2):
    """Scrapes at which the server tells `running(t)`; nobody waits."""
    rows = [
        (slot, every_s * slot, "u", name, "", value)
        for slot in range(round(END / every_s) + 1)
        for name, value in ((prefix, float(running(every_s * slot))), (waiting, 0.0))
        if name
    ]
    return pl.DataFrame(rows, schema=TELEMETRY_SCHEMA, orient="row")


def found(requests, telemetry, window=(0.0, END)):
    return in_flight_figures(requests, telemetry, window)


SGLANG = {"prefix": "sglang:num_running_reqs", "waiting": "sglang:num_queue_reqs"}


def test_what_a_gate_holds_is_lacking():
    told = found(requests(8), scrapes(lambda _: 8))
    assert (told["held_back_requests"], told["held_back_share"]) == (0, 0)
    assert (told["client_in_flight_mean"], told["server_in_flight_mean"]) == (pytest.approx(8 * 50 / 51), 8)
    told = found(requests(8), scrapes(lambda _: 2))
    assert (told["held_back_requests"], told["held_back_share"]) == (6, 0.75)
    told = found(requests(8), scrapes(lambda _: 2, waiting=None))
    assert set(told.values()) == {None}
    told = found(requests(8, end=2.0), scrapes(lambda _: 2).filter(pl.col("elapsed_s") <= 2))
    assert (told["held_back_requests"], told["server_in_flight_mean"]) == (None, 2)


def test_gauges_that_lag_and_answers_that_are_short_are_no_lack():
    """Steps of three seconds: the gauge knows of the burst only when the first has ended, at 3 s, which is a third of the run."""
    told = found(requests(8, first=3.0, gap=3.0), scrapes(lambda t: 8 if t >= 3 else 0))
    assert told["held_back_requests"] == 0
    # A hundred answers of 0.3 s, three at once: at no scrape does the server tell more than one.
    rows = [
        {"sent_s": t, "end_s": t + 0.3, "token_times_s": [t + 0.1, t + 0.2, t + 0.3]} for t in np.arange(0, END, 0.1).tolist()
    ]
    told = found(pl.DataFrame(rows, schema=REQUEST_SCHEMA), scrapes(lambda _: 2.5))
    assert told["held_back_requests"] < 1
    # SGLang tells its gauges each 40 decode steps: with 0.1 s a step the first does not know of the second burst for 4 s.
    late = requests(8).with_columns(sent_s=pl.Series([0.0] * 2 + [3.0] * 6))
    told = found(late, scrapes(lambda t: 2 if t < 7 else 8, **SGLANG))
    assert told["held_back_requests"] in (0, None)
    assert found(late, scrapes(lambda t: 2 if t < 9 else 8))["held_back_requests"] == 6


def test_five_scrapes_tell_a_mean_and_ten_a_median():
    """Scrapes at 0.0, 0.2, … s; requests are held from 1.2 s on, of which the server lacks six at five scrapes, and then one."""
    for until, mean, median in [(0.7, None, None), (0.9, 2, None), (2.9, 50 / 15, None), (3.1, 57 / 16, 3.5)]:
        told = found(requests(8), scrapes(lambda t: 2 if t < 2.1 else 7), (0.0, until))
        assert (told["server_in_flight_mean"], told["held_back_requests"]) == (pytest.approx(mean), pytest.approx(median)), (
            until
        )


def test_the_course_by_hand():
    """Two in flight from 1 to 2 s; at 3 s one ends and another is sent; one is never sent, one never ends."""
    table = pl.DataFrame(
        [{"sent_s": 0.0, "end_s": 2.0}, {"sent_s": 1.0, "end_s": 3.0}, {"sent_s": 3.0, "end_s": 4.0}, {"end_s": 9.0}, {"sent_s": 9.0}],
        schema=REQUEST_SCHEMA,
    )  # fmt: skip
    seconds = [found(table, scrapes(lambda _: 1), (i, i + 0.9))["client_in_flight_mean"] for i in range(5)]
    assert seconds == [1, 2, 1, 1, 0]


def test_held_are_those_in_flight_since_two_steps_before():
    """Five at first, seven from 1.0 s on, four from 6.0 s on; of two tokens the second is of another step 0.5 s after the first."""
    for window, held in [
        ((0.81, 1.49), None), ((1.51, 1.99), 5), ((2.01, 5.99), 7), ((6.01, 6.99), 4),
    ]:  # fmt: skip
        sent, ends = [0.0] * 5 + [1.0] * 2, [6.0] * 3 + [END] * 4
        rows = [{"sent_s": a, "end_s": b, "token_times_s": []} for a, b in zip(sent, ends, strict=True)]
        silent = pl.DataFrame(rows, schema=REQUEST_SCHEMA)
        rows[-1]["token_times_s"] = [0.5, 1.0, 1.5, 2.0, 5.5]
        telemetry = scrapes(lambda _: 0, every_s=0.02)
        assert found(pl.DataFrame(rows, schema=REQUEST_SCHEMA), telemetry, window)["held_back_requests"] == held
        assert found(silent, telemetry, window)["held_back_requests"] is None
    # Two of them after the first token, at 0.1 s, requests are held.
    for gap, names, step in [(0.1, {}, 0.5), (0.1, SGLANG, 40 * 0.1), (0.01, SGLANG, 0.5)]:
        known = 0.1 + 2 * step
        table, telemetry = requests(3, gap=gap), scrapes(lambda _: 1, every_s=0.01, **names)
        assert found(table, telemetry, (0.0, known - 0.005))["held_back_requests"] is None, gap
        assert found(table, telemetry, (known + gap, known + gap + 0.1))["held_back_requests"] == 2
    # A single request proves nothing.
    for held, shown, expected in [(2, 1, 1), (1, 0, None)]:
        assert found(requests(held), scrapes(lambda _, shown=shown: shown))["held_back_requests"] == expected


# Which tokens a server's counter must have


ROW = {"outcome": "ok", "sent_s": 1.0, "end_s": 2.0, "completion_tokens": 10, "output_asked": 10}
SCHEMA = {
    "outcome": pl.String, "sent_s": pl.Float64, "end_s": pl.Float64, "completion_tokens": pl.Int64,
    "output_asked": pl.Int64,
}  # fmt: skip


def bounds(*changes, at=(0.0, 9.0), name="vllm:generation_tokens_total"):
    requests = pl.DataFrame([{**ROW, **change} for change in changes], schema=SCHEMA)
    samples = [(slot, moment, "u", name, "", 1.0) for slot, moment in enumerate(at)]
    found = counted_bounds(requests, pl.DataFrame(samples, schema=TELEMETRY_SCHEMA, orient="row"))
    return found["server_tokens_least"], found["server_tokens_most"]


def test_an_answer_counts_for_certain_between_the_scrapes():
    for changes, scrapes, expected in [
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
    ]:  # fmt: skip
        assert bounds(*changes, at=scrapes) == expected
    # The sum of some answers is no sum.
    for counts, expected in [([3, 4], 7), ([3, None], None), ([None], None), ([], 0)]:
        answered = pl.DataFrame({"completion_tokens": counts}, schema={"completion_tokens": pl.Int64})
        assert counted_tokens(answered, GENERATION) == expected, counts
