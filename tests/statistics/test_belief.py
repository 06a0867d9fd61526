"""The posterior of a limit, of runs that no search has placed: planted limits that it holds, and what no run can show."""

import math
from dataclasses import replace

import numpy as np
import pytest

from bench.findings.levels import level_rows
from bench.parse.observation import observations
from bench.parse.windows import of_windows
from bench.statistics.limit import beliefs, believe
from bench.statistics.observation import GROWTH, Observation
from bench.study.slo import parse_slo
from tests.support.planted import rate_row, steady_row, summary_row, summary_rows
from tests.support.summaries import table as table_of

SLO = [parse_slo("ttft_p95=1s")]
SUMMARY = summary_row(deployment="a", workload="w", repeat=1, axis="concurrency")


def ladder(limit, draw, *, steep, noise, rounds=3, requests=400, speed=0.03):
    """Of an open loop: latencies rise by `steep` an e-fold of load, and P95 reaches 1 s at `limit` on a usual machine."""
    rows = []
    for number in range(rounds):
        slower = math.exp(draw.normal(0, speed))
        for load in (0.5, 0.75, 0.85, 0.95, 1.05, 1.2, 1.5):
            middle = steep * math.log(load * slower / limit) + math.log(slower) + draw.normal(0, noise)
            ttft = np.exp(middle + 0.4 * (draw.standard_normal(requests) - 1.645)).tolist()
            rows.append(rate_row(SUMMARY, load, requests=requests, ttft=ttft, repeat=number + 1))
    return rows


@pytest.mark.long(part="truth")
def test_a_ladder_s_interval_holds_a_planted_limit():
    for steep, noise in [(0.7, 0.03), (2.0, 0.05), (8.0, 0.05)]:
        draw, held, widths = np.random.default_rng(7), 0, []
        for _ in range(20):
            limit = math.exp(draw.uniform(math.log(0.7), math.log(1.2)))
            low, high = believe(observations(ladder(limit, draw, steep=steep, noise=noise), SLO, 0.01)).interval
            held += low <= limit <= high
            widths.append(math.log(high / low))
        assert held >= 18, steep
        assert np.median(widths) < 0.3, steep


def test_a_ladder_s_interval_holds_its_limit_whatever_the_order_of_its_runs():
    rows = ladder(1.0, np.random.default_rng(1), steep=2.0, noise=0.05)
    first, second = (believe(observations(each, SLO, 0.01)).interval for each in (rows, rows[::-1]))
    assert first[0] < 1.0 < first[1] < 1.35 * first[0]
    assert first == pytest.approx(second, rel=0.02)


def test_a_slow_machine_s_runs_count_as_of_more_load_where_reference_loads_show_it():
    """Twice as slow in one round of three: by reference loads that round's runs agree with the others, else it looks overloaded."""
    rows = [
        {**rate_row(SUMMARY, load * speed, requests=400, ttft=(1.1 if load > 1.1 else 0.5) / speed), "repeat": number,
         "reference_s": 1 / speed, "reference_load": "8 requests", "reference_since": f"round {number}"}
        for number, speed in enumerate((1.0, 1.0, 1.0, 0.5), start=1) for load in (0.8, 1.0, 1.2, 1.4)
    ]  # fmt: skip
    low, high = believe(observations(rows, SLO, 0.01)).interval
    alone = observations([row | {"reference_s": None, "reference_since": None} for row in rows], SLO, 0.01)
    assert [each.round for each in alone] == [(1, number) for number in range(1, 5) for _ in range(4)]
    blind, _ = believe(alone).interval
    assert 0.9 < low < high < 1.3
    assert blind < 0.7


@pytest.mark.long(part="truth")
def test_two_limits_that_are_crossed_at_the_same_load_hold_it_together():
    """What their runs show of each is its own: the lower of two estimates lies below the load as a rule, by less than the interval."""
    draw, held = np.random.default_rng(3), 0
    slos = [*SLO, parse_slo("e2e_p95=1s")]
    for _ in range(20):
        one, other = (ladder(1.0, draw, steep=2.0, noise=0.05, speed=0.0) for _ in range(2))
        rows = [
            {**row, "judged": [{**a, "e2e": b["ttft"]} for a, b in zip(row["judged"], beside["judged"], strict=True)]}
            for row, beside in zip(one, other, strict=True)
        ]
        low, high = believe(observations(rows, slos, 0.01)).interval
        held += low <= 1.0 <= high
    assert held >= 18


def grown(load, growth, error=0.01, number=0):
    return Observation(load, {}, 1000, held=False, round=number, growth=growth, growth_error=error)


def test_growth_shows_a_capacity_as_far_as_runs_tell():
    """Of a capacity of 10, at 12, 14 and 20 a sixth, two sevenths and a half stay."""
    seen = [grown(load, max(0.0, 1 - 10 / load), number=i) for i, load in enumerate((6.0, 8.0, 9.0, 12.0, 14.0, 20.0))]
    low, high = beliefs(seen)[GROWTH].interval
    assert 9 < low < 10 < high < 11
    # Of a capacity of 6.4, at 7.61 and 9.65 sixteen and 34 in a hundred should stay; 56 and 66 do, as they slow one another
    # down.
    seen = [grown(*each, number=i) for i, each in enumerate([(4.0, 0.0), (5.0, 0.003), (7.61, 0.56, 0.07), (9.65, 0.66, 0.04)])]
    low, high = beliefs(seen)[GROWTH].interval
    assert 4.5 < low < 6.4 < high < 8
    # A server that keeps up with all has no upper end.
    low, high = beliefs([grown(load, 0.0, number=i) for i, load in enumerate((2.0, 4.0, 8.0))])[GROWTH].interval
    assert low > 7 and high == math.inf
    # Of few requests growth may be those by which a server fills.
    few = [replace(grown(4.0, 0.1, 10 / 50), requests=50), grown(8.0, 0.0)]
    assert beliefs(few)[GROWTH].lies_below(4.0) < 0.1
    # A closed loop has none.
    rows = [steady_row(SUMMARY, level) for level in (2, 4)]
    assert GROWTH not in beliefs(observations(rows, SLO, 0.01))


# Figures of windows in place of those of whole runs


def row(summary, level, **more):
    told = {"throughput_tokens_per_s": 1.0, "steady_tokens_per_s": 2.0, "ttft_p99_s": 9.0, "steady_ttft_p99_s": 0.5}
    return {**steady_row(summary, level), **told, **more}


def test_a_load_that_goes_on_is_that_of_its_window_where_both_sides_have_one(summary):
    (found,) = of_windows(table_of(row(summary, 1), row(summary, 2)))
    assert (found["throughput_tokens_per_s"].to_list(), found["ttft_p99_s"].to_list()) == ([2.0, 2.0], [0.5, 0.5])
    ours = table_of(row(summary, 1), row(summary, 2))
    theirs = table_of(row(summary, 1, steady=False, steady_why="short"), row(summary, 2))
    assert [side["throughput_tokens_per_s"].to_list() for side in of_windows(ours, theirs)] == [[1.0, 2.0], [1.0, 2.0]]
    invalid = table_of(row(summary, 1, steady=False, steady_why="short", wrong_output_tokens=1), row(summary, 2))
    assert of_windows(ours, invalid)[0]["throughput_tokens_per_s"].to_list() == [2.0, 2.0]
    burst = table_of(row(summary, 1, arrival="burst", steady=None, steady_from_s=None))
    assert of_windows(burst)[0].equals(burst)
    older = summary_rows([{"workload": "w", "valid": True, "throughput_tokens_per_s": 1.0}])
    assert of_windows(older)[0].equals(older)


def test_the_table_of_levels_has_the_figures_rates(summary):
    """A level whose window is too short for one run of it is that of whole runs, by its requests/s as by its tokens/s."""
    whole = {"throughput_requests_per_s": 5.0, "steady_requests_per_s": 7.0}
    runs = table_of(row(summary, 1, **whole), row(summary, 2, **whole, steady=False, steady_why="short"))
    levels = level_rows(of_windows(runs)[0], [])
    assert [(level["requests_per_s"], level["tokens_per_s"]) for level in levels] == [(7.0, 2.0), (5.0, 1.0)]
