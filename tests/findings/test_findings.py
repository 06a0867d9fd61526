"""What the report concludes: the sentences of a verdict, and the sections and the Markdown that carry them."""

import math
import re
from dataclasses import replace

import polars as pl

from bench.findings.answers import answers
from bench.findings.capacity.curves import curves_of
from bench.findings.causes import why
from bench.findings.registry import load_figure
from bench.findings.tables import Tables
from bench.predict.calibration import Calibration
from bench.runs.sentences import sure_text
from bench.study.decision import Decision
from tests.support.findings import SERVED, SLO, reported, study
from tests.support.planted import calibrated, rate_row, searched, steady_row
from tests.support.planted import frame as planted_frame
from tests.support.summaries import FULL

CURVE = {"levels": (1, 2, 4), "ttft_p99_s": [0.1, 0.12, 3.0], **FULL, **SERVED}
BURST = {"arrival": ["burst"] * 3, **dict.fromkeys(("steady_from_s", "steady_requests_per_s"), [None] * 3)}


def test_a_limit_stands_at_the_same_place_wherever_it_is_shown(summary):
    """None misses at 2 and all do at 16: it lies between levels."""
    (curve,) = curves_of(study(summary, a={**CURVE, "wrong_output_tokens": [1, 1, 1]}))
    assert (curve.sustains, curve.ends, curve.misses) == ("not known: no valid run", "", "")
    results = study(summary, a={**CURVE, "levels": (1, 2, 16), "ttft_p99_s": [0.1, 0.2, 30.0], "duration_s": [1.0] * 3})
    point = results.points.row(0, named=True)
    assert 2 <= point["low"] < point["high"] <= 16
    (curve,) = curves_of(results)
    assert curve.ends == f"{point['low']:g} to {point['high'] - 1:g} requests in flight, most likely {int(point['limit'])}"
    spec = load_figure("slo-margin").draw(results).to_dict()
    drawn = {(row["low"], row["high"]) for rows in spec["datasets"].values() for row in rows if "bar" in row}
    assert drawn == {(point["low"], point["high"])}
    assert " to ".join(sure_text(point["usable_rps"], point["usable_low"], point["usable_high"])[1:]) in curve.sustains


def test_the_fleet_and_the_cause_in_a_sentence(summary):
    fleet = curves_of(study(summary))[0].fleet
    ends = ("instances_least", "instances", "instances_most", "gpus")
    assert ([fleet[name] for name in ends], fleet["cost"]["hour"]) == ([16, 25, 28, 37], 74)
    assert curves_of(study(summary, Decision(slo=["ttft_p99=1s"])))[0].plan == ""
    # A burst has no fleet and says why.
    burst = study(summary, a={"levels": (1, 2, 4), "ttft_p99_s": [0.1, 0.12, 3.0], **FULL, **BURST})
    found = curves_of(burst)[0]
    assert (found.fleet, found.plan) == (None, "")
    # Nothing is claimed of a server that tells nothing.
    silent = dict.fromkeys(("kv_usage_peak", "waiting_standing", "preemptions", "waiting_peak", "running_peak"), [None] * 3)
    results = study(summary, a={"levels": (1, 2, 4), "ttft_p99_s": [0.1, 0.12, 3.0], **silent})
    (curve,) = curves_of(results)
    assert curve.limit.cause == "unknown" and curve.why.startswith("not known")
    # What a higher load shows is not said to miss what the first one misses.
    (curve,) = curves_of(study(summary))
    assert curve.limit and curve.why.startswith("the KV cache is full")
    other = why(replace(curve.limit, level=5.0), curve.point["missed_at"])
    assert other.startswith("at 5 requests in flight, the KV cache is full")


def test_the_first_screen_says_once_what_a_search_found_of_a_curve(summary):
    results = study(summary)
    workload = results.runs["workload"][0]

    def with_search(results=results, **record):
        known = replace(results, searches=(("a", searched(workload=workload, **record)),))
        told = curves_of(known)
        return told[0], answers(known, told)

    curve, others = with_search()
    point = results.points.row(0, named=True)  # by all runs of the curve, whatever the search knew when it ended
    ends = f"{point['low']:g} to {point['high'] - 1:g} requests in flight"  # the last loads that are within
    assert curve.ends == f"{ends}, most likely {int(point['limit'])}"
    assert curve.narrowed.startswith("Its search: 0 runs, 60 s")
    assert "searches" not in {answer.name for answer in others}
    # What it knew when it ended does not stand beside loads that all runs show to be within: here its limit was below 3.
    within = study(summary, a={**CURVE, "ttft_p99_s": [0.1, 0.12, 0.13], "duration_s": [1.0] * 3})
    (curve, *_) = with_search(within, why="runs", limit=0, low=0)
    assert (curve.ends, curve.misses) == ("4 or more requests in flight", "none up to 4 requests in flight")
    # Of other SLOs it says nothing about C_max.
    curve, (search, *_) = with_search(slos=("TTFT P99 ≤ 2 s",))
    assert (curve.evidence, search.name) == ("400 requests in 1 run were judged at 2 requests in flight.", "searches")


def test_a_search_and_a_ladder_have_the_interval_of_all_runs_of_their_curve(summary):
    """In flight the limit and its upper end are the last loads that are within, of a rate where the curve crosses."""
    for axis, unit in (("concurrency", "requests in flight"), ("request_rate", "requests/s")):
        row = rate_row if axis == "request_rate" else steady_row
        rows = [row(summary, load, requests=1000, slow=slow) for load, slow in ((10, 0), (12, 4), (14, 30), (20, 600))]
        results = Tables(planted_frame(rows), pl.DataFrame(schema={"deployment": pl.String, "run": pl.String}), None, SLO)
        point, held = results.points.row(0, named=True), axis == "concurrency"
        likely = math.floor(point["limit"]) if held else float(f"{point['limit']:.3g}")
        ends = f"{point['low']:g} to {point['high'] - held:g} {unit}, most likely {likely:g}"
        record = searched(workload="short", axis=axis, limit=3, low=2, high=4)
        for searches in ((), ((summary["deployment"], record),)):
            assert [each.ends for each in curves_of(replace(results, searches=searches))] == [ends], axis


def test_a_search_of_a_single_load_asks_for_no_second_one_by_hand(summary):
    results = study(summary, a={"levels": (1,), "ttft_p99_s": [0.1]})
    record = searched(workload=results.runs["workload"][0], why="runs", limit=1, low=1, high=None)
    known = replace(results, searches=(("a", record),))
    assert [answer.name for answer in answers(known, curves_of(known))] == ["searches"]
    assert [answer.name for answer in answers(results, curves_of(results))] == ["alone"]


def test_where_the_time_goes_is_told_about_the_limit(tmp_path, summary):
    """The lowest load misses, and the model predicts up to 14: no load above 4 was measured, and the limit lies below 1."""
    results = study(summary, a={"levels": (1, 2, 4), "ttft_p99_s": [2.0] * 3, **SERVED})
    (model,) = calibrated(results.runs).models
    beyond = replace(model.predicted[-1], level=14.0)
    known = replace(results, calibration=Calibration(models=(replace(model, predicted=(*model.predicted, beyond)),)))
    assert re.findall(r"time by the calibrated model at ([^:]*):", reported(tmp_path, known)[0]) == ["1 request in flight"]
