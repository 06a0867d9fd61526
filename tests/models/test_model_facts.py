"""KV caches of published models against transformers' own, and where their weights are known from."""

import json
import struct
from collections import Counter
from types import SimpleNamespace

import pytest

from bench.cli import main
from bench.errors import BenchError
from bench.models.catalogue import catalogue
from bench.models.checkpoint import write_checkpoint
from bench.models.checkpoint_record import Weights, weights_at
from bench.models.config_json import geometry_at, geometry_of, geometry_of_model
from bench.models.geometry import kv_bytes_of_sequence, kv_bytes_per_token, state_bytes_per_sequence, weight_bytes
from bench.models.hub import geometry_on_hub
from bench.models.model import Model
from bench.models.tokenizer import ids_below
from bench.servers.launch import refuse_unfit, resolve_launch
from bench.servers.memory import kv_pool, predicted_saturation
from bench.study.plan import Plan
from bench.study.read import load_config
from tests.support import records
from tests.support.model_facts import INPUTS, rows

CONFIGS = {row["name"]: row for row in rows("configs.jsonl")}
EXPECTED = {row["name"]: row for row in rows("expected.jsonl")}
# What is refused, and why.
REFUSED = {
    "minimax_m3": "not a known family",
    "deepseek_v4": "not a known family",
    "deepseek_ref": "not a known family",
    "phi3_v": "not a known family",
    "persimmon": "not a known family",
    "phi-msft": "not a known family",
}


def geometry(name):
    return geometry_of(CONFIGS[name]["config"])


def refused(name):
    return CONFIGS[name]["config"]["model_type"] in REFUSED


VISION = CONFIGS["Qwen/Qwen2.5-VL-7B-Instruct"]["config"]
KNOWN = [name for name in CONFIGS if not refused(name)]


@pytest.fixture(scope="module")
def read():
    """The geometry of each that is known."""
    return {name: geometry(name) for name in KNOWN}


def test_the_kv_cache_is_that_of_the_model_itself(read):
    """To the byte, but for MiMo, whose window transformers counts one longer; so are states. A formula's parameters within 0.1 %."""
    judged = Counter()
    for name, found in read.items():
        truth = EXPECTED[name]
        if "kv_bytes_per_token" in truth:
            assert kv_bytes_per_token(found, "bfloat16") == truth["kv_bytes_per_token"], name
            request = kv_bytes_of_sequence(found, 32_768, "bfloat16") - state_bytes_per_sequence(found, "bfloat16")
            assert request == pytest.approx(truth["kv_bytes_per_request"], rel=1e-3 if "MiMo-V2" in name else 0), name
            judged["kv"] += 1
        states = [state for state in found.states if state]
        if any(truth.get("state_elements") or ()):
            assert [sum(each.convolution for each in states), sum(each.recurrence for each in states)] == truth[
                "state_elements"
            ], name
            judged["states"] += 1
        if "parameters" in truth and found.parameters:
            assert found.parameters == pytest.approx(truth["parameters"], rel=0.001), name
            judged["formula"] += 1
    assert judged["kv"] > 180 and judged["states"] > 10 and judged["formula"] > 80, judged


def test_what_is_not_known_is_refused():
    families = {name: CONFIGS[name]["config"]["model_type"] for name in CONFIGS if refused(name)}
    assert set(REFUSED) == set(families.values())
    for name, family in families.items():
        with pytest.raises(BenchError, match=REFUSED[family]):
            geometry(name)


# Weights


def headed(folder, tensors, *, name="model.safetensors"):
    """A checkpoint's folder with the head of a safetensors file, and no weights."""
    folder.mkdir(exist_ok=True)
    head = json.dumps(
        {"__metadata__": {}, **{key: {"dtype": dtype, "shape": shape, "data_offsets": [0, 0]} for key, dtype, shape in tensors}}
    )
    (folder / name).write_bytes(struct.pack("<Q", len(head)) + head.encode())
    return folder


def test_weights_stand_in_the_heads_of_safetensors(tmp_path):
    plain = [("model.embed_tokens.weight", "BF16", [512, 64]), ("model.layers.0.mlp.up_proj.weight", "F32", [128, 64])]
    # Masks and places are no weights.
    buffers = [("h.0.attn.bias", "F32", [1, 1, 64, 64]), ("vision.position_ids", "I64", [1, 64]), ("h.0.inv_freq", "F32", [8])]
    # A layer beyond the model's predicts further tokens; scales are no weights; of packed 4-bit weights each int32 holds eight.
    further = [("model.layers.2.mlp.up_proj.weight", "BF16", [128, 64]), ("mtp.fc.weight", "BF16", [64, 64])]
    packed = [("model.layers.1.mlp.up_proj.qweight", "I32", [8, 128]), ("model.layers.1.mlp.up_proj.scales", "F16", [1, 128])]
    assert weights_at(headed(tmp_path / "a", plain + further + buffers), 2) == Weights(512 * 64 + 128 * 64)
    assert weights_at(headed(tmp_path / "b", plain + packed), 2) == Weights(
        512 * 64 + 128 * 64 + 8 * 128 * 8, 2 * (512 * 64 + 128 * 64) + 4 * 8 * 128 + 2 * 128
    )
    assert weights_at(tmp_path / "b", 2, 8).parameters == 512 * 64 + 128 * 64 + 4 * 128 * 8
    fp8 = [
        ("model.layers.0.mlp.up_proj.weight", "F8_E4M3", [128, 64]),
        ("model.layers.0.mlp.up_proj.weight_scale_inv", "F32", [1, 1]),
    ]
    assert weights_at(headed(tmp_path / "c", fp8), 2) == Weights(128 * 64, 128 * 64 + 4)
    # The files of an index alone, where there is one; none where one of them is not here.
    headed(tmp_path / "a", plain, name="consolidated.safetensors")
    index = tmp_path / "a/model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "model.safetensors"}}))
    assert weights_at(tmp_path / "a", 2) == Weights(512 * 64 + 128 * 64)
    index.write_text(json.dumps({"weight_map": {"x": "model.safetensors", "y": "missing.safetensors"}}))
    assert weights_at(tmp_path / "a", 2) is weights_at(tmp_path, 2) is None
    for content in (b"", b"version https://git-lfs.github.com", struct.pack("<Q", 4) + b"[[]]"):
        (tmp_path / "b/model.safetensors").write_bytes(content)
        with pytest.raises(BenchError, match=r"not a readable safetensors file .* Was its download complete"):
            weights_at(tmp_path / "b", 2)


def test_files_tell_more_than_the_study_and_the_study_more_than_the_formula(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(QWEN))
    assert geometry_at(tmp_path).parameters == pytest.approx(8_190_735_360, rel=0.001)
    assert geometry_at(tmp_path).estimated
    stated = geometry_at(tmp_path, Weights(8_190_735_360))
    assert (stated.parameters, stated.estimated) == (8_190_735_360, None)
    headed(tmp_path, [("model.embed_tokens.weight", "BF16", [512, 64])])
    assert geometry_at(tmp_path, Weights(8_190_735_360)).parameters == 512 * 64
    headed(tmp_path, [("model.layers.1.mlp.up_proj.qweight", "I32", [8, 128])])
    for bits, each in ((8, 4), (4, 8), (None, 8)):  # weights in an int32
        gptq = {"quant_method": "gptq", "bits": bits}
        (tmp_path / "config.json").write_text(json.dumps({**QWEN, "quantization_config": gptq}))
        assert geometry_at(tmp_path).parameters == each * 8 * 128
    assert geometry_of_model(Model(catalogue="mixtral-8x7b")).parameters == 46_702_792_704
    assert geometry_of_model(Model(catalogue="mixtral-8x7b", config={"num_hidden_layers": 2})).parameters is None
    assert geometry_of_model(Model(catalogue="mixtral-8x7b", config={"num_hidden_layers": 2}, parameters=3 * 10**9)).weighed


def test_a_checkpoint_on_the_hub_is_read_by_its_heads(tmp_path, monkeypatch, capsys):
    (tmp_path / "config.json").write_text(json.dumps(catalogue()["mixtral-8x7b"].config))
    tensors = {
        "model.embed_tokens.weight": SimpleNamespace(dtype="BF16", shape=[32_000, 4096]),
        "model.layers.0.block_sparse_moe.experts.0.w1.weight": SimpleNamespace(dtype="BF16", shape=[14_336, 4096]),
    }
    found = SimpleNamespace(files_metadata={"model.safetensors": SimpleNamespace(tensors=tensors)})
    asked = []
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", lambda *_, **__: None)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda _, file: asked.append(file) or str(tmp_path / file))
    monkeypatch.setattr("huggingface_hub.get_safetensors_metadata", lambda _: found)
    assert geometry_on_hub("mistralai/Mixtral-8x7B-v0.1").parameters == 4096 * (32_000 + 14_336)

    def offline(*_, **__):
        raise ConnectionError

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", offline)  # and no download, which tries again for half a minute
    assert main(["plan", "--model", "mistralai/Mixtral-8x7B-v0.1"]) == 2
    assert "or name a config.json on this machine, with --parameters" in capsys.readouterr().err
    assert len(asked) == 1


def test_a_decoder_below_another_key():
    for path in (
        ("text_config",), ("llm_config",), ("language_config",), ("thinker_config", "text_config"), ("decoder",), ("llm",)
    ):  # fmt: skip
        config = catalogue()["qwen3-8b"].config
        for key in reversed(path):
            config = {"model_type": "some_vl", key: config}
        assert kv_bytes_per_token(geometry_of(config), "bfloat16") == 147_456, path
    with pytest.raises(
        BenchError, match="its decoder was looked for at the top and under text_config, llm_config, language_config"
    ):
        geometry_of({"model_type": "some_vl", "brain_config": catalogue()["qwen3-8b"].config})


def test_latent_attention_by_its_keys_whatever_the_family_is_called():
    config = {**INPUTS["kimi_k2"], "model_type": "novel", "architectures": ["NovelForCausalLM"]}
    found = geometry_of(config)
    assert (found.attention, kv_bytes_per_token(found, "bfloat16")) == ("MLA", 70_272)
    assert not found.weighed


# States.


def test_blocks_are_as_long_as_vllm_makes_them():
    """Pages of states and lengths of blocks that vLLM 0.26 printed on an A100 for these shapes: 1,568 and 1,312 tokens."""
    falcon = geometry("tiiuae/Falcon-H1-1.5B-Deep-Base shape")
    (state,) = set(falcon.states)
    assert state.size("bfloat16") == 1_594_368
    assert kv_pool(falcon, dtype="bfloat16").block_size == 1568
    nemotron = geometry_of(
        CONFIGS["nvidia/Nemotron-H-8B-Base-8K"]["config"]
        | {"hybrid_override_pattern": "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-", "hidden_size": 4480,
           "num_attention_heads": 40, "mamba_head_dim": 80, "intermediate_size": 15_680, "num_hidden_layers": 56}
    )  # fmt: skip
    assert max(state.size("bfloat16") for state in nemotron.states if state) == 5_316_608
    assert kv_pool(nemotron, dtype="bfloat16").block_size == 1312


def test_a_sequence_holds_a_block_for_its_states():
    """Qwen3.5-27B: 16 layers of attention in one group, 48 with a state in three: 3 blocks, and one for each 784 tokens."""
    pool = kv_pool(geometry("Qwen/Qwen3.5-27B"), dtype="bfloat16")
    assert pool.block_size == 784
    assert set(pool.groups) == {(1, 3), (None, 1)}
    assert pool.block_bytes == 16 * pool.block_size * 4096
    assert predicted_saturation(100 * pool.block_size, 2 * pool.block_size, pool.block_size, pool.groups) == 100 / 5


def test_layers_that_differ_in_what_a_token_takes():
    """GLM-5.2 has indexers in a part of its layers; Gemma 4's layers in two kinds of groups are counted with the wider."""
    glm = geometry("zai-org/GLM-5.2")
    pool = kv_pool(glm, dtype="bfloat16", block_size=64)
    assert pool.block_bytes == 64 * kv_bytes_per_token(glm, "bfloat16")
    indexed = sum(kind.beside == 132 for kind in glm.attentions)
    assert 0 < indexed < 78 and kv_bytes_per_token(glm, "bfloat16") == 78 * 576 * 2 + 132 * indexed
    gemma = geometry("google/gemma-4-26B-A4B")
    assert kv_pool(gemma, dtype="bfloat16").block_bytes == 5 * 16 * (2 * 8 * 256 * 2)


# Quantisation.

QWEN = catalogue()["qwen3-8b"].config
TABLES = 2 * 151_936 * 4096


def test_a_checkpoint_that_is_quantised_throughout_is_estimated_and_another_is_not():
    for quantisation, each in (
        ({"quant_method": "fp8", "modules_to_not_convert": ["lm_head", "gate"]}, 1),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 0.5 + 2.5 / 128),
        ({"quant_method": "fp8", "modules_to_not_convert": ["self_attn"]}, None),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"x": {}}}, None),
        ({"quant_method": "quip"}, None),
    ):
        found = geometry_of({**QWEN, "quantization_config": quantisation}, Weights(8_190_735_360))
        assert found.weighed is (each is not None), quantisation
        if each:
            assert weight_bytes(found, "bfloat16") == round((8_190_735_360 - TABLES) * each) + 2 * TABLES
            assert "quantised" in found.estimated


def test_quantisation_in_a_file_of_its_own(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(QWEN))
    assert geometry_at(tmp_path).quantised_bytes is None
    beside = {"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(beside))
    assert geometry_at(tmp_path).quantised_bytes == 1
    write_checkpoint("m", Model(path=str(tmp_path)), tmp_path / "out/checkpoint.json")
    recorded = json.loads((tmp_path / "out/checkpoint.json").read_text())
    assert geometry_of(recorded["config"]).quantised_bytes == 1


# Sharing caches, and keys that change a shape.


def test_layers_that_read_another_layers_cache():
    """Gemma 3n keeps 20 of 35 layers'."""
    assert kv_bytes_per_token(geometry("defaults/gemma3n_text"), "bfloat16") == 20 * 2 * 2 * 256 * 2


def test_lists_longer_than_the_model_are_read_to_its_end():
    """Qwen3.6's 40 kinds of layers, of which a pruned checkpoint keeps 20; one that adds layers for speculation."""
    qwen = INPUTS["qwen3_5_27b"]["text_config"]
    kinds = (["linear_attention"] * 3 + ["full_attention"]) * 10
    pruned = geometry_of({**qwen, "num_hidden_layers": 20, "layer_types": kinds})
    assert (pruned.layers, len(pruned.windows)) == (20, 5)
    nemotron = INPUTS["nemotron_h_8b"]
    longer = {"hybrid_override_pattern": nemotron["hybrid_override_pattern"] + "*E"}
    assert geometry_of({**nemotron, **longer}) == geometry_of(nemotron)


def test_a_list_that_is_too_short_is_named():
    for name, key, kinds in (
        ("qwen3_5_27b", "layer_types", ["full_attention"] * 10),
        ("nemotron_h_8b", "hybrid_override_pattern", "M*-"),
        ("gpt_oss_120b", "layer_types", ["full_attention"]),
    ):
        config = INPUTS[name].get("text_config", INPUTS[name])
        with pytest.raises(BenchError, match=rf"{key} lists \d+ layers, but num_hidden_layers is \d+"):
            geometry_of({**config, key: kinds})


def test_latent_attention_of_a_family_that_is_not_known_is_read_where_all_layers_have_it():
    """Ring 2.5 has it in one of five layers, and linear attention in the others."""
    novel = {**INPUTS["kimi_k2"], "model_type": "novel"}
    assert kv_bytes_per_token(geometry_of(novel | {"layer_types": ["full_attention"] * 61}), "bfloat16") == 61 * 576 * 2
    mixed = ["linear_attention", "full_attention"] * 31
    for more in ({"layer_group_size": 5}, {"linear_attn_config": {"full_attn_layers": [4]}}, {"layer_types": mixed}):
        with pytest.raises(BenchError, match="novel is not a known family"):
            geometry_of(novel | more)


def test_a_shape_is_given_as_that_of_a_llama(tmp_path, capsys):
    llama = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    llama |= {"intermediate_size": 128, "vocab_size": 320, "max_position_embeddings": 512, "hidden_size": 64}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **llama}))
    assert main(["plan", "--model", str(tmp_path), "--accelerator", "h100", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kv_bytes_per_token"] == 2 * 2 * 2 * 16 * 2


def test_a_model_whose_weights_are_not_known_is_not_started(content):
    """On a managed engine it is refused, with what to do; on an external one its bytes are null."""
    content["models"]["m"] = {"config": VISION}
    spec = Plan.of(load_config(content, source="t")).deployments["a"]
    with pytest.raises(
        BenchError,
        match=r"deployments\.a: the weights are not known: .* Give models\.m\.parameters, how many there are; or \.path",
    ):
        refuse_unfit(spec, geometry_of_model(spec.model), 64)
    content["models"]["m"]["parameters"] = 8_292_166_656
    spec = Plan.of(load_config(content, source="t")).deployments["a"]
    assert geometry_of_model(spec.model).weighed


def test_an_external_server_of_a_family_that_is_not_read_is_measured_all_the_same(content):
    content["engines"]["e"] = {"source": "external", "base_url": "http://127.0.0.1:1"}
    content["models"]["m"] = {"config": {"model_type": "novel", "hidden_size": 64, "torch_dtype": "bfloat16"}}
    spec = Plan.of(load_config(content, source="t")).deployments["a"]
    launch = resolve_launch(spec, records.engine(source="external", command=None), None)
    assert launch.plan is launch.vocabulary is None
    content["models"]["m"] = {"config": VISION | {"torch_dtype": "bfloat16"}}
    spec = Plan.of(load_config(content, source="t")).deployments["a"]
    plan = resolve_launch(spec, records.engine(source="external", command=None), None).plan
    assert (plan.parameters, plan.weight_bytes, plan.kv_bytes_per_token) == (None, None, 28 * 2 * 4 * 128 * 2)


def test_odd_values_are_refused():
    for odd in (
        {"model_type": None, "architectures": [["x"], 7, None]},
        {"model_type": ["llama"]},
        {"num_hidden_layers": 10**12},
        {"model_type": "nemotron_h", "hybrid_override_pattern": "??"},
        {"model_type": "nemotron_h", "hybrid_override_pattern": "-" * 36},
        {"model_type": "gemma2", "sliding_window": 64, "layer_types": ["sliding_attention"]},
        {"quantization_config": [4]},
        {"quantization_config": {"quant_method": "awq", "bits": "4"}},
        {"decoder": {"decoder": {"decoder": {}}}},
    ):
        with pytest.raises(BenchError):
            geometry_of({**QWEN, **odd})


# Token ids.


def written(folder, *, base, added=(), kind="BPE"):
    vocabulary = {f"t{i}": i for i in range(base)} if kind == "BPE" else [[f"t{i}", 0.0] for i in range(base)]
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(
        json.dumps(
            {
                "model": {"type": kind, "vocab": vocabulary},
                "added_tokens": [{"id": i, "content": f"<{i}>", "special": True} for i in added],
            }
        )
    )
    return folder


@pytest.mark.long(part="inputs")
def test_ids_below_which_all_are_tokens(tmp_path):
    """Qwen3: 151,936 rows, 151,643 tokens and 26 added ones up to 151,668."""
    assert ids_below(151_936, written(tmp_path / "qwen", base=151_643, added=range(151_643, 151_669))) == 151_643
    assert ids_below(32_000, written(tmp_path / "unigram", base=32_000, kind="Unigram")) == 32_000
    assert ids_below(30_000, written(tmp_path / "smaller", base=32_000)) == 30_000
    assert ids_below(32_000, written(tmp_path / "hole", base=2000, added=[1500])) == 2000
    assert ids_below(None, tmp_path / "qwen") == 151_643


def test_without_a_tokenizer_that_can_be_read_half_of_the_rows_is_safe(tmp_path):
    for vocabulary, expected in ((151_936, 75_968), (202_048, 101_024), (512, 512), (1500, 1000), (None, None)):
        assert ids_below(vocabulary, None) == ids_below(vocabulary, tmp_path) == expected, vocabulary
    for broken in ("{", "[]", '{"model": {}}', '{"model": {"vocab": 7}}', '{"model": {"vocab": {}}}', "\x00"):
        (tmp_path / "tokenizer.json").write_text(broken)
        assert ids_below(50_000, tmp_path) == 25_000, broken


def test_every_id_of_our_own_tokenizer_may_be_sent(tmp_path):
    write_checkpoint("m", Model(catalogue="qwen3-8b", config={"vocab_size": 4000}), tmp_path / "m/checkpoint.json")
    assert ids_below(4000, tmp_path / "m/model") == 4000
