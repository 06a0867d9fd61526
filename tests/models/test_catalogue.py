"""The catalogue: what is computed from each published config.json, against what is published."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.errors import BenchError
from bench.models.catalogue import catalogue
from bench.models.checkpoint import write_checkpoint
from bench.models.checkpoint_record import Weights
from bench.models.config_json import geometry_of, geometry_of_entry, geometry_of_model
from bench.models.geometry import kv_bytes_of_sequence, kv_bytes_per_token
from bench.models.model import Model, whole_config
from tests.support.study import TINY

KEYS = list(catalogue())


def geometry(key):
    return geometry_of_entry(catalogue()[key])


def test_what_is_counted_is_what_is_published():
    """Of plain dense decoders by the formula; all others have their published count alone."""
    counted = {key: count for key in KEYS if (count := geometry_of(catalogue()[key].config).parameters)}
    assert set(KEYS) - set(counted) == {"qwen3-30b-a3b", "mixtral-8x7b", "gemma-3-27b", "deepseek-v2-lite", "deepseek-v3"}
    assert counted == pytest.approx({key: catalogue()[key].parameters for key in counted}, rel=0.001)


LLAMA = {
    "model_type": "llama", "hidden_size": 100, "intermediate_size": 200, "num_hidden_layers": 3, "num_attention_heads": 3,
    "vocab_size": 1000, "max_position_embeddings": 512,
}  # fmt: skip


def test_a_llama_that_states_little_by_hand():
    """Three heads of 33 (100 ÷ 3, cut), as many KV heads, an output layer of its own."""
    plain = geometry_of(LLAMA)
    assert (plain.kv_heads, plain.head_dim, plain.attention, plain.tied) == (3, 33, "MHA", False)
    assert plain.parameters == 3 * (100 * 33 * 12 + 3 * 100 * 200 + 200) + 2 * 1000 * 100 + 100
    grouped = {**LLAMA, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    assert (geometry_of(grouped).attention, geometry_of(grouped).head_dim) == ("GQA", 16)
    assert geometry_of({**grouped, "num_key_value_heads": 1}).attention == "MQA"
    assert geometry_of({**grouped, "tie_word_embeddings": True}).parameters == geometry_of(grouped).parameters - 1000 * 100


def test_windows_of_each_layer():
    for config, windows in (
        ({}, [None] * 3),
        ({"sliding_window": 64, "num_hidden_layers": 7}, [64] * 7),
        ({"model_type": "cohere2", "sliding_window": 64, "num_hidden_layers": 7}, [64, 64, 64, None, 64, 64, 64]),
        ({"model_type": "mistral"}, [4096] * 3),  # transformers' default
        ({"model_type": "mistral", "sliding_window": None}, [None] * 3),
        ({"sliding_window": 64, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}, [64, None, 64]),
        ({"sliding_window": 64, "layer_types": ["chunked_attention", "full_attention", "full_attention"]}, [64, None, None]),
        ({"model_type": "qwen3", "sliding_window": 64}, [None] * 3),  # unless use_sliding_window
        ({"model_type": "qwen3", "sliding_window": 64, "use_sliding_window": True, "max_window_layers": 1}, [None, 64, 64]),
        ({"model_type": "qwen3", "sliding_window": 64, "use_sliding_window": True, "num_hidden_layers": 30}, [None] * 28 + [64] * 2),
        ({"model_type": "gemma3_text", "num_hidden_layers": 7}, [4096] * 5 + [None, 4096]),
        ({"model_type": "gemma3_text", "sliding_window": 64, "sliding_window_pattern": 2}, [64, None, 64]),
    ):  # fmt: skip
        assert list(geometry_of({**LLAMA, **config}).windows) == windows, config


def test_which_layers_have_experts():
    """Experts of 3 × 100 × 20 = 6,000 parameters, eight a layer, two of them for each token."""
    moe = {**LLAMA, "model_type": "qwen3_moe", "num_hidden_layers": 6, "num_experts": 8, "num_experts_per_tok": 2,
           "moe_intermediate_size": 20, "q_lora_rank": None, "n_shared_experts": None}  # fmt: skip
    for more, layers in (
        ({}, {0, 1, 2, 3, 4, 5}),
        ({"decoder_sparse_step": 2}, {1, 3, 5}),
        ({"decoder_sparse_step": 2, "mlp_only_layers": [3]}, {1, 5}),
    ):
        found = geometry_of({**moe, **more}, Weights(10**6))
        assert (found.experts.layers, found.experts.parameters) == (len(layers), len(layers) * 8 * 6000)
        assert found.dense_mlp is (len(layers) < 6)
        assert found.parameters - found.active_parameters == len(layers) * 6 * 6000
    latent = {**LLAMA, "model_type": "deepseek_v2", "num_hidden_layers": 6, "kv_lora_rank": 16, "qk_rope_head_dim": 4,
              "qk_nope_head_dim": 8, "v_head_dim": 10, "n_routed_experts": 8, "num_experts_per_tok": 2,
              "moe_intermediate_size": 20, "q_lora_rank": None, "n_shared_experts": None}  # fmt: skip
    for more, layers in (
        ({}, {0, 1, 2, 3, 4, 5}),
        ({"first_k_dense_replace": 1}, {1, 2, 3, 4, 5}),
        ({"first_k_dense_replace": 1, "moe_layer_freq": 2}, {2, 4}),
    ):
        found = geometry_of({**latent, **more})
        assert found.experts.layers == len(layers)
    found = geometry_of(latent)
    ((kind, times),) = found.attention_kinds
    assert (found.attention, kind.pairs, found.head_dim, times) == ("MLA", (8 + 4 + 10, 16 + 4 + 16), 20, 6)


def test_bytes_of_a_quantised_parameter():
    def of(group):
        return {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": group}}}

    for quantisation, each in (
        ({"quant_method": "fp8"}, 1),
        (of({"num_bits": 4, "group_size": 16, "type": "float"}), 0.5 + 1 / 16),
        (of({"num_bits": 8, "group_size": -1}), 1),
        (of({"num_bits": 4}), 0.5),
        ({"quant_method": "gptq", "bits": 8}, 1),
        ({"quant_method": "awq", "bits": 4, "group_size": -1}, 0.5),
        (
            {"quant_method": "awq", "bits": 4, "group_size": 128},
            0.5 + 2.5 / 128,
        ),  # a float16 scale and a packed zero point each
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 0.5 + 4 / 64),
    ):
        assert geometry_of({**LLAMA, "quantization_config": quantisation}).quantised_bytes == each, quantisation


def test_counts_and_sizes_are_within_bounds():
    ends = {"num_hidden_layers": (1, 10_000), "hidden_size": (3, 10**9), "vocab_size": (1, 10**9), "intermediate_size": (0, 10**9),
            "sliding_window": (0, 10**9)}  # fmt: skip
    for key, (least, most) in ends.items():
        for value in (least, 7, most):
            geometry_of({**LLAMA, key: value})
        for value in (-1, most + 1, True, "7", [[7]]):
            with pytest.raises(BenchError, match=rf"config\.json: {key} is .*; it must be a number from [01] to {most:,}"):
                geometry_of({**LLAMA, key: value})
    # By the name that the file has.
    for key, value, least in (("num_local_experts", -3, 0), ("head_dim", 0, 1), ("mamba_n_heads", [2], 0)):
        with pytest.raises(
            BenchError, match=rf"config\.json: {key} is {re.escape(repr(value))}; it must be .* from {least} to"
        ):
            geometry_of({**LLAMA, key: value})


def test_active_parameters_of_a_mixture_of_experts():
    """The cards say 3.3, 12.9 and 37 billion; 2.4 for V2-Lite, which leaves the embeddings' 0.2 out."""
    billions = {"qwen3-30b-a3b": 3.35, "mixtral-8x7b": 12.88, "deepseek-v3": 37.53, "deepseek-v2-lite": 2.66}
    assert {key: geometry(key).active_parameters / 1e9 for key in billions} == pytest.approx(billions, abs=0.005)


@given(
    layers=st.integers(1, 40),
    groups=st.integers(1, 8),
    kv_heads=st.integers(1, 8),
    head_dim=st.sampled_from([16, 64, 128]),
    window=st.one_of(st.none(), st.integers(1, 5000)),
    tokens=st.integers(1, 20_000),
)
def test_geometry_of_any_llama_or_mistral(layers, groups, kv_heads, head_dim, window, tokens):
    heads = groups * kv_heads
    config = whole_config({
        "model_type": "llama", "num_hidden_layers": layers, "hidden_size": heads * head_dim, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": head_dim, "intermediate_size": 64, "vocab_size": 512,
        "max_position_embeddings": 32_768,
    })  # fmt: skip
    plain = geometry_of(config)
    assert (plain.layers, plain.heads, plain.kv_heads, plain.head_dim) == (layers, heads, kv_heads, head_dim)
    assert (plain.hidden_size, plain.intermediate_size, plain.vocabulary, plain.context) == (heads * head_dim, 64, 512, 32_768)
    other = geometry_of({**config, "model_type": "mistral", "sliding_window": window})
    assert other.parameters == plain.parameters
    held = kv_bytes_of_sequence(other, tokens, "float16")
    assert held == min(tokens, window or tokens) * kv_bytes_per_token(plain, "float16")
    assert held <= kv_bytes_of_sequence(plain, tokens, "float16")


def test_a_checkpoint_of_each(tmp_path):
    """A config.json that reads as the same decoder, with our tokenizer's ids, and a token for each id."""
    for key in KEYS:
        # A small vocabulary where it can be replaced: writing 20 large ones takes half a minute.
        given = {} if key == "gemma-3-27b" else {"vocab_size": 1024}
        write_checkpoint("m", Model(catalogue=key, config=given), tmp_path / key / "checkpoint.json")
        folder = tmp_path / key / "model"
        config = json.loads((folder / "config.json").read_text())
        assert [config[f"{name}_token_id"] for name in ("bos", "eos", "pad")] == [0, 1, 2], key
        assert config == json.loads((tmp_path / key / "checkpoint.json").read_text())["config"], key
        written, published = geometry_of(config), geometry_of({**catalogue()[key].config, **given})
        assert (written.attentions, written.quantised_bytes) == (published.attentions, published.quantised_bytes), key
        assert not {"text_config", "vision_config"} & config.keys()
        vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
        assert list(vocabulary.values()) == list(range(published.vocabulary)), key
        assert json.loads((folder / "tokenizer_config.json").read_text())["model_max_length"] == published.context, key


def test_a_key_that_is_given_replaces_the_catalogues_and_must_do_for_its_family(tmp_path):
    model = Model(catalogue="qwen3-8b", config={"num_hidden_layers": 2, "vocab_size": 1024})
    small = geometry_of_model(model)
    assert (small.layers, small.vocabulary, small.kv_heads) == (2, 1024, 8)
    assert Model(**model.model_dump(exclude_defaults=True)) == model  # as the workflow hands it on
    with pytest.raises(BenchError, match=r"models\.m: a vocabulary of 96 is too small for every ASCII character"):
        write_checkpoint("m", Model(catalogue="qwen3-8b", config={"vocab_size": 96}), tmp_path / "m/checkpoint.json")
    with pytest.raises(BenchError, match=r"models\.m: config\.json of model_type qwen3 does not state 'hidden_size'"):
        write_checkpoint("m", Model(config={"model_type": "qwen3"}), tmp_path / "m/checkpoint.json")
    # Code that lies beside a real checkpoint is not asked for.
    config = {"auto_map": {"AutoConfig": "configuration_x.X"}, **whole_config(TINY)}
    write_checkpoint("m", Model(config=config), tmp_path / "m/checkpoint.json")
    assert "auto_map" not in json.loads((tmp_path / "m/model/config.json").read_text())
