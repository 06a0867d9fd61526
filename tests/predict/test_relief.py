"""What more of a resource would bring, on planted servers that run out of one: by replays, from the study's files to its causes."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from bench.predict.asked import Asked
from bench.predict.calibrate import calibrate, typical
from bench.predict.calibration import CurveRelief, Reliefs
from bench.predict.limit import Replays
from bench.predict.limits import Limits
from bench.predict.relief import find_reliefs, relief_of
from bench.predict.server import ReplayedServer
from bench.predict.sources import NO_STEPS
from bench.runs.files import read_known, write_record
from bench.study.slo import parse_slo
from bench.workloads.schedule import PlannedRequest
from tests.support.naive_engine import serve
from tests.support.predict import LIMITS, TRUE, drawn, run_of

ROOM = replace(LIMITS, sequences=64)
FEW = replace(LIMITS, sequences=6)
BLOCKS = Limits(tokens=512, sequences=64, blocks=43, block_size=16)  # some six requests


def loops(limits, levels, **lengths):
    return [
        run_of(drawn(25 * level, seed=level, **lengths), name=f"c{level}", arrival="closed", level=float(level), limits=limits, held=level, seed=level, noise=0.03)
        for level in levels
    ]  # fmt: skip


def assert_most_is_brought_by(cause, limits, levels, slo, prompts, outputs):
    runs = loops(limits, levels, prompts=prompts, outputs=outputs)
    metric = slo.split("_")[0]
    found = relief_of(calibrate(runs, limits, draws=5), runs, [parse_slo(slo)], {metric}, float(levels[-1]), fewest=150)
    assert (found.gains[0].resource, found.gains[0].low > 1) == (cause, True)
    assert list(found.gains) == sorted(found.gains, key=lambda each: -each.gain)
    assert ("prefill" in {each.resource for each in found.gains}) == (metric != "tpot"), cause
    assert ("kv" in {each.resource for each in found.gains}) == (limits.blocks is not None), cause


def test_what_a_planted_server_runs_out_of_brings_most():
    assert_most_is_brought_by("prefill", ROOM, (1, 2, 4), "ttft_p90=350ms", (480, 511), (2, 4))


@pytest.mark.long(part="truth")
def test_what_other_planted_servers_run_out_of_brings_most():
    assert_most_is_brought_by("sequences", FEW, (2, 6, 9), "ttft_p90=80ms", (2, 4), (60, 61))
    assert_most_is_brought_by("kv", BLOCKS, (2, 6, 10), "ttft_p90=100ms", (8, 12), (90, 110))
    assert_most_is_brought_by("decode", ROOM, (4, 12, 32), "tpot_p90=14ms", (2, 4), (30, 31))
    assert_most_is_brought_by("interference", ROOM, (2, 4, 8), "tpot_p90=80ms", (480, 511), (8, 9))


def test_a_relieved_step_is_the_sum_of_its_parts():
    """Half of a step without its prompts, and half of what these add, are half of the step."""
    plans = [PlannedRequest(0, 0, 20, 60, 0.0), PlannedRequest(1, 1, 100, 1, 0.1)]  # one decodes when the other comes

    def seconds(**factors):
        server = ReplayedServer(ROOM, replace(TRUE, **factors))
        server.offer(plans[0], 0.0, 0.0)
        server.begin()
        server.finish()
        server.offer(plans[1], server.now, server.now)
        begun = server.now
        server.begin()
        server.finish()
        return server.now - begun

    whole, bare = seconds(), TRUE.seconds(decodes=1, firsts=0, prefill=0, context=20, attended=0.0)
    assert seconds(bare=0.5, prompts=0.5) == pytest.approx(whole / 2)
    assert seconds(prompts=0.0) == pytest.approx(bare)
    assert seconds(bare=0.5) == pytest.approx(bare / 2 + whole - bare)
    assert seconds(prompts=0.5) == pytest.approx(bare + (whole - bare) / 2)


@pytest.mark.long(part="truth")
def test_a_load_that_no_slo_allows_or_no_replay_finds_again_has_no_relief():
    """It is 3 to 6 in flight by the replays: one that was measured at twice as many is another server's."""
    runs = loops(FEW, (2, 6, 9), prompts=(2, 4), outputs=(60, 61))
    model, slos = calibrate(runs, FEW, draws=3), [parse_slo("ttft_p90=80ms")]
    found = relief_of(model, runs, slos, {"ttft"}, 9.0, 6.0, fewest=100)
    assert (found.gains[0].resource, found.gains[0].low > 1) == ("sequences", True)
    assert relief_of(model, runs, slos, {"ttft"}, 24.0, 20.0, fewest=100) is None
    assert relief_of(model, runs, slos, {"ttft"}, 1.0, fewest=100) is None  # and one that missed at a single request
    assert relief_of(model, runs, [parse_slo("ttft_p90=1ms")], {"ttft"}, 2.0, fewest=100) is None


@pytest.mark.long(part="truth")
def test_where_latency_hardly_rises_with_load_the_limit_is_the_measured_one(monkeypatch):
    """With two slots TPOT P50 is 9.6 ms at three and four in flight, and replays meet that up to one in flight, or up to 28."""
    two, lengths = replace(LIMITS, sequences=2), {"prompts": (20, 60), "outputs": (5, 20)}
    runs = loops(two, (1, 3, 4), **lengths)
    model = calibrate(runs, two, draws=5)
    found = relief_of(model, runs, [parse_slo("tpot_p50=9.6ms")], {"tpot"}, 4.0, 3.0, fewest=150)
    assert [gain.resource for gain in found.gains[: found.tied]] == ["decode"]
    several = [parse_slo("tpot_p50=9.6ms"), parse_slo("ttft_p90=100s")]  # one of which says nothing of the other
    assert relief_of(model, runs, several, {"tpot"}, 4.0, 3.0, fewest=150) is None
    asked, levels = Asked(runs, 150), set()
    monkeypatch.setattr(asked, "at", lambda level, count: levels.add(level) or Asked.at(asked, level, count))
    lax = Replays(typical(model), asked, [parse_slo("tpot_p50=10ms")], 4.0)  # met at far more than the four that miss
    assert [lax.own(3.6).level, lax.own(60.0).level, lax.own(None)] == [3.0, 60.0, None]
    assert all(level.is_integer() for level in levels)  # 2 % beyond 60 are not asked for

    def halved(**step):
        return TRUE.seconds(**step) - TRUE.seconds(**{**step, "firsts": 0, "prefill": 0, "attended": 0.0}) / 2

    def rps(seconds, held):
        ends = serve(drawn(600, **lengths), seconds, tokens=two.tokens, sequences=2, held=held)["end_s"].sort()
        return 300 / (ends[450] - ends[150])

    assert found.gains[0].low < rps(halved, 20) / rps(TRUE.seconds, 3) < found.gains[0].high


POINT = {"deployment": "a", "workload": "w", "axis": "concurrency", "kind": "found", "basis": "steady", "limit": 3.0, "missed_at": 4.0,
         "missed": [{"by": "ttft_p90_s"}], "slos": ["TTFT P90 ≤ 1 s"]}  # fmt: skip


FOUR_RUN = {
    "valid": True, "telemetry_valid": True, "steady_queued_share": 1.0, "steady_running": 4.0,
    "steady_running_high": 4.0,
}  # fmt: skip


def test_a_server_without_limits_is_named_and_a_known_relief_is_kept(tmp_path):
    table = pl.DataFrame([{"deployment": "a", "workload": "w", **FOUR_RUN}])
    capacity = pl.DataFrame([POINT])
    slos = [parse_slo("ttft_p90=1s")]
    first = find_reliefs(table, tmp_path, capacity, slos, code="1")
    (curve,) = first.curves
    assert curve.relief is None
    assert "launch.json or deployment.json is missing" in curve.why_not
    write_record(first, tmp_path / "reliefs.json")
    assert read_known(Reliefs, tmp_path / "reliefs.json") == first
    said = []
    other = CurveRelief(deployment="b", workload="w", digest="x")
    again = find_reliefs(table, tmp_path, capacity, slos, code="1", known=Reliefs(curves=(curve, other)), say=said.append)
    assert (again.curves, said) == ((curve, other), [])  # `b` was not selected
    find_reliefs(table, tmp_path, capacity, slos, code="2", known=first, say=said.append)
    assert len(said) == 1
    assert find_reliefs(table, tmp_path, capacity.with_columns(kind=pl.lit("above")), slos, code="1").curves == ()


def test_a_server_whose_steps_cannot_be_read_costs_no_report(tmp_path, monkeypatch):
    """Nor one whose requests are of classes that a replay cannot tell apart."""
    mixed = {"a": {"share": 0.5, "model": "adapter"}, "b": {"share": 0.5}}
    monkeypatch.setattr("bench.predict.sources.read_limits", lambda *_: LIMITS)

    def why_not(runs, **told):
        monkeypatch.setattr("bench.predict.sources.measured_runs", lambda *_: runs)
        table = pl.DataFrame([{"deployment": "a", "workload": "w", **FOUR_RUN, **told}])
        (curve,) = find_reliefs(table, tmp_path, pl.DataFrame([POINT]), [parse_slo("ttft_p90=1s")], code="1").curves
        assert curve.relief is None
        return curve.why_not

    assert why_not([], stream=True, classes=json.dumps(mixed), cache="unique") == NO_STEPS

    def failing(*_, **__):
        raise ZeroDivisionError("no step")

    monkeypatch.setattr("bench.predict.sources.calibrate", failing)
    run = run_of(drawn(5), level=4.0)
    assert why_not([replace(run, row={**run.row, "axis": "concurrency"})]) == "replaying it failed (no step)"


def test_requests_come_again_in_another_order_at_another_load():
    """Of a closed loop without those that it begins with, which are cut short; and begun anew as if it had gone on for long."""
    held = loops(ROOM, (4,), prompts=(5, 50), outputs=(40, 41))[0]
    asked = Asked([held], 90, seed=1)
    plans = asked.at(8.0, 120)
    assert [plan.index for plan in plans] == list(range(len(plans)))
    assert sorted(plan.output_tokens for plan in plans[:8]) == [5, 10, 15, 20, 25, 30, 35, 40]
    assert {plan.output_tokens for plan in plans[8:]} == {40}
    assert [plan.prompt_asked for plan in plans[:96]] != [plan.prompt_asked for plan in Asked([held], 90, seed=2).at(8.0, 120)][
        :96
    ]
    due = run_of(drawn(60, rate=3.0), arrival="poisson", level=3.0)
    (slow, fast) = (Asked([due], 60).at(level, 60) for level in (1.0, 4.0))
    assert [plan.due_s for plan in slow] == pytest.approx([4 * plan.due_s for plan in fast])
    assert 40 < slow[-1].due_s < 90  # one a second


@pytest.mark.long(part="truth")
def test_no_rate_beyond_capacity_is_within_the_slos_and_bursts_below_it_are():
    """No latency is too long here. Gaps with a squared coefficient of variation of 20."""
    together = serve(drawn(1000), TRUE.seconds, tokens=LIMITS.tokens, sequences=LIMITS.sequences)["end_s"].sort()
    capacity = 600 / (together[800] - together[200])  # requests/s
    due = np.cumsum(np.random.default_rng(1).gamma(1 / 20, 20 / 4, 400)).tolist()
    run = run_of([(*lengths[:3], at) for lengths, at in zip(drawn(400), due, strict=True)], arrival="gamma", level=4.0)
    member = typical(calibrate([run], LIMITS, draws=1))
    found = Replays(member, Asked([run], 300), [parse_slo("e2e_p99=9999s")], 4.0).limit(member, 4.0)
    assert found.level == pytest.approx(capacity, rel=0.2)
    assert not found.open
