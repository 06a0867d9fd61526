"""The same tables by pandas and prometheus_client's parser: `python peer.py STAGE RESULTS [FIGURE...]`, in an environment of its own.

Written as one would who has these libraries and knows them: columns are gathered in lists, texts that repeat are categories, a label
set is worded once. It leaves out what ours does besides: checksums, the bounds of percentiles, verdicts, predictions, recovery.
"""

from __future__ import annotations

import gzip
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
from prometheus_client.parser import text_string_to_metric_families

GAUGES = {
    "vllm:kv_cache_usage_perc": "kv_usage",
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
}
COUNTERS = {
    "vllm:num_preemptions_total": "preemptions",
    "vllm:prompt_tokens_total": "server_prompt_tokens",
    "vllm:generation_tokens_total": "server_generation_tokens",
    "vllm:prefix_cache_queries_total": "prefix_queries",
    "vllm:prefix_cache_hits_total": "prefix_hits",
}
HISTOGRAMS = {
    "vllm:time_to_first_token_seconds": "server_ttft",
    "vllm:request_queue_time_seconds": "server_queue_time",
    "vllm:request_prefill_time_seconds": "server_prefill_time",
    "vllm:request_decode_time_seconds": "server_decode_time",
    "vllm:e2e_request_latency_seconds": "server_e2e",
}
SHARES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}
BIN_S = 0.5


def parse(folder: Path) -> None:
    """One run's raw records as `requests.parquet`, `telemetry.parquet`, `metrics.csv` and `summary.json`."""
    record = json.loads((folder / "run.json").read_text())
    requests = pd.read_json(folder / "requests.jsonl", lines=True)
    n = requests["completion_tokens"]
    requests["tpot_s"] = ((requests["e2e_s"] - requests["ttft_s"]) / (n - 1)).where(n > 1)
    requests["normalised_latency_s"] = (requests["e2e_s"] / n).where(n > 0)
    requests.to_parquet(folder / "requests.parquet", index=False)
    telemetry = read_telemetry(folder / "telemetry.jsonl.gz", record["clock_start_s"])
    telemetry.to_parquet(folder / "telemetry.parquet", index=False)
    series = telemetry["name"].astype(str).where(
        telemetry["labels"] == "", telemetry["name"].astype(str) + "{" + telemetry["labels"].astype(str) + "}"
    )  # fmt: skip
    wide = telemetry.assign(series=series.astype("category")).pivot(index="elapsed_s", columns="series", values="value")
    wide.to_csv(folder / "metrics.csv")
    (folder / "summary.json").write_text(json.dumps(summarise(record, requests, telemetry), indent=2))


def read_telemetry(path: Path, start: float) -> pd.DataFrame:
    """Every sample of every scrape."""
    columns: dict[str, list[Any]] = {key: [] for key in ("scrape", "elapsed_s", "name", "labels", "value")}
    worded: dict[tuple[tuple[str, str], ...], str] = {}
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            scrape = json.loads(line)
            elapsed = round((scrape["sent"] + scrape["received"]) / 2 - start, 6)
            for family in text_string_to_metric_families(scrape["text"]):
                for sample in family.samples:
                    key = tuple(sample.labels.items())
                    if key not in worded:
                        worded[key] = ",".join(f'{name}="{value}"' for name, value in sorted(key))
                    columns["scrape"].append(scrape["slot"])
                    columns["elapsed_s"].append(elapsed)
                    columns["name"].append(sample.name)
                    columns["labels"].append(worded[key])
                    columns["value"].append(sample.value)
    return pd.DataFrame(columns).astype({"name": "category", "labels": "category"})


def summarise(record: dict[str, Any], requests: pd.DataFrame, telemetry: pd.DataFrame) -> dict[str, Any]:
    """One run's numbers."""
    ok = requests[requests["outcome"] == "ok"]
    begin, end = requests["sent_s"].min(), requests["last_token_s"].max()
    tokens = ok["completion_tokens"].sum()
    definition = record["definition"]
    summary = {
        **{key: definition[key] for key in ("deployment", "run", "workload", "axis", "level", "repeat")},
        "requests": len(requests),
        "ok": len(ok),
        "duration_s": end - begin,
        "throughput_tokens_per_s": tokens / (end - begin),
        "throughput_peak_tokens_per_s": _peak(ok),
        **{f"client_{key}": value for key, value in record["client"].items()},
    }
    distributions = {"ttft": ok["ttft_s"], "e2e": ok["e2e_s"], "tpot": ok["tpot_s"]}
    distributions["ttft_due"] = ok["first_token_s"] - ok["scheduled_s"]
    distributions["itl"] = ok["token_times_s"].explode().astype(float).groupby(level=0).diff().dropna()
    for name, values in distributions.items():
        summary |= {f"{name}_n": len(values), f"{name}_mean_s": values.mean()}
        summary |= {f"{name}_{key}_s": value for key, value in _percentiles(values).items()}
    gauges = telemetry[telemetry["name"].isin(list(GAUGES))]
    peaks = gauges.groupby("name", observed=True)["value"].max()
    summary |= {f"{ours}_peak": peaks.get(name) for name, ours in GAUGES.items()}
    wanted = [*COUNTERS, *(f"{name}_{part}" for name in HISTOGRAMS for part in ("sum", "count"))]
    counted = telemetry[telemetry["name"].isin(wanted)].groupby(["name", "labels"], observed=True)["value"]
    rises = (counted.last() - counted.first()).groupby("name", observed=True).sum()
    summary |= {ours: rises.get(name) for name, ours in COUNTERS.items()}
    for name, ours in HISTOGRAMS.items():
        count = rises.get(f"{name}_count")
        summary[f"{ours}_mean_s"] = rises[f"{name}_sum"] / count if count else None
    return {key: value.item() if hasattr(value, "item") else value for key, value in summary.items()}


def _percentiles(values: pd.Series) -> dict[str, float]:
    """By nearest rank."""
    known = values.dropna().sort_values()
    return {key: float(known.iloc[max(1, math.ceil(round(len(known) * share, 9))) - 1]) for key, share in SHARES.items()}


def _chunks(requests: pd.DataFrame) -> pd.DataFrame:
    """`time` of each chunk and the `tokens` that it counts for."""
    tokens = requests["completion_tokens"] / requests["token_times_s"].str.len()
    chunks = pd.DataFrame({"time": requests["token_times_s"], "tokens": tokens}).explode("time")
    return chunks.astype(float).sort_values("time", ignore_index=True)


def _peak(requests: pd.DataFrame) -> float:
    """Most tokens in any window of a second that ends at a chunk."""
    chunks = _chunks(requests)
    total = pd.concat([pd.Series([0.0]), chunks["tokens"].cumsum()], ignore_index=True)
    before = chunks["time"].searchsorted(chunks["time"] - 1.0, side="right")
    return float((total.iloc[1:].to_numpy() - total.iloc[before].to_numpy()).max())


def aggregate(results: Path) -> None:
    """`summary.parquet`, `summary.csv` and `timeseries.parquet` of all runs."""
    folders = sorted((results / "runs").glob("*/*"))
    summary = pd.DataFrame([json.loads((folder / "summary.json").read_text()) for folder in folders])
    for file in ("launch.json", "deployment.json"):
        facts = pd.DataFrame([json.loads(path.read_text()) for path in sorted((results / "deployments").glob(f"*/{file}"))])
        kept = ["deployment", "kv_tokens"] if file == "deployment.json" else ["deployment", "model", "plan"]
        summary = summary.merge(facts[kept], on="deployment")
    for key in ("parameters", "kv_bytes_per_token"):
        summary[key] = [plan[key] for plan in summary["plan"]]
    summary = summary.drop(columns="plan")
    summary["saturated"] = (summary["preemptions"] > 0) | (summary["kv_usage_peak"] >= 0.99)
    summary["predicted_saturation"] = summary["kv_tokens"] / (128 + 64)
    summary.to_parquet(results / "summary.parquet", index=False)
    summary.to_csv(results / "summary.csv", index=False)
    pd.concat([_course(folder) for folder in folders], ignore_index=True).to_parquet(
        results / "timeseries.parquet", index=False
    )


def _course(folder: Path) -> pd.DataFrame:
    """A run over time: throughput in bins, requests completed, the gauges."""
    summary = json.loads((folder / "summary.json").read_text())
    requests = pd.read_parquet(folder / "requests.parquet")
    chunks = _chunks(requests)
    last = chunks["time"].max()
    per_bin = (
        chunks.groupby((chunks["time"] // BIN_S).astype(int))["tokens"]
        .sum()
        .reindex(range(int(last // BIN_S) + 1), fill_value=0)
    )
    middle = (per_bin.index.to_numpy() + 0.5) * BIN_S
    parts = [pd.DataFrame({"elapsed_s": middle, "series": "throughput", "value": per_bin.to_numpy() / BIN_S})]
    ended = requests["last_token_s"].dropna().sort_values().to_numpy()
    parts.append(pd.DataFrame({"elapsed_s": ended, "series": "completed", "value": range(1, len(ended) + 1)}))
    samples = pd.read_parquet(
        folder / "telemetry.parquet", columns=["elapsed_s", "name", "value"], filters=[("name", "in", list(GAUGES))]
    )
    samples = samples[samples["elapsed_s"] >= 0]
    parts.append(samples.assign(series=samples["name"].astype(str).map(GAUGES))[["elapsed_s", "series", "value"]])
    course = pd.concat(parts, ignore_index=True)
    return course.assign(**{key: summary[key] for key in ("deployment", "run", "level", "repeat")})


def main(stage: str, results: Path, *figures: str) -> None:
    """Do one stage, and print the seconds that it took after the imports above."""
    begin = time.perf_counter()
    if stage == "parse":
        for folder in sorted((results / "runs").glob("*/*")):
            parse(folder)
    elif stage == "aggregate":
        aggregate(results)
    else:
        from peer_figures import draw  # noqa: PLC0415 - matplotlib is no business of the tables

        draw(results, figures)
    print(time.perf_counter() - begin)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
