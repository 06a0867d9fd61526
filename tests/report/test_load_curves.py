"""The figures of load curves, against planted runs: latency and throughput, the full cache, and what throughput loses beyond it."""

import json
import math
from dataclasses import replace

import polars as pl

from bench.findings.registry import figures_of
from bench.findings.tables import Tables
from bench.findings.user_speed import trade_offs
from bench.report.chart_words import sustained_title
from bench.search.chart import draw
from bench.search.placing import Aim, Answer
from bench.search.search import Found, Look
from bench.statistics.observation import Excess, Observation
from bench.study.decision import Decision
from bench.study.slo import parse_slo
from tests.support.figures import data_of, drawn_rows, results, saved_spec, spec_of
from tests.support.planted import answers


def rows_of(spec, panel):
    return spec["datasets"][data_of(spec["concat"][panel])]


# Latency against throughput


def curve(summary, **more):
    """Of deployment a, 16 misses the SLO; throughput falls from 4 to 16, where the tail leaves the median."""
    spread = [[0.1] * 400, *([p50] * 370 + [p95] * 20 + [p99] * 10 for p50, p95, p99 in ((0.2, 0.3, 0.4), (0.4, 2.0, 4.0)))]
    planted = {
        "throughput_tokens_per_s": [10.0, 40.0, 30.0], "throughput_requests_per_s": [1.0, 4.0, 3.0],
        "ttft_p50_s": [0.1, 0.2, 0.4], "ttft_p95_s": [0.1, 0.3, 2.0], "ttft_p99_s": [0.1, 0.4, 4.0],
        "tpot_p50_s": [0.01, 0.02, 0.04], "tpot_p95_s": [0.01, 0.02, 0.05], "judged": [answers(ttft=ttft) for ttft in spread],
    }  # fmt: skip
    study = results(summary, deployments=("a",), **planted, **more)
    return replace(study, decision=Decision(slo=["ttft_p95=1s"]))


def test_latency_stands_over_throughput_with_its_levels_marked(summary):
    spec = spec_of("latency-throughput", curve(summary))
    titles = [panel["title"]["text"] for panel in spec["concat"]]
    assert titles == ["TTFT P50", "TTFT P95 ≤ 1 s, dashed", "TTFT P99", "TPOT P95"]
    found = {(row["level"], row["throughput_tokens_per_s"], row["ttft_p95_s"], row["label"]) for row in rows_of(spec, 1)}
    assert found == {(1, 10, 0.1, "1"), (4, 40, 0.3, "4"), (16, 30, 2.0, "16")}
    assert {row["level"]: row["mark"] for row in rows_of(spec, 1)} == {1: None, 4: "C_max", 16: None}
    domains = [panel["layer"][-2]["encoding"]["y"]["scale"]["domain"] for panel in spec["concat"]]
    assert domains[0] == domains[1] == domains[2] != domains[3]  # TTFT's panels are compared
    assert [row["limit"] for row in drawn_rows(spec, "limit")] == [1.0]
    far = spec_of("latency-throughput", replace(curve(summary), decision=Decision(slo=["ttft_p95=90s"])))
    assert far["concat"][1]["title"]["text"] == "TTFT P95 ≤ 90 s, far above"
    assert not drawn_rows(far, "limit")


def test_whole_answers_stand_by_their_end(summary):
    """As embeddings, or answers without streaming: no run has a first token."""
    none = dict.fromkeys((f"{name}_{each}_s" for name in ("ttft", "tpot") for each in ("p50", "p90", "p95", "p99")), [None] * 3)
    ends = {f"e2e_{each}_s": [0.1, 0.2, 0.4] for each in ("p50", "p95", "p99")}
    study = results(
        summary, deployments=("a",), work=["embedding"] * 3, throughput_tokens_per_s=[10.0, 40.0, 30.0], **none, **ends
    )
    spec = spec_of("latency-throughput", study)
    assert [panel["title"]["text"] for panel in spec["concat"]] == ["E2E P50", "E2E P95", "E2E P99"]
    assert spec["concat"][0]["layer"][0]["encoding"]["x"]["title"] == "prompt tokens/s"


def test_invalid_runs_stand_beside_the_line(summary):
    spec = spec_of("latency-throughput", curve(summary, wrong_output_tokens=[0, 0, 1]))
    assert {row["level"] for row in rows_of(spec, 0) if row["run"] is None} == {1, 4}  # of which the line is drawn
    assert {row["level"] for row in rows_of(spec, 0) if row["run"]} == {16}


def test_the_title_names_what_is_sustained():
    points = pl.DataFrame({"deployment": ["a", "b", "a"], "workload": ["chat", "chat", "burst"], "usable_rps": [2.0, 9.0, None],
                           "tokens_per_s": [760.4, 1289.0, None]})  # fmt: skip
    assert sustained_title(points) == "Within the SLOs: b 1,289 tokens/s, a 760"
    assert sustained_title(points.with_columns(usable_rps=pl.lit(1.0))) is None  # of two workloads
    assert sustained_title(points.head(0)) is None


# Users' speed


def study_of(summary, gpus):
    study = results(summary, tpot_p50_s=[0.01, 0.02, 0.05], throughput_tokens_per_s=[100.0, 300.0, 200.0])
    half = pl.when(pl.col("deployment") == "b").then(0.5).otherwise(1.0)
    runs = study.runs.with_columns(pl.col("throughput_tokens_per_s") * half, gpus=pl.lit(gpus, dtype=pl.Int64))
    return Tables(runs, study.timeseries)


def test_what_no_load_beats_in_both_is_the_frontier(summary):
    found = trade_offs(study_of(summary, 2).runs, "tpot_p50_s")
    assert {(row["deployment"], row["level"]) for row in found.filter("unbeaten").iter_rows(named=True)} == {("a", 1), ("a", 4)}
    at = found.filter(deployment="a", level=4).row(0, named=True)
    assert (at["tpot_p50_s"], at["an_instance"], at["a_gpu"]) == (0.02, 300, 150)


def test_throughput_is_of_a_gpu_where_their_number_is_known(summary):
    for gpus, column in ((2, "a_gpu"), (0, "an_instance"), (None, "an_instance")):
        spec = saved_spec("user-speed", study_of(summary, gpus))
        found = {(row["level"], row[column]) for row in drawn_rows(spec, column) if row["curve"] == "a"}
        assert found == {(level, speed / (gpus or 1)) for level, speed in ((1, 100), (4, 300), (16, 200))}, gpus
        assert ("per instance" in spec["usermeta"]["note"]) == (column == "an_instance"), gpus


# The full cache


def full_at(summary, usage, **more):
    """Usage of four levels; the cache is full from 16 on by a preemption, with 95 % in use."""
    study = results(summary, (8, 15, 16, 20), deployments=("a",), kv_usage_peak=usage, **more)
    return Tables(study.runs, study.timeseries)


def test_filled_points_are_the_runs_that_filled_the_cache(summary):
    study = full_at(summary, [0.5, 0.95, 0.95, 1.0], preemptions=[0.0, 0.0, 1.0, 4.0])
    spec = saved_spec("kv-saturation", study)
    assert {row["level"]: row["room"] for row in drawn_rows(spec, "room")} == {8: True, 15: True, 16: False, 20: False}
    assert study.saturation["measured"].to_list() == [16]


# Beyond it


def test_the_runs_over_time_lie_below_at_and_above_a_full_cache(summary):
    for usage, drawn in (
        ([0.5, 0.95, 1.0, 1.0], [15, 16, 20]),
        ([0.5, 1.0, 1.0, 1.0], [8, 15, 20]),
        ([0.1, 0.2, 0.3, 0.4], [20]),
    ):
        spec = spec_of("throughput-over-time", full_at(summary, usage))
        panels = [panel for strip in spec["vconcat"] for panel in strip["hconcat"]]
        assert [panel["title"]["text"] for panel in panels] == [f"a at {level}" for level in drawn]
        assert {len(panel["vconcat"]) for panel in panels} == {3}
        scales = {json.dumps(panel["vconcat"][0]["layer"][0]["encoding"]["y"]["scale"]) for panel in panels}
        assert len(scales) == 1  # they are compared


# What is not there


def test_a_server_whose_metrics_are_not_read_has_no_figure_of_its_cache():
    plain = {"workload": "w", "family": "w", "deployment": "d", "axis": "concurrency", "arrival": "closed"}
    of_cache = {"kv-saturation"}
    for more, there in (({}, True), ({"metrics": True}, True), ({"metrics": False}, False), ({"kv_usage_peak": None}, False)):
        rows = [{**plain, **more, "level": level} for level in (1, 2, 4)]
        assert (of_cache <= set(figures_of(rows))) == there
        assert bool(of_cache & set(figures_of(rows))) == there


def test_without_a_cache_s_metrics_a_figure_says_so_in_a_line(summary):
    study = results(summary, known=False, kv_usage_peak=[None] * 3)
    spec = spec_of("kv-saturation", replace(study, timeseries=study.timeseries.filter(series="throughput")))
    assert [row["said"][:16] for row in drawn_rows(spec, "said")] == ["Nothing to show:"]


def test_the_latencies_are_those_that_were_measured(summary):
    told = {"tpot_p99_s": [0.01, 0.02, 0.03], "itl_p99_s": [0.01] * 3, "e2e_p99_s": [1.0, 2.0, 3.0], "server_queue_time_mean_s": [0.0, 0.1, 2.0]}  # fmt: skip
    spec = spec_of("latencies", replace(results(summary, **told), decision=Decision(slo=["tpot_p90=40ms"])))
    titles = [panel["title"]["text"] for panel in spec["concat"]]
    assert titles[0] == "TTFT P99; thin: P50"
    assert "TPOT P99; thin: P50" not in titles
    assert "queue time at the server, mean" in titles
    assert {"ITL P99; thin: P50", "E2E P99; thin: P50"} <= set(titles)
    queue = rows_of(spec, titles.index("queue time at the server, mean"))
    assert {(row["level"], row["tail"]) for row in queue} == {(1, 0.0), (4, 0.1), (16, 2.0)}


# The limit that `bench find` draws

SLOS = [parse_slo("ttft_p95=1s"), parse_slo("tpot_p95=40ms")]
AIM = Aim(slos=SLOS, failed_share=0.01, held=True, precision=0.2, start=8, lowest=1, highest=96)


def limit_of(tmp_path, looks, answer):
    draw(Found(answer, looks), AIM, tmp_path / "limit")
    return json.loads((tmp_path / "limit.json").read_text())


def test_the_frame_of_a_limit_is_as_high_as_its_runs(tmp_path):
    """Of two loads at half and twice their limit, ± 10 %."""
    looks = [
        Look(load, 100, 9.0, Observation(load, {SLOS[0].column: Excess(math.log(reached), 0.05)}, 100))
        for load, reached in ((8.0, 0.5), (32.0, 2.0))
    ]
    spec = limit_of(tmp_path, looks, Answer(16, 8, 32, "found"))
    y = spec["layer"][-1]["encoding"]["y"]
    low, high = y["scale"]["domain"]
    assert 0.3 < low < 0.5 and 2.0 < high < 2.6
    assert spec["layer"][-1]["encoding"]["shape"]["legend"] is None  # of one SLO


def test_a_search_that_shows_nothing_says_so_in_a_line(tmp_path):
    spec = limit_of(tmp_path, [], Answer(0, 0, math.inf, "short"))
    assert [row["said"] for row in drawn_rows(spec, "said")] == ["Nothing to show: no run was measured."]
    assert len(spec["layer"]) == 1


def test_a_figure_of_a_study_without_a_valid_run_says_that_alone(summary):
    decision = Decision(slo=["ttft_p99=1s"], peak_rps=10, price_per_hour=2.5, price_per_million_tokens=1.0)
    found = replace(results(summary, client_loop_lag_max_s=[9] * 3), decision=decision)
    for name, said in (("fleet", "no load that goes on has a valid run"), ("economics", "no run is valid")):
        assert [row["said"] for row in drawn_rows(spec_of(name, found), "said")] == [f"Nothing to show: {said}."]
