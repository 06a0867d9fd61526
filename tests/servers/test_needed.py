"""How many instances a rate takes: by hand, within limits, and beside what an H200 measured."""

import math

import pytest

from bench.models.catalogue import Accelerator, accelerators, catalogue
from bench.models.config_json import geometry_of, geometry_of_entry
from bench.models.model import whole_config
from bench.servers.needed import EFFICIENCY, needed
from bench.servers.plan import Demand, Setting, roofline_of
from tests.support.study import TINY

SMALL = geometry_of(whole_config(TINY | {"max_position_embeddings": 4096}))
# Reading is the limit of a step, and 1 TFLOP/s that of prompts.
DEVICE = Accelerator(title="made up", memory="4GiB", bandwidth_tb_s=0.001, bf16_tflops=1, power_w=1, source="by hand")


def asked(**changes):
    given = {"rate": 100.0, "setting": Setting(max_num_seqs=16), "demand": Demand(128, 512)} | changes
    return needed(SMALL, DEVICE, given.pop("setting"), given.pop("demand"), **given)


def test_instances_by_hand():
    """Sixteen in flight read 279,168 bytes of weights and 384 × 256 bytes each in a step, at 10⁹ bytes/s."""
    step = (279_168 + 16 * 384 * 256) / 1e9
    prompt = 128 / roofline_of(SMALL, DEVICE, Setting()).prefill(128)
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
        ([("tpot", whole["tpot_s"])], 16),
        ([("tpot", whole["tpot_s"] * 0.999)], 15),
        ([("tpot", 1.0), ("e2e", 513 * whole["tpot_s"])], 16),
        ([("e2e", 400 * whole["tpot_s"])], 11),
    ):
        told = asked(limits=limits)
        assert told["in_flight"] == reached, limits
        assert told["requests_per_s"] <= whole["requests_per_s"]
    none = asked(limits=[("tpot", 1e-4)])
    assert (none["instances"], none["gpus"]) == (None, None) and "one request alone takes 0.378 ms of the 0.1" in none["why"]
    assert "activations and overhead" in asked(setting=Setting(share=0.27))["why"]


@pytest.mark.parametrize(("model", "tokens"), [("deepseek-7b", 11_015), ("qwen1.5-14b", 5_133)])
def test_what_an_h200_gave_is_near_the_share_that_is_stated(model, tokens):
    """docs/h200: the most tokens/s of bursts of 128 + 512 tokens, with 0.6 of the memory."""
    geometry = geometry_of_entry(catalogue()[model])
    setting = Setting(dtype="float16", kv_dtype="float16", share=0.6, max_num_seqs=1280)
    told = needed(geometry, accelerators()["h200"], setting, Demand(128, 512), rate=1.0, efficiency=EFFICIENCY)
    assert 0.85 * tokens < 512 * told["requests_per_s"] < tokens
