"""What a run sends, and when: the same on any machine, and as its distribution says."""

import itertools
import statistics

import pytest

from bench.errors import BenchError
from bench.study.plan import longest_request
from bench.study.read import load_workload
from bench.workloads.archetypes import ARCHETYPES
from bench.workloads.lengths import LengthDistribution, draws
from bench.workloads.prompts.random_ids import request_ids
from bench.workloads.schedule import arrivals, expected_cached_tokens, schedule
from bench.workloads.workload import Workload
from tests.support.cases import cases


def workload(arrival="poisson", **more):
    return Workload.model_validate({"arrival": arrival, "prompt_tokens": 32, "output_tokens": 8, **more})


def ids(request, length):
    return request_ids("s", request.conversation, request.shared_tokens, length, 1000)


def gaps(moments):
    return [b - a for a, b in itertools.pairwise(moments)]


# Arrivals.


def test_constant_and_a_step_by_hand():
    """2 requests/s; from 1 s to 2 s three times as many: at 0, 0.5, then each 1/6 s from 1 s on, then each half second from 2 s on."""
    assert arrivals(workload("constant", num_requests=4), 2.0, "s") == [0.0, 0.5, 1.0, 1.5]
    assert arrivals(workload("constant", duration_s=1.5), 2.0, "s") == [0.0, 0.5, 1.0]
    step = {"factor": 3.0, "start_s": 1.0, "duration_s": 1.0}
    moments = arrivals(workload("constant", duration_s=3.0, step=step), 2.0, "s")
    assert moments == pytest.approx([0.0, 0.5, 1.0, *(1 + i / 6 for i in range(1, 6)), 2.0, 2.5])


def test_the_same_seed_is_the_same_schedule_on_any_machine():
    moments = arrivals(workload(num_requests=4), 2.0, "seed")
    assert moments == pytest.approx([0.0, 0.107853, 0.303671, 1.755518], abs=1e-6)
    bursty = arrivals(workload("gamma", burstiness=0.5, num_requests=4), 2.0, "seed")
    assert bursty == pytest.approx([0.0, 0.034308, 1.495365, 1.498724], abs=1e-6)
    smooth = arrivals(workload("gamma", burstiness=4.0, num_requests=4), 2.0, "seed")  # other shapes are drawn in other ways
    assert smooth == pytest.approx([0.0, 0.303451, 0.491468, 1.367371], abs=1e-6)
    one = arrivals(workload("gamma", burstiness=1.0, num_requests=4), 2.0, "seed")
    assert one == pytest.approx(moments)  # of shape 1 a gamma is exponential
    assert moments != arrivals(workload(num_requests=4), 2.0, "another")
    assert arrivals(workload(num_requests=4), 4.0, "seed") == pytest.approx([m / 2 for m in moments])  # the pattern, stretched


SHAPES = {"constant": {}, "poisson": {}, "gamma": {"burstiness": 0.5}}


def test_a_run_offers_the_rate_that_its_level_says():
    """120 requests, whatever the seed: unstretched, one Poisson stream in three would be off by 9 % or more."""
    step = {"factor": 3.0, "start_s": 10.0, "duration_s": 5.0}
    for (arrival, shape), seed in itertools.product(SHAPES.items(), "123"):
        assert len(arrivals(workload(arrival, duration_s=40.0, **shape), 3.0, seed)) == 120, arrival
        assert len(arrivals(workload(arrival, duration_s=40.0, step=step, **shape), 3.0, seed)) == 150, arrival


def test_the_moments_of_a_poisson_stream_of_known_number_are_uniform():
    """The first is at 0, and the 39 after it are independent and uniform: a quarter of them is in the first quarter."""
    firsts = [sum(moment < 10.0 for moment in arrivals(workload(duration_s=40.0), 1.0, str(seed))) for seed in range(400)]
    assert statistics.mean(firsts) == pytest.approx(1 + 39 / 4, abs=0.5)
    assert statistics.variance(firsts) == pytest.approx(39 * 0.25 * 0.75, rel=0.25)


def test_gaps_are_as_bursty_as_asked():
    drawn = gaps(arrivals(workload(num_requests=20_000), 10.0, "s"))
    assert statistics.mean(drawn) == pytest.approx(0.1, rel=0.03)
    assert statistics.stdev(drawn) == pytest.approx(0.1, rel=0.05)  # an exponential's deviation is its mean
    assert sum(gap > 0.1 for gap in drawn) / len(drawn) == pytest.approx(0.3679, abs=0.015)  # e^-1
    for shape in (0.25, 4.0):
        drawn = gaps(arrivals(workload("gamma", burstiness=shape, num_requests=40_000), 10.0, "s"))
        assert statistics.mean(drawn) == pytest.approx(0.1, rel=0.05)
        assert (statistics.stdev(drawn) / statistics.mean(drawn)) ** 2 == pytest.approx(1 / shape, rel=0.1)


def test_a_run_shorter_than_a_gap_still_sends_a_request():
    profiles = ({}, {"step": {"factor": 2.0, "start_s": 0.0, "duration_s": 1.0}})
    for (arrival, shape), more in itertools.product(SHAPES.items(), profiles):
        assert arrivals(workload(arrival, duration_s=1.0, **shape, **more), 0.001, "s") == [0.0], (arrival, more)


# Lengths.

DISTRIBUTIONS = [
    {"distribution": "fixed", "tokens": 7},
    {"distribution": "uniform", "min": 3, "max": 9},
    {"distribution": "lognormal", "median": 1020.0, "sigma": 0.6, "min": 16, "max": 4142},
]


def test_draws_lie_within_the_ends_and_are_the_same_on_any_machine():
    firsts = []
    for content in DISTRIBUTIONS:
        length = LengthDistribution.model_validate(content)
        draw = draws(length, "t")
        drawn = [draw() for _ in range(2000)]
        assert min(drawn) >= (length.tokens or length.min)
        assert max(drawn) <= length.longest
        again = draws(length, "seed")
        firsts.append([again() for _ in range(3)])
    assert firsts == [[7, 7, 7], [3, 4, 9], [531, 663, 1977]]


def test_a_lognormal_has_its_median_and_p99():
    draw = draws(LengthDistribution.model_validate({**DISTRIBUTIONS[2], "max": 100_000}), "s")
    drawn = sorted(draw() for _ in range(20_000))
    assert drawn[10_000] == pytest.approx(1020, rel=0.02)
    assert drawn[19_800] == pytest.approx(1020 * 2.718281828 ** (2.3263 * 0.6), rel=0.05)


def test_empirical_lengths_come_as_often_as_they_stand_there(tmp_path):
    file = tmp_path / "lengths.txt"

    def lengths(text, at=file):
        file.write_text(text)
        return draws(LengthDistribution(distribution="empirical", file=str(at)), "s")

    draw = lengths("# tokens\n10\n10\n10\n20\n")
    drawn = [draw() for _ in range(4000)]
    assert set(drawn) == {10, 20}
    assert drawn.count(10) / 4000 == pytest.approx(0.75, abs=0.03)
    for text, at, message in (
        ("ten\n", file, "whole number"),
        ("0\n", file, "no length between"),
        ("", "none.txt", "no such file"),
    ):
        with pytest.raises(BenchError, match=message):
            lengths(text, at)


# Requests.


def test_deployments_and_levels_are_compared_on_the_same_lengths():
    lengths = {"prompt_tokens": DISTRIBUTIONS[2], "output_tokens": DISTRIBUTIONS[1]}
    few = schedule(workload("poisson", num_requests=5, **lengths), 1.0, "0/1")
    more = schedule(workload("poisson", num_requests=9, **lengths), 8.0, "0/1")
    assert [(x.prompt_tokens, x.output_tokens) for x in few] == [(x.prompt_tokens, x.output_tokens) for x in more[:5]]


def test_a_later_turn_s_prompt_begins_with_all_that_was_said():
    turns = {"count": 3, "new_tokens": 4}
    requests = schedule(workload("closed", num_requests=2, turns=turns, cache="shared", shared_prefix=0.25), 1, "s")
    said = [(x.prompt_tokens, x.after, x.reusable_tokens) for x in requests[:3]]
    assert said == [(32, (), 8), (44, (0,), 32), (56, (1,), 44)]
    first, second, third = (ids(x, x.prompt_tokens) for x in requests[:3])
    assert second[:32] == first
    assert third[:44] == second
    other = ids(requests[3], 32)
    assert other[:8] == first[:8]
    assert other[8:] != first[8:]


def test_tokens_that_a_cache_serves_by_hand():
    """Blocks of 16. Repeated: of 32 tokens the last is always computed, so 31 ÷ 16 = 1 block. Shared: 0.6 × 32 = 19 tokens, 1 block.
    Turns: 2 of 3 requests reuse 32 and 44 tokens: 2 blocks each."""
    repeated = schedule(workload("burst", cache="repeated"), 3, "s")
    assert len({tuple(ids(x, 32)) for x in repeated}) == 1
    assert expected_cached_tokens(repeated, 16) == 3 * 16
    assert expected_cached_tokens(schedule(workload("burst", cache="shared", shared_prefix=0.6), 3, "s"), 16) == 3 * 16
    assert expected_cached_tokens(schedule(workload("burst", turns={"count": 3, "new_tokens": 4}), 1, "s"), 16) == 2 * 32
    assert expected_cached_tokens(schedule(workload("burst"), 3, "s"), 16) == 0


def test_an_archetype_fills_what_is_not_given():
    for name in ARCHETYPES:
        content = {"archetype": name, "arrival": "poisson", "duration_s": 5.0}
        preset = Workload.model_validate(content)
        assert preset.prompt_tokens and preset.output_tokens
        longest = max(x.prompt_tokens + x.output_tokens for x in schedule(preset, 4.0, "s"))
        assert longest <= longest_request(preset), name
        mine = Workload.model_validate({**content, "output_tokens": 3})
        assert {x.output_tokens for x in schedule(mine, 4.0, "s")} == {3}


@cases(
    ("content", "gone"),
    [
        ({"archetype": "rag", "arrival": "burst", "cache": "unique"}, ["shared_prefix"]),
        ({"archetype": "chat", "arrival": "burst", "endpoint": "chat", "turns": None}, ["turns"]),
    ],
)
def test_what_belongs_to_an_overridden_key_goes_with_it(content, gone):
    preset = load_workload(content, source="f")
    assert [key for key in gone if getattr(preset, key) is not None] == []


def test_the_agentic_preset_has_the_means_of_its_source():
    """Mooncake's tool and agent trace: 8,596 prompt tokens and 182 output tokens in the mean, 59 % cached."""
    preset = Workload.model_validate({"archetype": "agentic", "arrival": "poisson", "num_requests": 400})
    requests = schedule(preset, 1.0, "s")
    prompts = [x.prompt_tokens for x in requests]
    assert statistics.mean(prompts) == pytest.approx(8596, rel=0.02)
    assert statistics.mean(x.output_tokens for x in requests) == pytest.approx(182, rel=0.05)
    assert sum(x.reusable_tokens for x in requests) / sum(prompts) == pytest.approx(0.59, abs=0.01)


# A closed loop begins with requests on their way.


def test_a_closed_loop_begins_with_what_is_left_of_requests():
    """Of sixteen, each has a sixteenth more left than another, in no order; those that follow are whole."""
    load = workload("closed", output_tokens=1600, num_requests=200)
    planned = schedule(load, 16, "s")
    assert [request.output_tokens for request in planned[16:]] == [1600] * 184
    left = [request.output_tokens for request in planned[:16]]
    assert all(100 * i - 1 <= tokens <= 100 * (i + 1) + 1 for i, tokens in enumerate(sorted(left)))
    assert left != sorted(left)
    assert planned == schedule(load, 16, "s")
    assert {request.prompt_tokens for request in planned} == {32}
    shortest = schedule(workload("closed", output_tokens=1, num_requests=40), 32, "s")
    assert min(request.output_tokens for request in shortest) == 1  # none is without a token


def test_bursts_open_loops_and_conversations_begin_with_whole_requests():
    turns = {"num_requests": 10, "turns": {"count": 2, "new_tokens": 8, "think_s": 0}}
    for arrival, level, more in (("burst", 16, {}), ("poisson", 16.0, {"num_requests": 40}), ("closed", 4, turns)):
        assert {x.output_tokens for x in schedule(workload(arrival, **more), level, "s")} == {8}, arrival
