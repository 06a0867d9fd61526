"""One row a run, and every run's course over time, from all that was parsed."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from bench.analysis.drift import drift_reasons
from bench.analysis.saturation import saturated
from bench.analysis.sizing import launched_gpus
from bench.analysis.slo import goodput, judged_requests
from bench.analysis.validity import Reason, verdict
from bench.errors import BenchError
from bench.models import predicted_saturation
from bench.parse import DEVICE_SERIES, device_samples, gauges, throughput_series
from bench.records import summary_table
from bench.study import Slo
from bench.study.config import Thresholds
from bench.telemetry import DEVICE_NAMES, GAUGES, exposition_names

__all__ = ["BIN_S", "aggregate", "summary_frame", "timeseries_frame"]

BIN_S = 0.5
_LATENCIES = ["sent_s", "outcome", "ttft_s", "tpot_s", "e2e_s"]
_LISTS = ("metrics_missing", "counters_fell", "scrape_gaps")  # of a summary, and no column
_COURSE = {"elapsed_s": pl.Float64, "value": pl.Float64}
_TIMESERIES_SCHEMA = {
    "deployment": pl.String,
    "run": pl.String,
    "level": pl.Float64,
    "repeat": pl.Int64,
    "elapsed_s": pl.Float64,
    "series": pl.String,
    "value": pl.Float64,
}


def aggregate(
    runs: Sequence[Path],
    *,
    expected: Mapping[str, str] | None = None,
    launches: Iterable[Path],
    facts: Iterable[Path],
    thresholds: Thresholds,
    baseline: str | None = None,
    replicas: Collection[str] = (),
    slos: Sequence[Slo] = (),
    summary: Path,
    summary_csv: Path,
    timeseries: Path,
) -> None:
    """Write the summary table and the time series of all runs.

    Args:
        runs: each run's `summary.json`; its tables lie beside it. expected: digest of each run by `deployment/run`; None takes
            runs as they are. launches, facts: `launch.json` and `deployment.json` of each
            deployment. baseline: the deployment with which the others are compared, if there is one. replicas: those that are the
            same under other names. slos: of the goodput; without any it is null.

    Raises:
        BenchError: a run was measured under another definition than it has now.
    """
    by_deployment = {content["deployment"]: content for content in map(_read, launches)}
    known = {content["deployment"]: content for content in map(_read, facts)}
    summaries = [_read(path) for path in runs]
    for run, path in zip(summaries, runs, strict=True):
        key = f"{run['deployment']}/{run['run']}"
        if expected is not None and expected[key] != run["digest"]:
            raise BenchError(
                f"{key} was measured under another definition than the configuration gives it now. Forget it with "
                f"`bench discard '{key}'`, and it is measured again."
            )
        requests = pl.read_parquet(path.parent / "requests.parquet", columns=_LATENCIES)
        run.update(goodput(run, judged_requests(run, requests), slos))
    frame = summary_frame(summaries, by_deployment, known, thresholds, baseline, replicas)
    summary.parent.mkdir(parents=True, exist_ok=True)
    frame.write_parquet(summary)
    texts = frame.drop("judged").with_columns(pl.col("reasons").list.join("; "), pl.col("faults").list.join(", "))
    texts.write_csv(summary_csv)
    timeseries_frame([path.parent for path in runs]).write_parquet(timeseries)


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def summary_frame(
    runs: Sequence[Mapping[str, Any]],
    launches: Mapping[str, Mapping[str, Any]],
    facts: Mapping[str, Mapping[str, Any]],
    thresholds: Thresholds,
    baseline: str | None = None,
    replicas: Collection[str] = (),
) -> pl.DataFrame:
    """One row a run: what was asked, every metric, the deployment's memory, the predicted saturation and the verdict.

    It has every column of `bench.records`, null where nothing is known.

    Args:
        runs: the runs' summaries. launches, facts: by deployment; a deployment without either has null there. baseline: the deployment
            whose runs are marked in the column `baseline`. replicas: those whose runs are marked in the column `replica`.

    Raises:
        BenchError: a summary has what is no column.
    """
    rows = []
    drifts = drift_reasons(runs, thresholds)
    for run in runs:
        launch, fact = launches.get(run["deployment"], {}), facts.get(run["deployment"], {})
        plan = launch.get("plan") or {}
        drift = drifts.get((run["deployment"], run["run"]))
        rows.append(
            {
                **{k: v for k, v in run.items() if k not in _LISTS},
                "model": launch.get("model"),
                "engine": launch.get("engine"),
                "device": launch.get("device"),
                "tensor_parallel": launch.get("tensor_parallel"),
                "pipeline_parallel": launch.get("pipeline_parallel"),
                "data_parallel": launch.get("data_parallel"),
                "gpus": launched_gpus(launch),
                "engine_version": fact.get("engine_version"),
                "hardware": _hardware(fact.get("hardware") or {}),
                "parameters": plan.get("parameters"),
                "kv_bytes_per_token": plan.get("kv_bytes_per_token"),
                "kv_tokens_planned": plan.get("kv_tokens"),
                "kv_tokens": fact.get("kv_tokens"),
                "max_model_len": _flag(launch.get("argv") or [], "--max-model-len"),
                "max_num_seqs": _flag(launch.get("argv") or [], "--max-num-seqs"),
                "kv_blocks": fact.get("kv_blocks"),
                "engines": fact.get("engines") or launch.get("data_parallel"),
                "predicted_saturation": _predicted(run, plan, fact),
                "baseline": run["deployment"] == baseline,
                "replica": run["deployment"] in replicas,
                **verdict(run, thresholds, [Reason("machine", drift)] if drift else ()).columns(),
            }
        )
    return summary_table(rows).with_columns(saturated=saturated())


def _flag(argv: Sequence[str], name: str) -> int | None:
    """A number on a server's command line; None where it is not there."""
    given = [after for word, after in itertools.pairwise(argv) if word == name]
    return int(given[0]) if given else None


def _hardware(machine: Mapping[str, Any]) -> str | None:
    """The machine in short, such as `Xeon, 2 cores, 2 × NVIDIA H100`; None where nothing is known."""
    if not machine:
        return None
    gpus = Counter(gpu["name"] for gpu in machine["gpus"])
    return ", ".join([machine["cpu"], f"{machine['cores']} cores", *(f"{count} × {name}" for name, count in gpus.items())])


def _predicted(run: Mapping[str, Any], plan: Mapping[str, Any], fact: Mapping[str, Any]) -> float | None:
    """Requests that the KV cache holds; None where it is unknown, or where requests share their prompts' blocks and more would fit.

    Of several engines it is what all of them hold together: where requests are dealt out unevenly, the first one is full before that.
    """
    kv_tokens = fact.get("kv_tokens") or plan.get("kv_tokens")
    shared = run.get("cache", "unique") != "unique" and run.get("prefix_hit_rate_expected") != 0
    if not kv_tokens or shared or not run["requests"]:
        return None
    block_size = fact.get("block_size") or plan.get("block_size") or 1
    groups = plan.get("kv_groups") or ((None, 1),)
    return predicted_saturation(kv_tokens, run["prompt_tokens"] + run["output_tokens"], block_size, groups)


def timeseries_frame(folders: Iterable[Path]) -> pl.DataFrame:
    """Every run's course, tidy: `deployment`, `run`, `level`, `repeat`, `elapsed_s`, `series`, `value`.

    Series: `throughput` (output tokens/s at the client, in bins of half a second), `completed` (requests ended, cumulative),
    the server's gauges `running`, `waiting`, `kv_usage`, and of each GPU `gpu_utilisation/0` (0–1), `gpu_memory_bytes/0` and
    `gpu_power_w/0`, by its index.
    """
    frames = [pl.DataFrame(schema=_TIMESERIES_SCHEMA)]
    for folder in folders:
        told = _read(folder / "summary.json")
        requests = pl.read_parquet(folder / "requests.parquet")
        # Tokens of a whole answer all come with its last byte: they have no rate over time.
        client = throughput_series(requests.filter(pl.col("first_token_s").is_not_null()), BIN_S)
        ended = requests["last_token_s"].drop_nulls().sort()
        parts = [
            client.select("elapsed_s", series=pl.lit("throughput"), value="tokens_per_s"),
            pl.DataFrame({"elapsed_s": [0.0, *ended], "value": range(len(ended) + 1)}, schema=_COURSE).select(
                "elapsed_s", series=pl.lit("completed"), value="value"
            ),
        ]
        samples = pl.scan_parquet(folder / "telemetry.parquet").filter(
            pl.col("name").is_in(exposition_names(GAUGES))
            & (pl.col("elapsed_s") >= 0)
            & (pl.col("endpoint") == (told["scrape_endpoint"] or ""))
        )
        parts.append(gauges(samples.collect()).select("elapsed_s", series="gauge", value="value"))
        if told.get("gpu_count_seen"):
            parts.append(_devices_over_time(folder / "telemetry.parquet"))
        frames.append(
            pl.concat(parts)
            .sort("series", "elapsed_s")
            .select(
                pl.lit(told["deployment"]).alias("deployment"),
                pl.lit(told["run"]).alias("run"),
                pl.lit(told["level"]).cast(pl.Float64).alias("level"),
                pl.lit(told["repeat"]).cast(pl.Int64).alias("repeat"),
                "elapsed_s",
                "series",
                "value",
            )
        )
    return pl.concat(frames)


def _devices_over_time(telemetry: Path) -> pl.DataFrame:
    """`elapsed_s`, `series` and `value` of each GPU."""
    samples = pl.scan_parquet(telemetry).filter(pl.col("name").is_in(list(DEVICE_NAMES)) & (pl.col("elapsed_s") >= 0))
    told = device_samples(samples.collect()).filter(pl.col("metric").is_in(DEVICE_SERIES))
    return told.select("elapsed_s", series=pl.format("{}/{}", "metric", "gpu"), value="value")
