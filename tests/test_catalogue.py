"""The catalogue: what is computed from each published config.json, against what is published."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.errors import BenchError
from bench.models import (
    config_of,
    geometry_of,
    geometry_of_model,
    kv_bytes_of_sequence,
    kv_bytes_per_token,
    kv_pool,
    predicted_saturation,
    weight_bytes,
    write_checkpoint,
)
from bench.study import Architecture, Model, Plan, catalogue, load_config
from tests.conftest import ARCHITECTURE

KEYS = [
    "gpt2", "gpt2-xl", "mistral-7b-128k", "deepseek-7b", "qwen1.5-14b", "falcon-40b", "llama-3-8b", "llama-3.1-70b-fp8",
    "llama-3.2-1b", "llama-3.1-8b", "llama-3.3-70b", "qwen3-0.6b", "qwen3-8b", "qwen3-32b", "qwen3-30b-a3b", "mixtral-8x7b",
    "mistral-small-24b", "gemma-3-27b", "deepseek-v2-lite", "deepseek-v3",
]  # fmt: skip


def geometry(key):
    return geometry_of(catalogue()[key].config)


def test_the_catalogue_has_the_studys_models_and_current_ones():
    assert list(catalogue()) == KEYS


@pytest.mark.parametrize("key", KEYS)
def test_computed_parameters_are_the_published_ones(key):
    """To the last one, but for DeepSeek V3, of which the card gives billions."""
    published = catalogue()[key].parameters
    assert geometry(key).exact
    assert geometry(key).parameters == pytest.approx(published, rel=1e-4 if key == "deepseek-v3" else 0)


def test_families_that_the_catalogue_has_no_model_of():
    """Falcon-7B (one KV head, one norm a layer): 6,921,720,704 parameters. Qwen2 with windows in its upper layers alone."""
    falcon = {
        "model_type": "falcon",
        "hidden_size": 4544,
        "num_hidden_layers": 32,
        "num_attention_heads": 71,
        "vocab_size": 65024,
    }
    assert geometry_of(falcon).parameters == 6_921_720_704
    assert (geometry_of(falcon).attention, geometry_of(falcon).kv_heads) == ("MQA", 1)
    qwen = {**catalogue()["qwen1.5-14b"].config, "use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 35}
    assert geometry_of(qwen).windows == (None,) * 35 + (4096,) * 5


@pytest.mark.parametrize(
    ("key", "billions"), [("qwen3-30b-a3b", 3.35), ("mixtral-8x7b", 12.88), ("deepseek-v3", 37.55), ("deepseek-v2-lite", 2.66)]
)
def test_active_parameters_of_a_mixture_of_experts(key, billions):
    """The cards say 3.3, 12.9 and 37 billion; 2.4 for V2-Lite, which leaves the embeddings' 0.2 out."""
    assert geometry(key).active_parameters / 1e9 == pytest.approx(billions, abs=0.005)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("gpt2-xl", 307_200),
        ("deepseek-7b", 491_520),
        ("qwen1.5-14b", 819_200),
        ("falcon-40b", 122_880),
        ("mistral-7b-128k", 131_072),
        ("llama-3.1-70b-fp8", 327_680),
        ("deepseek-v3", 61 * (512 + 64) * 2),
        ("deepseek-v2-lite", 27 * (512 + 64) * 2),
        ("gemma-3-27b", 62 * 2 * 16 * 128 * 2),
    ],
)
def test_kv_bytes_a_token(key, expected):
    assert kv_bytes_per_token(geometry(key), "float16") == expected
    assert kv_bytes_per_token(geometry(key), "fp8") * 2 == expected


@pytest.mark.parametrize(
    ("key", "printed"),
    [("gpt2-xl", 2.9676), ("mistral-7b-128k", 2 * 6.78), ("deepseek-7b", 12.8726), ("qwen1.5-14b", 26.4278),
     ("falcon-40b", 76.9338), ("llama-3.1-70b-fp8", 67.70), ("llama-3.1-70b-fp8", 2 * 33.87)],
)  # fmt: skip
def test_weights_as_the_study_printed_them(key, printed):
    """vLLM tells the highest use while it loads, a little more than what stays."""
    assert 0 <= printed - weight_bytes(geometry(key), "float16") / 2**30 < 0.08


def test_quantised_weights_by_hand():
    llama = geometry("llama-3.1-70b-fp8")
    embeddings = 2 * 128_256 * 8192  # and the output layer, which stays in 16 bit
    norms = (2 * 80 + 1) * 8192
    assert weight_bytes(llama, "bfloat16") == (llama.parameters - embeddings - norms) + 2 * (embeddings + norms)
    # Blocks of 128 × 128 have a float32 scale each.
    assert geometry("deepseek-v3").quantised_bytes == 1 + 4 / 128**2
    # Groups of 128 have a float16 scale and a packed zero point each; a scale a column weighs nothing.
    qwen = catalogue()["qwen3-8b"].config
    for method, group, expected in (("awq", 128, 0.5 + 2.5 / 128), ("gptq", -1, 0.5)):
        quantised = geometry_of({**qwen, "quantization_config": {"quant_method": method, "bits": 4, "group_size": group}})
        assert quantised.quantised_bytes == expected and quantised.exact
    assert not geometry_of({**qwen, "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}).exact


def test_a_sequence_longer_than_the_window():
    gemma = geometry("gemma-3-27b")
    layer = 2 * 16 * 128 * 2
    assert sum(window is None for window in gemma.windows) == 10
    assert gemma.windows[5] is None and gemma.windows[0] == 1024
    assert kv_bytes_of_sequence(gemma, 640, "bfloat16") == 62 * 640 * layer
    assert kv_bytes_of_sequence(gemma, 100_000, "bfloat16") == (10 * 100_000 + 52 * 1024) * layer


def test_layers_with_and_without_a_window_share_one_pool_of_blocks():
    """vLLM's grouping: as many layers a group as there are without a window (10), the 52 others in 6 groups, 8 slots of them empty."""
    pool = kv_pool(geometry("gemma-3-27b"), dtype="bfloat16")
    assert pool.block_bytes == 10 * 16 * (2 * 16 * 128 * 2)
    assert dict(pool.groups) == {1024: 6, None: 1}
    # 640 tokens: 40 blocks in each of 7 groups. 8,192: 512 without a window, ⌈1,023 / 16⌉ + 1 = 65 in each of the 6 with one.
    assert predicted_saturation(16 * 7 * 40 * 5, 640, 16, pool.groups) == 5
    assert predicted_saturation(16 * (512 + 6 * 65) * 3, 8192, 16, pool.groups) == 3


@pytest.mark.parametrize(("devices", "expected"), [(1, 131_072), (2, 65_536), (8, 16_384), (16, 16_384)])
def test_every_device_holds_a_kv_head_at_least(devices, expected):
    assert kv_pool(geometry("mistral-7b-128k"), dtype="bfloat16", tensor_parallel=devices).bytes_per_token == expected
    assert kv_pool(geometry("deepseek-v3"), dtype="bfloat16", tensor_parallel=devices).bytes_per_token == 61 * 576 * 2


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
    facts = Architecture(
        layers=layers, hidden_size=heads * head_dim, heads=heads, kv_heads=kv_heads, head_dim=head_dim,
        intermediate_size=64, vocabulary=512, context=32_768,
    )  # fmt: skip
    plain = geometry_of(config_of(facts))
    assert {key: getattr(plain, key) for key in ARCHITECTURE} == facts.model_dump()
    other = geometry_of({**config_of(facts), "model_type": "mistral", "sliding_window": window})
    assert other.parameters == plain.parameters
    held = kv_bytes_of_sequence(other, tokens, "float16")
    assert held == min(tokens, window or tokens) * kv_bytes_per_token(plain, "float16")
    assert held <= kv_bytes_of_sequence(plain, tokens, "float16")


def test_a_family_that_is_not_known_is_taken_for_llama_and_said_to_be():
    strange = geometry_of({**config_of(Architecture(**ARCHITECTURE)), "model_type": "strange"})
    assert not strange.exact
    assert kv_bytes_per_token(strange, "float16") == 256
    with pytest.raises(BenchError, match=r"model_type gpt2 does not state 'n_embd'"):
        geometry_of({"model_type": "gpt2", "n_layer": 2})


@pytest.mark.parametrize("key", KEYS)
def test_a_checkpoint_of_each(key, tmp_path):
    """A config.json that reads as the same decoder, with our tokenizer's ids, and a token for each id."""
    # A small vocabulary where it can be replaced: writing 20 large ones takes half a minute.
    given = {} if key in ("gpt2", "gemma-3-27b") else {"vocab_size": 1024}
    write_checkpoint("m", Model(catalogue=key, config=given), tmp_path / "m/checkpoint.json")
    folder = tmp_path / "m/model"
    config = json.loads((folder / "config.json").read_text())
    assert [config[f"{name}_token_id"] for name in ("bos", "eos", "pad")] == [0, 1, 2]
    assert config == json.loads((tmp_path / "m/checkpoint.json").read_text())["config"]
    written, published = geometry_of(config), geometry_of({**catalogue()[key].config, **given})
    encoder = 423_060_336 if key == "gemma-3-27b" else 0
    assert written.parameters == published.parameters - encoder
    assert (written.windows, written.quantised_bytes) == (published.windows, published.quantised_bytes)
    assert "text_config" not in config and "vision_config" not in config
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    assert list(vocabulary.values()) == list(range(published.vocabulary))
    assert json.loads((folder / "tokenizer_config.json").read_text())["model_max_length"] == published.context


def test_a_key_that_is_given_replaces_the_catalogues(tmp_path):
    model = Model(catalogue="qwen3-8b", config={"num_hidden_layers": 2, "vocab_size": 1024})
    small = geometry_of_model(model)
    assert (small.layers, small.vocabulary, small.kv_heads) == (2, 1024, 8)
    assert Model(**model.model_dump(exclude_defaults=True)) == model  # as the workflow hands it on
    with pytest.raises(BenchError, match=r"models\.m: a vocabulary of 256 has no token for every byte"):
        write_checkpoint("m", Model(catalogue="qwen3-8b", config={"vocab_size": 256}), tmp_path / "m/checkpoint.json")


def test_a_config_without_what_its_family_needs(tmp_path):
    with pytest.raises(BenchError, match=r"models\.m: config\.json of model_type llama does not state 'hidden_size'"):
        write_checkpoint("m", Model(config={"model_type": "llama"}), tmp_path / "m/checkpoint.json")


def test_code_that_lies_beside_a_real_checkpoint_is_not_asked_for(tmp_path):
    config = {"auto_map": {"AutoConfig": "configuration_x.X"}, **config_of(Architecture(**ARCHITECTURE))}
    write_checkpoint("m", Model(config=config), tmp_path / "m/checkpoint.json")
    assert "auto_map" not in json.loads((tmp_path / "m/model/config.json").read_text())


def test_a_real_checkpoint_is_checked_against_the_catalogue(tmp_path):
    real = tmp_path / "real"
    write_checkpoint("m", Model(catalogue="gpt2"), tmp_path / "made/checkpoint.json")
    (tmp_path / "made/model").rename(real)
    write_checkpoint("m", Model(path=str(real), catalogue="gpt2"), tmp_path / "a/checkpoint.json")
    assert json.loads((tmp_path / "a/checkpoint.json").read_text())["parameters"] == 124_439_808
    with pytest.raises(
        BenchError, match=r"models\.m: gpt2-xl has layers 48, but the checkpoint's config\.json says 12\. It is"
    ):
        write_checkpoint("m", Model(path=str(real), catalogue="gpt2-xl"), tmp_path / "b/checkpoint.json")


def test_a_catalogue_model_is_part_of_what_a_deployment_is(content):
    content["models"]["m"] = {"catalogue": "gpt2-xl"}
    spec = Plan.of(load_config(content, source="t")).deployments["a"]
    assert spec.identity["model"] == {"catalogue": "gpt2-xl", "config": catalogue()["gpt2-xl"].config}
    content["models"]["m"]["config"] = {"n_layer": 47}  # as a changed entry would
    assert Plan.of(load_config(content, source="t")).deployments["a"].digest != spec.digest


def test_a_model_of_architecture_facts_is_what_it_was(config):
    """Digests leave defaults out: what was measured before the catalogue came is not measured again."""
    assert Plan.of(config).deployments["a"].identity["model"] == {"architecture": ARCHITECTURE}
