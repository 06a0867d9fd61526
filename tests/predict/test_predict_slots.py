"""Slots of a KV cache each, as llama.cpp has them: against a naive engine that knows its slots and divides its steps token by token."""

from itertools import combinations

import numpy as np
import polars as pl
import pytest

from bench.predict.calibrate import MeasuredRun, calibrate
from bench.predict.fleet import replay
from bench.predict.limits import Limits
from bench.predict.passes import Neighbours, cells, context_read, passes_of, runs
from bench.predict.predict import predict
from bench.predict.step_time import StepTime
from bench.predict.steps import intervals
from bench.predict.study import measured
from tests.support.naive_engine import TURNAROUND_S, Sequence, serve, split
from tests.support.predict import drawn as any_drawn
from tests.support.predict import planned

SLOTS = 12
LIMITS = Limits(tokens=2048, sequences=SLOTS, blocks=None, block_size=1024, pass_tokens=512)
TRUE = StepTime(0.0, 6e-4, 1e-4, (2.0, 8.0), (1e-3, 5e-4, 3.6e-4), 1e-6, 5e-9, 6e-4)


def drawn(count, *, fixed=None, **more):
    """Requests of random lengths, or of these two."""
    prompts, outputs = ((each, each + 1) for each in fixed) if fixed else ((30, 400), (20, 60))
    return any_drawn(count, prompts=prompts, outputs=outputs, **more)


def run_of(requests, *, held=None, seed=1, workload="w", level=1.0, noise=0.0):
    """A measured run; the slots have been left in any order."""
    random = np.random.default_rng(seed)
    table = serve(
        requests, TRUE.seconds, tokens=LIMITS.tokens, sequences=SLOTS, held=held, random=random, noise=noise,
        slots=random.permutation(SLOTS).tolist(),
    )  # fmt: skip
    arrival = "closed" if held else "poisson" if requests[-1][3] else "burst"
    return MeasuredRun(f"{workload}{level}{seed}", {"arrival": arrival, "level": level, "workload": workload}, table)


def groups_of(slots):
    """Slots side by side, together."""
    found = []
    for slot in sorted(slots):
        if found and found[-1][-1] == slot - 1:
            found[-1].append(slot)
        else:
            found.append([slot])
    return found


def test_passes_are_those_of_all_ways_to_choose_slots():
    for busy in range(1, 9):
        every = [groups_of(chosen) for chosen in combinations(range(8), busy)]
        for size, number in runs(busy, 8):
            assert number == pytest.approx(np.mean([sum(len(group) == size for group in each) for each in every])), busy
    for held in [[100, 300, 700], [255, 256, 10, 20, 900], [100] * 8]:
        limits, random, seen = Limits(2048, 8, None, pass_tokens=512), np.random.default_rng(1), []
        for _ in range(4000):
            of = dict(zip(random.permutation(8).tolist(), held, strict=False))
            seen.append(sum(len(group) * max(cells(of[slot] + 1) for slot in group) for group in groups_of(of)))
        assert context_read(limits, held) == pytest.approx(np.mean(seen), rel=0.02)
    for count in (10, 512, 700, 2048):
        prompt = Sequence(0, count, 1, 0.0, slot=0)
        passes, _, _ = split([(prompt, count)], [], LIMITS.pass_tokens)
        assert sum(number for _, number in passes_of(LIMITS, 0, 1, count)) == len(passes)


def passes_with(slots, held, most):
    """Of the naive engine: the sizes of the passes of slots that decode, which hold so many tokens each."""
    decodes = [Sequence(slot, tokens, 9, 0.0, in_cache=tokens, slot=slot) for slot, tokens in zip(slots, held, strict=True)]
    return sorted(split([(each, 1) for each in decodes], decodes, most)[0])


def test_a_pass_holds_no_more_slots_than_tokens():
    """Five decodes side by side and two more, and then any seven of eight."""
    held, slots = [600, 10, 20, 300, 5, 5, 900], [0, 1, 2, 3, 4, 6, 7]
    for most in [1, 3, 4, 8, 512]:
        limits = Limits(2048, 8, None, pass_tokens=most)
        known = Neighbours(limits)
        for request in range(8):
            known.take(request)
        known.free(range(8))
        for request in range(8):
            known.take(request)
        beside = known.beside(slots)
        sizes = sorted(size for size, _ in passes_of(limits, 7, 0, 0, (beside, ())))
        assert sizes == passes_with(slots, held, most), most
        every = [len(passes_with(chosen, held, most)) for chosen in combinations(range(8), 7)]
        assert sum(number for _, number in passes_of(limits, 7, 0, 0)) == pytest.approx(np.mean(every)), most


def test_prompts_that_have_slots_side_by_side_share_passes():
    """And where slots are unknown, as many as in the mean of all ways to choose them. A step of nothing is one pass."""

    def truth(slots, tokens):
        return len(split([(Sequence(slot, tokens, 1, 0.0, slot=slot), tokens) for slot in slots], [], LIMITS.pass_tokens)[0])

    assert passes_of(LIMITS, 0, 0, 0) == ((0.0, 1.0),)
    for prompts, tokens in [(8, 10), (4, 500), (12, 128), (3, 2048), (1, 700)]:
        known = passes_of(LIMITS, 0, prompts, prompts * tokens, ((), (prompts,)))
        assert sum(number for _, number in known) == truth(range(prompts), tokens)
        every = [truth(slots, tokens) for slots in combinations(range(SLOTS), prompts)]
        unknown = passes_of(LIMITS, 0, prompts, prompts * tokens)
        assert sum(number for _, number in unknown) == pytest.approx(np.mean(every)), prompts
        assert sum(size * number for size, number in unknown) == pytest.approx(prompts * tokens)


def test_slots_are_unknown_where_some_requests_failed():
    """They may have held slots. Twelve, twelve, and then six that have slots side by side, or may have any."""
    table, six = run_of(drawn(30, fixed=(128, 64))).requests, pl.col("decodes") == 6
    failed = table.tail(1).with_columns(
        pl.col("index") + 1, outcome=pl.lit("timeout"), token_times_s=pl.lit([], pl.List(pl.Float64))
    )
    for requests, passes in ((table, 1.0), (pl.concat([table, failed]), sum(number for _, number in runs(6, SLOTS)))):
        found = intervals(requests, LIMITS).filter(six)["passes"].list.sum().to_list()
        assert found == pytest.approx([passes] * 63)


def test_the_replay_takes_as_long_as_the_naive_engine():
    """Over the orders in which slots may have been left: within 3 %."""
    for held, requests in [(5, 120), (12, 150), (20, 150)]:
        load = drawn(requests, seed=held)
        truths = [measured(run_of(load, held=held, seed=seed)) for seed in range(8)]
        found = replay(planned(load), LIMITS, TRUE, held=held, turnaround_s=TURNAROUND_S).requests
        took = found["end_s"].max()
        assert found["output_tokens"].sum() / took == pytest.approx(
            np.mean([each["throughput_tokens_per_s"] for each in truths]), rel=0.03
        ), held


def test_loads_of_other_kinds_are_predicted_from_bursts_and_a_closed_loop():
    """With 5 % noise a step: half of what it carries, and so much that requests wait."""
    training = [run_of(drawn(n, fixed=(128, 64)), seed=n, level=float(n), noise=0.05) for n in (1, 4, 12, 32)]
    training += [run_of(drawn(n, fixed=(500, 30)), seed=n, level=float(n), workload="long", noise=0.05) for n in (1, 4)]
    training += [run_of(drawn(40, fixed=(128, 64)), held=6, seed=6, level=6.0, workload="closed", noise=0.05)]
    model = calibrate(training, LIMITS)
    for rate, fixed in ((5.0, (128, 64)), (30.0, (128, 64)), (6.0, (300, 30))):
        load = drawn(200, seed=3, rate=rate, fixed=fixed)
        truth = measured(run_of(load, seed=9, noise=0.05))
        found = predict(model, lambda _, load=load: planned(load), members=8).numbers
        assert found["throughput_tokens_per_s"].value == pytest.approx(truth["throughput_tokens_per_s"], rel=0.05), rate
        assert found["tpot_p50_s"].value == pytest.approx(truth["tpot_p50_s"], rel=0.12), rate
