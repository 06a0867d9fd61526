"""What is refused in a study before anything is built or started: servers of one deployment, their devices, and llama.cpp."""

import copy
import re

import pytest

from bench.errors import BenchError
from bench.study import Plan, load_config


def transferring(config):
    """A deployment of two replicas, of which one prefills and passes KV caches on as it says."""
    fleet = {"replicas": 2, "prefill_replicas": 1, "router": "vllm-router", "balance": "roundrobin"}
    return {**fleet, "flags": {"kv-transfer-config": config}}


DISAGGREGATED = transferring('{"kv_connector": "NixlConnector"}')
EXAMPLE = transferring('{"kv_connector": "ExampleConnector"}')
BOTH_ROLES = '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'
KEPT_FOLDER = '{"kv_connector": "ExampleConnector", "kv_connector_extra_config": {"shared_storage_path": "kept"}}'
STAGES = {"tensor_parallel": 2, "pipeline_parallel": 2, "nodes": 2}
RUNNING = {"source": "external", "base_url": "http://r"}
TWO = {**RUNNING, "workers": ["http://h:1", "http://h:2"]}
CONTAINER = {"source": "container", "image": "vllm/vllm-openai-cpu:v0.32.0"}
CUDA = {"source": "command", "command": ["vllm", "serve"], "backend": "cuda"}
MODULE = {**CUDA, "command": ["python3", "-m", "vllm.entrypoints.openai.api_server"]}
LLAMA = {"source": "command", "command": ["llama-server"], "kind": "llama.cpp"}
BUILT = {"source": "lock", "locks": ["requirements.lock"], "kind": "llama.cpp"}

# What is added to the deployment, its engine (None: a command), and words of the refusal.
ROWS = (
    # Fleets.
    ({"replicas": 2}, None, "replicas is 2, and nothing deals requests out to them"),
    ({"balance": "leastconn"}, None, "there is none; add `router: haproxy`"),
    ({"replicas": 2, "router": "haproxy", "balance": "random"}, None, "balance"),
    ({"replicas": 2, "router": "haproxy", "balance": "cache-aware"}, None, "haproxy has leastconn, roundrobin, header:NAME; give one"),
    ({"replicas": 2, "router": "vllm-router"}, None, "balance is leastconn, and vllm-router has roundrobin, power-of-two"),
    ({"replicas": 2, "router": "sglang-router", "balance": "header:X-Session-ID"}, None, "has .*, header:X-SMG-Routing-Key; give"),
    ({"replicas": 2, "router": "nginx"}, None, "there are haproxy, vllm-router, sglang-router"),
    ({"router": "haproxy"}, RUNNING, r"deployments\.a\.router: servers that run already"),
    # Prefill apart from decoding.
    ({**DISAGGREGATED, "router": "haproxy", "balance": "leastconn"}, None, "haproxy sends no request to one .* `router: vllm-router`"),
    ({**DISAGGREGATED, "prefill_replicas": 2}, None, "of 2 servers none is left to decode"),
    ({**DISAGGREGATED, "replicas": 1}, None, "of 1 servers none is left to decode"),
    ({"prefill_replicas": 1}, None, "one server is started. Add `replicas: 2` and `router: vllm-router`"),
    ({**DISAGGREGATED, "flags": {}}, None, "no connector passes KV caches on; add `flags: {kv-transfer-config: "),
    (transferring("{"), None, "flags.kv-transfer-config: no JSON object"),
    (transferring(BOTH_ROLES), None, "kv_role follows from prefill_replicas"),
    (transferring('{"kv_connector": "LMCacheConnectorV1"}'), None, "of the kv_connector NixlConnector and ExampleConnector, not of LMC"),
    (transferring(KEPT_FOLDER), None, "shared_storage_path is a new folder at each start"),
    *(
        ({**EXAMPLE, "flags": {**EXAMPLE["flags"], flag: True}}, None, f"flags.{flag}: ExampleConnector takes prompts .* whole")
        for flag in ("enable-chunked-prefill", "no_enable_chunked_prefill")
    ),
    (EXAMPLE, CONTAINER, "replicas in containers were not tried with; give NixlConnector"),
    ({"prefill_replicas": 1}, {**TWO, "kind": "llama.cpp"}, r"engines\.e is llama\.cpp: sums by role are known of vLLM alone"),
    ({"prefill_replicas": 1}, {**RUNNING, "workers": []}, r"behind engines\.e is not known. Name them as its workers"),
    ({"prefill_replicas": 1}, {**RUNNING, "workers": ["http://h:1"]}, "none is left to decode"),
    # Workers of a fleet that runs.
    ({}, {**RUNNING, "workers": ["http://h:1"], "metrics": "http://h:1/metrics"}, "each worker has its own metrics"),
    ({}, {**RUNNING, "workers": ["http://h:1", "http://h:1/"]}, "http://h:1 twice"),
    ({}, {**RUNNING, "workers": ["http://r/v1"]}, "which is base_url"),
    ({}, {**RUNNING, "workers": ["h:1"]}, "no address"),
    # Devices and nodes.
    *(
        ({"flags": {flag: 2}}, CUDA, rf"deployments\.a\.flags: the flag {flag} decides .*give the key {key} instead")
        for flag, key in (
            ("tensor-parallel-size", "tensor_parallel"), ("pipeline-parallel-size", "pipeline_parallel"),
            ("data_parallel_size", "data_parallel"), ("dp", "data_parallel"),
        )
    ),
    ({"tensor_parallel": 4, "nodes": 3}, CUDA, "3 nodes cannot share 4 GPUs evenly; give a divisor of 4"),
    ({"tensor_parallel": 4, "data_parallel": 2, "nodes": 4}, CUDA, r"4 nodes cannot share 2 engines \(data_parallel\) evenly"),
    (STAGES, MODULE, r"give `command: \[vllm, serve\]`"),
    ({**STAGES, "flags": {"nnodes": 4}}, CUDA, "the flag nnodes decides the planned memory, GPUs and costs; give the key nodes"),
    ({"replicas": 4, "router": "haproxy", "nodes": 2}, CUDA, "replicas stand on nodes of their own; give nodes: 4, or remove it"),
    ({"cores": 0}, CUDA, "a.cores is 0, which only llama.cpp takes: vLLM's workers run on cores of their own; give 1 or more"),
    ({"nodes": 2}, {**CUDA, "kind": "llama.cpp"}, "nodes: llama.cpp is run as one process on one node; remove it"),
    ({"nodes": 2}, {**RUNNING, "backend": "cuda"}, "started on no node from here"),
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
