"""Synthetic checkpoints as GGUF, read back by llama.cpp's own package."""

import struct
from contextlib import suppress

import numpy as np
import pytest
from gguf import GGUFReader

from bench.errors import BenchError
from bench.models.catalogue import catalogue
from bench.models.config_json import geometry_at, geometry_of
from bench.models.gguf import gguf_tensors, write_gguf
from bench.models.gguf_file import config_of_gguf
from bench.models.model import whole_config
from bench.models.tokenizer import tokens
from tests.support.study import TINY

CONFIG = whole_config(TINY)
SMALL = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 320,
         "num_hidden_layers": 2, "max_position_embeddings": 256}  # fmt: skip


def read(file):
    """The fields and, by name, the tensors (rows by columns) of a GGUF file; bfloat16 as its 16 bits."""
    reader = GGUFReader(file)
    arrays = {
        tensor.name: np.asarray(tensor.data).view("<u2") if tensor.tensor_type.name == "BF16" else np.asarray(tensor.data)
        for tensor in reader.tensors
    }
    return {name: field.contents() for name, field in reader.fields.items()}, arrays


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    file = tmp_path_factory.mktemp("gguf") / "m.gguf"
    write_gguf(CONFIG, file, dtype="float32")
    return file


def test_the_file_states_the_models_shape(written):
    fields, arrays = read(written)
    result = {key.removeprefix("llama."): value for key, value in fields.items() if key.startswith("llama.")}
    assert {key: result[key] for key in result if "rms" not in key} == {
        "block_count": 2, "context_length": 256, "embedding_length": 64, "feed_forward_length": 128, "attention.head_count": 4,
        "attention.head_count_kv": 2, "attention.key_length": 16, "attention.value_length": 16, "rope.dimension_count": 16,
        "rope.freq_base": 10000.0, "vocab_size": 512,
    }  # fmt: skip
    assert result["attention.layer_norm_rms_epsilon"] == pytest.approx(1e-5)
    assert fields["tokenizer.ggml.tokens"] == tokens(512)
    assert [i for i, kind in enumerate(fields["tokenizer.ggml.token_type"]) if kind != 1] == [0, 1, 2]
    assert fields["tokenizer.ggml.add_bos_token"] is False  # a prompt of token ids stays as long as it is
    assert arrays["blk.1.attn_k.weight"].shape == (2 * 16, 64)
    assert arrays["blk.0.ffn_down.weight"].shape == (64, 128)
    assert sum(array.size for array in arrays.values()) == geometry_of(CONFIG).parameters


def test_weights_are_finite_random_and_the_same_again(written, tmp_path):
    _, arrays = read(written)
    matrix = arrays["blk.0.ffn_up.weight"]
    assert np.isfinite(matrix).all()
    assert matrix.std() == pytest.approx(0.02, rel=0.05)
    assert (arrays["blk.0.attn_norm.weight"] == 1).all()
    assert not np.array_equal(arrays["blk.0.attn_k.weight"], arrays["blk.1.attn_k.weight"])
    write_gguf(CONFIG, tmp_path / "again.gguf", dtype="float32")
    assert (tmp_path / "again.gguf").read_bytes() == written.read_bytes()
    write_gguf(CONFIG, tmp_path / "other.gguf", dtype="float32", seed=1)
    assert (tmp_path / "other.gguf").read_bytes() != written.read_bytes()


def test_no_token_that_the_server_would_hold_back_is_ever_the_likeliest(written):
    _, arrays = read(written)
    silent = [i for i, row in enumerate(arrays["output.weight"]) if not row.any()]
    assert silent == [0, 1, 2]
    assert arrays["token_embd.weight"].any(axis=1).all()


def test_half_the_size_and_the_same_weights(written, tmp_path):
    whole, name = read(written)[1], "blk.0.attn_q.weight"
    for dtype in ("float16", "bfloat16"):
        write_gguf(CONFIG, tmp_path / "half.gguf", dtype=dtype)
        half = read(tmp_path / "half.gguf")[1]
        values = (half[name].astype("<u4") << 16).view("<f4") if dtype == "bfloat16" else half[name]
        assert half[name].itemsize == 2
        assert values == pytest.approx(whole[name], rel=0.01, abs=1e-4), dtype
        assert half["output_norm.weight"].dtype == "<f4"


def test_every_parameter_of_a_published_model_has_a_place():
    for key in ("llama-3-8b", "mistral-small-24b", "qwen1.5-14b", "qwen3-8b"):
        entry = catalogue()[key]
        assert sum(tensor.elements for tensor in gguf_tensors(entry.config, "bfloat16")) == entry.parameters, key


def test_what_cannot_be_written_is_refused(tmp_path):
    for change, message in (
        ({"model_type": "gpt_neox"}, "model_type gpt_neox"),
        ({"model_type": "mistral", "sliding_window": 128}, "a sliding window"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config"),
    ):
        with pytest.raises(BenchError, match=f"not written for {message}"):
            write_gguf({**CONFIG, **change}, tmp_path / "m.gguf", dtype="float32")
    with pytest.raises(BenchError, match="dtype is fp8"):
        write_gguf(CONFIG, tmp_path / "m.gguf", dtype="fp8")
    assert not (tmp_path / "m.gguf").exists()


READ = ("family", "layers", "hidden_size", "heads", "kv_heads", "head_dim", "intermediate_size", "vocabulary", "context", "tied",
        "parameters")  # fmt: skip


def test_a_file_has_every_parameter_of_its_family_and_says_what_the_config_says(tmp_path):
    """But for Mistral, which is written as a Llama."""
    for family, more in (("llama", {}), ("mistral", {"sliding_window": None}), ("qwen2", {}), ("qwen3", {"head_dim": 32})):  # fmt: skip
        for tied in (False, True):
            config = {"model_type": family, "architectures": ["X"], **SMALL, "tie_word_embeddings": tied, **more}
            write_gguf(config, tmp_path / "m.gguf", dtype="float16")
            own, arrays = geometry_of(config), read(tmp_path / "m.gguf")[1]
            size = sum(array.size for array in arrays.values())
            assert size == pytest.approx(own.parameters, rel=0.004), (family, tied)  # without biases
            assert ("output.weight" in arrays) is not tied
            found = geometry_of(config_of_gguf(tmp_path / "m.gguf"))
            held = geometry_at(tmp_path / "m.gguf")
            assert (held.parameters, held.stored) == (size, (tmp_path / "m.gguf").stat().st_size)
            same = {name for name in READ if getattr(found, name) == getattr(own, name)}
            assert same == set(READ) - ({"family"} if family == "mistral" else set()), (family, tied)


def test_a_file_that_is_cut_or_is_none_is_refused_in_words(written, tmp_path):
    """Wherever it ends within its head, and whatever a length in it says."""
    whole, file = written.read_bytes(), tmp_path / "m.gguf"
    head = whole.index(b"output_norm.weight")
    for end in (*range(0, 64), *range(64, head, head // 97)):
        file.write_bytes(whole[:end])
        with pytest.raises(BenchError, match=r"m\.gguf is not a readable GGUF file .* complete\?"):
            config_of_gguf(file)
    for at in range(4, 400):  # counts, lengths and types become as large as they can be
        file.write_bytes(whole[:at] + b"\xff" * 8 + whole[at + 8 :])
        with suppress(BenchError):  # it is refused, or read, and nothing else
            config_of_gguf(file)
    file.write_bytes(b"<!doctype html>" * 100)
    with pytest.raises(BenchError, match="does not begin with GGUF"):
        config_of_gguf(file)
    with pytest.raises(BenchError, match="cannot be read: No such file"):
        config_of_gguf(tmp_path / "none.gguf")


def test_another_architecture_and_a_part_of_a_model_are_refused(written, tmp_path):
    other = tmp_path / "m.gguf"
    other.write_bytes(
        written.read_bytes().replace(b"\x05\x00\x00\x00\x00\x00\x00\x00llama", b"\x05\x00\x00\x00\x00\x00\x00\x00mamba", 1)
    )
    with pytest.raises(BenchError, match="architecture 'mamba'; its memory can be computed for llama, qwen2, qwen3"):
        config_of_gguf(other)
    name, split = b"llama.vocab_size", b"split.count"
    field = struct.pack("<Q", len(name)) + name + struct.pack("<II", 4, 512)
    other.write_bytes(written.read_bytes().replace(field, struct.pack("<Q", len(split)) + split + struct.pack("<II", 4, 3), 1))
    with pytest.raises(BenchError, match="is one of 3 parts; merge them with `llama-gguf-split --merge`"):
        config_of_gguf(other)
