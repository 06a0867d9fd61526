"""The documents' worked examples of memory and speed, by number; where they are wrong, what is printed stands beside what is right.

The manual, the chapter and the guide are the study's documents on inference, deployment and sizing. GB and MB are 10⁹ and 10⁶ bytes, as there.
"""

import pytest

from bench.models.catalogue import accelerators, catalogue
from bench.models.config_json import config_of, geometry_of, geometry_of_entry
from bench.models.geometry import kv_bytes_of_sequence, kv_bytes_per_token
from bench.models.model import Architecture
from bench.servers.plan import Demand, Setting, plan
from bench.servers.roofline import Roofline

GB, MB = 1e9, 1e6
H100, A100, RTX = 3.35e12, 2.0e12, 1.008e12  # bytes/s, as the documents print them


def llama(**shape):
    return geometry_of(config_of(Architecture(**{"head_dim": 128, "vocabulary": 32_000, "context": 16_384} | shape)))


LLAMA_70B = geometry_of_entry(catalogue()["llama-3.3-70b"])
# The same with a KV head for each query head, which is how the manual counts at first.
MHA_70B = llama(layers=80, hidden_size=8192, heads=64, kv_heads=64, intermediate_size=28_672, vocabulary=128_256)
LLAMA_7B = llama(layers=32, hidden_size=4096, heads=32, kv_heads=32, intermediate_size=11_008)
LLAMA_13B = llama(layers=40, hidden_size=5120, heads=40, kv_heads=40, intermediate_size=13_824)


def kv(geometry, tokens, requests=1, dtype="bfloat16"):
    return requests * kv_bytes_of_sequence(geometry, tokens, dtype)


def test_kv_caches_that_are_right():
    for what, ours, printed, within in (
        ("manual 2.2: a token of 70B with all 64 heads, MB", kv(MHA_70B, 1) / MB, 2.6, 0.05),
        ("manual 1.3: 4,000 tokens of it, GB", kv(MHA_70B, 4000) / GB, 10.4, 0.1),
        ("manual 2.2: with 8 KV heads, MB a token", kv(LLAMA_70B, 1) / MB, 0.32, 0.01),
        ("chapter: 7B at 512 tokens, MB", kv(LLAMA_7B, 512) / MB, 268, 0.5),
        ("chapter: at 8,192", kv(LLAMA_7B, 8192) / GB, 4.3, 0.01),
        ("chapter: 50 at 2,048 (53.5 printed, 50 × 1.07)", kv(LLAMA_7B, 2048, 50) / GB, 53.7, 0.05),
        ("chapter: requests of 4,096 in 80 − 3.5 − 3 GB", (80 - 3.5 - 3) * GB / kv(LLAMA_7B, 4096), 34, 0.5),
        ("chapter: in 66 GB", 66 * GB // kv(LLAMA_7B, 4096), 30, 0),
    ):
        assert ours == pytest.approx(printed, abs=within), what


def test_kv_caches_that_are_printed_too_small():
    """Of 70B by a fifth (0.26 for 0.33 MB a token), by a half (an FP8 cache) or by three quarters (long contexts)."""
    assert kv_bytes_per_token(LLAMA_70B, "bfloat16") == 2 * 80 * 8 * 128 * 2 == 327_680
    for what, printed, ours, right in (
        ("guide 2.6: 50 requests of 8,000 tokens, GB", 104, kv(LLAMA_70B, 8000, 50) / GB, 131.072),
        ("guide 9.4: one of 128,000", 10, kv(LLAMA_70B, 128_000) / GB, 41.9),
        ("guide 6.5: 4,096 tokens of an FP8 cache, MB", 320, kv(LLAMA_70B, 4096, dtype="fp8") / MB, 671),
        ("chapter: ten turns of 13B, 4,096 tokens, GB", 1, kv(LLAMA_13B, 4096) / GB, 3.36),
    ):
        assert 0.8 * right > printed and ours == pytest.approx(right, rel=0.002), what
    # The chapter says that a request of 4,096 tokens is larger than 7B's INT4 weights. The cache passes them at 6,676 tokens.
    assert 7e9 * 0.5 / kv(LLAMA_7B, 1) == pytest.approx(6676, abs=1)
    # The manual divides by 8 and cuts: 2.6 → 0.32. The chapter says that 32 requests of 4,096 need "another 50 GB+".
    assert kv(MHA_70B, 1) == 8 * kv(LLAMA_70B, 1)
    assert kv(LLAMA_70B, 4096, 32) / GB == pytest.approx(42.9, abs=0.05)


def test_weights_are_parameters_times_bytes():
    assert LLAMA_70B.parameters == 70_553_706_496  # 141.1 GB in 16 bit
    # Tensor parallelism of 4 leaves 35 GB a GPU, as the guide says in 5.1; its figure's 17.5 GB are FP8's.
    terms = plan(LLAMA_70B, accelerators()["h100"], Demand(128, 512), Setting(tensor_parallel=4))["terms"]
    assert terms["weight_bytes_per_gpu"] / GB == pytest.approx(35.3, abs=0.05)


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


def test_decode_of_one_request_is_bandwidth_over_weights():
    for what, weights, bandwidth, printed, right in (
        ("chapter: 7B FP16 on H100 (1 ÷ 4.2 ms)", 14e9, H100, 238, 239.3),
        ("manual 1.2: 70B INT8 on H100, 45 to 50", 70e9, H100, 47.5, 47.9),
        ("manual 1.2: on A100, 27 to 30", 70e9, A100, 28.5, 28.6),
        ("manual 1.2: on RTX 4090, 13 to 15", 70e9, RTX, 14, 14.4),
    ):
        ceiling = bare(weights, bandwidth).decode()
        assert ceiling == pytest.approx(right, abs=0.05) and ceiling == pytest.approx(printed, rel=0.03), what


def bare(weights, bandwidth, geometry=LLAMA_70B):
    """A model of so many bytes where arithmetic costs nothing."""
    return Roofline(geometry, int(weights), int(weights), "bfloat16", kv_copies=1, bandwidth=bandwidth, flops=1e18)


def test_a_decode_step_reads_weights_once_and_every_cache():
    """Manual 1.3 counts all 64 heads as KV heads; Llama-3-70B has 8, and its step hardly grows."""
    mha, gqa = (bare(70e9, H100, geometry).decode for geometry in (MHA_70B, LLAMA_70B))
    for tokens, n, printed_ms, gqa_ms in ((0, 1, 21, 20.9), (1000, 1, 21.7, 21.0), (4000, 1, 24.0, 21.3), (4000, 10, 52, 24.8)):
        assert 1000 * n / mha(n, tokens) == pytest.approx(printed_ms, abs=0.3), (tokens, n)
        assert 1000 * n / gqa(n, tokens) == pytest.approx(gqa_ms, abs=0.06), (tokens, n)


def test_the_ridge_is_of_dense_arithmetic():
    """Guide 3.1: 295. The chapter prints about 600, from 1,979 TFLOP/s, which is FP16 with sparsity (or dense FP8)."""
    told = plan(LLAMA_70B, accelerators()["h100"], Demand(128, 512), Setting())["ceilings"]["ridge_flop_per_byte"]
    assert round(told) == 295
    mi300x, a100 = accelerators()["mi300x"], accelerators()["a100-80g"]
    assert mi300x.bandwidth / H100 == pytest.approx(1.58, abs=0.005)  # guide 3.5: 58 % more
    assert accelerators()["h100"].flops() / a100.flops() == pytest.approx(3.2, abs=0.05)  # guide 3.2: roughly three times


def test_no_h100_decodes_70b_in_fp8_at_80_tokens_a_second():
    """Guide 3.4 prints 80 at batch 1 and 4,510 to 4,700 at 128. The weights alone allow 47.5, and they leave no room for 128 requests."""
    told = plan(geometry_of_entry(catalogue()["llama-3.1-70b-fp8"]), accelerators()["h100"], Demand(128, 512), Setting())
    assert told["ceilings"]["decode_tokens_per_s"] == pytest.approx(
        46.1, abs=0.05
    )  # embeddings and output stay in 16 bit: 72.7 GB
    assert told["predicted_saturation"] is None


def test_chapters_throughput_of_a_quantised_7b():
    """A100 at 2 TB/s, 7B in INT4, efficiencies of 0.8 and 0.7: about 320 tokens/s a request."""
    assert bare(7e9 * 0.5, A100, LLAMA_7B).decode() * 0.8 * 0.7 == pytest.approx(320, abs=0.5)


def test_13b_on_an_a100():
    """The chapter asks for requests of 4,096, 8,192 and 16,384 tokens in FP16 and INT4, and prints no answer. This is ours."""
    for dtype, requests, passes in (("float16", [14, 7, 3], 31_800), ("int4", [20, 10, 5], 8_500)):
        plans = [plan(LLAMA_13B, accelerators()["a100-80g"], Demand(tokens - 512, 512), Setting(dtype=dtype))
                 for tokens in (4096, 8192, 16_384)]  # fmt: skip
        assert [int(each["predicted_saturation"]) for each in plans] == requests, dtype
        assert round(plans[0]["weight_bytes"] / kv(LLAMA_13B, 1), -2) == passes  # tokens at which a cache passes the weights
