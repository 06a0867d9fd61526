"""Engines and launches: what is run, and what is refused because it cannot fit."""

import json
from pathlib import Path

import pytest

from bench.engine import launch as launch_module
from bench.engine import prepare_engine, resolve_launch, write_launch
from bench.engine.environment import _batches
from bench.errors import BenchError
from bench.study import Engine, Plan, load_config
from tests.conftest import ARCHITECTURE, ROOT


@pytest.fixture
def spec(config):
    return Plan.of(config, root=ROOT).deployments["a"]


CHECKPOINT = {"path": "ck/model", "architecture": ARCHITECTURE}


def test_a_command_on_path_is_found(tmp_path):
    record = tmp_path / "e/engine.json"
    prepare_engine("e", Engine(source="command", command=["sh", "-c"]), record, print)
    command = json.loads(record.read_text())["command"]
    assert command[0].endswith("/sh")
    assert command[1:] == ["-c"]
    with pytest.raises(BenchError, match=r"engines\.e\.command: 'no-such-thing' is not on PATH"):
        prepare_engine("e", Engine(source="command", command=["no-such-thing"]), record, print)


def test_an_environment_goes_on_where_it_was_interrupted(tmp_path, monkeypatch):
    """Two small packages from the project's own lock; the second one's hash is wrong at first."""
    monkeypatch.chdir(tmp_path)
    entries = {entry.split("==")[0]: entry for batch in _batches(ROOT / "requirements.lock") for entry in batch}
    good, bad = entries["idna"], entries["sniffio"].split(" ")[0] + f" --hash=sha256:{'0' * 64}\n"
    Path("one.lock").write_text(good)
    Path("two.lock").write_text(bad)
    engine = Engine(source="lock", locks=["one.lock", "two.lock"])
    said = []
    with pytest.raises(BenchError, match=r"engine e: .* failed(?s:.*)run again to go on"):
        prepare_engine("e", engine, Path("e/engine.json"), said.append)
    first = next(Path("e/env").rglob("idna/__init__.py"))
    before = first.stat().st_mtime_ns
    assert not Path("e/engine.json").exists()
    Path("two.lock").write_text(entries["sniffio"])
    prepare_engine("e", engine, Path("e/engine.json"), said.append)
    assert first.stat().st_mtime_ns == before
    record = json.loads(Path("e/engine.json").read_text())
    assert {line.split("==")[0] for line in record["freeze"]} >= {"idna", "sniffio"}
    assert any("2 of 2 packages" in line for line in said)


def test_a_container_runs_in_the_foreground_on_the_hosts_network(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    record = tmp_path / "e/engine.json"
    prepare_engine("e", Engine(source="container", image="vllm/vllm-openai:v1", device="cuda"), record, print)
    command = json.loads(record.read_text())["command"]
    assert command[:2] == ["docker", "run"]
    assert command[-3:] == ["vllm/vllm-openai:v1", "-m", "vllm.entrypoints.openai.api_server"]
    assert {"--rm", "--init", "--gpus", "host"} <= set(command)


def test_every_package_of_the_locks_has_a_hash():
    for lock in sorted((ROOT / "workflow/envs").glob("*.lock")):
        entries = [entry for batch in _batches(lock) for entry in batch]
        assert entries
        assert all("==" in entry and "--hash=sha256:" in entry for entry in entries)


def test_the_command_line_says_all_that_was_asked(spec):
    content = resolve_launch(spec, {"command": ["python", "-m", "server"]}, CHECKPOINT)
    line = " ".join(content["argv"])
    for part in ("--port {port}", "--host 127.0.0.1", "--dtype float32", "--block-size 32", "--kv-cache-memory-bytes 1048576",
                 "--no-enable-prefix-caching", "--load-format dummy", "--enforce-eager", "--max-model-len 256",
                 "--served-model-name a"):  # fmt: skip
        assert part in line
    assert content["argv"][3] == "--model"
    assert content["environment"] == {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"}
    positional = resolve_launch(spec, {"command": ["vllm", "serve"]}, CHECKPOINT)["argv"]
    assert positional[2].endswith("ck/model")
    assert "--model" not in positional


def test_flags_and_environment_of_the_deployment_win(content):
    content["deployments"]["a"] |= {
        "flags": {"block-size": 64, "enable-chunked-prefill": False, "enforce-eager": True},
        "environment": {"HF_HUB_OFFLINE": "0"},
    }
    spec = Plan.of(load_config(content, source="t")).deployments["a"]
    told = resolve_launch(spec, {"command": ["x"]}, CHECKPOINT)
    line = " ".join(told["argv"])
    assert "--block-size 64" in line
    assert "--block-size 32" not in line
    assert "--no-enable-chunked-prefill" in line
    assert told["environment"]["HF_HUB_OFFLINE"] == "0"


def test_the_memory_plan_by_hand(spec):
    plan = resolve_launch(spec, {"command": ["x"]}, CHECKPOINT)["plan"]
    assert plan["kv_bytes_per_token"] == 2 * 2 * 2 * 16 * 4 == 512
    assert plan["kv_tokens"] == 2**20 // 512
    assert plan["weight_bytes"] == 139_584 * 4


def test_on_a_gpu_the_cache_gets_what_is_left(content, monkeypatch):
    monkeypatch.setattr(launch_module, "_device_memory", lambda _: 80 * 2**30)
    content["engines"]["e"]["device"] = "cuda"
    content["deployments"]["a"] = {"model": "m", "engine": "e", "tensor_parallel": 2}
    spec = Plan.of(load_config(content, source="t")).deployments["a"]
    plan = resolve_launch(spec, {"command": ["x"]}, CHECKPOINT)["plan"]
    assert plan["kv_bytes_per_token"] == 256  # bfloat16
    assert plan["kv_bytes_per_token_per_device"] == 128  # one of two KV heads
    left = int(80 * 2**30 * 0.9) - 139_584 * 2 // 2 - int(4.5 * 2**30)
    assert plan["kv_tokens"] == left // (128 * 16) * 16


def write(tmp_path, content):
    spec = Plan.of(load_config(content, source="t")).deployments["a"]
    (tmp_path / "engine.json").write_text(json.dumps({"command": ["x"]}))
    (tmp_path / "checkpoint.json").write_text(json.dumps(CHECKPOINT))
    write_launch(
        spec, 64, engine=tmp_path / "engine.json", checkpoint=tmp_path / "checkpoint.json", launch=tmp_path / "l/launch.json"
    )
    return json.loads((tmp_path / "l/launch.json").read_text())


def test_what_fits_is_written(tmp_path, content):
    assert write(tmp_path, content)["deployment"] == "a"


def test_a_cache_too_small_for_one_request_is_refused_with_the_sum(tmp_path, content):
    content["deployments"]["a"]["kv_cache_memory"] = "16KiB"
    with pytest.raises(
        BenchError, match=r"deployments\.a .*32 tokens at 512 bytes each; one request holds 64 tokens\. Shorten"
    ):
        write(tmp_path, content)


def test_more_than_the_machine_has_is_refused(tmp_path, content):
    content["deployments"]["a"]["kv_cache_memory"] = "900000GiB"
    with pytest.raises(BenchError, match=r"more than the device's .* GiB\. Lower kv_cache_memory"):
        write(tmp_path, content)
