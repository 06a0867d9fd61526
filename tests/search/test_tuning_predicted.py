"""What a model of the default's first start expects of other candidates, on planted engines whose highest rates are known."""

import json
import math
from dataclasses import replace

import polars as pl
import pytest

from bench.findings.registry import draw_figure, figures_of
from bench.findings.tables import Tables
from bench.parse.table import summary_frame
from bench.predict.calibrate import calibrate
from bench.predict.limit import highest_loads
from bench.predict.limits import Limits
from bench.predict.replay import replay
from bench.runs.tuning import Predicted, Visit
from bench.search.predicted import limits_of_candidate
from bench.search.race import race
from bench.search.standing import Space
from bench.search.tuning_words import answer, found_line, state_line
from bench.study.config import Thresholds
from bench.study.slo import parse_slo
from tests.support import records
from tests.support.predict import TRUE, drawn, planned, run_of
from tests.support.tuning import record

SLO = parse_slo("e2e_p90=1.2s")
DEFAULT = Limits(tokens=512, sequences=12, blocks=400, block_size=16)
OTHERS = {
    "fewer sequences": replace(DEFAULT, sequences=6),
    "smaller steps": replace(DEFAULT, tokens=48),
    "less KV memory": replace(DEFAULT, blocks=60),
    "larger blocks": replace(DEFAULT, blocks=100, block_size=64),
}


def highest_rate(limits):
    """Of the planted engine, by halves: the highest rate at which the SLO holds."""
    low, high = 0.5, 40.0
    while high / low > 1.03:
        rate = math.sqrt(low * high)
        table = replay(planned(drawn(400, seed=9, rate=rate)), limits, TRUE).requests.sort("sent_s")
        e2e = (table["end_s"] - table["sent_s"])[100:].quantile(0.9)
        low, high = (rate, high) if e2e <= SLO.limit_s else (low, rate)
    return low


@pytest.mark.long(part="truth")
def test_a_model_of_one_server_s_runs_knows_what_others_carry():
    """Each of five planted servers within 12 %, of runs of the first one alone."""
    near = highest_rate(DEFAULT)
    runs = [
        run_of(drawn(200, seed=n, rate=share * near), name=f"q{n}", arrival="poisson", level=share * near, limits=DEFAULT, seed=n,
               noise=0.03)
        for n, share in enumerate((0.6, 0.9, 1.1))
    ]  # fmt: skip
    model = calibrate(runs, DEFAULT, draws=1)
    found = highest_loads(model, runs, [SLO], near, [DEFAULT, *OTHERS.values()])
    truth = [near, *map(highest_rate, OTHERS.values())]
    assert min(truth) < 0.8 * max(truth)
    for expected, true, name in zip(found, truth, ["default", *OTHERS], strict=True):
        assert expected == pytest.approx(true, rel=0.12), name


@pytest.mark.long(part="truth")
def test_of_what_no_run_has_shown_nothing_is_predicted():
    """Three requests at once, as measured at 7/s, say nothing of a server with 64; nor a model that is far from what was measured."""
    few = replace(DEFAULT, sequences=3)
    runs = [run_of(drawn(150, seed=2, rate=7.0), arrival="poisson", level=7.0, limits=few, noise=0.03)]
    model = calibrate(runs, few, draws=1)
    own, many = highest_loads(model, runs, [SLO], 7.0, [few, replace(few, sequences=64)])
    assert own == pytest.approx(7.0, rel=0.2)
    assert many is None
    assert highest_loads(model, runs, [SLO], 2.0, [few]) == [None]


def test_what_a_candidate_s_scheduler_obeys_follows_from_the_default_s_server():
    for changed, settings, words, limits in [
        ({}, {}, [], {}),
        ({"max_num_seqs": 64}, {"max_num_seqs": 64}, [], {"sequences": 64}),
        ({"flag_max_num_batched_tokens": "256"}, {}, ["--max-num-batched-tokens", "256"], {"tokens": 256}),
        ({"kv_cache_memory": 2**27}, {}, [], {"blocks": 128}),
        ({"block_size": 64}, {"block_size": 64}, [], {"blocks": 128, "block_size": 64}),
        ({"prefix_caching": True}, {"prefix_caching": True}, [], {"cached": True}),
        ({"dtype": "bfloat16"}, {}, [], None),
        ({"flag_enforce_eager": "false"}, {}, [], None),
        ({"kv_cache_memory": None}, {}, [], None),
    ]:
        configured = {
            "max_num_seqs": 16, "kv_cache_memory": 2**28, "block_size": None, "prefix_caching": False,
            "dtype": "auto",
        }  # fmt: skip
        common = {"device": "cpu", "kind": "vllm", "max_num_seqs": 16, "prefix_caching": False}
        default = records.launch(**common, configured=configured)
        other = records.launch(**common | settings, configured={**configured, **changed}, argv=("serve", *words))
        facts = records.facts(kv_blocks=256, block_size=32, prefix_caching=False)
        whole = Limits(tokens=2048, sequences=16, blocks=256, block_size=32, cached=False)
        assert limits_of_candidate(default, facts, other) == (None if limits is None else replace(whole, **limits)), changed
        assert limits_of_candidate(default, facts, replace(other, engine="another")) is None, changed


# What is shown of them


def predicted_record(**changed):
    return record(predicted=Predicted(rates={"d": 9.5, "b": 14.0, "e": 8.0}, seconds=12.0), **changed)


def drawn_figure(summary, tmp_path, found):
    runs = summary_frame([summary], {}, {}, Thresholds())
    results = Tables(runs, pl.DataFrame(schema={"deployment": pl.String, "run": pl.String}), tuning=found)
    draw_figure("tuning", results, tmp_path / "tuning")
    return json.loads((tmp_path / "tuning.json").read_text())


def test_the_figure_of_a_study_that_tunes_has_each_start_and_each_prediction(summary, tmp_path):
    found = predicted_record()
    chart = drawn_figure(summary, tmp_path, found)
    starts, predictions = (
        next(rows for rows in chart["datasets"].values() if (column in rows[0])) for column in ("phase", "expected")
    )
    assert len(starts) == len(found.visits)
    assert {row["candidate"] for row in starts} == {"d (default)", "b (winner)", "c"}
    assert {row["candidate"]: row["expected"] for row in predictions} == {"d (default)": 9.5, "b (winner)": 14.0, "e": 8.0}
    assert chart["usermeta"]["title"].startswith("b: +30 % (+18 % to +43 %) over the default")
    assert "tuning" not in figures_of([summary])
    assert "tuning" in figures_of([summary], tuned=True)


def test_what_is_said_of_a_tuning_beside_its_answer():
    (line,) = [each for each in answer(predicted_record()).sure if "redicted" in each]
    assert "8 % apart in the median: b 14 and 13" in line
    found = record()
    confirmed = replace(found.confirmed, rate=13.0, rate_low=12.2, rate_high=13.9)
    line = found_line(replace(found, confirmed=confirmed), "b")
    assert line == (
        "tuning, workload w, SLOs TTFT P90 ≤ 1 s: 13 requests/s (12.2 to 13.9); +30 % (+18 % to +43 %) over the default, d"
    )
    assert found_line(found, "d").endswith("10 requests/s; it is the default that the others had to beat")
    assert found_line(found, "e") is None
    found = record()
    assert state_line((), None, 4, 30.0) == "Tuning: 4 candidates, 30 min; `bench tune` measures them."
    assert state_line(found.visits[:3], None, 4, 30.0).startswith("Tuning: 4 candidates, 3 started, 3 starts in 6 of 30 min")
    assert state_line(found.visits, found, 4, 30.0).startswith("Tuning, ended: b, with max_num_seqs 128")


def test_a_model_that_is_wrong_of_all_others_does_not_end_the_first_looks():
    """After the default's start alone nothing shows how far a model is off: its predictions order the others, and leave none out."""
    settings = [{"slots": slots, "batch": batch} for slots in (4, 8, 16, 64) for batch in (128, 512, 2048)]
    names = [f"a{each['slots']}b{each['batch']}" for each in settings]
    said = {name: 10.0 * (0.8 if i else 1.0) for i, name in enumerate(names)}
    truth = {**said, "a16b512": 14.0}
    clock = [0.0]

    def visit(ask):
        clock[0] += 240.0
        rate = truth[ask.candidate]
        return Visit(
            deployment=ask.candidate, phase=ask.phase, round=ask.round, middle=math.log(rate), error=0.05, low=0.9 * rate,
            high=1.1 * rate, why="found", runs=8, load_s=200.0, began=clock[0] - 240.0, seconds=240.0,
        )  # fmt: skip

    predicted = Predicted(rates=said, seconds=5.0)
    found = race(names, Space(settings), dict.fromkeys(names, 1.0), 3 * 3600.0, visit, lambda: predicted)
    started = {each.deployment for each in found.visits}
    assert len(started) > 2
    assert found.leader in {"a16b512", names[0]}
    assert not (found.leader == names[0] and found.settled and len(started) < 3)
