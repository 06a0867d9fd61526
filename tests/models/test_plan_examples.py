"""The documents' worked examples of memory and speed, by number; where they are wrong, what is printed stands beside what is right.

The manual, the chapter and the guide are the study's documents on inference, deployment and sizing. GB and MB are 10⁹ and 10⁶ bytes, as there.
"""

import pytest

from bench.models.catalogue import accelerators, catalogue
from bench.models.config_json import geometry_of_entry
from bench.servers.plan import Demand, Setting, plan

GB = 1e9
H100 = 3.35e12  # bytes/s, as the documents print it

LLAMA_70B = geometry_of_entry(catalogue()["llama-3.3-70b"])


def test_the_guides_fewest_gpus():
    """Guide 2.6: Llama-3-70B in FP16, 50 requests of 8,000 tokens, H100 of 80 GB: 140 + 104 + 28 + 15 = 287 GB, so 4, with headroom 6."""
    told = plan(LLAMA_70B, accelerators()["h100"], Demand(7999, 1, 50), Setting())
    rule = told["rule_of_thumb"]
    assert rule["weight_bytes"] / GB == pytest.approx(141.1, abs=0.05)
    assert rule["kv_cache_bytes"] == 131_072_000_000  # 104 printed
    assert rule["activation_bytes"] / GB == pytest.approx(28.2, abs=0.05)
    assert rule["framework_bytes_per_gpu"] / GB == pytest.approx(6.4, abs=0.05)
    assert (rule["min_gpus"], rule["gpus_with_headroom"]) == (4, 6)
    # Ours: (141.1 + 131.1) GB over the 72.1 GB a GPU that 0.9, activations, overhead and exchange leave is 3.77.
    assert (told["min_gpus"], told["gpus_with_headroom"], told["min_tensor_parallel"]) == (4, 6, 4)
    # FP8 weights and cache: 70 + 52 + 28 + 15 = 165 GB, "2-3".
    fp8 = plan(LLAMA_70B, accelerators()["h100"], Demand(7999, 1, 50), Setting(dtype="fp8", kv_dtype="fp8"))
    assert fp8["kv_bytes_per_request"] * 50 == 65_536_000_000  # 52 printed
    assert (fp8["rule_of_thumb"]["min_gpus"], fp8["min_gpus"], fp8["min_tensor_parallel"]) == (2, 2, 2)


def test_the_ridge_is_of_dense_arithmetic():
    """Guide 3.1: 295. The chapter prints about 600, from 1,979 TFLOP/s, which is FP16 with sparsity (or dense FP8)."""
    told = plan(LLAMA_70B, accelerators()["h100"], Demand(128, 512), Setting())["ceilings"]["ridge_flop_per_byte"]
    assert round(told) == 295
    mi300x, a100 = accelerators()["mi300x"], accelerators()["a100-80g"]
    assert mi300x.bandwidth / H100 == pytest.approx(1.58, abs=0.005)  # guide 3.5: 58 % more
    assert accelerators()["h100"].flops() / a100.flops() == pytest.approx(3.2, abs=0.05)  # guide 3.2: roughly three times
