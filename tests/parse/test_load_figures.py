"""What a run was to be, what load came about and how well it was watched, by hand, one number after the other."""

import polars as pl
import pytest

from bench.parse.drift import place_of_run
from bench.parse.latency import latency_columns
from bench.parse.load import asked_figures, load_figures, recovery
from bench.parse.run import summarise
from bench.parse.scrapes import TELEMETRY_SCHEMA
from bench.parse.steady import request_share
from bench.runs.columns import COLUMNS
from bench.runs.request_table import REQUEST_SCHEMA
from bench.runs.run import ReferenceLoad
from bench.workloads.workload import Workload
from tests.support import records
from tests.support.study import METRICS

DEFINITION = {"workload": "w", "arrival": "closed", "axis": "concurrency", "level": 2, "repeat": 3}
NOTHING_SCRAPED = pl.DataFrame(schema=TELEMETRY_SCHEMA)


def requests(**columns):
    """The tidy table of requests with these columns; the others are null."""
    rows = pl.DataFrame(columns, schema_overrides={name: REQUEST_SCHEMA[name] for name in columns})
    others = {name: pl.lit(None, kind) for name, kind in REQUEST_SCHEMA.items() if name not in columns}
    return latency_columns(rows.lazy().with_columns(**others)).collect()


def loaded(table, telemetry=NOTHING_SCRAPED, **definition):
    """What load came about, of a burst unless said otherwise."""
    record = records.run(definition={**records.DEFINITION, **definition})
    return load_figures(record, table, telemetry, {"prefix_hits": None, "prefix_queries": None}, (0.0, 1.0))


def told(scrapes=(), *, interval=None, **columns):
    """The summary of a burst of requests with these columns, scraped at these moments."""
    record = records.run(scrape_interval_s=interval, scrape_endpoint=None if interval is None else "u")
    return summarise(record, requests(**columns), NOTHING_SCRAPED, list(scrapes))


def test_a_server_s_count_of_documents_is_not_one_of_requests():
    """One request of four documents is four to the server: nobody else used it."""
    gauges = (("vllm:num_requests_running", 4.0), ("vllm:num_requests_waiting", 0.0))
    rows = [(i, 0.1 * i, "u", name, "", value) for i in range(1, 10) for name, value in gauges]
    telemetry = pl.DataFrame(rows, schema=TELEMETRY_SCHEMA, orient="row")
    table = requests(index=[0], sent_s=[0.0], end_s=[1.0], token_times_s=[[1.0]])
    counted = {name: loaded(table, telemetry, endpoint=name) for name in ("embeddings", "rerank")}
    assert [each["client_in_flight_mean"] for each in counted.values()] == [1.0, 1.0]
    assert [each["server_in_flight_mean"] for each in counted.values()] == [4.0, None]


# What was asked: of a closed loop of two, the first two requests are on their way when it begins

ASKED = {"index": range(12), "prompt_asked": range(10, 130, 10), "output_asked": [3, 9] + [4] * 5 + [8] * 5}


def test_what_was_asked_by_hand():
    lengths = {"prompt_tokens": {"distribution": "x", "mean": 8}, "output_tokens": 16, "levels": [1]}
    assert asked_figures({**DEFINITION, **lengths}, requests(**ASKED)) == {
        **DEFINITION, "family": "w", "stream": True, "endpoint": "completions", "cache": "unique", "turns": 1, "prompt_fixed": None,
        "output_fixed": 16, "prompt_tokens": 65, "prompt_tokens_p90": 110, "output_tokens": 6, "num_requests": 12, "level": 2.0,
        "concurrency": 2, "users": None, "request_rate": None, "time_scale": None, "prompts": "random", "answers": "exact", "body": None, "work": "generation",
        "classes": None,
    }  # fmt: skip
    kept = {"family": "f", "stream": False, "endpoint": "chat", "cache": "prefix"}
    other = {**DEFINITION, **kept, "turns": {"count": 4}, "prompt_tokens": {"tokens": 9}, "axis": "request_rate", "level": 2.5}
    told = asked_figures(other, requests(**ASKED))
    expected = {
        **kept, "turns": 4, "prompt_fixed": 9, "output_fixed": None, "level": 2.5, "concurrency": None,
        "request_rate": 2.5,
    }  # fmt: skip
    assert {name: told[name] for name in expected} == expected
    assert told["output_tokens"] == pytest.approx((3 + 9 + 20 + 40) / 12)  # conversations begin with whole requests


def test_each_key_of_a_workload_has_its_column():
    """A run's definition has those that are not their default, and a table of runs refuses what it does not know."""
    assert Workload.model_fields.keys() - COLUMNS.keys() == {"step"}  # `turns`, `body` and the like are written as text


def test_what_of_a_request_the_first_of_a_closed_loop_are():
    for definition, shares in [
        (DEFINITION, [0.5, 1.5, 1.0]),  # 3 and 9 of 6 tokens
        ({**DEFINITION, "arrival": "poisson"}, [1.0, 1.0, 1.0]),
        ({**DEFINITION, "turns": {"count": 2}}, [1.0, 1.0, 1.0]),
        ({**DEFINITION, "level": 20}, [3 / 6, 9 / 6, 4 / 6]),  # all are on their way: their own mean
    ]:
        table = requests(**ASKED)
        assert table.select(request_share(definition, table)).to_series().head(3).to_list() == pytest.approx(shares)
        silent = table.with_columns(output_asked=pl.lit(0))
        assert silent.select(request_share(definition, silent)).to_series()[0] == 1


# What load came about


def test_rates_and_the_most_in_flight_by_hand():
    """Gaps between the first and the last."""
    for moments, rate in [([4.0, 1.0, 2.0], 2 / 3), ([1.0, 3.0], 0.5), ([1.0], None), ([1.0, 1.0], None)]:
        figures = loaded(requests(scheduled_s=moments, sent_s=[0.0] * len(moments)))
        assert (figures["offered_rate"], figures["achieved_rate"]) == (pytest.approx(rate), None), moments
        assert loaded(requests(sent_s=moments))["achieved_rate"] == pytest.approx(rate)
    # One that ends at the moment another is sent makes room for it.
    for sent, ends, peak in [([0.0, 1.0, 2.0], [1.5, 2.0, 3.0], 2), ([None], [None], 0)]:
        assert loaded(requests(sent_s=sent, end_s=ends))["in_flight_peak"] == peak


def gauges(waiting, usage):
    names = [METRICS["waiting"], METRICS["kv_usage"]]
    rows = [
        (slot, 0.5 * slot, "u", name, "", float(value))
        for slot, values in enumerate(zip(waiting, usage, strict=True))
        for name, value in zip(names, values, strict=True)
    ]
    return pl.DataFrame(rows, schema=TELEMETRY_SCHEMA, orient="row")


def queued(sent, ends, telemetry):
    """Requests sent at these moments, of which the first ones end at those (s)."""
    figures = loaded(requests(sent_s=sent, end_s=[*ends, *[None] * (len(sent) - len(ends))]), telemetry)
    return figures["waiting_standing"], figures["kv_usage_queued"]


def test_the_queue_is_that_before_the_first_answer_ends_or_that_of_the_second_half():
    assert queued([0.0, 0.0], [1.2, 9.0], gauges([5, 4, 3, 9], [0.1, 0.2, 0.7, 0.9])) == (3, 0.7)
    assert queued([0.0, 0.0], [1.2, 9.0], gauges([5, 4, 0, 9], [0.1, 0.2, 0.7, 0.9])) == (0, None)  # nobody waits
    # Sent at 0, 1, … 6 s; not before the first answer ends.
    for first_end, waiting, usage in [
        # scrapes from 3 to 6 s: 0 to 6 wait, and while any does the cache is at 0.2, 0.3, 0.4, 1, 1, 1
        (1.0, 3, pytest.approx(0.7)),
        (3.9, 4, 1.0),  # five scrapes, from 4 s on
        (4.1, None, None),  # four
    ]:
        telemetry = gauges([9] * 6 + [0, 1, 2, 3, 4, 5, 6, 99], [0.1] * 7 + [0.2, 0.3, 0.4, 1.0, 1.0, 1.0, 0.9])
        assert queued([float(i) for i in range(7)], [first_end], telemetry) == (waiting, usage)
    scraped = gauges([1] * 8, [0.5] * 8)
    for sent, ends, telemetry in (([None], [None], scraped), ([1.0], [None], scraped), ([1.0], [3.0], scraped.clear())):
        assert queued(sent, ends, telemetry) == (None, None)


def test_a_step_s_recovery_counts_from_its_end_and_from_when_a_request_was_due():
    """After the step each request leaves 5 s late: a client that waits would call that recovered."""
    due = [float(t) for t in [*range(9), *range(11, 20)]]
    sent = [at if at < 9 else at + 5 for at in due]
    table = requests(
        outcome=["ok"] * 18, scheduled_s=due, sent_s=sent, first_token_s=[at + 0.1 for at in sent], ttft_s=[0.1] * 18
    )
    figures = loaded(table, step={"start_s": 9.0, "duration_s": 1.0})
    assert (figures["recovered"], figures["recovery_s"]) == (False, None)


# What is kept of a run


def test_the_reference_load_by_hand():
    """Of its times the fastest counts."""
    shape = {"requests": 7, "in_flight": 3, "prompt_tokens": 20, "output_tokens": 30}
    reference = ReferenceLoad(seconds=(4.0, 2.0), started="s", since="r", **shape)
    expected = {
        "round": 3, "position": None, "session": 1, "reference_s": 2.0, "reference_started": "s", "reference_since": "r",
        "reference_load": "7 requests, 3 at once, 20 + 30 tokens, 2 times",
    }  # fmt: skip
    assert place_of_run(records.header(round=3, reference=reference)) == expected
    placed = place_of_run(records.header(round=2, position=5, session=4))
    columns = ["reference_s", "reference_started", "reference_since", "reference_load"]
    assert placed == {"round": 2, "position": 5, "session": 4, **dict.fromkeys(columns)}


def test_failures_by_their_kind():
    summary = told(
        outcome=["ok", "http_error", "http_error", "http_error", "disconnect", "disconnect", "timeout", "timeout"],
        status=[200, 503, 503, None, None, None, None, None],
        sent_s=[0.0, 0.0, 0.0, 0.0, None, 0.0, None, 0.0],
    )
    assert {name: count for name, count in summary.items() if name.startswith("outcome_")} == {
        "outcome_disconnect": 1, "outcome_http_0": 1, "outcome_http_503": 2, "outcome_timeout": 1, "outcome_unreachable": 2,
    }  # fmt: skip


def streamed(times, *, tokens=None, **columns):
    """Answers whose tokens come at these moments (s), as many a chunk as `tokens` says of each answer; one by default."""
    count = len(times)
    given = tokens or [len(each) for each in times]
    return {
        "outcome": ["ok"] * count, "sent_s": [0.0] * count, "token_times_s": times, "completion_tokens": given, "streamed_tokens": given,
        "first_tokens": [1.0] * count, "arrivals": [len(each) for each in times], "done": [True] * count,
        "first_token_s": [each[0] for each in times], "last_token_s": [each[-1] for each in times], **columns,
    }  # fmt: skip


def test_percentiles_by_hand():
    """Ten requests: TTFT 1 to 10 s for prompts of 10 tokens, gaps of 1 to 10 s, two each."""
    first = [float(i) for i in range(1, 11)]
    times = [[each, 2 * each, 3 * each] for each in first]
    summary = told(**streamed(times, ttft_s=first, e2e_s=[None] * 9 + [7.0], prompt_asked=[10] * 10))
    assert [summary[f"ttft_{name}_s"] for name in ("mean", "p50", "p90", "p95", "p99")] == [5.5, 5, 9, 10, 10]
    assert (summary["e2e_n"], summary["e2e_p50_s"], summary["itl_n"], summary["itl_mean_s"]) == (1, 7, 20, 5.5)
    first = [float(i) for i in range(64)]
    many = told(**streamed([[each] for each in first], ttft_s=first))
    assert (many["ttft_p90_bound_s"], many["ttft_p95_bound_s"]) == (63, None)  # 64 values carry a P90 and no P95


def test_the_peak_second_by_hand():
    """Three tokens a chunk: of the windows that end with a chunk, (0.5, 1.5] has three, (1, 2] two; one at its begin is out."""
    for began, peak in [(0.5, 9), (3.0, 18), (3.5, 36)]:
        times = [[0.5, 0.9, 1.2, 1.5], [2.0, 4.0]]
        assert told(**streamed(times, tokens=[12, 6], sent_s=[began] * 2))["throughput_peak_tokens_per_s"] == peak


WATCHED = ("scrapes", "scraped", "scraped_before", "scraped_after", "scrape_share", "scrape_gap_max_s")


def test_how_well_a_load_was_watched():
    """From the first request that was sent to the last token that came."""
    for scrapes, interval, expected in [  # of a load from 1 to 3.5 s
        ([0.9, 1.0, 2.0, 3.5, 3.6], 0.5, (5, True, True, True, 3 / 5, 1.5)),
        ([1.0, 3.5], 0.5, (2, True, True, True, 2 / 5, 2.5)),
        ([1.1, 3.4], 0.5, (2, True, False, False, 2 / 5, 2.3)),
        ([0.0, 0.8, 2.0], 0.6, (3, True, True, False, None, 1.5)),  # four are due
        ([4.0], 0.5, (1, True, False, True, 0, 3.0)),
        ([], 0.5, (0, False, None, None, 0, None)),
        ([], None, (0, None, None, None, None, None)),
        # Gaps that do not touch the load do not count.
        ([-3.0, 1.0, 2.0, 3.0, 3.5, 9.0], 0.5, (6, True, True, True, 4 / 5, 1.0)),
        ([-3.0, 1.1, 3.4, 9.0], 0.5, (4, True, True, True, 2 / 5, 5.6)),
    ]:
        summary = told(scrapes, interval=interval, sent_s=[3.0, 1.0, None], last_token_s=[3.5, None, 2.0])
        assert tuple(summary[name] for name in WATCHED) == expected
    # A load that never was is not watched.
    for sent, last in [(1.0, None), (None, 2.0)]:
        summary = told([1.0, 9.0], interval=0.5, sent_s=[sent], last_token_s=[last])
        assert summary["duration_s"] is None, sent
        assert [summary[name] for name in WATCHED[2:5]] == [None] * 3, sent


# Recovery after a step in the load: a request a second, the step from 20 s to 30 s


# Twenty requests before the step take 0.1 to 2.0 s: P50 is the 10th, P90 the 18th.
BEFORE = [0.1 * (i + 1) for i in range(20)]
STEP = [5.0] * 10


def recovered(*after, before=BEFORE, failed=(), outcome="timeout"):
    ttft = [*before, *STEP, *after]
    due = [20.0 - len(before) + i for i in range(len(ttft))]
    outcomes = [outcome if t in failed else "ok" for t in due]
    table = pl.DataFrame({"scheduled_s": due, "outcome": outcomes, "ttft_s": ttft}, schema_overrides={"ttft_s": pl.Float64})
    return recovery(table.reverse(), step_start_s=20.0, step_end_s=30.0)  # order in the file does not matter


def test_it_is_back_with_the_first_window_whose_median_is_within_the_baselines_p90():
    # Due at 30 to 36 s: slow. The window from 32 s holds five slow ones of nine; that from 33 s holds four.
    assert recovered(*[5.0] * 7, *[0.5] * 10) == (True, 3.0)
    assert recovered(*[1.0] * 9)[1] == 0.0
    # The P90 itself is back, and a little more is not.
    assert recovered(*[BEFORE[17]] * 9)[0] is True
    assert recovered(*[BEFORE[17] + 0.01] * 9)[0] is False
    assert recovered(*[5.0] * 20) == (False, None)
    # A few slow ones do not hide it.
    assert recovered(0.5, 9.0, 0.5, 9.0, 0.5, 9.0, 0.5, 9.0, 0.5)[1] == 0.0
    assert recovered(9.0, 0.5, 9.0, 0.5, 9.0, 0.5, 9.0, 0.5, 9.0)[0] is False


def test_what_has_no_ttft_counts_neither_after_the_step_nor_before():
    assert recovered(*[0.5] * 8)[0] is None  # eight after the step, whatever those within it were
    assert recovered(*[None, 0.5] * 9)[1] == 1.0
    assert recovered(*[None] * 9, *[0.5] * 8)[0] is None
    assert recovered(*[0.5] * 9, before=[1.0] * 9, failed=[11.0]) == (None, None)
    assert recovered(*[0.5] * 9, before=[1.0] * 9, failed=[11.0], outcome="http_error") == (None, None)
    assert recovered(*[0.5] * 9, before=[1.0] * 9)[0] is True
    empty = pl.DataFrame(schema={"scheduled_s": pl.Float64, "outcome": pl.String, "ttft_s": pl.Float64})
    assert recovery(empty, step_start_s=1.0, step_end_s=2.0) == (None, None)
    # A failed request is one of infinite TTFT.
    after = [0.5] * 9
    assert recovered(*after, failed=[30.0, 31.0, 32.0, 33.0])[0] is True
    # even with a first token before it failed
    assert recovered(*after, failed=[30.0, 31.0, 32.0, 33.0, 34.0])[0] is False
    assert recovered(*after, failed=[30.0, 31.0, 32.0, 33.0, 34.0], outcome="http_error")[0] is False
    assert recovered(*[None] * 5, *[0.5] * 4, failed=[30.0, 31.0, 32.0, 33.0, 34.0])[0] is False
