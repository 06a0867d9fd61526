"""Runs in the forms of others: as benchmark reports, valid by the format's own schema, and their scrapes as OpenMetrics."""

import json
import shutil

import jsonschema
import polars as pl
import pytest
import requests
import yaml

from bench.errors import BenchError
from bench.export.benchmark_report import benchmark_report
from bench.imported import imported, read_peers
from bench.parse.fleet import FLEET
from tests.support.command import bench
from tests.support.foreign import vllm
from tests.support.guard import checked, study, workers
from tests.support.guard import telemetry as telemetry_of_one
from tests.support.planted import frame, steady_row
from tests.support.prometheus import prometheus
from tests.support.study import ROOT

SCHEMA = json.loads((ROOT / "tests/data/schemas/benchmark-report-0.2.json").read_text())
RUNS = ROOT / "tests/data/imported/own"
OWN = json.loads((RUNS / "c4/summary.json").read_text())
SERVER = {
    "engine": "vllm",
    "engine_version": "0.32.0",
    "model": "org/m",
    "gpus": 2,
    "hardware": "Intel(R) Xeon(R) Processor, 16 cores, 2 × NVIDIA H200",
    "tensor_parallel": 2,
}
# Servers without GPUs, on a machine that shows none, and on one with two kinds.
OTHERS = (
    {"gpus": 0},
    {"hardware": "Intel(R) Xeon(R) Processor, 16 cores"},
    {"hardware": "Xeon, 16 cores, 1 × NVIDIA H200, 1 × NVIDIA L4"},
)


def valid(row):
    """The report of a row, as YAML brings it back."""
    report = yaml.safe_load(yaml.safe_dump(benchmark_report(row), sort_keys=False))
    jsonschema.validate(report, SCHEMA)
    return report


def test_a_report_has_the_numbers_of_the_summary(summary):
    for server in [{"engine": None}, SERVER, *(SERVER | other for other in OTHERS)]:
        (row,) = frame([steady_row(summary, 20.0, ttft_mean_s=0.1, ttft_p99_s=0.4, tpot_mean_s=0.02)]).to_dicts()
        row |= server
        report = valid(row)
        aggregate = report["results"]["request_performance"]["aggregate"]
        assert aggregate["requests"]["total"] == row["requests"]
        assert aggregate["latency"]["time_to_first_token"] == {"units": "s", "mean": 0.1} | {
            key: row[f"ttft_{key}_s"] for key in ("p50", "p90", "p95", "p99") if row[f"ttft_{key}_s"] is not None
        }
        assert aggregate["latency"]["time_per_output_token"]["units"] == "s/token"
        assert aggregate["throughput"]["request_rate"] == {"units": "queries/s", "mean": row["throughput_requests_per_s"]}
        kinds = [each["standardized"]["kind"] for each in report["scenario"].get("stack", [])]
        assert kinds == ([] if not server["engine"] else ["inference_engine"] if server == SERVER else ["generic"])
        if server == SERVER:
            (stack,) = report["scenario"]["stack"]
            assert stack["standardized"]["accelerator"] == {"model": "NVIDIA H200", "count": 2, "parallelism": {"tp": 2}}


def test_what_is_not_known_is_left_out():
    report = valid(OWN)
    assert "stack" not in report["scenario"]
    assert "observability" not in report["results"]
    assert report["results"]["request_performance"]["aggregate"]["latency"]["inter_token_latency"]["mean"] == OWN["itl_mean_s"]
    without = valid({key: value for key, value in OWN.items() if not key.endswith("_s")})
    assert "latency" not in without["results"]["request_performance"]["aggregate"]


def test_each_run_is_a_file(tmp_path):
    done = bench("export", RUNS, "--form", "benchmark-report", "--output", tmp_path)
    assert done.returncode == 0, done.stderr
    files = sorted(tmp_path.rglob("*.yaml"))
    assert [str(file) for file in files] == sorted(done.stdout.split())
    assert len(files) == 2
    for file in files:
        jsonschema.validate(yaml.safe_load(file.read_text()), SCHEMA)
    several = bench("export", RUNS, "--form", "benchmark-report")
    assert several.returncode == 2
    assert "has 2 runs, and a file is of one. Give --output DIR" in several.stderr
    taken = bench("export", RUNS, "--form", "benchmark-report", "--output", files[0])
    assert taken.returncode == 2 and "it is a file, and runs are written into a folder" in taken.stderr
    one = bench("export", RUNS / "c4", "--form", "benchmark-report")
    jsonschema.validate(yaml.safe_load(one.stdout), SCHEMA)


def test_a_fleet_and_a_run_of_another_tool_are_refused(tmp_path):
    (run,) = imported(read_peers(vllm(tmp_path)))
    fleet = OWN | {"workers": [{"worker": "http://127.0.0.1:8001"}]}
    for figures, said in ((fleet, "a fleet answered it"), (run.figures, "another tool measured it")):
        with pytest.raises(BenchError, match=said):
            benchmark_report(figures)


# --- What was scraped, as OpenMetrics

STARTED = "2026-11-27T10:00:00.250+00:00"
BEGAN = 1795773600.25


def scraped(exposition, running, waiting, kv_usage, spelt):
    """Of two workers, whose sums stand beside them; one has a label that Prometheus would take for its own, and awkward text in it."""
    own = telemetry_of_one(exposition, running, waiting, kv_usage, spelt)
    parts = [own.with_columns(endpoint=pl.lit(f"http://10.0.0.{i}:8000/metrics")) for i in (1, 2)]
    odd = own.head(1).with_columns(
        endpoint=pl.lit("nvml:0"),
        name=pl.lit("DCGM_FI_DEV_GPU_UTIL"),
        labels=pl.lit(r'job="x",path="a \"quoted\" \\ path"'),
        value=float("inf"),
    )
    return pl.concat([*parts, own.with_columns(endpoint=pl.lit(FLEET)), odd])


@pytest.fixture
def results(tmp_path, summary):
    study(tmp_path, summary, scraped=scraped, workers=workers(2), started=STARTED, levels=(2, 4), exposed=(2, 4))
    return tmp_path / "results"


def test_a_scrape_is_a_line_at_its_time_with_the_labels_of_its_server(results, tmp_path):
    """By hand: 14 scrapes, 5 s apart, the first at the run's start, of two workers; a label that Prometheus sets is kept beside it."""
    done = bench("export", results, "--form", "openmetrics", "--output", tmp_path / "scraped")
    assert done.returncode == 0, done.stderr
    files = sorted((tmp_path / "scraped").iterdir())
    assert [file.name for file in files] == ["a_r2.txt", "a_r4.txt"] and done.stdout.split() == list(map(str, files))
    for level, file in zip((2, 4), files, strict=True):
        lines = file.read_text().splitlines()
        running = [line for line in lines if line.startswith("vllm:num_requests_running{")]
        assert len(running) == 2 * 14 and len(set(running)) == len(running)
        assert {float(line.split()[-2]) for line in running} == {float(level)}
        assert sorted({float(line.split()[-1]) for line in running}) == [BEGAN + 5 * i for i in range(14)]
        assert (
            sum('instance="10.0.0.1:8000"' in line and f'run="r{level}"' in line and 'job="a"' in line for line in running)
            == 14
        )
        (odd,) = (line for line in lines if line.startswith("DCGM_FI_DEV_GPU_UTIL{"))
        for label in ('job="a"', 'exported_job="x"', 'instance="nvml:0"', r'path="a \"quoted\" \\ path"'):
            assert label in odd
        assert odd.split()[-2:] == ["+Inf", f"{BEGAN:.3f}"] and lines[-1] == "# EOF"


@pytest.mark.long(part="prometheus")
def test_prometheus_has_what_was_scraped_at_its_time(results, tmp_path):
    done = bench("export", results, "--form", "openmetrics", "--output", tmp_path / "scraped")
    assert done.returncode == 0, done.stderr
    for file in (tmp_path / "scraped").iterdir():
        checked("promtool", "tsdb", "create-blocks-from", "openmetrics", file, "data", cwd=tmp_path)

    def asked(query, at):
        answer = requests.get(f"{url}/api/v1/query", {"query": query, "time": BEGAN + at}, timeout=10).json()
        return [(each["metric"], float(each["value"][1])) for each in answer["data"]["result"]]

    with prometheus(tmp_path) as url:
        running = asked('vllm:num_requests_running{job="a"}', 65)
        assert sorted((each["run"], each["instance"], value) for each, value in running) == [
            (f"r{level}", f"10.0.0.{i}:8000", float(level)) for level in (2, 4) for i in (1, 2)
        ]
        # 14 scrapes, 5 s apart, the first at the run's start.
        assert {value for _, value in asked("count_over_time(vllm:num_requests_running[80s])", 65)} == {14}
        assert not asked("vllm:num_requests_running", -1)
        ((odd, value), _) = asked("DCGM_FI_DEV_GPU_UTIL", 0)
        assert (odd["job"], odd["exported_job"], odd["instance"], odd["path"]) == ("a", "x", "nvml:0", 'a "quoted" \\ path')
        assert value == float("inf")


def test_a_run_that_was_not_scraped_is_named_and_ends_no_export(results):
    shutil.rmtree(results / "runs/a/r2")
    done = bench("export", results, "--form", "openmetrics", "--output", results / "out")
    assert done.returncode == 0, done.stderr
    assert "Left out: a/r2: " in done.stderr and "runs/a/r2/telemetry.parquet: no such file." in done.stderr
    assert [file.name for file in (results / "out").iterdir()] == ["a_r4.txt"]
    shutil.rmtree(results / "runs/a/r4")
    done = bench("export", results, "--form", "openmetrics", "--output", results / "none")
    assert done.returncode == 2 and "runs/a/r4/telemetry.parquet: no such file." in done.stderr
    assert not (results / "none").exists()
    several = bench("export", results, "--form", "openmetrics")
    assert several.returncode == 2 and "has 2 runs, and a file is of one. Give --output DIR" in several.stderr


def test_parsed_runs_of_one_name_are_told_apart_by_deployment(results, tmp_path, summary):
    def parsed(place, deployment, level):
        folder = tmp_path / "parsed" / place / "one"
        folder.mkdir(parents=True)
        shutil.copy(results / f"runs/a/r{level}/telemetry.parquet", folder)
        told = {**summary, "deployment": deployment, "run": "one", "level": float(level), "started": STARTED}
        (folder / "summary.json").write_text(json.dumps(told))

    for deployment, level in (("x", 2), ("y", 4)):
        parsed(deployment, deployment, level)
    arguments = ("export", tmp_path / "parsed", "--form", "openmetrics", "--output", tmp_path / "out")
    done = bench(*arguments)
    assert done.returncode == 0, done.stderr
    for deployment, level in (("x", 2), ("y", 4)):
        lines = (tmp_path / f"out/{deployment}_one.txt").read_text().splitlines()
        running = [line for line in lines if line.startswith("vllm:num_requests_running{")]
        assert running and all(f"}} {level}.0 " in line for line in running)
    parsed("z", "x", 4)
    done = bench(*arguments)
    assert done.returncode == 2 and "several runs would be x_one.txt, by deployment and name" in done.stderr
