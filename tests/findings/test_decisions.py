"""From curves to decisions: economics by hand, and advice that is silent without data. Causes: test_causes.py."""

import polars as pl
import pytest

from bench.findings.advice import advice, front_end, pools
from bench.findings.capacity.points import operating_points
from bench.findings.ceilings import Server, ceilings
from bench.findings.economics import best_points, economics, gpu_hour
from bench.models.catalogue import accelerators, catalogue
from bench.models.config_json import geometry_of_entry
from bench.servers.deployment import Deployment
from bench.servers.plan import Demand, Setting, plan
from bench.study.decision import Decision
from bench.study.slo import parse_slo
from tests.support.summaries import frame

SLOS = [parse_slo("ttft_p99=1s")]


def test_revenue_cost_and_profit_of_an_hour_by_hand(summary):
    def hour(prices, launch=None, device=None, **columns):
        told = {"levels": (1, 2)[: len(next(iter(columns.values())))], **columns, **({"launch": launch} if launch else {})}
        return economics(frame(summary, {"a": told}), Decision(**prices), device).to_dicts()

    power = {"throughput_tokens_per_s": [500.0, 2000.0], "gpu_power_mean_w": [None, 300.0]}
    a_token, energy = {"price_per_million_tokens": 1.0}, {"price_per_hour": 2.0, "energy_price_per_kwh": 0.5}
    device = accelerators()["h100"].model_copy(update={"power_w": 700.0})
    prices = {**energy, "cost_per_million_requests": 10.0, **a_token}
    low, high = hour(prices, {"tensor_parallel": 2}, device, **power)
    assert low["fixed_per_h"] == 4.0  # two GPUs
    assert low["energy_per_h"] == pytest.approx(2 * 0.7 * 0.5, rel=1e-9)  # the board's, as nothing was measured
    assert high["energy_per_h"] == pytest.approx(0.3 * 0.5)  # measured, of all GPUs
    assert low["requests_per_h"] == pytest.approx(2 * 3600 * 10 / 1e6)
    assert high["revenue_per_h"] == pytest.approx(7.2)
    assert high["profit_per_h"] == pytest.approx(7.2 - 4 - 0.15 - 4 * 3600 / 1e5)
    assert high["cost_per_million_tokens"] == pytest.approx(high["cost_per_h"] / 7.2)
    # Every GPU of an instance is paid for, a machine without GPUs once, and an unknown number has no cost.
    speed = {"throughput_tokens_per_s": [1000.0]}
    parallel = {"tensor_parallel": 1, "pipeline_parallel": 2, "data_parallel": 4, "gpus": 8}
    (row,) = hour(energy, parallel, device, **speed)
    assert (row["fixed_per_h"], row["energy_per_h"]) == (16.0, pytest.approx(8 * 0.7 * 0.5))
    assert row["cost_per_million_tokens"] == pytest.approx((16.0 + 2.8) / 3.6)
    (row,) = hour({"price_per_hour": 2.0, **a_token}, {"gpus": None}, **speed)
    assert (row["fixed_per_h"], row["cost_per_h"], row["profit_per_h"], row["cost_per_million_tokens"]) == (None,) * 4
    (row,) = hour({"price_per_hour": 3.0}, {"device": "cpu", "tensor_parallel": 2, "gpus": 0}, **speed)
    assert row["fixed_per_h"] == 3.0
    # Without a power or a price, energy and requests are free.
    (row,) = hour(energy, **speed)
    assert (row["energy_per_h"], row["requests_per_h"], row["cost_per_h"], row["revenue_per_h"]) == (0, 0, 2, None)
    assert (row["priced_tokens_per_s"], row["cost_per_million_tokens"]) == (1000, pytest.approx(2 / 3.6))
    # Costs are those of the window, and no hour is made of bursts.
    runs = frame(summary, {"a": {"levels": (1,), **speed, "steady_tokens_per_s": [2000.0]}})
    token = Decision(price_per_hour=1.0, **a_token), None
    assert economics(runs, *token)["revenue_per_h"].to_list() == [pytest.approx(7.2)]
    burst = runs.with_columns(workload=pl.lit("burst"), arrival=pl.lit("burst"), steady_tokens_per_s=pl.lit(None, pl.Float64))
    assert best_points(economics(pl.concat([runs, burst]), *token))["workload"].to_list() == ["short"]
    assert best_points(economics(burst, *token))["priced_tokens_per_s"].to_list() == [1000.0]  # there is nothing else


def test_the_best_point_and_the_break_even(summary):
    def best(runs, **prices):
        return best_points(economics(runs, Decision(price_per_million_tokens=1.0, **prices), None))

    runs = frame(summary, {"a": {"levels": (1, 2, 4, 8), "throughput_tokens_per_s": [100.0, 400.0, 900.0, 600.0]}})
    row = best(runs, price_per_hour=1.0).row(0, named=True)
    assert (row["best_at"], row["break_even_at"]) == (4, 2)
    assert row["profit_per_h"] == pytest.approx(900 * 3600 / 1e6 - 1)
    assert row["break_even_tokens_per_s"] == pytest.approx(1e6 / 3600)  # 1 USD of tokens an hour
    assert best(runs).is_empty()
    # The best is that of the means of repeats. 100 tokens/s earn 0.36 USD an hour, the price of the GPU: level 1 earns its cost alone.
    curves = [
        {"levels": (1, 2, 4, 8), "throughput_tokens_per_s": speeds, "repeat": [i] * 4, "wrong_output_tokens": [0] * 4}
        for i, speeds in enumerate(([100.0, 100.0, 250.0, 0.0], [100.0, 300.0, 150.0, 0.0]))
    ]
    wrong = {"levels": (16,), "throughput_tokens_per_s": [9000.0], "wrong_output_tokens": [1]}
    runs = pl.concat([frame(summary, {"a": each}) for each in (*curves, wrong)], how="diagonal_relaxed")
    row = best(runs, price_per_hour=0.36).row(0, named=True)
    told = {"best_at": 2, "profit_per_h": 0.36, "priced_tokens_per_s": 200, "break_even_at": 1, "break_even_tokens_per_s": 100,
            "cost_per_million_tokens": 0.5}  # fmt: skip
    assert {name: row[name] for name in told} == pytest.approx(told)
    dear = best(runs, price_per_hour=9.0).row(0, named=True)
    assert (dear["best_at"], dear["break_even_at"]) == (2, None)
    # Prices are the decisions before the devices.
    h100 = accelerators()["h100"]
    assert [gpu_hour(Decision(price_per_hour=price), h100) for price in (2.5, None)] == [2.5, 10]
    assert gpu_hour(Decision(), None) is None


def test_advice_needs_valid_runs_that_show_it(summary):
    def advised(**curves):
        runs = frame(summary, {f"a/{name}": curve for name, curve in curves.items()})
        return advice(runs, operating_points(runs, SLOS))

    chat, rag = (
        {"levels": levels, "ttft_p99_s": [0.1, 9.0], "prompt_tokens": [tokens] * 2}
        for levels, tokens in (((8, 16), 32), ((1, 2), 320))
    )
    (pool,) = advised(chat=chat, rag=rag)
    assert pool.startswith("Give each workload its own pool: within its SLOs one a sustains, in requests/s, ")
    assert advised(chat=chat, rag={**rag, "wrong_output_tokens": [1, 1]}) == []


def test_ceilings_stand_beside_valid_requests_that_were_alone(summary):
    """Two runs of one request at a time; the others have two in flight, are no ladder of concurrency, or are invalid."""
    geometry, h100 = geometry_of_entry(catalogue()["llama-3-8b"]), accelerators()["h100"]
    curve = {"levels": (1, 1, 2, 1, 1), "tpot_p50_s": [0.01, 0.03, 0.001, 0.001, 0.001], "ttft_p50_s": [0.02, 0.06] + [0.001] * 3,
             "wrong_output_tokens": [0, 0, 0, 1, 0], "axis": ["concurrency"] * 4 + ["request_rate"], "judged": [None] * 5}  # fmt: skip
    runs = frame(summary, {"a": curve, "b": curve})

    def shares(runs=runs, **deployment):
        servers = {"a": Server(geometry=geometry, settings=Deployment(model="m", engine="e", **deployment))}
        (found,) = ceilings(runs, servers, h100)  # of b nothing is known
        return found

    for deployment, setting in (
        ({}, Setting()),
        ({"dtype": "float32"}, Setting(dtype="float32", kv_dtype="float32")),
        ({"kv_cache_dtype": "fp8", "tensor_parallel": 2}, Setting(kv_dtype="fp8", tensor_parallel=2)),
    ):
        allowed = plan(geometry, h100, Demand(32, 32), setting)["ceilings"]
        found = shares(**deployment)
        assert (found.deployment, found.workload) == ("a", "short")
        assert found.decode == pytest.approx(1 / 0.02 / allowed["decode_tokens_per_s_at_context"]), deployment
        assert found.prefill == pytest.approx(allowed["ttft_s"] / 0.04), deployment
    # Runs without a word on prefixes count; of those with a hit the prompt was not computed.
    hits = runs.with_columns(prefix_hit_rate=pl.Series(2 * [None, 0.5, 0, 0, 0], dtype=pl.Float64))
    assert shares(hits).prefill == pytest.approx(2 * shares().prefill)
    assert shares(hits).decode == shares().decode


# Advice, of rows of the tables that it is drawn from, made by hand

POINT = {"deployment": "a", "workload": "short", "unit": "requests in flight", "kind": "found", "basis": "steady", "c_max": 8.0,
         "operate_at": 4.0, "prompt_tokens": 128.0, "output_tokens": 64.0, "usable_rps": 10.0, "usable_low": 9.0, "usable_high": 11.0, "missed_at": 16.0, "missed": [{"by": "ttft_p99_s", "limit_s": 1.0, "reached_s": 3.0}]}  # fmt: skip


def four(summary, **more):
    return frame(summary, {"a": {"levels": (4, 8, 16, 32), "throughput_tokens_per_s": [50.0, 100.0, 80.0, 60.0], **more}})


def table(row, **changed):
    return pl.DataFrame([{**row, **changed}])


def test_an_engine_that_is_ahead_of_its_clients(summary):
    for client, server, ahead in (
        (0.02437, 0.01306, True),  # gpt2-xl on an H200, 200 in flight
        (0.017388, 0.017372, False),  # deepseek-7b there, 200
        (0.0119, 0.01, False),
        (0.0121, 0.01, True),
        (0.02437, None, False),  # not every server has a clock of its own
    ):
        runs = four(summary).with_columns(itl_mean_s=pl.when(pl.col("level") >= 8).then(client).otherwise(0.01),
                                          server_itl_mean_s=pl.when(pl.col("level") >= 8).then(server).otherwise(0.01),
                                          gpu_utilisation_mean=pl.lit(0.53))  # fmt: skip
        found = list(front_end(runs))
        assert len(found) == ahead, (client, server)
        assert all("at 8 requests in flight the engine" in each and "busy 53 % of the time" in each for each in found)


def test_pools_of_workloads_whose_ranges_lie_apart():
    for other, carried in (
        ({"usable_rps": 15.0, "usable_low": 12.0, "output_tokens": 32.0}, "15 of chat, 10 of short"),
        ({"usable_rps": 15.0, "usable_low": 12.0}, None),  # the same requests at other moments
        ({"usable_rps": 14.9, "usable_low": 12.0, "output_tokens": 32.0}, None),  # not half as much again
        ({"usable_rps": 15.0, "usable_low": 11.0, "output_tokens": 32.0}, None),  # the ranges meet
        ({"usable_rps": 15.0, "usable_low": 10.0, "output_tokens": 32.0}, None),
        ({"usable_rps": 15.0, "usable_low": None, "output_tokens": 32.0}, None),
        ({"usable_rps": 5.0, "usable_low": 4.0, "usable_high": 8.0, "prompt_tokens": 256.0}, "10 of short, about 5 of chat"),
        ({"usable_rps": 5.0, "usable_low": 4.0, "usable_high": None, "output_tokens": 32.0}, None),
        ({"usable_rps": None}, None),
        ({"usable_rps": 15.0, "usable_low": 12.0, "deployment": "b"}, None),
    ):
        points = pl.concat([table(POINT), table(POINT, workload="chat", **other)], how="vertical_relaxed")
        found = list(pools(points))
        assert [f"in requests/s, {carried}. A mixed" in each for each in found] == [True] * bool(carried), other
