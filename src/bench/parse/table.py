"""One row a run, and every run's course over time, from all that was parsed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from bench.errors import BenchError, count_text
from bench.parse.deployed import deployed
from bench.parse.devices import DEVICE_SERIES, device_samples
from bench.parse.drift import drift_reasons
from bench.parse.latency import throughput_series
from bench.parse.server import gauges, saturated
from bench.parse.slo import goodput, judged_requests
from bench.parse.stream import front_wait
from bench.parse.validity import Reason, Verdict, verdict
from bench.runs.columns import columns_of
from bench.runs.deployment import DeploymentFacts
from bench.runs.files import read
from bench.runs.latencies import LATENCIES
from bench.runs.launch import Launch
from bench.runs.summary import NO_COLUMNS, read_run_summary, summary_table
from bench.servers.gpu_metrics import DEVICE_NAMES
from bench.servers.metrics import GAUGES, exposition_names
from bench.study.config import Thresholds
from bench.study.slo import Slo

BIN_S = 0.2  # width of the time series' bins (s); convention
_JUDGED = ["request_class", "sent_s", "outcome", *(f"{name}_s" for name in LATENCIES)]
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
    slos: Sequence[Slo] = (),
    summary: Path,
    summary_csv: Path,
    timeseries: Path,
) -> None:
    """Write the summary table and the time series of all runs.

    Args:
        runs: each run's `summary.json`; its tables lie beside it. expected: digest of each run by `deployment/run`, in a workflow;
            None takes runs as they are. launches, facts: `launch.json` and `deployment.json` of each
            deployment. baseline: the deployment with which the others are compared, if there is one. slos: of the
            goodput; without any it is null.

    Raises:
        BenchError: a run was measured under another definition than it has now.
    """
    by_deployment = {launch.deployment: launch for launch in (read(Launch, path) for path in launches)}
    known = {fact.deployment: fact for fact in (read(DeploymentFacts, path) for path in facts)}
    parsed = {path: read_run_summary(path) for path in runs}
    digests = {f"{run.deployment}/{run.run}": run.digest for run in parsed.values()}
    if stale := [key for key, digest in digests.items() if expected is not None and expected.get(key) != digest]:
        keys = " ".join(f"--discard '{key}'" for key in stale)
        raise BenchError(
            f"{count_text(len(stale), 'run', of=len(digests))} measured under another definition than the configuration has now. "
            f"Forget what was measured, and the next workflow measures again: `bench runs {keys}`"
        )
    summaries = []
    for path, run in parsed.items():
        try:
            table = pl.scan_parquet(path.parent / "requests.parquet")
            requests = table.select(name for name in _JUDGED if name in table.collect_schema()).collect()
            pl.read_parquet_schema(path.parent / "telemetry.parquet")  # which is at its end
        except (FileNotFoundError, pl.exceptions.PolarsError) as error:
            sessions = f"results/sessions/{path.parents[1].name}"
            workflow = f"Remove {sessions}/*-parsed.json and {sessions}/.kept, and the next workflow makes it again."
            remedy = "Parse it again." if expected is None else workflow
            why = str(error).splitlines()[0]
            raise BenchError(f"{path.parent}: a table of this run is missing or damaged ({why}). {remedy}") from None
        summaries.append({**run.figures, **goodput(run.figures, judged_requests(run.figures, requests), slos)})
    frame = summary_frame(summaries, by_deployment, known, thresholds, baseline)
    summary.parent.mkdir(parents=True, exist_ok=True)
    frame.write_parquet(summary)
    texts = frame.drop("judged", "kept_answers", "workers", "by_turn").with_columns(
        pl.col("reasons").list.join("; "), pl.col("faults").list.join(", ")
    )
    texts.write_csv(summary_csv)
    timeseries_frame([path.parent for path in runs], by_deployment).write_parquet(timeseries)


def summary_frame(
    runs: Sequence[Mapping[str, Any]],
    launches: Mapping[str, Launch],
    facts: Mapping[str, DeploymentFacts],
    thresholds: Thresholds,
    baseline: str | None = None,
) -> pl.DataFrame:
    """One row a run: what was asked, every metric, the deployment's memory, the predicted saturation and the verdict.

    It has every column of `bench.runs`, null where nothing is known.

    Args:
        runs: the runs' summaries. launches, facts: by deployment; a deployment without either has null there. baseline: the deployment
            whose runs are marked in the column `baseline`.

    Raises:
        BenchError: a summary has a key that is no column.
    """
    rows = []
    drifts = drift_reasons(runs, thresholds)
    for run in runs:
        drift = drifts.get((run["deployment"], run["run"]))
        rows.append(
            {
                **{k: v for k, v in run.items() if k not in NO_COLUMNS},
                **deployed(run, launches.get(run["deployment"]), facts.get(run["deployment"])),
                "baseline": run["deployment"] == baseline,
                **verdict_columns(verdict(run, thresholds, [Reason("drift", names=(drift,))] if drift else ())),
            }
        )
    return summary_table(rows).with_columns(saturated=saturated(), front_wait_s=front_wait())


def verdict_columns(found: Verdict) -> dict[str, Any]:
    """A verdict as columns of the summary table: those of its section `verdict`."""
    codes = [reason.code for reason in found.found]
    return {name: codes if name == "reasons" else getattr(found, name) for name in columns_of("verdict")}


def timeseries_frame(folders: Iterable[Path], launches: Mapping[str, Launch] | None = None) -> pl.DataFrame:
    """Every run's course, tidy: `deployment`, `run`, `level`, `repeat`, `elapsed_s`, `series`, `value`.

    Series: `throughput` (output tokens/s at the client, in bins of a fifth of a second), `completed` (requests ended, cumulative),
    the server's gauges `running`, `waiting`, `kv_usage`, and of each GPU `gpu_utilisation/0` (0–1), `gpu_memory_bytes/0` and
    `gpu_power_w/0`, by its index. Where requests hold slots of the KV cache, the share that runs is `kv_usage`.

    Args:
        launches: by deployment; without its launch a deployment's slots are not known.
    """
    frames = [pl.DataFrame(schema=_TIMESERIES_SCHEMA)]
    for folder in folders:
        run = read_run_summary(folder / "summary.json")
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
        samples = pl.scan_parquet(folder / "telemetry.parquet").filter(pl.col("elapsed_s") >= 0)
        mine = pl.col("endpoint") == (run.scrape_endpoint or "")
        shown = samples.filter(pl.col("name").is_in(exposition_names(GAUGES)) & mine).collect()
        known = gauges(shown).select("elapsed_s", series="gauge", value="value")
        parts.append(known)
        launch = (launches or {}).get(run.deployment or "")
        if slots := launch and launch.kv_slots:
            parts.append(known.filter(series="running").with_columns(series=pl.lit("kv_usage"), value=pl.col("value") / slots))
        if run.gpu_count_seen:
            devices = device_samples(samples.filter(pl.col("name").is_in(list(DEVICE_NAMES))).collect())
            course = devices.filter(pl.col("metric").is_in(DEVICE_SERIES))
            parts.append(course.select("elapsed_s", series=pl.format("{}/{}", "metric", "gpu"), value="value"))
        frames.append(
            pl.concat(parts)
            .sort("series", "elapsed_s")
            .select(
                pl.lit(run.deployment).alias("deployment"),
                pl.lit(run.run).alias("run"),
                pl.lit(run.level).cast(pl.Float64).alias("level"),
                pl.lit(run.repeat).cast(pl.Int64).alias("repeat"),
                "elapsed_s",
                "series",
                "value",
            )
        )
    return pl.concat(frames)
