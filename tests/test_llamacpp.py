"""llama.cpp as an engine: its command line, what is refused, and what a server says of itself."""

import os
import shlex
from pathlib import Path

import pytest

from bench.engine import llamacpp
from bench.engine.llama_server import arguments
from bench.errors import BenchError
from bench.models import Architecture, config_of, geometry_of
from bench.study import Plan, load_config
from tests.conftest import ARCHITECTURE, ROOT

GEOMETRY = geometry_of(config_of(Architecture(**{**ARCHITECTURE, "context": 1024})))
# 2 × 2 layers × 2 KV heads × 16 elements × 4 bytes = 512 a token: 1 MiB holds 2,048 tokens.


def spec_of(content, **deployment):
    content["deployments"]["a"] |= deployment
    return Plan.of(load_config(content, source="t"), root=ROOT).deployments["a"]


def test_the_command_line_says_all_that_was_asked(content):
    argv = llamacpp.launch_arguments(spec_of(content, max_num_seqs=4, cores=2), GEOMETRY, Path("m/model.gguf"))
    assert argv == shlex.split(
        "--model m/model.gguf --alias a --host 127.0.0.1 --port {port} --parallel 4 --ctx-size 2048 --threads 2 --threads-http 512 "
        "--cache-type-k f32 --cache-type-v f32 --flash-attn off --no-cache-prompt --cache-ram 0 --metrics"
    )
    taken = arguments([part.replace("{port}", "8123") for part in argv])
    assert (taken.port, taken.parallel, taken.ctx_size, taken.cache_prompt, taken.metrics) == (8123, 4, 2048, False, True)


def test_what_the_deployment_says_wins(content):
    spec = spec_of(content, max_num_seqs=4, dtype="float16", prefix_caching=True, flags={"batch-size": 512, "warmup": False})
    line = " ".join(llamacpp.launch_arguments(spec, GEOMETRY, Path("m.gguf")))
    for part in (
        "--cache-type-k f16",
        "--flash-attn on",
        "--cache-prompt",
        "--batch-size 512",
        "--no-warmup",
        "--ctx-size 4096",
    ):
        assert part in line


@pytest.mark.parametrize(
    ("slots", "context", "tokens"), [(8, 1024, 256), (7, 1024, 256), (4, 1024, 512), (2, 700, 768), (1, 256, 256)]
)
def test_slots_share_the_memory_in_steps_of_256_tokens(content, slots, context, tokens):
    geometry = geometry_of(config_of(Architecture(**{**ARCHITECTURE, "context": context})))
    assert llamacpp.slot_tokens(spec_of(content, max_num_seqs=slots), geometry) == tokens


def test_more_slots_than_the_memory_holds_are_refused_with_the_sum(content):
    with pytest.raises(BenchError, match=r"9 slots .* take 1 MiB .* at 512 bytes a token; .* lower max_num_seqs to 8 or less"):
        llamacpp.slot_tokens(spec_of(content, max_num_seqs=9), GEOMETRY)


@pytest.mark.parametrize(
    ("deployment", "told"),
    [
        ({"block_size": 32}, "block_size"),
        ({"kv_cache_dtype": "fp8"}, "no fp8 KV cache"),
        ({"data_parallel": 2}, "one process"),
    ],
)
def test_what_it_does_not_do_is_refused(content, deployment, told):
    with pytest.raises(BenchError, match=told):
        llamacpp.launch_arguments(spec_of(content, max_num_seqs=4, **deployment), GEOMETRY, Path("m.gguf"))


def test_a_cache_that_cannot_be_planned_is_refused(content):
    window = geometry_of({**config_of(Architecture(**ARCHITECTURE)), "model_type": "mistral", "sliding_window": 64})
    with pytest.raises(BenchError, match="sliding windows"):
        llamacpp.refuse_unsupported(spec_of(content), window)


def test_the_kv_cache_as_a_server_tells_it():
    props = {"total_slots": 16, "build_info": "b0-unknown", "default_generation_settings": {"n_ctx": 256}}
    told = llamacpp.kv_facts(props, [{"id": i, "n_ctx": 256} for i in range(16)])
    assert told == {
        "engines": 1, "kv_blocks": 16, "block_size": 256, "kv_tokens": 4096, "prefix_caching": None, "cache_config": {},
    }  # fmt: skip
    assert llamacpp.kv_facts(props, [])["kv_tokens"] == 4096  # /slots may be off
    assert llamacpp.kv_facts({}, [])["kv_tokens"] is None


def test_which_build_serves():
    packages = ["pip==23.2.1", "xllamacpp==2026.10.11549"]
    assert llamacpp.version({"build_info": "b0-unknown"}, packages) == "2026.10.11549"
    assert llamacpp.version({"build_info": "b11549-1a2b3c4"}, []) == "b11549-1a2b3c4"
    assert llamacpp.version({}, []) is None


def test_the_server_is_pinned_to_the_first_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 1, 2})
    assert llamacpp.pinned(2) == ["taskset", "--cpu-list", "1,2"]
    with pytest.raises(BenchError, match="may use 3"):
        llamacpp.pinned(4)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5})
    assert llamacpp.pinned(1) == []


def test_an_unknown_flag_ends_the_server(capsys):
    with pytest.raises(SystemExit):
        arguments(["--model", "m", "--tensor-split", "1"])
    assert "--tensor-split" in capsys.readouterr().err
