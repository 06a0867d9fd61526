"""Geometry by hand, and checkpoints from it."""

import json

import pytest

from bench.errors import BenchError
from bench.models.checkpoint import write_checkpoint
from bench.models.config_json import geometry_of
from bench.models.geometry import kv_bytes_of_sequence
from bench.models.model import OF_LLAMA, Model, whole_config
from bench.servers.memory import kv_pool, predicted_saturation
from tests.support.study import TINY


def windowed(*windows, kv_heads=2):
    """Layers with these windows, of `kv_heads` heads of 16; a token takes 64 bytes a head and layer in 16 bit."""
    facts = {**TINY, "num_hidden_layers": len(windows), "num_attention_heads": 4, "num_key_value_heads": kv_heads}
    kinds = ["full_attention" if window is None else "sliding_attention" for window in windows]
    size = next((window for window in windows if window), None)
    return geometry_of({**whole_config(facts), "sliding_window": size, "layer_types": kinds})


def test_layers_stand_in_groups_of_one_size():
    """Two KV heads of 16 in 16 bit: 128 bytes a token and layer."""
    for wide, narrow, size, groups in (
        (4, 0, 4, {None: 1}),
        (3, 4, 4, {None: 1, 64: 1}),  # 4 < 1.5 × 3: one group each, padded to the larger
        (2, 3, 2, {None: 1, 64: 2}),  # 3 = 1.5 × 2: groups of the smaller
        (2, 5, 2, {None: 1, 64: 3}),
        (1, 5, 1, {None: 1, 64: 5}),
    ):
        pool = kv_pool(windowed(*[None] * wide, *[64] * narrow), dtype="bfloat16")
        assert (pool.block_size, pool.block_bytes, dict(pool.groups)) == (16, size * 128 * 16, groups)
        assert pool.bytes_per_token == (wide + narrow) * 128


def test_a_pool_of_a_device_by_hand():
    geometry = windowed(None, None)
    one = kv_pool(geometry, dtype="bfloat16", block_size=8)
    assert (one.bytes_per_token, one.block_bytes) == (256, 2048)
    assert [one.tokens(size) for size in (-4096, -1, 0, 2047, 2048, 6143, 6144)] == [0, 0, 0, 0, 8, 16, 24]
    # Two devices have a KV head each; more hold them again.
    assert [kv_pool(geometry, dtype="bfloat16", tensor_parallel=n).bytes_per_token for n in (1, 2, 4)] == [256, 128, 128]
    assert kv_pool(geometry, dtype="bfloat16", layers=range(1)).bytes_per_token == 128


def test_a_window_bounds_the_blocks_of_a_request():
    """64 tokens that need not begin at a block's edge touch ⌈63 ÷ 16⌉ + 1 = 5 blocks of 16 at most; a window of 65 touches 5 too."""
    for tokens, blocks in ((15, 1), (16, 1), (17, 2), (64, 4), (65, 5), (80, 5), (81, 5), (1000, 5)):
        assert predicted_saturation(16 * 60, tokens, 16, ((64, 1),)) == 60 / blocks, tokens
        assert predicted_saturation(16 * 60, tokens, 16, ((64, 2), (None, 1))) == 60 / (2 * blocks + -(-tokens // 16)), tokens
    assert predicted_saturation(16 * 60, 1000, 16, ((65, 1),)) == 12
    assert predicted_saturation(16 * 60, 1000, 16, ((66, 1),)) == 10


def test_a_sequence_and_its_window():
    geometry = windowed(None, 64, 64)
    assert [kv_bytes_of_sequence(geometry, tokens, "bfloat16") for tokens in (10, 64, 100)] == [
        30 * 128, 3 * 64 * 128, (100 + 128) * 128,
    ]  # fmt: skip


def facts(config):
    """The eight facts of an architecture, as they are read from a config.json."""
    geometry = geometry_of(config)
    names = ("layers", "hidden_size", "heads", "kv_heads", "head_dim", "intermediate_size", "vocabulary", "context")
    return [getattr(geometry, name) for name in names]


def test_a_synthetic_checkpoint_states_its_architecture(tmp_path):
    model = Model(config=TINY)
    write_checkpoint("m", model, tmp_path / "m/checkpoint.json")
    folder = tmp_path / "m/model"
    assert facts(json.loads((folder / "config.json").read_text())) == [TINY[key] for key in OF_LLAMA]
    tokenizer = json.loads((folder / "tokenizer.json").read_text())["model"]
    assert sorted(tokenizer["vocab"].values()) == list(range(512))  # every id has a token
    # GPT-2's characters of the bytes 0 to 127: no token is part of a character, which a server would hold back.
    whole = {*map(chr, range(33, 127)), *map(chr, range(256, 256 + 34))}
    assert all(set(token) <= whole for token in tokenizer["vocab"])
    assert tokenizer["unk_token"] in tokenizer["vocab"]
    assert json.loads((tmp_path / "m/checkpoint.json").read_text())["source"] == "synthetic"
    write_checkpoint("m", model, tmp_path / "m/checkpoint.json")  # again, over what is there


def test_a_real_checkpoint_is_linked_and_its_facts_are_read(tmp_path):
    real = tmp_path / "real"
    write_checkpoint("m", Model(config=TINY), tmp_path / "made/checkpoint.json")
    (tmp_path / "made/model").rename(real)
    record = tmp_path / "linked/checkpoint.json"
    write_checkpoint("m", Model(path=str(real)), record)
    assert (tmp_path / "linked/model").resolve() == real
    assert facts(json.loads(record.read_text())["config"]) == [TINY[key] for key in OF_LLAMA]
    wrong = {**TINY, "num_key_value_heads": 4}
    with pytest.raises(BenchError, match=r"models\.m: config has kv_heads 4, but the checkpoint's config.json says 2"):
        write_checkpoint("m", Model(path=str(real), config=wrong), record)
    with pytest.raises(BenchError, match=r"has no config\.json"):
        write_checkpoint("m", Model(path=str(tmp_path)), record)
    assert real.is_dir()  # a link was replaced, not the folder behind it
    with pytest.raises(BenchError, match=r"models\.m: gpt2-xl has \w+ \d+, but the checkpoint's config\.json says \d+\. It is"):
        write_checkpoint("m", Model(path=str(real), catalogue="gpt2-xl"), record)
