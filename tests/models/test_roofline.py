"""Ceilings by hand, on a model small enough to count."""

import pytest

from bench.models.catalogue import accelerators, catalogue
from bench.models.config_json import geometry_of, geometry_of_entry
from bench.models.model import whole_config
from bench.servers.plan import Demand, Setting, plan
from bench.servers.roofline import Roofline
from tests.support.study import TINY

# Layers 2 × (12,288 + 24,576) parameters and five norms of 64, output layer 512 × 64, 4 heads of 16, two layers.
SMALL = geometry_of(whole_config(TINY))
LINEAR, OUTPUT = 2 * (73_728 + 5 * 64), 2 * 32_768


def roofline(geometry=SMALL, *, bandwidth=1e12, flops=1e12, weights=279_168, active=None, copies=1):
    return Roofline(geometry, weights, active or weights, "bfloat16", copies, bandwidth, flops)


def test_prefill_counts_linear_layers_and_pairs_of_tokens():
    # 128 tokens see 128 × 129 ÷ 2 each other in each of two layers; a pair costs 2 × 4 heads × (16 for query · key + 16 for the value).
    flop = 128 * LINEAR + OUTPUT + 2 * 4 * 32 * 2 * 8256
    assert flop == 23_248_896
    assert roofline().prefill(128) == pytest.approx(128 / flop * 1e12)
    assert roofline().first_token(128) == pytest.approx(flop / 1e12)
    # Where arithmetic is fast, one prompt still waits for the weights to be read; many prompts share the reading.
    fast = roofline(flops=1e15)
    assert fast.first_token(128) == pytest.approx(279_168 / 1e12)
    assert fast.prefill(128) == pytest.approx(128 / flop * 1e15)


def test_decode_is_the_slower_of_reading_and_arithmetic():
    kv = 256 * 100  # bytes that 100 tokens hold
    flop = LINEAR + OUTPUT + 2 * 4 * 32 * 2 * 100
    assert roofline().decode(1, 100) == pytest.approx(1e12 / (279_168 + kv))
    assert roofline().decode(8, 100) == pytest.approx(8e12 / max(279_168 + 8 * kv, 8 * flop))
    assert roofline(bandwidth=1e15).decode(8, 100) == pytest.approx(1e12 / flop)
    assert roofline(copies=2).decode(1, 100) == pytest.approx(1e12 / (279_168 + 2 * kv))
    assert roofline().ridge == 1


def test_a_window_bounds_what_is_read_and_multiplied():
    config = whole_config(TINY) | {"model_type": "mistral", "sliding_window": 2}
    narrow = geometry_of(config)
    # Four tokens see 1 + 2 + 2 + 2 of each other.
    assert roofline(narrow).prefill(4) == pytest.approx(4e12 / (4 * LINEAR + OUTPUT + 2 * 4 * 32 * 2 * 7))
    assert roofline(narrow).decode(1, 100) == roofline(narrow).decode(1, 2) > roofline().decode(1, 100)


def test_a_mixture_of_experts_reads_a_tokens_share_for_each_sequence_and_at_most_all():
    geometry = geometry_of_entry(catalogue()["mixtral-8x7b"])
    device = accelerators()["h200"]
    told = plan(geometry, device, Demand(128, 512), Setting(tensor_parallel=2))["ceilings"]
    assert (geometry.parameters, geometry.active_parameters) == (46_702_792_704, 12_879_925_248)
    assert told["decode_tokens_per_s"] == pytest.approx(2 * 4.8e12 / (2 * 12_879_925_248))
    read = roofline(geometry, weights=93, active=26, bandwidth=1, flops=1e30)
    assert [round(n / read.decode(n)) for n in (1, 2, 3, 4, 100)] == [26, 52, 78, 93, 93]
