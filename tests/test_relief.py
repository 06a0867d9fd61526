"""What more of a resource would bring, on planted servers that run out of one: by replays, from the study's files to its causes."""

from dataclasses import replace

import polars as pl
import pytest

from bench.analyse.reliefs import find_reliefs
from bench.predict.calibrate import calibrate
from bench.predict.relief import relief_of
from bench.predict.state import Limits, Request, State
from bench.predict.step_cost import StepCost
from bench.predict.step_time import StepTime
from bench.records.files import write_record
from bench.records.relief import CurveRelief, Reliefs, read_reliefs
from bench.study import parse_slo
from tests.test_predict import LIMITS, drawn, run_of

ROOM = replace(LIMITS, sequences=64)
FEW = replace(LIMITS, sequences=6)
BLOCKS = Limits(tokens=512, sequences=64, blocks=43, block_size=16)  # some six requests


def loops(limits, levels, **lengths):
    return [
        run_of(drawn(25 * level, seed=level, **lengths), name=f"c{level}", arrival="closed", level=float(level), limits=limits, held=level, seed=level, noise=0.03)
        for level in levels
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("limits", "levels", "slo", "lengths", "cause"),
    [
        (FEW, (2, 6, 9), "ttft_p90=80ms", {"prompts": (2, 4), "outputs": (60, 61)}, "sequences"),
        (BLOCKS, (2, 6, 10), "ttft_p90=100ms", {"prompts": (8, 12), "outputs": (90, 110)}, "kv"),
        (ROOM, (4, 12, 32), "tpot_p90=14ms", {"prompts": (2, 4), "outputs": (30, 31)}, "decode"),
        (ROOM, (1, 2, 4), "ttft_p90=350ms", {"prompts": (480, 511), "outputs": (2, 4)}, "prefill"),
        (ROOM, (2, 4, 8), "tpot_p90=80ms", {"prompts": (480, 511), "outputs": (8, 9)}, "interference"),
    ],
)  # fmt: skip
def test_what_a_planted_server_runs_out_of_brings_most(limits, levels, slo, lengths, cause):
    runs = loops(limits, levels, **lengths)
    model = calibrate(runs, limits, draws=5)
    metric = slo.split("_")[0]
    found = relief_of(model, runs, [parse_slo(slo)], {metric}, float(levels[-1]), fewest=150)
    assert found.gains[0].resource == cause
    assert found.gains[0].low > 1
    assert list(found.gains) == sorted(found.gains, key=lambda each: -each.gain)
    assert ("prefill" in {each.resource for each in found.gains}) == (metric != "tpot")
    assert ("kv" in {each.resource for each in found.gains}) == (limits.blocks is not None)


def test_a_relieved_step_is_the_sum_of_its_parts():
    """Half of a step without its prompts, and half of what these add, are half of the step."""
    step = StepTime(0.0, 0.008, 3e-4, (64.0,), (2e-4, 2.5e-4), 4e-7, 2e-9)
    state = State(decodes=5, context=700)
    chunk = [(Request(None, 0.0, left=100), 100)]

    def seconds(**factors):
        return StepCost(ROOM, replace(step, **factors)).seconds(state, chunk)

    whole, bare = seconds(), StepCost(ROOM, step).seconds(state)
    assert seconds(bare=0.5, prompts=0.5) == pytest.approx(whole / 2)
    assert seconds(prompts=0.0) == pytest.approx(bare)
    assert seconds(bare=0.5) == pytest.approx(bare / 2 + whole - bare)
    assert seconds(prompts=0.5) == pytest.approx(bare + (whole - bare) / 2)


def test_no_load_within_the_slos_has_no_relief():
    runs = loops(ROOM, (2, 4))
    assert relief_of(calibrate(runs, ROOM, draws=5), runs, [parse_slo("ttft_p90=1ms")], {"ttft"}, 2.0) is None


POINT = {"deployment": "a", "workload": "w", "axis": "concurrency", "kind": "found", "basis": "steady", "missed_at": 4.0,
         "missed": [{"by": "ttft_p90_s"}], "slos": ["TTFT P90 ≤ 1 s"]}  # fmt: skip


def test_a_server_without_limits_is_named_and_a_known_relief_is_kept(tmp_path):
    table = pl.DataFrame({"deployment": ["a"], "workload": ["w"]})
    capacity = pl.DataFrame([POINT])
    slos = [parse_slo("ttft_p90=1s")]
    first = find_reliefs(table, tmp_path, capacity, slos, code="1")
    (curve,) = first.curves
    assert curve.relief is None
    assert "launch.json or deployment.json is not there" in curve.why_not
    write_record(first, tmp_path / "reliefs.json")
    assert read_reliefs(tmp_path / "reliefs.json") == first
    said = []
    other = CurveRelief(deployment="b", workload="w", digest="x")
    again = find_reliefs(table, tmp_path, capacity, slos, code="1", known=Reliefs(curves=(curve, other)), say=said.append)
    assert (again.curves, said) == ((curve, other), [])  # `b` was not selected
    find_reliefs(table, tmp_path, capacity, slos, code="2", known=first, say=said.append)
    assert len(said) == 1
    assert find_reliefs(table, tmp_path, capacity.with_columns(kind=pl.lit("above")), slos, code="1").curves == ()
