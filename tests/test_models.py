"""Geometry by hand, and checkpoints from it."""

import json

import pytest

from bench.errors import BenchError
from bench.models import (
    config_of,
    geometry_of,
    kv_bytes_per_token,
    predicted_saturation,
    write_checkpoint,
)
from bench.study import Architecture, Model
from tests.conftest import ARCHITECTURE


def shape(layers, kv_heads, head_dim):
    heads = kv_heads
    return geometry_of(config_of(Architecture(
        layers=layers, hidden_size=heads * head_dim, heads=heads, kv_heads=kv_heads, head_dim=head_dim,
        intermediate_size=64, vocabulary=512, context=1024,
    )))  # fmt: skip


@pytest.mark.parametrize(
    ("layers", "kv_heads", "head_dim", "expected"),
    [
        (48, 25, 64, 307_200),  # gpt2-xl
        (30, 32, 128, 491_520),  # deepseek-llm-7b
        (40, 40, 128, 819_200),  # Qwen1.5-14B
        (60, 8, 64, 122_880),  # falcon-40b
        (32, 8, 128, 131_072),  # Mistral-7B
        (80, 8, 128, 327_680),  # Llama-3.1-70B
    ],
)
def test_kv_bytes_of_the_studys_models(layers, kv_heads, head_dim, expected):
    assert kv_bytes_per_token(shape(layers, kv_heads, head_dim), "float16") == expected


def test_parameters_by_hand():
    # 2 layers of: q and o 64·64 each, k and v 64·32 each, MLP 3·64·128, two norms of 64; embeddings and head 2·512·64; last norm 64
    by_hand = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128 + 2 * 64) + 2 * 512 * 64 + 64
    assert geometry_of(config_of(Architecture(**ARCHITECTURE))).parameters == by_hand == 139_584


def test_parameters_of_a_published_model():
    """Llama-3-8B: 8,030,261,248 parameters, as its repository states."""
    llama = Architecture(
        layers=32, hidden_size=4096, heads=32, kv_heads=8, head_dim=128,
        intermediate_size=14336, vocabulary=128_256, context=8192,
    )  # fmt: skip
    assert geometry_of(config_of(llama)).parameters == 8_030_261_248


@pytest.mark.parametrize(
    ("kv_tokens", "tokens", "block", "expected"),
    [
        (4096, 192, 1, 4096 / 192),
        (4096, 192, 32, 4096 / 192),
        (4096, 190, 32, 4096 / 192),  # whole blocks
        (268_208, 640, 16, 268_208 / 640),  # gpt2-xl in the study: 419
    ],
)
def test_predicted_saturation(kv_tokens, tokens, block, expected):
    assert predicted_saturation(kv_tokens, tokens, block) == pytest.approx(expected)


def facts(config):
    """The eight facts of an architecture, as a config.json states them."""
    geometry = geometry_of(config)
    return {key: getattr(geometry, key) for key in ARCHITECTURE}


def test_a_synthetic_checkpoint_states_its_architecture(tmp_path):
    model = Model(architecture=Architecture(**ARCHITECTURE))
    write_checkpoint("m", model, tmp_path / "m/checkpoint.json")
    folder = tmp_path / "m/model"
    assert facts(json.loads((folder / "config.json").read_text())) == ARCHITECTURE
    tokenizer = json.loads((folder / "tokenizer.json").read_text())["model"]
    assert sorted(tokenizer["vocab"].values()) == list(range(512))  # every id has a token, every byte a character
    assert json.loads((tmp_path / "m/checkpoint.json").read_text())["source"] == "synthetic"
    write_checkpoint("m", model, tmp_path / "m/checkpoint.json")  # again, over what is there


def test_a_real_checkpoint_is_linked_and_its_facts_are_read(tmp_path):
    real = tmp_path / "real"
    write_checkpoint("m", Model(architecture=Architecture(**ARCHITECTURE)), tmp_path / "made/checkpoint.json")
    (tmp_path / "made/model").rename(real)
    record = tmp_path / "linked/checkpoint.json"
    write_checkpoint("m", Model(path=str(real)), record)
    assert (tmp_path / "linked/model").resolve() == real
    assert facts(json.loads(record.read_text())["config"]) == ARCHITECTURE
    wrong = Architecture(**{**ARCHITECTURE, "kv_heads": 4})
    with pytest.raises(BenchError, match=r"models\.m\.architecture\.kv_heads is 4, but the checkpoint's config.json says 2"):
        write_checkpoint("m", Model(path=str(real), architecture=wrong), record)
    with pytest.raises(BenchError, match=r"holds no config\.json"):
        write_checkpoint("m", Model(path=str(tmp_path)), record)
    assert real.is_dir()  # a link was replaced, not the folder behind it
