"""Requests in flight by two accounts, on courses that can be counted by hand."""

import numpy as np
import polars as pl
import pytest

from bench.parse.in_flight import in_flight_figures
from bench.parse.scrapes import TELEMETRY_SCHEMA
from bench.records.request_table import REQUEST_SCHEMA

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


def test_a_server_that_has_them_all_lacks_none():
    told = found(requests(8), scrapes(lambda _: 8))
    assert (told["held_back_requests"], told["held_back_share"]) == (0, 0)
    assert (told["client_in_flight_mean"], told["server_in_flight_mean"]) == (pytest.approx(8 * 50 / 51), 8)


def test_a_gate_lacks_what_it_holds():
    told = found(requests(8), scrapes(lambda _: 2))
    assert (told["held_back_requests"], told["held_back_share"]) == (6, 0.75)


def test_a_gauge_of_the_step_before_last_is_no_lack():
    """Steps of three seconds: the gauge knows of the burst only when the first has ended, at 3 s, which is a third of the run."""
    told = found(requests(8, first=3.0, gap=3.0), scrapes(lambda t: 8 if t >= 3 else 0))
    assert told["held_back_requests"] == 0


def test_answers_shorter_than_the_window_are_held_at_no_scrape():
    """A hundred answers of 0.3 s, three at once: at no scrape does the server tell more than one."""
    rows = [
        {"sent_s": t, "end_s": t + 0.3, "token_times_s": [t + 0.1, t + 0.2, t + 0.3]} for t in np.arange(0, END, 0.1).tolist()
    ]
    told = found(pl.DataFrame(rows, schema=REQUEST_SCHEMA), scrapes(lambda _: 2.5))
    assert told["held_back_requests"] < 1


def test_gauges_of_every_40th_step_are_given_the_time():
    """SGLang tells its gauges each 40 decode steps: with 0.1 s a step the first does not know of the second burst for 4 s."""
    late = requests(8).with_columns(sent_s=pl.Series([0.0] * 2 + [3.0] * 6))
    told = found(late, scrapes(lambda t: 2 if t < 7 else 8, **SGLANG))
    assert told["held_back_requests"] in (0, None)
    assert found(late, scrapes(lambda t: 2 if t < 9 else 8))["held_back_requests"] == 6


def test_of_one_gauge_alone_the_sum_is_not_known():
    told = found(requests(8), scrapes(lambda _: 2, waiting=None))
    assert set(told.values()) == {None}


def test_a_few_scrapes_are_no_median():
    told = found(requests(8, end=2.0), scrapes(lambda _: 2).filter(pl.col("elapsed_s") <= 2))
    assert told["held_back_requests"] is None
    assert told["server_in_flight_mean"] == 2


@pytest.mark.parametrize(
    ("until", "mean", "median"), [(0.7, None, None), (0.9, 2, None), (2.9, 50 / 15, None), (3.1, 57 / 16, 3.5)]
)
def test_five_scrapes_tell_a_mean_and_ten_a_median(until, mean, median):
    """Scrapes at 0.0, 0.2, … s; requests are held from 1.2 s on, of which the server lacks six at five scrapes, and then one."""
    told = found(requests(8), scrapes(lambda t: 2 if t < 2.1 else 7), (0.0, until))
    assert (told["server_in_flight_mean"], told["held_back_requests"]) == (pytest.approx(mean), pytest.approx(median))


def test_the_course_by_hand():
    """Two in flight from 1 to 2 s; at 3 s one ends and another is sent; one is never sent, one never ends."""
    table = pl.DataFrame(
        [{"sent_s": 0.0, "end_s": 2.0}, {"sent_s": 1.0, "end_s": 3.0}, {"sent_s": 3.0, "end_s": 4.0}, {"end_s": 9.0}, {"sent_s": 9.0}],
        schema=REQUEST_SCHEMA,
    )  # fmt: skip
    seconds = [found(table, scrapes(lambda _: 1), (i, i + 0.9))["client_in_flight_mean"] for i in range(5)]
    assert seconds == [1, 2, 1, 1, 0]


@pytest.mark.parametrize(
    ("window", "held"),
    [
        ((0.81, 1.49), None),
        ((1.51, 1.99), 5),
        ((2.01, 5.99), 7),
        ((6.01, 6.99), 4),
    ],  # by two steps before: none, 0.5 s, 1.0 s and later
)
def test_held_are_those_in_flight_since_two_steps_before(window, held):
    """Five at first, seven from 1.0 s on, four from 6.0 s on; of two tokens the second is of another step 0.5 s after the first."""
    sent, ends = [0.0] * 5 + [1.0] * 2, [6.0] * 3 + [END] * 4
    rows = [{"sent_s": a, "end_s": b, "token_times_s": []} for a, b in zip(sent, ends, strict=True)]
    silent = pl.DataFrame(rows, schema=REQUEST_SCHEMA)
    rows[-1]["token_times_s"] = [0.5, 1.0, 1.5, 2.0, 5.5]
    telemetry = scrapes(lambda _: 0, every_s=0.02)
    assert found(pl.DataFrame(rows, schema=REQUEST_SCHEMA), telemetry, window)["held_back_requests"] == held
    assert found(silent, telemetry, window)["held_back_requests"] is None


@pytest.mark.parametrize(("gap", "names", "step"), [(0.1, {}, 0.5), (0.1, SGLANG, 40 * 0.1), (0.01, SGLANG, 0.5)])
def test_the_steps_between_two_gauges(gap, names, step):
    """Two of them after the first token, at 0.1 s, requests are held."""
    known = 0.1 + 2 * step
    table, telemetry = requests(3, gap=gap), scrapes(lambda _: 1, every_s=0.01, **names)
    assert found(table, telemetry, (0.0, known - 0.005))["held_back_requests"] is None
    assert found(table, telemetry, (known + gap, known + gap + 0.1))["held_back_requests"] == 2


@pytest.mark.parametrize(("held", "expected"), [(2, 1), (1, None)])
def test_a_single_request_proves_nothing(held, expected):
    assert found(requests(held), scrapes(lambda _: 1 if held == 2 else 0))["held_back_requests"] == expected
