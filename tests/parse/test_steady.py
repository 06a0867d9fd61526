"""The steady window of a run: where its ramp ends, whether its load is carried, and what is measured in it, on simulated servers."""

import numpy as np
import polars as pl
import pytest

from bench.parse.scrapes import TELEMETRY_SCHEMA
from bench.parse.steady import (
    backlog_growth,
    conversation_s,
    gauges_between,
    judged_load,
    mean_in_flight,
    mser,
    ramp,
    rates_between,
    steady_figures,
    steady_window,
)
from bench.workloads.endpoints.kind import GENERATION
from tests.support.planted import parsed, poisson, queue, table
from tests.support.study import METRICS

OPEN = {"arrival": "poisson", "axis": "request_rate"}
CLOSED = {"arrival": "closed", "axis": "concurrency"}
NO_TELEMETRY = pl.DataFrame(schema=TELEMETRY_SCHEMA)


def closed_loop(in_flight, count, service_s, *, seed=1, tokens=16):
    """Moments of sending and of the tokens of a closed loop, each of whose requests takes `service_s` (± 10 %)."""
    draw = np.random.default_rng(seed)
    free, sent, ends = [0.0] * in_flight, [], []
    for _ in range(count):
        at = free.pop(free.index(min(free)))
        took = service_s * draw.uniform(0.9, 1.1)
        sent.append(at)
        ends.append(at + took)
        free.append(at + took)
    return np.array(sent), np.linspace(sent, ends, tokens + 1)[1:].T


def gauges_of(course, *, until_s):
    """Scrapes 0.2 s apart, at which the server shows `course(t)`: requests that run and that wait, and its KV usage."""
    names = [METRICS[name] for name in ("running", "waiting", "kv_usage")]
    rows = [
        (slot, 0.2 * slot, "u", name, "", value)
        for slot in range(round(until_s / 0.2))
        for name, value in zip(names, course(0.2 * slot), strict=True)
    ]
    return pl.DataFrame(rows, schema=TELEMETRY_SCHEMA, orient="row")


# Where the ramp ends


def test_a_ramp_of_known_length_is_cut_off_and_never_more_than_half():
    noise = np.random.default_rng(1).normal(0, 1, 200)
    rising = np.minimum(1, np.arange(200) / 60) * 50
    assert 50 <= mser(rising + noise) <= 70
    assert mser(np.full(200, 3.0)) == 0
    assert mser(noise) <= 100
    assert mser(np.arange(200.0)) == 100
    # By hand: eight values without batches. Behind the first, all are equal.
    assert (mser(np.array([9.0, 1, 1, 1, 1, 1, 1, 1])), mser(np.array([]))) == (1, 0)
    # From twenty values on, batches of five are looked at.
    assert (mser(np.array([9.0] * 3 + [1.0] * 16)), mser(np.array([9.0] * 3 + [1.0] * 17))) == (3, 5)


def correlated(seed, neighbours, count=200):
    """A steady series with busy spells: each value resembles the one before it by `neighbours` (AR(1))."""
    noise, values = np.random.default_rng(seed).normal(0, 1, count + 200), [0.0]
    for each in noise:
        values.append(neighbours * values[-1] + each)
    return np.array(values[-count:])


@pytest.mark.long(part="truth")
def test_a_busy_spell_at_the_start_is_no_ramp():
    """MSER-5 by itself cuts off a tenth and more of 12 to 34 % of such series."""
    for neighbours, most in [(0.0, 0.01), (0.8, 0.01), (0.9, 0.05), (0.95, 0.08)]:
        series = [correlated(seed, neighbours) for seed in range(100)]
        assert np.mean([mser(values) > 20 for values in series]) > 0.1, neighbours
        assert np.mean([ramp(values) > 20 for values in series]) <= most, neighbours


def test_an_open_loop_fills_the_server_for_two_latencies_and_a_closed_one_for_one():
    sent = np.arange(0, 60, 0.05)
    answers = table(sent, np.linspace(sent, sent + 5, 17)[1:].T)
    assert steady_window(answers, held=False).begin_s == pytest.approx(10)
    assert steady_window(table(*closed_loop(8, 400, 1.0)), held=True).begin_s == pytest.approx(5, rel=0.05)  # a tenth of it


# Whether the load is carried


def test_a_queue_at_70_percent_is_steady_and_its_rate_is_the_offered_one():
    """Of answers that are not streamed, too; of failures none counts."""
    sent = poisson(14.0, 3000, 0)
    window, figures = steady_figures(OPEN, table(sent, queue(sent, 0.05)), NO_TELEMETRY)
    _, whole = steady_figures(OPEN, table(sent, queue(sent, 0.05), stream=False), NO_TELEMETRY)
    assert [whole[f"steady_{name}_per_s"] for name in ("requests", "tokens")] == pytest.approx([14, 14 * 16], rel=0.05)
    _, lost = steady_figures(OPEN, table(sent[:200], queue(sent[:200], 0.05), failed=set(range(200))), NO_TELEMETRY)
    assert lost["steady_requests_per_s"] == 0 and lost["steady_failed"] == lost["steady_requests"] > 0
    assert (window.why, figures["steady"]) == (None, True)
    assert figures["steady_requests_per_s"] == pytest.approx(14, rel=0.05)
    assert figures["steady_offered_rate"] == pytest.approx(14, rel=0.05)
    # Little's law: M/D/1 has ρ + ρ² ÷ (2 (1 − ρ)) requests in the system.
    assert figures["steady_in_flight"] == pytest.approx(0.7 + 0.49 / 0.6, rel=0.25)
    assert abs(figures["steady_growth"]) < 0.01


def test_an_overload_grows_by_what_is_not_served():
    for load in [1.2, 1.5]:
        sent = poisson(20 * load, 1500, 3)
        window, figures = steady_figures(OPEN, table(sent, queue(sent, 0.05)), NO_TELEMETRY)
        assert (window.why, figures["steady"]) == ("grows", False), load
        assert window.growth == pytest.approx(1 - 1 / load, abs=max(0.03, 2.5 * window.growth_error))
        assert figures["steady_requests_per_s"] == pytest.approx(20, rel=0.02), load


# What is too short


def test_a_window_that_is_short_or_unsure_says_how_long_it_takes():
    sent, times = closed_loop(8, 16, 10.0)
    window = steady_window(table(sent, times), held=True)
    assert window.why == "short"
    assert window.needs_s >= 2 * 10 * 0.9
    assert window.needs_s >= 1.5 * sent[-1]
    enough, times = closed_loop(8, 80, 10.0)
    assert steady_window(table(enough, times), held=True).why is None
    sent = poisson(19.0, 100, 1)  # 95 % of what is served, for 5 s
    window = steady_window(table(sent, queue(sent, 0.05)), held=False)
    assert window.why == "unsure"
    assert window.growth_error > 0.04
    assert window.needs_s >= 1.5 * (sent[-1] - sent[0])


# What is measured in it


def test_a_closed_loop_has_the_rate_of_its_cycle_with_or_without_failures():
    sent, times = closed_loop(8, 400, 1.0)
    _, figures = steady_figures(CLOSED, table(sent, times), NO_TELEMETRY)
    assert (figures["steady"], figures["steady_growth"]) == (True, None)
    assert figures["steady_requests_per_s"] == pytest.approx(8, rel=0.03)
    assert figures["steady_tokens_per_s"] == pytest.approx(8 * 16, rel=0.03)
    assert figures["steady_in_flight"] == pytest.approx(8, rel=0.02)
    # Of every four requests one fails, though its tokens came.
    for outcome in ["http_error", "timeout"]:
        sent, times = closed_loop(8, 400, 1.0)
        whole = table(sent, times)
        rows = whole.with_columns(outcome=pl.when(pl.col("index") % 4 == 0).then(pl.lit(outcome)).otherwise("outcome"))
        _, figures = steady_figures(CLOSED, rows, NO_TELEMETRY)
        assert figures["steady_requests_per_s"] == pytest.approx(0.75 * 8, rel=0.03), outcome
        assert figures["steady_failed"] == pytest.approx(figures["steady_requests"] / 4, abs=1), outcome
        assert figures["steady_in_flight"] == pytest.approx(8, rel=0.02), outcome


def test_what_was_left_of_the_requests_that_a_closed_loop_begins_with_is_all_that_they_count():
    """Four in flight, a second each: 4 requests/s. The first four have 2, 6, 10 and 14 of 16 tokens left, half a request in the mean; they
    come half a second late, when all prompts are computed, and so within the window.
    """
    sent, tokens = [0.0] * 4, [0.5 + 1 / 16 * (1 + np.arange(left)) for left in (2, 6, 10, 14)]
    free = [float(times[-1]) for times in tokens]
    for _ in range(20):
        at = min(free)
        free.remove(at)
        sent.append(at)
        tokens.append(at + 1 / 16 * (1 + np.arange(16)))
        free.append(float(tokens[-1][-1]))
    requests = table(np.array(sent), tokens)
    window, figures = steady_figures({**CLOSED, "level": 4}, requests, NO_TELEMETRY)
    assert window.begin_s <= 1
    assert figures["steady_requests_per_s"] == pytest.approx(4, rel=0.002)
    assert figures["steady_tokens_per_s"] == pytest.approx(64, rel=0.002)
    _, plain = steady_figures(CLOSED, requests, NO_TELEMETRY)
    assert plain["steady_requests_per_s"] > 4.03  # if each were a whole one


def test_ramp_and_drain_are_left_out():
    """Two requests a second for a minute, each of which takes 10 s: the whole run has 120 answers in 70 s."""
    sent = np.arange(0, 60, 0.5)
    run = parsed(table(sent, np.linspace(sent, sent + 10, 17)[1:].T), rate=2.0)
    assert run["throughput_requests_per_s"] == pytest.approx(120 / 69.5)
    assert run["steady_requests_per_s"] == pytest.approx(2, rel=0.02)
    assert run["steady_in_flight"] == pytest.approx(20, rel=0.03)
    assert run["steady_from_s"] == pytest.approx(20)  # two latencies
    assert run["steady_until_s"] == 59.5
    assert run["steady_judged_until_s"] == pytest.approx(49.5, abs=0.2)  # those sent later end in the drain


def test_the_servers_gauges_are_those_of_the_window_or_not_known():
    """Four run all the time; a request waits from 40 s to 80 s, and the KV cache is fuller then."""
    sent, times = closed_loop(4, 480, 1.0)
    telemetry = gauges_of(lambda t: (4.0, float(40 <= t < 80), 0.9 if 40 <= t < 80 else 0.3), until_s=130)
    _, figures = steady_figures(CLOSED, table(sent, times), telemetry)
    share = 40 / (figures["steady_until_s"] - figures["steady_from_s"])
    assert figures["steady_running"] == figures["steady_running_high"] == 4
    assert figures["steady_queued_share"] == pytest.approx(share, abs=0.02)
    assert (figures["steady_waiting"], figures["steady_kv_usage_queued"]) == (pytest.approx(share, abs=0.02), 0.9)
    _, none = steady_figures(CLOSED, table(sent, times), NO_TELEMETRY)
    assert {none[f"steady_{name}"] for name in ("running", "waiting", "queued_share", "kv_usage", "kv_usage_queued")} == {None}


# By hand: each step of the method alone


def test_the_judgement_by_hand():
    # Loads of 100 s, from 5 s on. window: from where to 105 s. growth: with its error.
    for window, lasts, early, growth, expected in [
        (15, 45, 0, None, (None, None)),  # two conversations fit just
        (15, 46, 0, None, ("short", 10 + 4 * 46)),
        (55, 26, 0, None, ("short", 50 + 4 * 26)),
        (15, 46, 0, (0.10, 0.02), ("grows", None)),  # surely by 0.058, however long its latencies
        (15, 46, 5.9, (0.10, 0.02), ("short", 10 + 4 * 46)),  # that one latency in 100 s may explain
        (15, 46, 0, (0.09, 0.02), ("short", 10 + 4 * 46)),  # surely by 0.048 only
        (15, 10, 0, (0.06, 0.02), ("grows", None)),  # more than is allowed, and surely so: 0.042 may be chance
        (15, 10, 0, (0.06, 0.03), ("unsure", pytest.approx(100 * 2.46 ** (2 / 3)))),  # 0.063 may be chance
        (15, 10, 0, (0.02, 0.10), ("unsure", pytest.approx(100 * 4.6 ** (2 / 3)))),
        (15, 10, 0, (0.02, 3.0), ("unsure", 2000)),
        (15, 10, 0, (0.04, 0.02), (None, None)),  # 0.082 at most
        (15, 10, 0, (0.04, 0.029), ("unsure", pytest.approx(100 * 2.018 ** (2 / 3)))),  # 0.1009
        (15, 10, 0, (0.05, 0.01), (None, None)),  # what is allowed
        (15, 10, 0, (-0.5, 0.01), (None, None)),
    ]:
        assert judged_load(window, 105, 5, lasts, early, *(growth or (None, None))) == expected


def test_growth_and_its_error_by_hand():
    sent, end = np.array([0.0, 1.0]), np.array([2.0, 2.5])
    assert mean_in_flight(sent, end, np.array([0.0, 1, 2, 4])).tolist() == [1, 2, 0.25]
    # One request more each 10 s, where 2 a second are offered; what happens in the first latency does not count.
    middles = np.arange(200) + 0.5
    flying = 3 + 0.1 * middles
    assert backlog_growth(flying, 200, 0, 2.0) == (pytest.approx(0.05), pytest.approx(0, abs=1e-9))
    assert backlog_growth(np.full(200, 3.0), 200, 0, 2.0) == (0, 0)
    flying[:20] = 1000
    assert backlog_growth(flying, 200, 20, 2.0)[0] == pytest.approx(0.05)
    assert backlog_growth(flying, 200, 19, 2.0)[0] < 0
    flying[:100] = 1000
    assert backlog_growth(flying, 200, 190, 2.0)[0] == pytest.approx(0.05)  # half of the run at least is looked at
    # Batches of 10 s: Σ (t − mean)² = 10² × (20³ − 20) / 12.
    for pattern, correlation in [
        ([3, -3, -3, 3] * 5, -1 / 20 + 4 / 20),
        ([3] * 5 + [-3] * 10 + [3] * 5, 0.9),
        ([3, -3] * 5 + [-3, 3] * 5, 0),
    ]:
        growth, error = backlog_growth(np.repeat(np.array(pattern, dtype=float), 10), 200, 0, 2.0)
        variance = 9 * 20 / 18 / (100 * (20**3 - 20) / 12) * (1 + correlation) / (1 - correlation)
        assert (growth, error) == (pytest.approx(0, abs=1e-9), pytest.approx(variance**0.5 / 2)), pattern


def test_a_ramp_that_shows_in_the_tokens_alone_is_cut_off():
    """Requests of 1 s, one every 0.1 s for 100 s; until 30 s, an answer comes in one chunk, and then in ten."""
    sent = np.arange(0, 100.05, 0.1)
    rows = table(sent, np.linspace(sent, sent + 1, 11)[1:].T)
    rows = rows.with_columns(token_times_s=pl.when(pl.col("sent_s") < 30).then(pl.col("token_times_s").list.tail(1)).otherwise("token_times_s"))  # fmt: skip
    window = steady_window(rows, held=True)
    assert window.begin_s == pytest.approx(30, abs=2.6)
    assert (window.end_s, window.length_s) == (pytest.approx(100), pytest.approx(100 - window.begin_s))


def test_a_conversation_lasts_from_its_first_request_to_its_last_answer():
    """Three conversations: 0 to 5 s, 1 to 3 s and 2 to 12 s."""
    rows = pl.DataFrame({
        "index": [0, 1, 2, 3, 4], "after": [None, 0, None, None, 3],
        "sent_s": [0.0, 4, 1, 2, 10], "end_s": [1.0, 5, 3, 4, 12],
    })  # fmt: skip
    assert conversation_s(rows.sort("sent_s"), rows.filter(pl.col("after").is_null())) == 5
    alone = rows.filter(pl.col("after").is_null())
    assert conversation_s(alone, alone) == 2  # of 1, 2 and 2


def test_a_window_takes_ten_requests_and_no_burst_step_or_ramp():
    sent, times = closed_loop(2, 10, 1.0)
    assert steady_window(table(sent, times), held=True) is not None
    assert steady_window(table(np.ones(10), np.full((10, 2), 2.0)), held=True) is None  # all at once
    sent, times = closed_loop(2, 9, 1.0)
    window, figures = steady_figures(CLOSED, table(sent, times), NO_TELEMETRY)
    assert (window, figures["steady"], figures["steady_why"]) == (None, False, "short")
    for definition in [{"arrival": "burst"}, {**OPEN, "step": {"at_s": 1, "factor": 2}}]:
        sent = poisson(10, 200, 1)
        window, figures = steady_figures({"axis": "concurrency", **definition}, table(sent, queue(sent, 0.05)), NO_TELEMETRY)
        assert (window, figures) == (None, {}), definition


def test_rates_and_gauges_between_two_moments_by_hand():
    """From 5 to 15 s, seconds with 1 and with 3 answers in turn: of ten counts the mean is 2, the variance 10/9."""
    # The window's begin belongs to it, its end does not.
    moments = [5.0 + second + 0.25 * i for second in range(10) for i in range(1 + second % 2 * 2)]
    rows = [([at], 8) for at in moments] + [([4.9, 15.0], 8), ([], 8)]
    ok = pl.DataFrame(rows, schema={"token_times_s": pl.List(pl.Float64), "completion_tokens": pl.Int64}, orient="row")
    whole = pl.lit(1.0)
    assert rates_between(ok, 5.0, 15.0, whole, GENERATION) == {
        "steady_requests_per_s": pytest.approx(2),
        "steady_tokens_per_s": pytest.approx(16),
        "steady_error": pytest.approx((10 / 9) ** 0.5 / 2 / 10**0.5),
    }
    half = ok.head(1).with_columns(token_times_s=pl.Series([[4.0, 6.0, 7.0, 16.0]]))
    for answers, requests, tokens in ((half, 0.05, 0.4), (ok.clear(), 0, 0)):
        found = rates_between(answers, 5.0, 15.0, whole, GENERATION)
        assert [found[f"steady_{name}_per_s"] for name in ("requests", "tokens")] == pytest.approx([requests, tokens])
    # 21 scrapes from 2 to 6 s at which 0 to 20 run; of five a request waits, and the cache is at 0.5, 0.6, 0.7, 0.8, 0.9.

    def course(t):
        number = round((t - 2) / 0.2)
        return number, float(number >= 16), 0.5 + 0.1 * (number - 16) if number >= 16 else 0.1

    told = gauges_between(gauges_of(course, until_s=20), 2.0, 6.05)
    assert told == {
        "steady_running": 10, "steady_running_high": 19, "steady_waiting": pytest.approx(5 / 21),
        "steady_queued_share": pytest.approx(5 / 21), "steady_kv_usage": pytest.approx((16 * 0.1 + 5 * 0.7) / 21),
        "steady_kv_usage_queued": pytest.approx(0.7),
    }  # fmt: skip


def test_what_is_offered_in_the_window_by_hand():
    """Every half second from 0 to 60 s: a window begins after batches of 1.5 s, with a request that counts, and ends before its last."""
    sent = np.arange(0, 60.25, 0.5)
    window, figures = steady_figures(OPEN, table(sent, np.linspace(sent, sent + 2, 17)[1:].T), NO_TELEMETRY)
    assert window.begin_s > 0
    assert (window.begin_s % 1.5, window.end_s) == (0, 60)
    assert figures["steady_offered_rate"] == 2
    assert figures["steady_requests"] == 2 * (58 - window.begin_s) + 1  # until 58 s: they take 2 s
    assert figures["steady_in_flight"] == pytest.approx(4)
    # A load that begins later has its window later.
    sent = np.arange(0, 60.25, 0.5)
    times = np.linspace(sent, sent + 5, 17)[1:].T
    first, later = (steady_window(table(sent + at, times + at), held=True) for at in (0, 1000))
    assert first.begin_s > 1
    assert (later.begin_s, later.end_s) == (pytest.approx(1000 + first.begin_s), 1060)
    assert (later.judged_until_s, later.why) == (pytest.approx(1000 + first.judged_until_s), first.why)
    # Latencies are judged in three quarters of the window at least.
    sent = np.arange(0, 60, 0.5)
    window = steady_window(table(sent, np.linspace(sent, sent + 40, 17)[1:].T), held=True)
    assert window.judged_until_s == pytest.approx(window.end_s - window.length_s / 4)
