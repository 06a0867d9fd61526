"""Summaries of runs whose truth is known, and files of runs that are written by hand."""

import json

import polars as pl

from bench.parse.table import summary_frame
from bench.study.config import Thresholds
from tests.support import records
from tests.support.planted import steady_row

PLAN = {"parameters": 10, "kv_bytes_per_token": 64, "kv_tokens": 640, "block_size": 32}
LAUNCH = {"a": records.launch(plan=PLAN)}
FACTS = {"a": records.facts(engine_version="1", kv_tokens=640, kv_blocks=20)}


def ladder(summary, usage, **more):
    runs = [
        {**summary, "level": float(level), "concurrency": level, "kv_usage_peak": peak, **{k: v[i] for k, v in more.items()}}
        for i, (level, peak) in enumerate(usage.items())
    ]
    return summary_frame(runs, LAUNCH, FACTS, Thresholds())


def frame(summary, curves, facts=None):
    """Rows of closed loops: `curves` has, by deployment (and workload), columns as lists, one value a level, beside `levels`.

    All requests of a level take its `ttft_p99_s`, `tpot_p95_s` and `e2e_mean_s`.
    """
    rows, launches = [], {}
    for name, told in curves.items():
        deployment, _, workload = name.partition("/")
        more = {key: value for key, value in told.items() if key not in ("levels", "launch")}
        own = told.get("launch", {})
        parallel = {"tensor_parallel": 1, "gpus": own.get("tensor_parallel", 1)}
        launches[deployment] = records.launch(**{"deployment": deployment, "model": deployment, **parallel, **own})
        for i, level in enumerate(told["levels"]):
            times = {name: told.get(column, [default] * 99)[i] for name, column, default in
                     (("ttft", "ttft_p99_s", 0.1), ("tpot", "tpot_p95_s", 0.01), ("e2e", "e2e_mean_s", 0.5))}  # fmt: skip
            rps = told.get("throughput_requests_per_s", {i: 2.0 * level})[i]
            base = steady_row(summary, level, rps=rps, **times)
            base |= {"deployment": deployment, "workload": workload or "short", "run": f"{workload}{level}"}
            defaults = {"ttft_p99_s": 0.1, "ttft_p50_s": 0.1, "e2e_mean_s": 0.5, "itl_p50_s": 0.01, "requests": 4, "itl_p99_s": 0.01,
                        "prefix_hit_rate": None, "tpot_p50_s": 0.01, "e2e_p50_s": 0.5, "ttft_p99_bound_s": None, "ttft_n": 4}  # fmt: skip
            given = {key: values[i] for key, values in more.items()}
            steady = {"steady_tokens_per_s": given["throughput_tokens_per_s"]} if "throughput_tokens_per_s" in given else {}
            rows.append({**base, **defaults, **steady, **given})
    cache = {"kv_tokens": 640, "kv_blocks": 20, "block_size": 32}
    told = {name: records.facts(**{**cache, **(facts or {}).get(name, {})}) for name in launches}
    return summary_frame(rows, launches, told, Thresholds())


FULL = {"kv_usage_peak": [0.3, 0.6, 1.0], "waiting_standing": [0.0, 0.0, 4.0], "preemptions": [0.0, 0.0, 3.0]}


def written(folder, summary, **changes):
    """A run of three requests (the last failed) and what its server and a GPU told before, at the begin of and in the load."""
    folder.mkdir()
    (folder / "summary.json").write_text(json.dumps({**summary, "scrape_endpoint": "server", "gpu_count_seen": 1, **changes}))
    requests = {
        "sent_s": [0.0, 0.0, 0.1], "outcome": ["ok", "ok", "http_503"], "ttft_s": [0.25, 0.5, None], "tpot_s": [0.25, 0.5, None],
        "e2e_s": [0.75, 1.0, None], "completion_tokens": [2, 2, None], "first_token_s": [0.25, None, None],
        "last_token_s": [0.75, 1.0, None], "token_times_s": [[0.25, 0.75], [1.0], []],
    }  # fmt: skip
    pl.DataFrame(requests, schema_overrides={"token_times_s": pl.List(pl.Float64)}).write_parquet(folder / "requests.parquet")
    gpu = ("exporter", 'gpu="0",UUID="GPU-a"')
    told = [
        (elapsed, endpoint, name, labels, value)
        for elapsed, running, watts in ((-0.5, 9.0, 900.0), (0.0, 1.0, 100.0), (0.5, 2.0, 200.0))
        for endpoint, name, labels, value in (
            ("server", "vllm:num_requests_running", "", running),
            ("other", "vllm:num_requests_running", "", 77.0),
            ("server", "vllm:generation_tokens_total", "", 5.0),
            (gpu[0], "DCGM_FI_DEV_POWER_USAGE", gpu[1], watts),
            (gpu[0], "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", gpu[1], 3.0),
        )
    ]
    pl.DataFrame(told, schema=["elapsed_s", "endpoint", "name", "labels", "value"], orient="row").with_columns(
        scrape=pl.int_range(pl.len())
    ).write_parquet(folder / "telemetry.parquet")
    return folder


def table(*rows):
    return summary_frame(list(rows), {}, {}, Thresholds())
