"""Runs in the forms of others: as benchmark reports, valid by the format's own schema."""

import json

import jsonschema
import pytest
import yaml

from bench.beside.interop.export.benchmark_report import benchmark_report
from bench.beside.interop.imported import imported, read_peers
from bench.errors import BenchError
from tests.support.command import bench
from tests.support.foreign import vllm
from tests.support.planted import frame, steady_row
from tests.support.study import ROOT

SCHEMA = json.loads((ROOT / "tests/data/schemas/benchmark-report-0.2.json").read_text())
RUNS = ROOT / "tests/data/imported/own"
OWN = json.loads((RUNS / "c4/summary.json").read_text())
SERVER = {"engine": "vllm", "engine_version": "0.32.0", "model": "org/m", "gpus": 2, "tensor_parallel": 2}
SERVER |= {"hardware": "Intel(R) Xeon(R) Processor, 16 cores, 2 × NVIDIA H200"}
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
    for more, said in (
        ((), "has 2 runs, and a file is of one. Give --output DIR"),
        (("--output", files[0]), "it is a file, and runs are written into a folder"),
    ):
        done = bench("export", RUNS, "--form", "benchmark-report", *more)
        assert done.returncode == 2 and said in done.stderr, said
    one = bench("export", RUNS / "c4", "--form", "benchmark-report")
    jsonschema.validate(yaml.safe_load(one.stdout), SCHEMA)


def test_a_fleet_and_a_run_of_another_tool_are_refused(tmp_path):
    (run,) = imported(read_peers(vllm(tmp_path)))
    fleet = OWN | {"workers": [{"worker": "http://127.0.0.1:8001"}]}
    for figures, said in ((fleet, "a fleet answered it"), (run.figures, "another tool measured it")):
        with pytest.raises(BenchError, match=said):
            benchmark_report(figures)


def test_runs_of_one_name_are_told_apart_by_deployment(tmp_path):
    def parsed(place, deployment):
        folder = tmp_path / "parsed" / place / "one"
        folder.mkdir(parents=True)
        (folder / "summary.json").write_text(json.dumps({**OWN, "deployment": deployment, "run": "one"}))

    for deployment in ("x", "y"):
        parsed(deployment, deployment)
    arguments = ("export", tmp_path / "parsed", "--form", "benchmark-report", "--output", tmp_path / "out")
    done = bench(*arguments)
    assert done.returncode == 0, done.stderr
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["x_one.yaml", "y_one.yaml"]
    parsed("z", "x")
    done = bench(*arguments)
    assert done.returncode == 2 and "several runs would be x_one.yaml, by deployment and name" in done.stderr
