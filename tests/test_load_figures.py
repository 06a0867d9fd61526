"""What a run was to be, what load came about and how well it was watched, by hand, one number after the other."""

from dataclasses import replace

import polars as pl
import pytest

from bench.drift import place_of_run
from bench.parse import run as run_module
from bench.parse.begun import request_share
from bench.parse.load import _peak, _queue, _rate, _recovery, asked_figures
from bench.parse.scrapes import TELEMETRY_SCHEMA
from bench.records.request_table import REQUEST_SCHEMA
from bench.records.run import ReferenceLoad
from tests import records
from tests.conftest import METRICS

DEFINITION = {"workload": "w", "arrival": "closed", "axis": "concurrency", "level": 2, "repeat": 3}


def requests(**columns):
    return pl.DataFrame(columns, schema_overrides={name: REQUEST_SCHEMA[name] for name in columns})


# What was asked: of a closed loop of two, the first two requests are on their way when it begins

ASKED = {"index": range(12), "prompt_asked": range(10, 130, 10), "output_asked": [3, 9] + [4] * 5 + [8] * 5}


def test_what_was_asked_by_hand():
    lengths = {"prompt_tokens": {"distribution": "x", "mean": 8}, "output_tokens": 16, "levels": [1]}
    assert asked_figures({**DEFINITION, **lengths}, requests(**ASKED)) == {
        **DEFINITION, "family": "w", "stream": True, "endpoint": "completions", "cache": "unique", "turns": 1, "prompt_fixed": None,
        "output_fixed": 16, "prompt_tokens": 65, "prompt_tokens_p90": 110, "output_tokens": 6, "num_requests": 12, "level": 2.0,
        "concurrency": 2, "users": None, "request_rate": None, "time_scale": None, "prompts": "random", "answers": "exact", "body": None, "work": "generation",
    }  # fmt: skip


def test_what_was_asked_for_otherwise():
    kept = {"family": "f", "stream": False, "endpoint": "chat", "cache": "prefix"}
    other = {**DEFINITION, **kept, "turns": {"count": 4}, "prompt_tokens": {"tokens": 9}, "axis": "request_rate", "level": 2.5}
    told = asked_figures(other, requests(**ASKED))
    expected = {
        **kept,
        "turns": 4,
        "prompt_fixed": 9,
        "output_fixed": None,
        "level": 2.5,
        "concurrency": None,
        "request_rate": 2.5,
    }
    assert {name: told[name] for name in expected} == expected
    assert told["output_tokens"] == pytest.approx((3 + 9 + 20 + 40) / 12)  # conversations begin with whole requests


@pytest.mark.parametrize(
    ("definition", "shares"),
    [
        (DEFINITION, [0.5, 1.5, 1.0]),  # 3 and 9 of 6 tokens
        ({**DEFINITION, "arrival": "poisson"}, [1.0, 1.0, 1.0]),
        ({**DEFINITION, "turns": {"count": 2}}, [1.0, 1.0, 1.0]),
        ({**DEFINITION, "level": 20}, [3 / 6, 9 / 6, 4 / 6]),  # all are on their way: their own mean
    ],
)
def test_what_of_a_request_the_first_of_a_closed_loop_are(definition, shares):
    table = requests(**ASKED)
    assert table.select(request_share(definition, table)).to_series().head(3).to_list() == pytest.approx(shares)
    silent = table.with_columns(output_asked=pl.lit(0))
    assert silent.select(request_share(definition, silent)).to_series()[0] == 1


# What load came about


def test_rate_and_peak_by_hand():
    assert _rate(pl.Series([4.0, 1.0, 2.0])) == pytest.approx(2 / 3)
    assert _rate(pl.Series([1.0, 3.0])) == 0.5
    assert (_rate(pl.Series([1.0])), _rate(pl.Series([1.0, 1.0]))) == (None, None)
    assert _peak(pl.Series([0.0, 1.0, 2.0]), pl.Series([1.5, 2.0, 3.0])) == 2
    assert _peak(pl.Series([], dtype=pl.Float64), pl.Series([], dtype=pl.Float64)) == 0


def gauges(waiting, usage, *, every_s=0.5):
    names = [METRICS["waiting"], METRICS["kv_usage"]]
    rows = [
        (slot, every_s * slot, "u", name, "", float(value))
        for slot, values in enumerate(zip(waiting, usage, strict=True))
        for name, value in zip(names, values, strict=True)
    ]
    return pl.DataFrame(rows, schema=TELEMETRY_SCHEMA, orient="row")


def test_the_queue_of_a_burst_is_that_of_the_last_scrape_before_an_answer_ends():
    ends = pl.Series([1.2, 9.0])
    told = _queue(pl.Series([0.0, 0.0]), ends, gauges([5, 4, 3, 9], [0.1, 0.2, 0.7, 0.9]))
    assert told == {"waiting_standing": 3, "kv_usage_queued": 0.7}
    told = _queue(pl.Series([0.0, 0.0]), ends, gauges([5, 4, 0, 9], [0.1, 0.2, 0.7, 0.9]))
    assert told == {"waiting_standing": 0, "kv_usage_queued": None}  # nobody waits


@pytest.mark.parametrize(
    ("first_end", "waiting", "usage"),
    [
        (
            1.0,
            3,
            pytest.approx(0.7),
        ),  # scrapes from 3 to 6 s: 0 to 6 wait, and while any does the cache is at 0.2, 0.3, 0.4, 1, 1, 1
        (3.9, 4, 1.0),  # five scrapes, from 4 s on
        (4.1, None, None),  # four
    ],
)
def test_the_queue_of_a_load_that_goes_on_is_that_of_its_second_half(first_end, waiting, usage):
    """Sent at 0, 1, … 6 s; not before the first answer ends."""
    sent = pl.Series([float(i) for i in range(7)])
    telemetry = gauges([9] * 6 + [0, 1, 2, 3, 4, 5, 6, 99], [0.1] * 7 + [0.2, 0.3, 0.4, 1.0, 1.0, 1.0, 0.9])
    told = _queue(sent, pl.Series([first_end]), telemetry)
    assert told == {"waiting_standing": waiting, "kv_usage_queued": usage}


def test_without_requests_or_gauges_no_queue_is_known():
    nothing = {"waiting_standing": None, "kv_usage_queued": None}
    never, once = pl.Series([], dtype=pl.Float64), pl.Series([1.0])
    told = gauges([1] * 8, [0.5] * 8)
    assert [_queue(never, once, told), _queue(once, never, told), _queue(once, pl.Series([3.0]), told.clear())] == [nothing] * 3


def test_a_step_s_recovery_counts_from_its_end():
    """Due each second from 0 s; from 10 s to 15 s a first token takes 5 s, before and afterwards half a second."""
    due = [float(i) for i in range(40)]
    slow = [5.0 if 10 <= at < 16 else 0.5 for at in due]
    table = requests(outcome=["ok"] * 40, scheduled_s=due, first_token_s=[a + b for a, b in zip(due, slow, strict=True)])
    # Of nine requests from 14 s on two are slow.
    assert _recovery({"start_s": 10.0, "duration_s": 4.0}, table) == {"recovered": True, "recovery_s": 0.0}
    # Of nine from 11 s on five are, of those from 12 s on four.
    assert _recovery({"start_s": 10.0, "duration_s": 1.0}, table) == {"recovered": True, "recovery_s": 1.0}
    assert _recovery(None, table) == {"recovered": None, "recovery_s": None}


# What is kept of a run


def test_the_reference_load_by_hand():
    """Of its times the fastest counts. Its round began with it where nothing else is said, as in records of earlier versions."""
    shape = {"requests": 7, "in_flight": 3, "prompt_tokens": 20, "output_tokens": 30}
    reference = ReferenceLoad(seconds=(4.0, 2.0), started="s", since="r", **shape)
    expected = {
        "round": 3, "position": None, "session": 1, "reference_s": 2.0, "reference_started": "s", "reference_since": "r",
        "reference_load": "7 requests, 3 at once, 20 + 30 tokens, 2 times",
    }  # fmt: skip
    assert place_of_run(records.header(round=3, reference=reference)) == expected
    assert place_of_run(records.header(round=3, reference=replace(reference, since=None)))["reference_since"] == "s"
    placed = place_of_run(records.header(round=2, position=5, session=4))
    columns = ["reference_s", "reference_started", "reference_since", "reference_load"]
    assert placed == {"round": 2, "position": 5, "session": 4, **dict.fromkeys(columns)}


def test_failures_by_their_kind():
    table = requests(
        outcome=["ok", "http_error", "http_error", "http_error", "disconnect", "disconnect", "timeout", "timeout"],
        status=[200, 503, 503, None, None, None, None, None],
        sent_s=[0.0, 0.0, 0.0, 0.0, None, 0.0, None, 0.0],
    )
    assert run_module._failures(table) == {
        "outcome_disconnect": 1, "outcome_http_0": 1, "outcome_http_503": 2, "outcome_timeout": 1, "outcome_unreachable": 2,
    }  # fmt: skip


def test_percentiles_and_low_ends_by_hand():
    """Ten requests: TTFT 1 to 10 s for prompts of 10 tokens, gaps of 1 to 10 s, two each."""
    rows = pl.DataFrame({
        "ttft_s": [float(i) for i in range(1, 11)], "e2e_s": [None] * 9 + [7.0], "tpot_s": [2.0] * 10, "prompt_asked": [10] * 10,
        "token_times_s": [[0.0, float(i), 2.0 * i] for i in range(1, 11)],
    }, schema_overrides={"e2e_s": pl.Float64})  # fmt: skip
    told = run_module._latencies(rows, one_each=True)
    assert [told[f"ttft_{name}_s"] for name in ("mean", "p50", "p90", "p95", "p99")] == [5.5, 5, 9, 10, 10]
    assert (told["e2e_n"], told["e2e_p50_s"], told["itl_n"], told["itl_mean_s"]) == (1, 7, 20, 5.5)
    assert (told["itl_p10_s"], told["ttft_per_token_p10_s"]) == (1, 0.1)
    many = run_module._distribution("x", pl.Series([float(i) for i in range(64)]), bounds=True)
    assert (many["x_p90_bound_s"], many["x_p95_bound_s"]) == (63, None)  # 64 values carry a P90 and no P95


def test_the_peak_second_by_hand():
    """Three tokens a chunk: of the windows that end with a chunk, (0.5, 1.5] has three, (1, 2] two; one at its begin is out."""
    ok = requests(token_times_s=[[0.5, 0.9, 1.2, 1.5], [2.0, 4.0]], completion_tokens=[12, 6])
    assert run_module._peak(ok, 3.5) == 9
    assert run_module._peak(ok, 1.0) == 18
    assert run_module._peak(ok, 0.5) == 36  # the mean
    assert (run_module._peak(ok, None), run_module._peak(ok.clear(), 2.0)) == (None, None)


@pytest.mark.parametrize(
    ("scrapes", "interval", "expected"),
    [  # of a load from 1 to 3.5 s
        ([0.9, 1.0, 2.0, 3.5, 3.6], 0.5, (5, True, True, True, 3 / 5, 1.5)),
        ([1.0, 3.5], 0.5, (2, True, True, True, 2 / 5, 2.5)),
        ([1.1, 3.4], 0.5, (2, True, False, False, 2 / 5, 2.3)),
        ([0.0, 0.8, 2.0], 0.6, (3, True, True, False, None, 1.5)),  # four are due
        ([4.0], 0.5, (1, True, False, True, 0, 3.0)),
        ([], 0.5, (0, False, None, None, 0, None)),
        ([], None, (0, None, None, None, None, None)),
    ],
)
def test_how_well_a_load_was_watched(scrapes, interval, expected):
    told = run_module._scrape_figures(scrapes, interval, 1.0, 3.5)
    names = ("scrapes", "scraped", "scraped_before", "scraped_after", "scrape_share", "scrape_gap_max_s")
    assert told == dict(zip(names, expected, strict=True))


def test_a_load_that_never_was_is_not_watched():
    told = run_module._scrape_figures([1.0, 9.0], 0.5, 0.0, 0.0)
    assert (told["scraped_before"], told["scraped_after"], told["scrape_share"]) == (None, None, None)
    assert run_module._load_window(requests(sent_s=[1.0], last_token_s=[None])) == (0.0, 0.0)
    assert run_module._load_window(requests(sent_s=[None], last_token_s=[2.0])) == (0.0, 0.0)
    assert run_module._load_window(requests(sent_s=[3.0, 1.0], last_token_s=[4.0, None])) == (1.0, 4.0)


def test_gaps_that_do_not_touch_the_load_do_not_count():
    assert run_module._longest_gap([0.0, 4.0, 5.0, 6.0, 6.5, 12.0], 4.0, 6.5) == 1
    assert run_module._longest_gap([0.0, 4.1, 6.4, 12.0], 4.0, 6.5) == 5.6
