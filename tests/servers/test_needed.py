"""How many instances a rate takes: by hand, within limits, and beside what an H200 measured."""

import math

import pytest

from bench.models.catalogue import Accelerator, accelerators, catalogue
from bench.models.config_json import geometry_of, geometry_of_entry
from bench.models.model import whole_config
from bench.servers.needed import EFFICIENCY, Lengths, needed
from bench.servers.plan import Setting, placed_on
from tests.support.study import TINY

SMALL = geometry_of(whole_config(TINY | {"max_position_embeddings": 4096}))
# Reading is the limit of a step, and 1 TFLOP/s that of prompts.
DEVICE = Accelerator(title="made up", memory="4GiB", bandwidth_tb_s=0.001, bf16_tflops=1, power_w=1, source="by hand")


def asked(**changes):
    given = {"rate": 100.0, "setting": Setting(max_num_seqs=16), "prompt": Lengths(128), "output": Lengths(512)} | changes
    return needed(SMALL, DEVICE, given.pop("setting"), given.pop("prompt"), given.pop("output"), **given)


def test_instances_by_hand():
    """Sixteen in flight read 279,168 bytes of weights and 384 × 256 bytes each in a step, at 10⁹ bytes/s."""
    step = (279_168 + 16 * 384 * 256) / 1e9
    prompt = 128 / placed_on(SMALL, DEVICE, Setting()).roofline.prefill(128)
    told = asked()
    assert told["in_flight"] == 16
    assert told["requests_per_s"] == pytest.approx(1 / (prompt + 512 * step / 16))
    assert told["tpot_s"] == pytest.approx(step + 16 * prompt / 512)
    assert told["tpot_s"] * told["requests_per_s"] * 512 == pytest.approx(16)  # Little's law
    assert told["instances"] == told["gpus"] == math.ceil(100 / told["requests_per_s"])
    assert asked(rate=2 * told["requests_per_s"])["instances"] == 2  # exactly two are two
    two = asked(setting=Setting(max_num_seqs=16, tensor_parallel=2))
    assert (two["gpus"], two["requests_per_s"]) == (2 * two["instances"], pytest.approx(2 * told["requests_per_s"]))
    half = asked(efficiency=0.5)
    assert (half["requests_per_s"], half["tpot_s"]) == (
        pytest.approx(told["requests_per_s"] / 2),
        pytest.approx(2 * told["tpot_s"]),
    )


def test_limits_leave_fewer_in_flight():
    whole = asked()
    for limits, reached in (
        ([("tpot", 0.95, whole["tpot_s"])], 16),
        ([("tpot", 0.95, whole["tpot_s"] * 0.999)], 15),
        ([("tpot", 0.95, 1.0), ("e2e", 0.5, 513 * whole["tpot_s"])], 16),
        ([("e2e", 0.5, 400 * whole["tpot_s"])], 11),
    ):
        told = asked(limits=limits)
        assert told["in_flight"] == reached, limits
        assert told["requests_per_s"] <= whole["requests_per_s"]
    none = asked(limits=[("tpot", 0.95, 1e-4)])
    assert (none["instances"], none["gpus"]) == (None, None) and "one request alone takes 0.378 ms of the 0.1" in none["why"]
    assert "activations and overhead" in asked(setting=Setting(share=0.27))["why"]
    # The prompts of a percentile decide its TTFT, and their mean the rate.
    long = Lengths.of({0.5: 128, 0.95: 12_800})
    limit = [("ttft", 0.95, 0.001)]
    assert asked(limits=limit)["instances"] and asked(limits=limit, prompt=long)["instances"] is None


def test_lengths_by_percentiles():
    lengths = Lengths.of({0.5: 800, 0.95: 4000})
    assert [lengths.at(share) for share in (0.5, 0.95)] == pytest.approx([800, 4000])
    assert lengths.mean == pytest.approx(800 * math.exp((math.log(5) / 1.6448536) ** 2 / 2))
    assert Lengths.of({0.9: 7}) == Lengths(7) and Lengths(7).at(0.99) == Lengths(7).mean == 7
    for points in ({0.5: 9, 0.9: 8}, {0.1: 1, 0.5: 2, 0.9: 3}):
        with pytest.raises(ValueError, match=r"fewer tokens|too many values"):
            Lengths.of(points)


@pytest.mark.parametrize(("model", "tokens"), [("deepseek-7b", 11_015), ("qwen1.5-14b", 5_133)])
def test_what_an_h200_gave_is_near_the_share_that_is_stated(model, tokens):
    """docs/h200: the most tokens/s of bursts of 128 + 512 tokens, with 0.6 of the memory."""
    geometry = geometry_of_entry(catalogue()[model])
    setting = Setting(dtype="float16", kv_dtype="float16", share=0.6, max_num_seqs=1280)
    told = needed(geometry, accelerators()["h200"], setting, Lengths(128), Lengths(512), rate=1.0, efficiency=EFFICIENCY)
    assert 0.85 * tokens < 512 * told["requests_per_s"] < tokens
