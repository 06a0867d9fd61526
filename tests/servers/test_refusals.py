"""What is refused in a study before anything is built or started: servers of one deployment, their devices, and llama.cpp."""

import copy
import re

import pytest

from bench.errors import BenchError
from bench.study.plan import Plan
from bench.study.read import load_config

RUNNING = {"source": "external", "base_url": "http://r"}
TWO = {**RUNNING, "workers": ["http://h:1", "http://h:2"]}
CUDA = {"source": "command", "command": ["vllm", "serve"], "backend": "cuda"}
LLAMA = {"source": "command", "command": ["llama-server"], "kind": "llama.cpp"}
BUILT = {"source": "lock", "locks": ["requirements.lock"], "kind": "llama.cpp"}

# What is added to the deployment, its engine (None: a command), and words of the refusal.
ROWS = (
    # Fleets.
    ({"replicas": 2}, None, "replicas is 2, and nothing deals requests out to them"),
    ({"balance": "leastconn"}, None, "balance says how HAProxy deals requests out; add `router: haproxy`"),
    ({"replicas": 2, "router": "haproxy", "balance": "random"}, None, "balance"),
    ({"replicas": 2, "router": ["r", "{workers}"]}, None, "router is a command that lacks `{port}`, or `{workers}`"),
    ({"replicas": 2, "router": ["r", "{port}", "{workers}"], "balance": "leastconn"}, None, "balance says how HAProxy deals"),
    ({"replicas": 2, "router": "nginx"}, None, r"a\.router"),
    ({"router": "haproxy"}, RUNNING, r"deployments\.a\.router: servers that run already"),
    # Workers of a fleet that runs.
    ({}, {**RUNNING, "workers": ["http://h:1"], "metrics": "http://h:1/metrics"}, "each worker has its own metrics"),
    ({}, {**RUNNING, "workers": ["http://h:1", "http://h:1/"]}, "http://h:1 twice"),
    ({}, {**RUNNING, "workers": ["http://r/v1"]}, "which is base_url"),
    ({}, {**RUNNING, "workers": ["h:1"]}, "no address"),
    ({}, {**TWO, "prefill_workers": 2}, "of 2 workers none is left to decode"),
    ({}, {**RUNNING, "prefill_workers": 1}, "of 0 workers none is left to decode"),
    # Devices.
    *(
        ({"flags": {flag: 2}}, CUDA, rf"deployments\.a\.flags: the flag {flag} decides .*give the key {key} instead")
        for flag, key in (
            ("tensor-parallel-size", "tensor_parallel"), ("pipeline-parallel-size", "pipeline_parallel"),
            ("data_parallel_size", "data_parallel"), ("dp", "data_parallel"),
        )
    ),
    ({"cores": 0}, CUDA, "a.cores is 0, which only llama.cpp takes: vLLM's workers run on cores of their own; give 1 or more"),
    # llama.cpp.
    ({"block_size": 32}, LLAMA, r"deployments\.a\.block_size: llama\.cpp cuts"),
    ({"kv_cache_dtype": "fp8"}, LLAMA, "no fp8 KV cache; give q8_0 or q4_0"),
    ({"kv_cache_dtype": "q8_0"}, LLAMA, "a q8_0 KV cache goes with float16; give `dtype: float16`"),
    ({"kv_cache_dtype": "q4_0", "dtype": "bfloat16"}, LLAMA, "goes with float16"),
    ({"flags": {"cache-type-k": "q8_0"}}, LLAMA, "give the key kv_cache_dtype"),
    ({"data_parallel": 2}, LLAMA, "one process"),
    ({"flags": {"parallel": 3}}, LLAMA, "the flag parallel decides .* give the key max_num_seqs"),
    ({"flags": {"ctx-size": 3}}, LLAMA, "give the key kv_cache_memory"),
    ({"flags": {"n-gpu-layers": 99}}, BUILT, r"a\.flags: unknown to llama\.cpp as it is built here: --n-gpu-layers 99; it knows .*--batch-size, "),
    ({"flags": {"no-such": True}}, BUILT, r"a\.flags: unknown to llama\.cpp as it is built here: --no-such;"),
    ({"flags": {"batch-size": "many"}}, BUILT, r"a\.flags: argument --batch-size: invalid int value: 'many'"),
    ({"flags": {"flash-attn": "maybe"}}, BUILT, r"a\.flags: argument --flash-attn: invalid choice: 'maybe'"),
    # Secrets.
    ({"flags": {"api-key": "x"}}, None, r"deployments\.a: flags\.api-key holds a secret.*VLLM_API_KEY"),
)  # fmt: skip


def test_what_cannot_be_served_is_refused(content):
    for deployment, engine, said in ROWS:
        changed = copy.deepcopy(content)
        changed["deployments"]["a"] |= deployment
        if engine:
            changed["engines"]["e"] = engine
        with pytest.raises(BenchError) as error:
            Plan.of(load_config(changed, source="t"))
        assert re.search(said, str(error.value)), (deployment, engine, str(error.value))


def test_a_flag_that_the_build_here_lacks_is_left_to_a_user_s_own_llama_server(content):
    content["engines"]["e"] = LLAMA
    for deployment, engine, _ in ROWS:
        if engine is BUILT:
            content["deployments"]["a"]["flags"] = deployment["flags"]
            assert load_config(content, source="t").deployments["a"].flags == deployment["flags"]


def test_a_gguf_file_that_cannot_be_served_is_refused_with_what_to_do(content):
    content["models"]["m"] = {"path": "/models/Llama-Q4.GGUF"}
    for kind, said in (
        ("vllm", r"a GGUF file, which llama.cpp alone is started with. Give deployments.a an engine of `kind: llama.cpp`"),
        ("llama.cpp", r"no such file. Name the folder of a checkpoint, or a .gguf file"),
    ):
        content["engines"]["e"] |= {"kind": kind}
        with pytest.raises(BenchError, match=rf"models\.m\.path is '/models/Llama-Q4\.GGUF'.*{said}"):
            load_config(content, source="t")
    content["engines"]["e"] = {"source": "external", "base_url": "http://127.0.0.1:8080"}
    assert load_config(content, source="t").models["m"].path == "/models/Llama-Q4.GGUF"
