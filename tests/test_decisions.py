"""From curves to decisions: economics by hand, what ends a curve, the monitoring bands, and advice that is silent without data."""

import polars as pl
import pytest

from bench.analysis import (
    Prices,
    advice,
    best_points,
    bottleneck,
    economics,
    judge,
    operating_points,
    predictions,
    saturation,
    summary_frame,
)
from bench.models import Demand, Setting, geometry_of, plan
from bench.study import Decision, Deployment, catalogue, devices, parse_slo
from bench.study.config import Thresholds

SLOS = [parse_slo("ttft_p99=1s")]


def frame(summary, curves):
    """Summary rows: `curves` has, by deployment (and workload), columns as lists, one value a level, beside `levels`."""
    rows, launches = [], {}
    for name, told in curves.items():
        deployment, _, workload = name.partition("/")
        more = {key: value for key, value in told.items() if key not in ("levels", "launch")}
        launches[deployment] = {
            "model": deployment,
            "engine": "e",
            "device": "cuda",
            "tensor_parallel": 1,
            **told.get("launch", {}),
        }
        for i, level in enumerate(told["levels"]):
            base = {
                **summary,
                "deployment": deployment,
                "workload": workload or "short",
                "level": float(level),
                "in_flight_peak": level,
                "run": f"{workload}{level}",
            }
            defaults = {"throughput_requests_per_s": 2.0 * level, "ttft_p99_s": 0.1, "ttft_p50_s": 0.1, "e2e_mean_s": 0.5, "itl_p50_s": 0.01,
                        "itl_p99_s": 0.01, "prefix_hit_rate": None, "tpot_p50_s": 0.01, "e2e_p50_s": 0.5, "ttft_p99_bound_s": None, "ttft_n": 4}  # fmt: skip
            rows.append({**base, **defaults, **{key: values[i] for key, values in more.items()}})
    facts = {name: {"kv_tokens": 640, "kv_blocks": 20, "block_size": 32} for name in launches}
    return summary_frame(rows, launches, facts, Thresholds())


def test_revenue_cost_and_profit_of_an_hour_by_hand(summary):
    runs = frame(summary, {"a": {"levels": (1, 2), "throughput_tokens_per_s": [500.0, 2000.0], "gpu_power_mean_w": [None, 300.0],
                                 "launch": {"tensor_parallel": 2}}})  # fmt: skip
    prices = Prices(gpu_hour=2.0, kwh=0.5, million_requests=10.0, million_tokens=1.0, power_w=700.0)
    low, high = economics(runs, prices).iter_rows(named=True)
    assert low["fixed_per_h"] == 4.0  # two GPUs
    assert low["energy_per_h"] == pytest.approx(2 * 0.7 * 0.5)  # the board's, as nothing was measured
    assert high["energy_per_h"] == pytest.approx(0.3 * 0.5)  # measured, of all GPUs
    assert low["requests_per_h"] == pytest.approx(2 * 3600 * 10 / 1e6)
    assert high["revenue_per_h"] == pytest.approx(7.2)
    assert high["profit_per_h"] == pytest.approx(7.2 - 4 - 0.15 - 4 * 3600 / 1e5)
    assert high["cost_per_million_tokens"] == pytest.approx(high["cost_per_h"] / 7.2)


def test_the_best_point_and_the_break_even(summary):
    runs = frame(
        summary,
        {"a": {"levels": (1, 2, 4, 8), "throughput_tokens_per_s": [100.0, 400.0, 900.0, 600.0], "failed": [0, 0, 0, 0]}},
    )
    row = best_points(economics(runs, Prices(gpu_hour=1.0, million_tokens=1.0))).row(0, named=True)
    assert (row["best_at"], row["break_even_at"]) == (4, 2)
    assert row["best_profit"] == pytest.approx(900 * 3600 / 1e6 - 1)
    assert row["break_even_tokens_per_s"] == pytest.approx(1e6 / 3600)  # 1 USD of tokens an hour
    assert best_points(economics(runs, Prices(million_tokens=1.0))).is_empty()


def test_a_machine_without_gpus_is_paid_once(summary):
    runs = frame(summary, {"a": {"levels": (1,), "launch": {"device": "cpu", "tensor_parallel": 2}}})
    assert economics(runs, Prices(gpu_hour=3.0))["fixed_per_h"].to_list() == [3.0]


def test_prices_are_the_decisions_before_the_devices():
    h100 = devices()["h100"]
    assert Prices.of(Decision(), h100).gpu_hour == 10
    assert Prices.of(Decision(price_per_hour=2.5), h100).gpu_hour == 2.5
    assert Prices.of(Decision(), None).gpu_hour is None


FULL = {"kv_usage_peak": [0.3, 0.6, 1.0], "waiting_standing": [0.0, 0.0, 4.0], "preemptions": [0.0, 0.0, 3.0]}


@pytest.mark.parametrize(
    ("told", "cause", "words"),
    [
        (FULL, "kv", "640 tokens ÷ 64 of a request = 10): 4 requests wait for room, and 3 preemptions"),
        ({"waiting_standing": [0.0, 0.0, 4.0]}, "sequences", "4 requests wait although 50% of the KV cache is free"),
        ({}, "prefill", "4 prompts of 32 tokens take 3 s, 43 prompt tokens/s"),
    ],
)
def test_why_a_curve_carries_no_more(summary, told, cause, words):
    runs = frame(summary, {"a": {"levels": (1, 2, 4), "ttft_p99_s": [0.1, 0.2, 3.0], **told}})
    found = bottleneck(runs, operating_points(runs, SLOS).row(0, named=True), SLOS)
    assert (found.cause, found.runs) == (cause, ("4",))
    assert words in found.why


def test_the_limit_is_looked_for_above_all_levels_with_room_whichever_carries_the_most(summary):
    told = {"levels": (1, 2, 4, 8), "throughput_requests_per_s": [1.0, 2.0, 1.8, 1.5], "kv_usage_peak": [0.2, 0.5, 0.9, 1.0],
            "preemptions": [0, 0, 0, 2]}  # fmt: skip
    runs = frame(summary, {"a": told})
    point = operating_points(runs, SLOS).row(0, named=True)
    assert (point["operate_at"], point["room_at"], point["c_max"]) == (2, 4, 8)
    assert (bottleneck(runs, point, SLOS).cause, bottleneck(runs, point, SLOS).runs) == ("kv", ("8",))


def test_slow_steps_are_told_from_slow_prompts(summary):
    runs = frame(summary, {"a": {"levels": (1, 2), "tpot_p95_s": [0.01, 0.2], "tpot_p50_s": [0.01, 0.15]}})
    slos = [*SLOS, parse_slo("tpot_p95=100ms")]
    found = bottleneck(runs, operating_points(runs, slos).row(0, named=True), slos)
    assert (found.cause, found.why) == (
        "decode",
        "At 2 requests in flight decoding is too slow: a step takes 150 ms (TPOT P50).",
    )


def test_a_queue_of_half_a_request_is_one_that_stands_half_of_the_time(summary):
    runs = frame(summary, {"a": {"levels": (1, 2), "ttft_p99_s": [0.1, 3.0], "waiting_standing": [0.0, 0.4]}})
    assert "1 request waits although" in bottleneck(runs, operating_points(runs, SLOS).row(0, named=True), SLOS).why


def test_a_curve_without_a_limit_says_so(summary):
    runs = frame(summary, {"a": {"levels": (1, 2)}})
    assert bottleneck(runs, operating_points(runs, SLOS).row(0, named=True), SLOS).cause == "none"


@pytest.mark.parametrize(
    ("run", "states"),
    [
        ({"kv_usage_peak": 0.8, "preemptions": 0, "requests": 10}, {"kv_usage": "within", "preempted": "within"}),
        ({"kv_usage_peak": 0.2, "preemptions": 1, "requests": 10}, {"kv_usage": "below", "preempted": "above"}),
        ({"kv_usage_peak": 1.0, "preemptions": 2, "requests": 10}, {"kv_usage": "far above", "preempted": "far above"}),
        ({"waiting_standing": 0, "in_flight_peak": 10}, {"queue": "within"}),
        ({"waiting_standing": 5, "in_flight_peak": 10}, {"queue": "far above"}),
        ({"prefix_hit_rate": 0.1, "prefix_hit_rate_expected": 0.5}, {"prefix": "below"}),
        ({"gpu_memory_peak_bytes": 85.0, "device_memory_bytes": 100}, {"gpu_memory": "within"}),
        ({"kv_usage_peak": None, "preemptions": None, "requests": 10}, {}),
    ],
)
def test_the_monitoring_bands(run, states):
    assert {name: found.state for name, found in judge(run).items()} == states


def said(runs, slos=SLOS):
    return [(each.role, each.sentence, each.runs) for each in advice(runs, saturation(runs), operating_points(runs, slos))]


def test_a_larger_model_that_holds_more_is_advice_for_developers(summary):
    small = {"levels": (1, 2, 4), **FULL, "launch": {"plan": {"parameters": 10, "kv_bytes_per_token": 400}}}
    large = {"levels": (1, 2, 4, 8), "kv_usage_peak": [0.2, 0.3, 0.6, 1.0], "waiting_standing": [0, 0, 0, 2],
             "launch": {"plan": {"parameters": 20, "kv_bytes_per_token": 100}}}  # fmt: skip
    role, sentence, runs = said(frame(summary, {"small": small, "large": large}), [])[0]
    assert role == "Developers"
    assert "large has 2 times the parameters of small, and its KV cache is full at 8 requests instead of 4" in sentence
    assert set(runs) == {"small/2", "small/4", "large/4", "large/8"}
    as_large = {**large, "launch": {"plan": {"parameters": 10, "kv_bytes_per_token": 100}}}
    assert all(role != "Developers" for role, *_ in said(frame(summary, {"small": small, "large": as_large}), []))


def test_workloads_that_differ_are_advice_for_architects(summary):
    runs = frame(
        summary,
        {"a/chat": {"levels": (8, 16), "ttft_p99_s": [0.1, 9.0]}, "a/rag": {"levels": (1, 2), "ttft_p99_s": [0.1, 9.0]}},
    )
    role, sentence, told = said(runs)[0]
    assert (role, told) == ("System architects", ("a/rag1", "a/chat8"))
    assert "16 of chat, 2 of rag" in sentence
    assert "Admit at most 8 requests in flight" in " ".join(sentence for _, sentence, _ in said(runs))


def test_a_second_device_bought_for_its_memory_is_advice_for_makers(summary):
    common = {"levels": (4,), "throughput_tokens_per_s": [100.0]}
    one = {**common, "kv_usage_peak": [1.0], "preemptions": [2.0], "launch": {"model": "m"}}
    two = {**common, "throughput_tokens_per_s": [300.0], "launch": {"model": "m", "tensor_parallel": 2}}
    told = [sentence for role, sentence, _ in said(frame(summary, {"one": one, "two": two}), []) if role == "Hardware makers"]
    assert len(told) == 1 and "2 of them give 3 times the throughput of 1" in told[0]
    alone = {**one, "kv_usage_peak": [0.5], "preemptions": [0.0]}
    assert not said(frame(summary, {"one": alone, "two": two}), [])


def test_stalls_and_lost_hits_are_advice_for_makers(summary):
    stalled = {"levels": (1, 2), "arrival": ["poisson"] * 2, "itl_p99_s": [0.02, 0.08], "itl_p50_s": [0.01, 0.02]}
    evicted = {
        "levels": (1, 2),
        "prefix_hit_rate": [0.6, 0.1],
        "kv_usage_peak": [0.5, 1.0],
        "prefix_hit_rate_expected": [0.6, 0.6],
    }
    told = said(frame(summary, {"a": stalled, "b": evicted}), [])
    assert [(role, runs) for role, _, runs in told if role == "Hardware makers"] == [
        ("Hardware makers", ("a/2",)),
        ("Hardware makers", ("b/1", "b/2")),
    ]


def test_a_request_that_is_alone_is_stalled_by_no_others_prompt(summary):
    stalled = {"levels": (1,), "arrival": ["closed"], "itl_p99_s": [0.09], "itl_p50_s": [0.02]}
    assert said(frame(summary, {"a": {**stalled, "in_flight_peak": [1]}}), []) == []
    assert len(said(frame(summary, {"a": {**stalled, "in_flight_peak": [2]}}), [])) == 1


def test_without_anything_to_say_there_is_no_advice(summary):
    assert said(frame(summary, {"a": {"levels": (1, 2)}}), []) == []
    assert said(frame(summary, {"a": {"levels": (1, 2), **{k: v[1:] for k, v in FULL.items()}, "failed": [1, 1]}})) == []


def test_predicted_and_measured_stand_side_by_side(summary):
    entry = catalogue()["llama-3-8b"]
    geometry = geometry_of(entry.config)
    runs = frame(summary, {"a": {"levels": (1, 8, 16), "kv_usage_peak": [0.1, 0.8, 1.0], "tpot_p50_s": [0.01] * 3, "ttft_p50_s": [0.02] * 3,
                                 "launch": {"plan": {"kv_tokens": 600}}}})  # fmt: skip
    deployment = Deployment(model="m", engine="e", dtype="float16")
    found = predictions(
        runs, saturation(runs), geometries={"a": geometry}, deployments={"a": deployment}, device=devices()["h100"]
    )
    ceilings = plan(geometry, devices()["h100"], Demand(32, 32), Setting(dtype="float16", kv_dtype="float16"))["ceilings"]
    assert [(each.what, each.predicted, each.measured, each.said) for each in found] == [
        ("KV capacity (tokens)", 600, 640, "+6.7%"),
        ("saturation with short (requests)", 10, 16, "within the levels: full at 16, not at 8"),
        (
            "decode of one request, short (tokens/s)",
            ceilings["decode_tokens_per_s_at_context"],
            100,
            f"{found[2].ratio:.0%} of the ceiling",
        ),
        (
            "prefill of one request, short (tokens/s)",
            32 / ceilings["ttft_s"],
            1600,
            f"{found[3].ratio:.0%} of the ceiling",
        ),
    ]
    assert all(each.ratio < 1 for each in found[2:])
    assert len(predictions(runs, saturation(runs), geometries={}, deployments={}, device=None)) == 2
    cached = runs.with_columns(prefix_hit_rate=pl.lit(0.5))  # half of each prompt was not computed, which no ceiling allows for
    told = predictions(
        cached, saturation(cached), geometries={"a": geometry}, deployments={"a": deployment}, device=devices()["h100"]
    )
    assert [each.what.split()[0] for each in told] == ["KV", "saturation", "decode"]


def test_runs_of_other_programs_have_no_facts(summary):
    runs = summary_frame([summary], {}, {}, Thresholds())
    assert predictions(runs, saturation(runs), geometries={}, deployments={}, device=None) == []
    assert economics(runs.with_columns(throughput_requests_per_s=pl.lit(1.0)), Prices())["cost_per_h"].to_list() == [None]
