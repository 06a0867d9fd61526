"""NVIDIA's binding on planted GPUs: what a look at them tells, which ones are looked at, and that a session and the commands do it."""

import json
import sys
import threading
import time
from dataclasses import replace

import polars as pl
import pytest

from bench.measure.nvml import GpuReader, nvml_problem
from bench.measure.preflight import further_endpoints
from bench.measure.scraper import scrape
from bench.measure.session import measure
from bench.parse.run import parse_run
from bench.parse.scrapes import read_scrapes, scrape_tables
from bench.parse.table import timeseries_frame
from bench.parse.validity import verdict
from bench.runs.files import write_record
from bench.runs.store import Store
from bench.servers.gpu_metrics import DEVICE_METRICS
from bench.servers.gpus import NvmlError, gpu_names
from bench.servers.launch import resolve_launch
from bench.servers.server import Server
from bench.study.plan import Plan
from bench.study.read import load_config
from tests.support import records
from tests.support.command import bench
from tests.support.fake_server import fake_server
from tests.support.nvml import GIB, GPUS, cuda_spec
from tests.support.planted import reasons
from tests.support.verdicts import CALM, exposition


def values(text):
    """{name: {labels: value}} of what a reader told."""
    told = {}
    for line in text.decode().splitlines():
        if not line.startswith("#"):
            name, _, rest = line.partition("{")
            labels, _, value = rest.rpartition("} ")
            told.setdefault(name, {})[labels] = float(value)
    return told


def test_a_look_at_two_gpus_by_hand(planted):
    planted(*GPUS)
    before = time.monotonic()
    told = values(GpuReader("nvml:").read())
    after = time.monotonic()
    first, second = told["DCGM_FI_DEV_GPU_UTIL"]
    assert first == 'gpu="0",UUID="GPU-aaaa-0001",modelName="NVIDIA H100 NVL"'
    assert second == r'gpu="1",UUID="GPU-bbbb-0002",modelName="NVIDIA \"H100\""'
    assert told["DCGM_FI_DEV_GPU_UTIL"] == {first: 97, second: 41}
    assert told["DCGM_FI_DEV_POWER_USAGE"] == {first: 310.5, second: 120}  # NVML tells mW
    assert told["DCGM_FI_DEV_FB_USED"] == {first: 80 * 1024, second: 84 * 1024}  # NVML tells bytes
    assert told["DCGM_FI_DEV_FB_FREE"] == {first: 13 * 1024, second: 9 * 1024}
    assert told["DCGM_FI_DEV_SM_CLOCK"][first] == 1980
    assert told["DCGM_FI_DEV_GPU_TEMP"][first] == 61
    assert 310_500 * before - 1 <= told["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"][first] <= 310_500 * after + 1
    assert set(told) == {names[0][0] for names in DEVICE_METRICS.values()}


def test_gpus_are_found_as_cuda_finds_them_and_those_that_are_not_there_named(planted):
    planted(*GPUS)
    for endpoint, found in {
        "nvml:1": ["GPU-bbbb-0002"],
        "nvml:1,0": ["GPU-bbbb-0002", "GPU-aaaa-0001"],
        "nvml:GPU-bbbb-0002": ["GPU-bbbb-0002"],
        "nvml: GPU-aa ": ["GPU-aaaa-0001"],  # as CUDA_VISIBLE_DEVICES, the beginning of a UUID does
    }.items():
        told = values(GpuReader(endpoint).read())["DCGM_FI_DEV_GPU_UTIL"]
        assert [labels.split('UUID="')[1].split('"')[0] for labels in told] == found, endpoint
    for endpoint, why in {
        "nvml:2": "GPU 2: none of that name; NVML finds 0 .GPU-aaaa-0001., 1 ",
        "nvml:GPU-": "2 of that name",
        "nvml:MIG-1": "none of",
    }.items():
        with pytest.raises(NvmlError, match=why):
            GpuReader(endpoint).read()


def test_a_value_that_a_gpu_does_not_tell_is_left_out_and_not_zero(planted):
    mute = ["nvmlDeviceGetPowerUsage", "nvmlDeviceGetTotalEnergyConsumption"]
    planted(GPUS[0], {**GPUS[1], "refuses": mute})
    told = values(GpuReader("nvml:").read())
    assert len(told["DCGM_FI_DEV_GPU_UTIL"]) == 2
    for name in ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"):
        assert [labels[:7] for labels in told[name]] == ['gpu="0"']


def test_an_old_driver_tells_memory_in_its_own_way(planted):
    planted({**GPUS[0], "lacks": ["nvmlDeviceGetMemoryInfo_v2"]})
    ((used,),) = (told.values() for name, told in values(GpuReader("nvml:0").read()).items() if name == "DCGM_FI_DEV_FB_USED")
    assert used == 80 * 1024 + 1  # with what the driver reserves


def test_a_mig_instance_tells_its_memory_alone(planted):
    planted({**GPUS[0], "instances": ["MIG-1111", "MIG-2222"]}, GPUS[1])
    told = values(GpuReader("nvml:MIG-2222").read())
    assert told["DCGM_FI_DEV_FB_USED"] == {'gpu="0",UUID="GPU-aaaa-0001",modelName="NVIDIA H100 NVL",GPU_I_ID="4"': 20 * 1024}
    assert set(told) == {"DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"}


def test_a_lost_gpu_is_an_error_of_that_scrape(planted, tmp_path):
    everything = [f"nvmlDeviceGet{what}" for what in ("UtilizationRates", "PowerUsage", "TotalEnergyConsumption", "ClockInfo")]
    everything += ["nvmlDeviceGetTemperature", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"]
    planted({**GPUS[0], "refuses": everything})
    ended = threading.Event()
    ended.set()
    scrape(["nvml:0"], 60.0, tmp_path / "t.jsonl.gz", ended=ended, ready=lambda: None)
    assert {line["error"] for line in read_scrapes(tmp_path / "t.jsonl.gz")} == {"GPU-aaaa-0001 reports nothing: Not Supported"}


@pytest.mark.usefixtures("without_nvml")
def test_without_nvml_or_its_binding_the_reason_is_told(monkeypatch):
    assert nvml_problem("nvml:0") == "NVML cannot be loaded (NVML Shared Library Not Found); it comes with NVIDIA's driver"
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "install nvidia-ml-py" in nvml_problem("nvml:")


# Which GPUs, and whether they are looked at


def test_which_gpus_a_server_takes(content):
    for shown, parallel, expected in (
        (None, {"tensor_parallel": 2}, ["0", "1"]),
        ("2,3", {"tensor_parallel": 2}, ["2", "3"]),
        ("4, 5,6,7", {"tensor_parallel": 2}, ["4", "5"]),  # vLLM takes the first ones
        ("GPU-8932f937,GPU-46309116", {}, ["GPU-8932f937"]),
        ("MIG-1111", {}, ["MIG-1111"]),
        ("0,-1,1", {"tensor_parallel": 2}, ["0"]),  # what follows is hidden
        ("", {}, []),
        (None, {"tensor_parallel": 2, "pipeline_parallel": 2}, ["0", "1", "2", "3"]),
        (None, {"data_parallel": 2}, ["0", "1"]),
        (None, {"data_parallel": 4, "pipeline_parallel": 2}, list("01234567")),
    ):
        for key in ("tensor_parallel", "pipeline_parallel", "data_parallel"):
            content["deployments"]["a"].pop(key, None)
        spec = cuda_spec(content, **parallel)
        assert gpu_names(spec, {} if shown is None else {"CUDA_VISIBLE_DEVICES": shown}) == expected, (shown, parallel)


def server_of(spec, tmp_path, environment=None):
    launch = resolve_launch(spec, records.engine(), None)
    if spec.engine.source != "external":
        launch = replace(launch, argv=("true",), environment=environment or {})
    return Server(launch, cores=1, workers=1, log=tmp_path / "log", ready_timeout_s=1, say=lambda _: None)


def test_a_server_on_gpus_has_them_beside_its_endpoints(planted, content, tmp_path, monkeypatch):
    planted(*GPUS)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    said = []
    spec = cuda_spec(content)
    assert further_endpoints(spec, server_of(spec, tmp_path), ["http://n/metrics"], said.append) == [
        "http://n/metrics",
        "nvml:0",
    ]
    own = server_of(spec, tmp_path, {"CUDA_VISIBLE_DEVICES": "GPU-bbbb"})  # of the deployment's environment
    assert further_endpoints(spec, own, [], said.append) == ["nvml:GPU-bbbb"]
    assert further_endpoints(spec, own, ["nvml:1"], said.append) == ["nvml:1"]  # the configuration knows better
    hidden = server_of(spec, tmp_path, {"CUDA_VISIBLE_DEVICES": ""})
    assert further_endpoints(spec, hidden, [], said.append) == []
    content["engines"]["e"]["backend"] = "cpu"
    on_cpu = Plan.of(load_config(content, source="test")).deployments["a"]
    assert further_endpoints(on_cpu, server_of(on_cpu, tmp_path), [], said.append) == []
    assert said == []


def test_the_gpus_of_an_external_server_are_not_guessed(planted, content, tmp_path):
    planted(*GPUS)
    spec = cuda_spec(content, source="external")
    assert further_endpoints(spec, server_of(spec, tmp_path), [], pytest.fail) == []
    assert further_endpoints(spec, server_of(spec, tmp_path), ["nvml:"], pytest.fail) == ["nvml:"]


@pytest.mark.usefixtures("without_nvml")
def test_where_nvml_is_missing_it_is_said_and_measuring_goes_on(content, tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    said = []
    spec = cuda_spec(content)
    assert further_endpoints(spec, server_of(spec, tmp_path), ["http://n/metrics"], said.append) == ["http://n/metrics"]
    (line,) = said
    assert line.endswith("it comes with NVIDIA's driver; measuring without GPU telemetry (nvml:0)")


@pytest.mark.workflow
def test_a_session_scrapes_gpus_and_its_verdict_is_the_engine_s_alone(planted, content, here):
    """From the configuration to the tables, on a server of known behaviour and planted GPUs."""
    planted(*GPUS)
    cuda_spec(content, source="external", telemetry={"gpus": "nvml:0,1"})
    content["study"]["ladders"][0]["concurrency"] = [2]
    content["workloads"]["short"] |= {"prompt_tokens": 16, "output_tokens": 40}
    content["measurement"] |= {"warmup_requests": 0, "scrape_interval_s": 0.05}
    content["deployments"]["a"] = {"model": "m", "engine": "e"}
    with fake_server(first_s=0.2, gap_s=0.02, exposition=exposition) as server:
        content["engines"]["e"]["base_url"] = server.base_url
        plan = Plan.of(load_config(content, source="test"), root=here)
        launch, facts = here / "launch.json", here / "facts" / "deployment.json"
        write_record(resolve_launch(plan.deployments["a"], records.engine(source="external", command=None), None), launch)
        measure(plan, "a", plan.runs, launch=launch, facts=facts, store=Store(), say=lambda _: None)
    folder = plan.runs[0].record.parent
    told = parse_run(folder, **{key: folder / name for key, name in FILES.items()})
    assert (told["scrape_endpoint"], list(told["scrape_gaps"])) == (f"{server.base_url}/metrics", ["nvml:0,1"])
    assert (told["gpu_count_seen"], told["gpu_memory_peak_bytes"]) == (2, 84 * GIB)
    assert [told[f"gpu_utilisation_{what}"] for what in ("mean", "min", "max")] == pytest.approx(
        [(0.97 + 0.41) / 2, 0.41, 0.97]
    )
    assert told["gpu_power_mean_w"] == pytest.approx(430.5)
    assert told["gpu_energy_j"] == pytest.approx(430.5 * told["duration_s"], rel=0.1)
    assert told["tokens_per_joule"] == pytest.approx(80 / told["gpu_energy_j"])
    assert reasons(verdict(told, CALM)) == []
    course = timeseries_frame([folder])
    kinds = {f"{what}/{gpu}" for what in ("gpu_utilisation", "gpu_memory_bytes", "gpu_power_w") for gpu in "01"}
    assert kinds < set(course["series"])
    assert course.filter(pl.col("series") == "gpu_power_w/1")["value"].unique().to_list() == [120.0]


FILES = {"requests": "requests.parquet", "telemetry": "telemetry.parquet", "wide": "metrics.csv", "summary": "summary.json"}


def test_the_commands_take_gpus_too(planted, tmp_path):
    planted(*GPUS)
    with fake_server(first_s=0.2, gap_s=0.02, exposition=exposition) as server:
        done = bench(
            "workload", "--num-requests", "2", "--prompt-length", "16", "--output-length", "40", "--model", "m", "--base-url",
             server.base_url, "--output-dir", tmp_path / "run", "--scrape", "--scrape-also", "nvml:1",
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    done = bench("parse", tmp_path / "run", "--json")
    assert json.loads(done.stdout)["gpu_power_mean_w"] == pytest.approx(120.0)
    done = bench("scrape", "--url", "nvml:", "--interval", "0.05", "--duration", "0.3", "--output-dir", tmp_path / "s")
    assert done.returncode == 0, done.stderr
    assert scrape_tables(tmp_path / "s/telemetry.jsonl.gz", 0.0)[1]["endpoint"].unique().to_list() == ["nvml:"]
    done = bench("scrape", "--url", "nvml:7", "--output-dir", tmp_path / "s")
    assert (done.returncode, "--url nvml:7: GPU 7: none of that name" in done.stderr) == (2, True)
