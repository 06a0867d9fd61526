"""KV capacities against those predicted: what the study printed (94 GB H100 NVL, 93.6 GiB usable), and what vLLM told on a CPU."""

import numpy as np
import pytest
from benchmarks.gpu_memory import starts

from bench.models.catalogue import catalogue
from bench.models.checkpoint_record import Weights
from bench.models.config_json import geometry_of, geometry_of_entry, geometry_of_model
from bench.models.geometry import weight_bytes
from bench.servers.kind import OnGpu
from bench.servers.launch import memory_plan
from bench.servers.memory import kv_pool
from bench.servers.vllm import VLLM
from bench.study.plan import Plan
from bench.study.read import load_file
from tests.support.model_facts import INPUTS
from tests.support.study import ROOT

GIB = 2**30
MEMORY = int(93.6 * GIB)
BUDGET = 0.9 * MEMORY
SEQUENCES = 1024  # vLLM's own max_num_seqs on such a GPU
OLD = "0.6"  # a version of that time
# key, tensor parallel, printed KV tokens a GPU
PRINTED = [
    ("gpt2-xl", 1, 268_208), ("mistral-7b-128k", 2, 1_194_848), ("deepseek-7b", 1, 141_808), ("qwen1.5-14b", 1, 64_912),
    ("falcon-40b", 1, 18_688), ("llama-3.1-70b-fp8", 1, 29_648), ("llama-3.1-70b-fp8", 2, 278_496),
]  # fmt: skip


def test_predicted_capacity_is_the_printed_one_within_one_per_cent():
    for key, devices, printed in PRINTED:
        geometry = geometry_of_entry(catalogue()[key])
        on = OnGpu(MEMORY, 2, SEQUENCES, tensor_parallel=devices, version=OLD)
        left = BUDGET - weight_bytes(geometry, "float16") / devices - VLLM().gpu_overhead(geometry, on)
        tokens = kv_pool(geometry, dtype="float16", tensor_parallel=devices).tokens(int(left))
        assert tokens % 16 == 0 and tokens == pytest.approx(printed, rel=0.01), key


def test_what_versions_keep_is_what_their_logs_say():
    """A KV cache that comes out too small is the safe side; some logs of 0.10 have another sampler, or eight GPUs."""
    found = starts()
    assert len(found) == 60
    whole = [each for each in found if not each.row.get("assumed")]
    assert np.median([abs(each.predicted - each.logged) for each in whole]) < 0.02
    assert all(-0.007 < each.error < 0.013 for each in whole)
    assert all(-0.06 < each.error < 0.03 for each in found if not each.row["vllm"].startswith("0.10"))
    assert all(-0.21 < each.error < 0.05 for each in found)


# KV tokens that vLLM 0.32 told on a CPU, in the default study and in shipped ones at that scale.
MEASURED = {
    "config.yaml": {"tiny-mha": 3072, "wide-mqa": 12_288},
    "studies/archetypes.yaml": {"llama-8b-small": 8192},
    "studies/families.yaml": {
        "gpt2-xl-small": 4096, "deepseek-7b-small": 2112, "qwen1.5-14b-small": 1920, "falcon-40b-small": 576,
        "mistral-7b-small": 8192, "llama-70b-small-tp1": 2880, "llama-70b-small-tp2": 23_040,
    },
    "studies/factors.yaml": {
        "cpu-gpt2-small-tp1": 24_576, "cpu-gpt2-small-tp2": 49_152, "cpu-llama-small-tp1": 32_768, "cpu-llama-small-tp2": 65_536,
    },
}  # fmt: skip


def test_capacities_that_were_measured_are_those_planned():
    for study, measured in MEASURED.items():
        deployments = Plan.of(
            load_file(ROOT / "config" / study, **({"scale": "cpu"} if "studies" in study else {}))
        ).deployments
        planned = {name: memory_plan(deployments[name], geometry_of_model(deployments[name].model)) for name in measured}
        assert {name: plan.kv_tokens for name, plan in planned.items()} == measured, study


def test_mxfp4_experts_alone_are_padded_for_their_kernel():
    geometry = geometry_of(INPUTS["gpt_oss_120b"], Weights(116_829_156_672))
    for devices, printed in (
        (1, 65.9651),  # GiB a GPU, vLLM 0.10 and 0.11 with Marlin (its issue 23278, kvcached's 187)
        (2, 34.29),  # the rule by hand: 36 × 128 × 3 matrices of 3,072 × 1,536, and half of the rest
    ):
        loaded = weight_bytes(geometry, "bfloat16") / devices + VLLM().gpu_padding(geometry, devices)
        assert loaded / GIB == pytest.approx(printed, rel=0.002), devices
    assert {VLLM().gpu_padding(geometry_of_entry(entry), 2) for entry in catalogue().values() if entry.config} == {0}
