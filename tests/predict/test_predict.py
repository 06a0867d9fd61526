"""Prediction on engines whose truth is planted: the replay against a naive engine, the fit against known step times, and refusals."""

from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import polars as pl
import pytest

from bench.parse.stream import ONE_EACH
from bench.predict.calibrate import Calibrated, calibrate, planned_again
from bench.predict.calibration import Interval
from bench.predict.fleet import replay
from bench.predict.limits import Limits
from bench.predict.predict import predict
from bench.predict.server import TokenGaps
from bench.predict.steps import intervals
from bench.predict.study import HeldOut, beyond, measured
from bench.statistics.percentiles import percentile
from bench.workloads.schedule import PlannedRequest
from tests.support.naive_engine import TURNAROUND_S, serve
from tests.support.predict import LIMITS, TRUE, drawn, planned, run_of

FULL = Limits(tokens=128, sequences=64, blocks=40, block_size=16)  # preempts


def test_the_replay_is_the_naive_engine():
    """To the last request, preemptions included; also of an engine that schedules a step while the one before it runs."""
    for ahead in [False, True]:
        for seed in range(2):
            for plain, rate, held in [
                (LIMITS, None, None),
                (replace(LIMITS, sequences=4), 8.0, None),
                (replace(LIMITS, tokens=48), 4.0, None),
                (Limits(tokens=256, sequences=16, blocks=60, block_size=16), None, 8),
                (FULL, 6.0, None),
            ]:
                limits = replace(plain, ahead=ahead)
                requests = drawn(40, seed=seed, rate=rate)
                truth = run_of(requests, limits=limits, held=held).requests
                played = replay(planned(requests), limits, TRUE, held=held, turnaround_s=TURNAROUND_S)
                found = played.requests.sort("index")
                for column in ("sent_s", "first_token_s", "end_s"):
                    assert found[column].to_numpy() == pytest.approx(truth[column].to_numpy(), abs=1e-6), column
                assert found["preemptions"].to_list() == truth["preemptions"].to_list(), limits
                gaps = truth["token_times_s"].list.diff(null_behavior="drop").explode()
                for share in (0.01, 0.5, 0.99, 1.0):
                    assert played.seen.gaps.percentile(share) == pytest.approx(percentile(gaps, share), abs=1e-6), limits


def test_the_noise_of_each_step_is_in_the_gaps_also_of_steps_that_are_replayed_together():
    """ITL P99 of one request at a time, whose steps are replayed many at once, and of six, within 8 %."""
    for held in [1, 6]:
        requests = drawn(300, seed=4, outputs=(40, 60))
        truth = measured(run_of(requests, held=held, noise=0.2))
        played = replay(planned(requests), LIMITS, TRUE, held=held, noise=0.2, seed=5)
        strays = 0.2 * np.random.default_rng(1).standard_normal(10_000)
        assert played.seen.gaps.percentile(0.99, strays) == pytest.approx(truth["itl_p99_s"], rel=0.08), held


def test_no_gap_is_known_without_tokens_or_of_chunks_of_several():
    assert TokenGaps().percentile(0.5) is None
    for told in [{"tokens_per_chunk": 2.0}, {"tokens_per_chunk": 1.0, "tokens_per_arrival": 1.1 * ONE_EACH}]:
        run = run_of(drawn(5))
        assert "itl_p99_s" in measured(run), told
        assert "itl_p99_s" not in measured(replace(run, row={**run.row, **told}))


def test_the_way_to_the_engine_and_its_awakening_are_those_of_the_naive_engine():
    for ahead in [False, True]:
        for held in [None, 1, 5]:
            requests = drawn(60, seed=3, rate=None if held else 3.0)
            way = {"path_s": 0.004, "wake_s": 0.006, "planned_steps": 2 if ahead else 1}
            truth = serve(requests, TRUE.seconds, tokens=512, sequences=32, held=held, **way)
            way = {"overhead_s": 0.004, "wake_s": 0.006, "turnaround_s": TURNAROUND_S}
            found = replay(planned(requests), replace(LIMITS, ahead=ahead), TRUE, held=held, **way).requests.sort("index")
            for column in ("sent_s", "first_token_s", "end_s"):
                assert found[column].to_numpy() == pytest.approx(truth[column].to_numpy(), abs=1e-6), column


def conversations(seed):
    """Three turns each, whose prompts begin with 40 tokens that all of them share; and what a prompt's tokens are."""
    random, plans, at = np.random.default_rng(seed), [], 1.0
    for conversation in range(14):
        at += random.exponential(0.25)
        prompt, known = 40 + int(random.integers(20, 120)), 40
        for turn in range(3):
            output = int(random.integers(2, 60))
            plans.append(
                PlannedRequest(
                    len(plans), conversation, prompt, output, at + 1.2 * turn, shared_tokens=40, reusable_tokens=known
                )
            )
            known, prompt = prompt, prompt + output + int(random.integers(5, 40))
    prompts = {
        plan.index: [("shared", i) for i in range(40)] + [(plan.conversation, i) for i in range(plan.prompt_tokens - 40)]
        for plan in plans
    }
    return plans, prompts | {1000: prompts[0][:40]}


def test_a_prefix_cache_is_that_of_the_naive_engine():
    """Blocks that are shared, evicted and found again, to the last request; after a request that had what all share."""
    lost = Counter()
    for seed in range(2):
        for blocks in [400, 60, 36]:
            for ahead in [False, True]:
                limits = Limits(tokens=256, sequences=16, blocks=blocks, block_size=16, cached=True, ahead=ahead)
                plans, prompts = conversations(seed)
                asked = [
                    (1000, 40, 1, 0.0),
                    *((each.index, each.prompt_tokens, each.output_tokens, each.due_s) for each in plans),
                ]
                room = {"blocks": blocks, "block_size": 16, "prompt_of": prompts.get, "planned_steps": 2 if ahead else 1}
                truth = serve(asked, TRUE.seconds, tokens=256, sequences=16, **room)
                truth = truth.filter(truth["index"] < 1000)
                found = replay(plans, limits, TRUE)
                table = found.requests.sort("index")
                for column in ("sent_s", "first_token_s", "end_s"):
                    assert table[column].to_numpy() == pytest.approx(truth[column].to_numpy(), abs=1e-6), column
                assert table["preemptions"].to_list() == truth["preemptions"].to_list(), ahead
                lost[blocks] += table["preemptions"].sum()
                assert found.seen.cached == truth["cached_tokens"].sum(), ahead
    assert lost[400] == 0 < lost[36]


def test_slots_serve_what_they_had_last():
    """As llama.cpp does: of eight in flight, seven slots have not seen what was sent once before the run."""
    limits = Limits(tokens=2048, sequences=12, blocks=None, cached=True)
    plans = [PlannedRequest(i, i, 256, 32, shared_tokens=192, reusable_tokens=192) for i in range(150)]
    assert replay(plans, limits, TRUE, held=8).seen.cached == 192 * (150 - 7)
    # A turn finds its conversation while no other had its slot.
    limits = Limits(tokens=2048, sequences=2, blocks=None, cached=True)
    first = PlannedRequest(0, 0, 50, 5, 0.0)
    turn = PlannedRequest(9, 0, 80, 5, 20.0, reusable_tokens=50)
    others = [PlannedRequest(i, i, 60, 5, 2.0 * i) for i in (1, 2)]
    assert replay([first, others[0], turn], limits, TRUE).seen.cached == 50
    # the second one took the slot that was free for longest
    assert replay([first, *others, turn], limits, TRUE).seen.cached == 0


def test_what_never_fits_is_refused():
    found = replay(planned([(0, 900, 10, 0.0), (1, 20, 10, 0.0)]), Limits(512, 8, blocks=40, block_size=16), TRUE)
    assert (found.seen.refused, found.requests["index"].to_list()) == ([0], [1])
    limits = Limits(512, 8, blocks=20, block_size=16, cached=True)
    plans = [PlannedRequest(i, i, 400, 10, 0.1 * i, shared_tokens=400, reusable_tokens=400) for i in range(3)]
    assert replay(plans, limits, TRUE).seen.refused == [0, 1, 2]


def test_turns_follow_after_their_pause_and_a_join_after_the_last_that_it_waits_for():
    first = PlannedRequest(0, 0, 50, 5, 0.0)
    found = replay([first, replace(first, index=1, due_s=None, after=(0,), think_s=2.0)], LIMITS, TRUE).requests.sort("index")
    assert found["sent_s"][1] == pytest.approx(found["end_s"][0] + 2.0)
    # The long one ends last; the second was refused, as no server of these limits takes it, and counts as ended when it was
    # sent.
    plans = [PlannedRequest(0, 0, 50, 40, 0.0), PlannedRequest(1, 0, 10**6, 5, 0.01), PlannedRequest(2, 0, 50, 5, 0.0)]
    limits = Limits(512, 8, blocks=36, block_size=16)
    found = replay([*plans, PlannedRequest(3, 0, 50, 5, None, (0, 1, 2), 2.0)], limits, TRUE)
    assert found.seen.refused == [1]
    first, short, join = found.requests.sort("index").iter_rows(named=True)
    assert join["sent_s"] == pytest.approx(first["end_s"] + 2.0)
    assert first["end_s"] > short["end_s"] + 0.1


def test_steps_and_plans_are_read_from_a_run():
    """A burst of three prompts of 200 tokens and a budget of 512: two in the first step with a part of the third, then the rest."""
    steps = intervals(run_of([(i, 200, 4, 0.0) for i in range(3)]).requests, LIMITS)
    assert steps.select("decodes", "firsts", "prefill").rows() == [(0, 2, 512), (2, 1, 88), (3, 0, 0), (3, 0, 0), (1, 0, 0)]
    expected = TRUE.seconds(decodes=2, firsts=1, prefill=88, context=400, attended=88 * (112 + 44))
    assert steps["took_s"][1] == pytest.approx(expected, rel=1e-6)
    run = run_of(drawn(10, rate=2.0), arrival="poisson")
    plan = planned_again(run)
    assert [each.due_s for each in plan] == run.requests["scheduled_s"].to_list()
    assert [each.output_tokens for each in plan] == run.requests["output_asked"].to_list()
    assert calibrate([run_of([(0, 20, 5, 0.0)])], LIMITS) is None


# Steps, and the schedule that they show, on planted engines that say the wrong thing of it.

PARTS = replace(LIMITS, tokens=96)  # computes most prompts in parts


def busy(limits):
    """Random arrivals, of which most come while the engine works, and a closed loop."""
    requests = {"p": drawn(200, seed=5, rate=4.0, prompts=(20, 200)), "c": drawn(100, seed=6, prompts=(20, 200))}
    poisson = run_of(requests["p"], name="p", arrival="poisson", limits=limits, noise=0.0)
    return [poisson, run_of(requests["c"], name="c", arrival="closed", level=8.0, limits=limits, held=8, noise=0.0)]


def test_a_step_took_what_was_computed_in_it():
    """Of those with prompts beside decodes, to the microsecond: 95 %, and 80 % where the schedule is said to be the other one."""
    for ahead, limits in product((False, True), (PARTS, FULL)):
        for run, (told, least) in product(busy(replace(limits, ahead=ahead)), ((ahead, 0.95), (not ahead, 0.8))):
            steps = intervals(run.requests, replace(limits, ahead=told)).filter(pl.col("decodes") > 0, pl.col("prefill") > 0)
            computed = steps.select("decodes", "firsts", "prefill", "context", "attended").iter_rows(named=True)
            off = [abs(took - TRUE.seconds(**each)) for took, each in zip(steps["took_s"], computed, strict=True)]
            assert sum(each < 1e-6 for each in off) >= least * len(off) > 100, limits
            assert steps["steps"].max() == 1, limits


def test_loads_that_were_not_measured_are_predicted(model):
    """From bursts and two closed loops with 5 % noise a step: throughput within 3 %, TTFT P50, TPOT and ITL within 8 %, TTFT P99 within 12 %."""
    for name, held, requests in (
        ("closed", 9, drawn(150, seed=77)),
        ("poisson", None, drawn(300, seed=78, rate=5.0)),
        ("longer", None, drawn(200, seed=79, rate=3.0, prompts=(150, 230), outputs=(20, 28))),
    ):
        found = predict(model, lambda _, requests=requests: planned(requests), held=held)
        assert found.doubts == ()
        load = {"arrival": "closed" if held else "poisson", "level": float(held or 1), "held": held, "noise": 0.05}
        truths = [measured(run_of(requests, seed=100 + seed, **load)) for seed in range(3)]
        mean = {each: np.mean([abs(found.numbers[each].value / truth[each] - 1) for truth in truths]) for each in truths[0]}
        assert mean["throughput_tokens_per_s"] < 0.03, name
        assert max(mean[each] for each in ("ttft_p50_s", "tpot_p50_s", "tpot_p90_s", "itl_p99_s")) < 0.08, name
        assert mean["ttft_p99_s"] < 0.12, name


def test_an_error_is_assumed_before_any_is_seen():
    nothing = beyond([])
    assert (nothing["ttft_p50_s"], nothing["throughput_tokens_per_s"]) == (pytest.approx(0.06), pytest.approx(0.03))
    perfect = [HeldOut(("w", float(i)), "ttft_p50_s", 1.0, Interval(1.0, 1.0, 1.0)) for i in range(6)]
    assert 0.03 < beyond(perfect)["ttft_p50_s"] < 0.06
    wrong = [replace(each, predicted=Interval(1.3, 1.3, 1.3)) for each in perfect]
    assert beyond(wrong)["ttft_p50_s"] > 0.15
    assert beyond(wrong * 3) == beyond(wrong)  # repeats are no further loads


def test_a_short_ensemble_has_the_first_fits_of_a_long_one_and_noise_widens_it(runs, model):
    """Causes and predictions are of one model, although each of their jobs fits it with as many draws as it needs."""
    few, many = (calibrate(runs, LIMITS, draws=draws).fitted for draws in (5, 10))
    assert few == replace(many, draws=many.draws[:5])
    requests = drawn(50, rate=4.0)

    def width(model):
        found = predict(model, lambda _: planned(requests)).numbers["e2e_p50_s"]
        return (found.high - found.low) / found.value

    assert width(fitted(model, run_noise=0.15)) > 2 * width(fitted(model, run_noise=0.01))


def refused(model, requests, **changed):
    return {doubt.name for doubt in predict(model, lambda _: planned(requests), members=3, **changed).doubts}


def fitted(model: Calibrated, **changed):
    return replace(model, fitted=replace(model.fitted, **changed))


def test_what_was_not_seen_is_refused(model):
    usual = drawn(20, rate=3.0)
    assert refused(model, usual) == set()
    assert refused(fitted(model, residual=0.3), usual) == {"residual"}
    assert refused(fitted(model, run_noise=0.3), usual) == {"drift"}
    assert refused(replace(model, beyond={"throughput_requests_per_s": 0.3}), usual) == {"unseen"}
    assert "longest" in refused(model, drawn(5, prompts=(400, 500)))
    assert "requests" in refused(model, drawn(60, outputs=(50, 60)), limits=replace(LIMITS, sequences=64))
    assert "step" in refused(model, drawn(30, prompts=(150, 200)), limits=replace(LIMITS, tokens=4096))
    assert "refused" in refused(model, usual, limits=Limits(512, 32, blocks=10, block_size=16))
