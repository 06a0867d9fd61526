"""llama.cpp as an engine: its command line, what is refused, and what a server says of itself."""

import shlex
from dataclasses import replace

import pytest

from bench.errors import BenchError
from bench.models.config_json import geometry_of
from bench.models.model import whole_config
from bench.parse.deployed import deployed
from bench.runs.files import write_record
from bench.runs.launch import EngineRecord, Settings
from bench.servers import launch as launch_module
from bench.servers.engines import managed
from bench.servers.launch import resolve_launch, write_launch
from bench.servers.llama_server import arguments
from bench.study.plan import Plan
from bench.study.read import load_config
from tests.support import records
from tests.support.study import ROOT, TINY

LLAMA = managed("llama.cpp")
CONTEXT = {**TINY, "max_position_embeddings": 1024}
# 2 × 2 layers × 2 KV heads × 16 elements × 4 bytes = 512 a token: 1 MiB holds 2,048 tokens.
ENGINE = EngineRecord(engine="e", source="command", device="cpu", command=("llama-server",), freeze=("xllamacpp==1.2",))


def spec_of(content, context=1024, **deployment):
    content["engines"]["e"] = {"source": "command", "command": ["llama-server"], "kind": "llama.cpp"}
    content["models"]["m"]["config"] |= {"max_position_embeddings": context}
    content["deployments"]["a"] |= {"engine": "e", **deployment}
    return Plan.of(load_config(content, source="t"), root=ROOT).deployments["a"]


@pytest.fixture
def checkpoint(monkeypatch):
    monkeypatch.setattr(launch_module, "gguf_of", lambda folder, _, dtype: folder.with_suffix(f".{dtype}.gguf"))
    return records.checkpoint(path="m/model", config=whole_config(CONTEXT))


def launched(spec, checkpoint, context=1024):
    return resolve_launch(spec, ENGINE, replace(checkpoint, config=whole_config({**TINY, "max_position_embeddings": context})))


def test_the_command_line_says_all_that_was_asked(content, checkpoint):
    launch = launched(spec_of(content, max_num_seqs=4, cores=2), checkpoint)
    assert launch.argv == tuple(
        shlex.split(
            "llama-server --model m/model.float32.gguf --alias a --host 127.0.0.1 --port {port} --parallel 4 --ctx-size 2048 "
            "--threads 2 --threads-http 512 --cache-type-k f32 --cache-type-v f32 --flash-attn off --no-cache-prompt "
            "--cache-ram 0 --metrics"
        )
    )
    assert "--threads 1 " in " ".join(launched(spec_of(content, cores=0), checkpoint).argv)
    taken = arguments([part.replace("{port}", "8123") for part in launch.argv[1:]])
    assert (taken.port, taken.parallel, taken.ctx_size, taken.cache_prompt, taken.metrics) == (8123, 4, 2048, False, True)
    settings = launch.settings
    assert (settings.max_num_seqs, settings.block_size, settings.dtype, settings.slots) == (4, 512, "float32", True)
    assert (launch.kind, launch.engine_version, launch.plan.kv_tokens, launch.environment) == ("llama.cpp", "1.2", 2048, {})


def test_an_environment_built_by_another_checkout_runs_the_server_of_this_one(content, checkpoint, monkeypatch):
    """Its record is kept, and shared by folders of the project."""
    spec = spec_of(content, max_num_seqs=4)
    spec = replace(spec, engine=spec.engine.model_copy(update={"source": "lock"}))
    built = replace(ENGINE, source="lock", command=("env/bin/python", "/gone/src/bench/servers/llama_server.py"))
    monkeypatch.chdir(ROOT)
    assert resolve_launch(spec, built, checkpoint).argv[:2] == ("env/bin/python", "src/bench/servers/llama_server.py")
    monkeypatch.chdir("tests")  # as an installed package, which stays where it is
    assert resolve_launch(spec, built, checkpoint).argv[1] == str(ROOT / "src/bench/servers/llama_server.py")


def test_what_the_deployment_says_wins(content, checkpoint):
    spec = spec_of(
        content,
        max_num_seqs=4,
        dtype="float16",
        prefix_caching=True,
        flags={"batch-size": 512, "warmup": False, "spec-type": "ngram-simple"},
    )
    line = " ".join(launched(spec, checkpoint).argv)
    for part in ("--cache-type-k f16", "--flash-attn on", "--cache-prompt", "--batch-size 512", "--spec-type ngram-simple",
                 "--no-warmup", "--ctx-size 4096"):  # fmt: skip
        assert part in line


def test_slots_share_the_memory_in_steps_of_256_tokens(content, checkpoint):
    for slots, context, tokens in ((8, 1024, 256), (7, 1024, 256), (4, 1024, 512), (2, 700, 768), (1, 256, 256)):
        plan = launched(spec_of(content, context, max_num_seqs=slots), checkpoint, context).plan
        assert (plan.block_size, plan.kv_tokens) == (tokens, slots * tokens), (slots, context)


def test_more_slots_than_the_memory_holds_are_refused_with_the_sum(content, checkpoint):
    with pytest.raises(
        BenchError, match=r"9 slots .* take 1.12 MiB .* at 512 bytes a token; .* lower max_num_seqs to 8 or less"
    ):
        launched(spec_of(content, max_num_seqs=9), checkpoint)


def test_a_cache_that_cannot_be_planned_or_is_quantised_with_narrow_heads_is_refused(content):
    """Heads of 16 numbers, and blocks of 32."""
    window = geometry_of({**whole_config(TINY), "model_type": "mistral", "sliding_window": 64})
    plain = spec_of(content)
    assert "sliding windows" in LLAMA.refused(plain.deployment, plain.engine, plain.model, window)
    spec = spec_of(content, dtype="float16", kv_cache_dtype="q4_0")
    narrow = geometry_of(whole_config(TINY))
    reason = LLAMA.refused(spec.deployment, spec.engine, spec.model, narrow)
    assert reason == "kv_cache_dtype: q4_0 has blocks of 32 numbers, which do not divide the heads of m; remove it"


@pytest.mark.parametrize(("dtype", "bytes_a_token"), [("auto", 512), ("q8_0", 272), ("q4_0", 144)])
def test_a_quantised_cache_takes_its_blocks_and_holds_more(content, checkpoint, dtype, bytes_a_token):
    """2 × 2 layers × 2 KV heads × 32 numbers: 8 blocks a token, of 64 bytes in float16, 34 in q8_0 and 18 in q4_0."""
    wide = {**TINY, "head_dim": 32, "max_position_embeddings": 4096}
    content["models"]["m"]["config"] |= {"head_dim": 32}
    spec = spec_of(content, 4096, max_num_seqs=2, dtype="float16", kv_cache_dtype=dtype)
    launch = resolve_launch(spec, ENGINE, replace(checkpoint, config=whole_config(wide)))
    own = {"auto": "f16"}.get(dtype, dtype)
    assert f"--cache-type-k {own} --cache-type-v {own} --flash-attn on" in " ".join(launch.argv)
    assert launch.plan.kv_bytes_per_token == bytes_a_token
    assert launch.plan.kv_tokens == 2 * min(4096, 2**20 // bytes_a_token // 2 // 256 * 256)
    assert (launch.settings.dtype, launch.settings.kv_cache_dtype) == ("float16", {"auto": "float16"}.get(dtype, dtype))


def test_a_request_longer_than_a_slot_is_refused(content, checkpoint, tmp_path):
    write_record(ENGINE, tmp_path / "engine.json")
    write_record(checkpoint, tmp_path / "checkpoint.json")
    where = {"engine": tmp_path / "engine.json", "checkpoint": tmp_path / "checkpoint.json", "launch": tmp_path / "launch.json"}
    write_launch(spec_of(content, max_num_seqs=4), 512, **where)
    with pytest.raises(BenchError, match=r"needs 513 tokens, and each of the 4 slots .* has 512"):
        write_launch(spec_of(content, max_num_seqs=4), 513, **where)


def answering(pages):
    return LLAMA.info(pages.get)


def test_what_a_server_says_of_itself():
    props = {"total_slots": 16, "build_info": "b0-unknown", "default_generation_settings": {"n_ctx": 256}}
    info = answering({"props": props, "slots": [{"id": i, "n_ctx": 256} for i in range(16)]})
    facts = LLAMA.kv_facts({}, info)
    assert (facts.engines, facts.kv_blocks, facts.block_size, facts.kv_tokens) == (1, 16, 256, 4096)
    assert (facts.prefix_caching, info["version"]) == (None, None)
    assert LLAMA.kv_facts({}, answering({"props": props})).kv_tokens == 4096  # /slots may be off
    assert answering({"props": {**props, "build_info": "b11549-1a2b3c4"}})["version"] == "b11549-1a2b3c4"
    assert answering({"props": {"error": "no such page"}}) is answering({}) is None
    assert LLAMA.kv_facts({}, {}).kv_tokens is None


def test_slots_at_work_are_the_kv_usage_and_unknown_without_telemetry():
    """Three of four run; without scrapes nothing is known, and a server that gives out blocks keeps its own gauge."""
    run = {"running_peak": 3.0, "waiting_standing": 2.0, "steady_running": 2.0, "steady_queued_share": 0.0, "requests": 0}
    usage = ("kv_usage_peak", "kv_usage_queued", "steady_kv_usage", "steady_kv_usage_queued")
    slots = records.launch(settings=Settings(max_num_seqs=4, slots=True))
    assert [deployed(run, slots, None)[name] for name in usage] == [0.75, 1.0, 0.5, None]
    assert [deployed({"requests": 0}, slots, None)[name] for name in usage] == [None] * 4
    assert not set(usage) & set(deployed(run, records.launch(settings=Settings(max_num_seqs=4)), None))


def test_a_prefix_that_is_shared_leaves_no_more_slots():
    run = {"cache": "shared", "prefix_hit_rate_expected": 0.5, "requests": 4, "prompt_tokens": 100.0, "output_tokens": 50.0}
    known = records.facts(kv_tokens=1024, kv_blocks=4, block_size=256)
    slots, blocks = (records.launch(max_num_seqs=4, slots=each) for each in (True, None))
    assert [deployed(run, launch, known)["predicted_saturation"] for launch in (slots, blocks)] == [4, None]


def test_a_wrong_flag_on_its_command_line_is_named_on_one_line(capsys):
    for words, reason in ((["--no-such"], "unrecognized arguments: --no-such"), (["--port", "x"], "invalid int value: 'x'")):
        with pytest.raises(SystemExit):
            arguments(["--model", "x", *words])
        assert reason in capsys.readouterr().err.splitlines()[-1]
