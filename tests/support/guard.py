"""Studies, and series of a server in production, for the programs that load what `bench guard` writes."""

import os
import shutil
import subprocess
from functools import cache

import polars as pl
import pytest
import yaml

from bench.parse.exposition import reference_samples
from bench.parse.fleet import fleet_telemetry
from bench.parse.scrapes import SCRAPE_SCHEMA, TELEMETRY_SCHEMA
from bench.runs.columns import WORKER_FIELDS, schema_of
from bench.runs.files import write_record
from bench.runs.run import Worker
from bench.study.slo import parse_slo
from tests.support.command import bench
from tests.support.planted import frame, steady_row
from tests.support.records import facts
from tests.support.study import ROOT

PATH = os.pathsep.join([os.environ["PATH"], "/usr/sbin"])  # where Debian has haproxy
VLLM, LLAMA = "vllm-0.32.0", "llamacpp-2026.10.11549"
SLOS = ["ttft_p95=2s", "tpot_p90=50ms", "e2e_p99=20s"]
LEVELS = (2, 4, 8, 16, 24)  # the last one misses: C_max is 16


@cache
def telemetry(exposition, running, waiting, kv_usage):
    """What a scraper reads of a server each second, its own names with planted gauges."""
    planted = {
        "running": running,
        "processing": running,
        "waiting": waiting,
        "deferred": waiting,
        "kv_cache_usage_perc": kv_usage,
    }
    text = (ROOT / f"tests/data/{exposition}.prom").read_text()
    samples = reference_samples(text)
    values = [
        next((value for part, value in planted.items() if sample.name.endswith(part)), sample.value) for sample in samples
    ]
    labels = [",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items())) for sample in samples]
    rows = [
        (scrape, float(scrape), "e", sample.name, text, float(value))
        for scrape in range(0, 70, 5)
        for sample, text, value in zip(samples, labels, values, strict=True)
    ]
    return pl.DataFrame(rows, schema=TELEMETRY_SCHEMA, orient="row")


POINT = {
    "unsettled_at": None,
    **{"deployment": "a", "workload": "short", "axis": "concurrency", "unit": "requests in flight"},
    **{"kind": "found", "basis": "steady", "c_max": 16.0, "low": 14.0, "high": 22.0, "operate_at": 16.0, "usable_rps": 32.0},
    **{"missed_at": 24.0, "highest": 24.0, "failed_share": 0.01, "tokens_per_s": 1024.0},
    **{"in_flight": 16.0, "in_flight_peak": 16.0},
}


def study(
    folder,
    summary,
    *,
    point=(),
    others=(),
    exposition=VLLM,
    slos=SLOS,
    row=steady_row,
    levels=LEVELS,
    kv=40,
    exposed=LEVELS,
    scraped=telemetry,
    **more,
):
    """A folder of results with a planted capacity: of each load its row, and what the server showed.

    Args:
        others: further curves. scraped: makes the telemetry of a run, as `telemetry` does.
    """
    more = {"preemptions": 0, "cache": "unique", **more}
    results = folder / "results"
    for name in ("deployments/a", "analysis"):
        (results / name).mkdir(parents=True)
    for level in exposed:
        (results / f"runs/a/r{level}").mkdir(parents=True)
        scraped(exposition, level, 0, level / kv).write_parquet(results / f"runs/a/r{level}/telemetry.parquet")
    write_record(facts(digest="d1"), results / "deployments/a/deployment.json")
    frame([row(summary, level, deployment="a", **more) for level in levels]).write_parquet(results / "summary.parquet")
    found = {**POINT, "slos": [str(parse_slo(slo)) for slo in slos], **dict(point)}
    schema = schema_of("capacity")
    rows = [{**dict.fromkeys(schema), **found, **dict(other)} for other in ({}, *others)]
    pl.DataFrame(rows, schema=schema).write_parquet(results / "analysis/capacity.parquet")


def guarded(folder, *options):
    """What the command writes, by file, and prints."""
    done = bench("guard", *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    return {file.name: file.read_text() for file in (folder / "guard").iterdir()}, " ".join(done.stdout.split())


def alerts(files):
    (group,) = yaml.safe_load(files["rules.yaml"])["groups"]
    return {(rule["alert"], rule["labels"].get("slo")): rule for rule in group["rules"] if "alert" in rule}


def checked(name, *arguments, cwd):
    """Have the program of this name read what was written."""
    program = shutil.which(name, path=PATH)
    if program is None:
        pytest.fail(f"{name} is not installed: apt-get install {'prometheus' if name == 'promtool' else name}")
    done = subprocess.run([program, *arguments], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def course(name, phases, labels="", counter=False):
    """A series of one sample a minute.

    Args:
        phases: minutes, and the value there (None: scrapes fail), or what a counter rises by each minute.
    """
    values, total = [], 0.0
    for minutes, value in phases:
        if value is None:
            values.append(f"stale _x{minutes - 1}")
        elif counter:
            values.append(f"{total:g}+{value:g}x{minutes - 1}")
            total += value * minutes
        else:
            values.append(f"{value:g}x{minutes - 1}")
    return {"series": f'{name}{{job="a",instance="x"{labels}}}', "values": " ".join(values)}


def workers(number):
    """The column of that name at C_max."""
    known = {"running_mean": 16 / number, "waiting_mean": 0.0, "scrape_gap_s": 1.0, "metrics_missing": []}
    return [{**dict.fromkeys(WORKER_FIELDS), "worker": f"replica {i}", **known} for i in range(1, number + 1)]


def scraped_of(number):
    """What is scraped of a fleet: each worker has its part, and the last one of them half as much of its KV cache more."""

    def scraped(exposition, running, waiting, kv_usage):
        names = [f"http://10.0.0.{i}:8000/metrics" for i in range(1, number + 1)]
        uses = [(1.5 if name == names[-1] else 1) * kv_usage for name in names]
        samples = pl.concat(
            telemetry(exposition, running / number, waiting, used).with_columns(endpoint=pl.lit(name))
            for name, used in zip(names, uses, strict=True)
        )
        rows = samples.select("endpoint", "scrape", due_s="elapsed_s", sent_s="elapsed_s", received_s="elapsed_s").unique()
        rows = rows.with_columns(last=pl.col("scrape") == pl.col("scrape").max(), error=pl.lit(None, pl.String))
        scrapes = rows.select(*(name for name in SCRAPE_SCHEMA if name in rows.columns))
        shape = {"kind": "vllm", "engines": 1, "kv_blocks": None, "block_size": 16, "kv_tokens": 1600}
        known = [Worker(name=name, endpoint=name, **shape) for name in names]
        return pl.concat([samples, fleet_telemetry(samples, scrapes, known)[0]])

    return scraped


def fleet(folder, summary, number, **more):
    """The same study of several workers."""
    study(folder, summary, workers=workers(number), scraped=scraped_of(number), **more)
