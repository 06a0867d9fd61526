"""Memory of published models against transformers' own: `benchmarks/model_facts.py` tells how the truth was made."""

import json
from collections import Counter

import pytest

from bench.cli import main
from bench.engine import resolve_launch
from bench.engine.launch import refuse_unfit
from bench.errors import BenchError
from bench.models import (
    Model,
    geometry_of,
    geometry_of_model,
    kv_bytes_of_sequence,
    kv_bytes_per_token,
    kv_pool,
    predicted_saturation,
    state_bytes_per_sequence,
    weight_bytes,
    write_checkpoint,
)
from bench.models.config_json import geometry_at
from bench.models.definitions import source
from bench.models.families import READERS
from bench.models.tokenizer import ids_below
from bench.published import catalogue
from bench.study import Plan, load_config
from tests.support import records
from tests.support.model_facts import INPUTS, rows

CONFIGS = {row["name"]: row for row in rows("configs.jsonl")}
EXPECTED = {row["name"]: row for row in rows("expected.jsonl")}
# What is refused, and why.
REFUSED = {
    "minimax_m3": "not a family that is read here",
    "deepseek_v4": "not a family that is read here",
    "deepseek_ref": "not a family that is read here",
    "phi3_v": "not a family that is read here",
    "persimmon": "not a family that is read here",
    "phi-msft": "does not state 'hidden_size'",
}


def geometry(name):
    return geometry_of(CONFIGS[name]["config"], CONFIGS[name].get("hf_quant_config"))


def refused(name):
    return CONFIGS[name]["config"]["model_type"] in REFUSED or name == "deepseek-ai/deepseek_v3"


KNOWN = [name for name in CONFIGS if not refused(name)]


def test_a_hundred_configs_of_thirty_families():
    assert len(KNOWN) >= 100
    assert len({CONFIGS[name]["config"]["model_type"] for name in KNOWN}) >= 90
    assert all(row["source"] for row in CONFIGS.values())
    assert source().startswith("transformers 5.")
    assert len(READERS) >= 90


@pytest.fixture(scope="module")
def read():
    """The geometry of each that is known."""
    return {name: geometry(name) for name in KNOWN}


def test_memory_equals_that_of_the_model_itself(read):
    """Within 1 %, or unknown; the KV cache and the states to the byte but for MiMo, whose window transformers counts one longer."""
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
        if "parameters" in truth and found.exact:
            assert found.parameters == pytest.approx(truth["parameters"], rel=0.002), name
            judged["parameters"] += 1
        if truth.get("weight_bytes") and found.exact:
            assert weight_bytes(found, "bfloat16") == pytest.approx(truth["weight_bytes"], rel=0.01), name
            judged["weights"] += 1
    assert judged["kv"] > 180 and judged["states"] > 15 and judged["parameters"] > 150 and judged["weights"] > 30, judged


def test_few_are_unknown_and_say_why(read):
    unknown = {name: found.unknown for name, found in read.items() if not found.exact}
    assert set(unknown) == {"moonshotai/Kimi-K3", "meta-llama/Llama-3.2-11B-Vision"}
    assert "routed_expert_hidden_size" in unknown["moonshotai/Kimi-K3"][1]
    assert unknown["meta-llama/Llama-3.2-11B-Vision"] == (
        "nothing here counts the parameters of vision_config in a model of model_type mllama",
    )


def test_what_is_not_known_is_refused():
    families = {name: CONFIGS[name]["config"]["model_type"] for name in CONFIGS if refused(name)}
    assert set(REFUSED) <= set(families.values())
    for name, family in families.items():
        with pytest.raises(BenchError, match=REFUSED.get(family, "does not state 'n_routed_experts'")):
            geometry(name)


def test_the_sizes_that_hubs_publish():
    """Bytes of the published weight files: gpt-oss's index has them as total_size; the others are what the hub shows."""
    assert weight_bytes(geometry("openai/gpt-oss-120b"), "bfloat16") == 65_248_815_744
    assert weight_bytes(geometry("openai/gpt-oss-20b"), "bfloat16") == 13_761_264_768
    assert weight_bytes(geometry("moonshotai/Kimi-K2.5"), "bfloat16") == pytest.approx(595e9, rel=0.01)
    assert weight_bytes(geometry("Qwen/Qwen3-235B-A22B-FP8"), "bfloat16") == pytest.approx(236e9, rel=0.01)


def test_a_plan_of_configs_that_were_once_read_wrongly(tmp_path, capsys):
    """Name, bytes of a token and of a sequence's states, parameters and bytes of the weights."""
    for name, token, state, parameters, weights in (
        ("cohere2_7b", 131_072, 0, 8_028_033_024, 16_056_066_048),
        ("deepseek_v3_nested_quant", 70_272, 0, 1_026_408_209_408, 593_635_489_792),
        ("gpt_oss_120b", 73_728, 0, 116_829_156_672, 65_248_815_744),
        ("internvl", 57_344, 0, None, None),
        ("kimi_k2", 70_272, 0, 1_026_408_209_408, 1_029_173_150_896),
        ("nemotron_h_8b", 16_384, 102_137_856, 8_100_852_736, 16_201_705_472),
        ("qwen3_5_27b", 65_536, 78_446_592, 27_349_649_136, 54_699_298_272),
    ):
        (tmp_path / "config.json").write_text(json.dumps(INPUTS[name]))
        assert main(["plan", "--model", str(tmp_path), "--accelerator", "h100", "--json"]) == 0, name
        planned = json.loads(capsys.readouterr().out)
        found = geometry_at(tmp_path)
        assert planned["kv_bytes_per_token"] == kv_bytes_per_token(found, "bfloat16") == token, name
        assert (planned["state_bytes_per_sequence"], planned["weight_bytes"]) == (state, weights), name
        assert (found.parameters if found.exact else None) == parameters, name
        if name == "internvl":
            assert "vision_config of model_type internvl_chat does not state" in planned["why"]
    assert kv_bytes_of_sequence(geometry_of(INPUTS["cohere2_7b"]), 32_768, "bfloat16") == 1_476_395_008


def test_a_decoder_below_another_key():
    for path in (
        ("text_config",), ("llm_config",), ("language_config",), ("thinker_config", "text_config"), ("decoder",), ("llm",)
    ):  # fmt: skip
        config = catalogue()["qwen3-8b"].config
        for key in reversed(path):
            config = {"model_type": "some_vl", key: config}
        assert geometry_of(config).parameters == 8_190_735_360, path
    with pytest.raises(
        BenchError, match="its decoder was looked for at the top and under text_config, llm_config, language_config"
    ):
        geometry_of({"model_type": "some_vl", "brain_config": catalogue()["qwen3-8b"].config})


def test_latent_attention_by_its_keys_whatever_the_family_is_called():
    """The KV cache is known from the keys; the weights are not."""
    config = {**INPUTS["kimi_k2"], "model_type": "novel", "architectures": ["NovelForCausalLM"]}
    found = geometry_of(config)
    assert (found.attention, kv_bytes_per_token(found, "bfloat16")) == ("MLA", 70_272)
    assert not found.exact and "nothing here counts the weights of model_type novel" in found.unknown[0]


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


def test_a_model_of_states_alone_holds_as_many_requests_of_any_length():
    mamba = geometry("tiiuae/falcon-mamba-7b")
    assert kv_bytes_per_token(mamba, "bfloat16") == 0 and mamba.attention == "–"
    state = 64 * (8192 * 3 + 8192 * 16) * 2
    assert state_bytes_per_sequence(mamba, "bfloat16") == kv_bytes_of_sequence(mamba, 10**6, "bfloat16") == state
    pool = kv_pool(mamba, dtype="bfloat16")
    for tokens in (10, 10**6):
        assert predicted_saturation(pool.tokens(10 * state), tokens, pool.block_size, pool.groups) == 10


def test_layers_that_differ_in_what_a_token_takes():
    """GLM-5.2 has indexers in a part of its layers; Gemma 4's layers in two kinds of groups are counted with the wider."""
    glm = geometry("zai-org/GLM-5.2")
    pool = kv_pool(glm, dtype="bfloat16", block_size=64)
    assert pool.block_bytes == 64 * kv_bytes_per_token(glm, "bfloat16")
    indexed = sum(kind.beside == 132 for layer in glm.attentions for kind in layer)
    assert 0 < indexed < 78 and kv_bytes_per_token(glm, "bfloat16") == 78 * 576 * 2 + 132 * indexed
    gemma = geometry("google/gemma-4-26B-A4B")
    assert kv_pool(gemma, dtype="bfloat16").block_bytes == 5 * 16 * (2 * 8 * 256 * 2)


def test_states_are_dealt_out_like_heads():
    found = geometry_of(INPUTS["qwen3_5_27b"])
    whole, half = (kv_pool(found, dtype="bfloat16", tensor_parallel=count) for count in (1, 2))
    assert (half.block_size, half.block_bytes * 2) == (whole.block_size, whole.block_bytes)


# Quantisation.

QWEN = catalogue()["qwen3-8b"].config
LINEAR = geometry_of(QWEN).linear_parameters
ATTENTION = 36 * 4096 * 128 * (2 * 32 + 2 * 8)
PLAIN = weight_bytes(geometry_of(QWEN), "bfloat16")


def test_what_is_quantised():
    """Bytes left out of 16 bit; the last two leave out a layer's linear parameters, and a matrix of 4,096 × 4,096."""
    for quantisation, expected in (
        ({"quant_method": "fp8", "modules_to_not_convert": ["self_attn"]}, PLAIN - (LINEAR - ATTENTION)),
        ({"quant_method": "fp8", "ignored_layers": ["model.layers.*.self_attn"]}, PLAIN - (LINEAR - ATTENTION)),
        ({"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head", "gate"]}, PLAIN - LINEAR),  # not gate_proj
        ({"quant_method": "bitsandbytes", "load_in_8bit": True, "llm_int8_skip_modules": ["lm_head"]}, PLAIN - LINEAR),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1, "dynamic": {r"-:.*self_attn.*": {}}}, PLAIN - (LINEAR - ATTENTION)),
        (
            {"quant_method": "compressed-tensors", "ignore": ["lm_head", "re:.*self_attn.*"],
             "config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}}},
            PLAIN - (LINEAR - ATTENTION),
        ),
        (
            {"quant_method": "compressed-tensors", "config_groups": {
                "attention": {"targets": ["re:.*self_attn.*"], "weights": {"num_bits": 8, "type": "float"}},
                "mlp": {"targets": ["re:.*mlp.*"], "weights": {"num_bits": 4, "type": "float", "group_size": 16}}}},
            PLAIN - ATTENTION - round((LINEAR - ATTENTION) * (2 - 0.5625)),
        ),
        ({"quant_method": "quark", "exclude": ["lm_head"], "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}}}, PLAIN - LINEAR),
        ({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}}}, PLAIN - round(LINEAR * (1.5 - 1 / 16))),
        ({"quant_method": "mxfp4"}, PLAIN),  # only experts
        ({"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": ["model.layers.0*", "lm_head"]}, PLAIN - (LINEAR - LINEAR // 36)),
        ({"quant_method": "auto-round", "bits": 4, "group_size": -1, "extra_config": {"model.layers.0.self_attn.q_proj": {"bits": 16}}},
         PLAIN - (LINEAR - 4096 * 4096) * 1.5),
    ):  # fmt: skip
        found = geometry_of({**QWEN, "quantization_config": quantisation})
        assert (weight_bytes(found, "bfloat16"), found.exact) == (expected, True), quantisation


def test_quantisation_beside_the_decoder_or_in_a_file_of_its_own(tmp_path):
    given = {"quant_method": "fp8"}
    inside = {"model_type": "some_vl", "llm_config": {**QWEN, "quantization_config": given}}
    assert weight_bytes(geometry_of(inside), "bfloat16") == PLAIN - LINEAR
    (tmp_path / "config.json").write_text(json.dumps(QWEN))
    assert weight_bytes(geometry_at(tmp_path), "bfloat16") == PLAIN
    (tmp_path / "hf_quant_config.json").write_text(
        json.dumps({"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}})
    )
    assert weight_bytes(geometry_at(tmp_path), "bfloat16") == PLAIN - LINEAR
    write_checkpoint("m", Model(path=str(tmp_path)), tmp_path / "out/checkpoint.json")
    recorded = json.loads((tmp_path / "out/checkpoint.json").read_text())
    assert weight_bytes(geometry_of(recorded["config"]), "bfloat16") == PLAIN - LINEAR


def test_a_method_that_is_not_read_bounds_the_weights(tmp_path, capsys):
    for method in ("quip", "aqlm", "bitnet", "torchao"):
        (tmp_path / "config.json").write_text(json.dumps({**QWEN, "quantization_config": {"quant_method": method}}))
        assert main(["plan", "--model", str(tmp_path), "--accelerator", "h100", "--json"]) == 0, method
        planned = json.loads(capsys.readouterr().out)
        assert planned["weight_bytes"] == PLAIN
        assert planned["notes"][0].startswith(
            f"the weights are not known but at most what is counted: nothing here reads what {method}"
        )


# Sharing caches, and keys that change a shape.


def test_layers_that_read_another_layers_cache():
    """Hunyuan's cross-layer attention halves the cache; Gemma 3n keeps 20 of 35 layers'."""
    whole = CONFIGS["tencent/Hunyuan-7B-Instruct"]["config"]
    assert kv_bytes_per_token(geometry_of(whole), "bfloat16") == 32 * 4096
    assert kv_bytes_per_token(geometry_of({**whole, "use_cla": True}), "bfloat16") == 16 * 4096
    assert kv_bytes_per_token(geometry("defaults/gemma3n_text"), "bfloat16") == 20 * 2 * 2 * 256 * 2


def test_lists_longer_than_the_model_are_read_to_its_end():
    """Qwen3.6's 40 kinds of layers, of which a pruned checkpoint keeps 20; one that adds layers for speculation; a smaller copy."""
    qwen = INPUTS["qwen3_5_27b"]["text_config"]
    kinds = (["linear_attention"] * 3 + ["full_attention"]) * 10
    pruned = geometry_of({**qwen, "num_hidden_layers": 20, "layer_types": kinds})
    assert (pruned.layers, len(pruned.windows), pruned.exact) == (20, 5, True)
    assert pruned.parameters == geometry_of({**qwen, "num_hidden_layers": 20, "layer_types": kinds[:20]}).parameters
    nemotron = INPUTS["nemotron_h_8b"]
    pattern = nemotron["hybrid_override_pattern"]
    assert geometry_of({**nemotron, "num_hidden_layers": 8}) == geometry_of(
        {**nemotron, "num_hidden_layers": 8, "hybrid_override_pattern": pattern[:8]}
    )
    assert geometry_of({**nemotron, "hybrid_override_pattern": pattern + "*E"}) == geometry_of(nemotron)
    jamba = CONFIGS["defaults/jamba"]["config"]
    blocks = ["mamba", "attention"] * 20
    assert len(geometry_of({**jamba, "num_hidden_layers": 4, "layers_block_type": blocks}).windows) == 2
    granite = CONFIGS["ibm-granite/granite-4.0-h-tiny"]["config"]
    by_another_name = {**granite, "layers_block_type": granite["layer_types"], "layer_types": None, "num_hidden_layers": 8}
    assert geometry_of(by_another_name).layers == 8
    nas = CONFIGS["nvidia/Llama-3_3-Nemotron-Super-49B-v1"]["config"]
    assert geometry_of({**nas, "num_hidden_layers": 40}).layers == 40
    gpt_oss = INPUTS["gpt_oss_120b"]
    assert geometry_of({**gpt_oss, "num_hidden_layers": 6}).layers == 6


def test_a_list_that_is_too_short_is_named():
    for name, key, kinds in (
        ("qwen3_5_27b", "layer_types", ["full_attention"] * 10),
        ("nemotron_h_8b", "hybrid_override_pattern", "M*-"),
        ("gpt_oss_120b", "layer_types", ["full_attention"]),
    ):
        config = INPUTS[name].get("text_config", INPUTS[name])
        with pytest.raises(BenchError, match=rf"{key} has the kinds of \d+ layers, and num_hidden_layers is \d+"):
            geometry_of({**config, key: kinds})


def test_a_family_that_is_not_read_says_how_to_give_its_shape(tmp_path, capsys):
    (tmp_path / "config.json").write_text('{"model_type": "novel", "hidden_size": 64}')
    assert main(["plan", "--model", str(tmp_path)]) == 2
    assert "write a config.json of `model_type: llama` with its num_hidden_layers, hidden_size" in capsys.readouterr().err
    llama = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    llama |= {"intermediate_size": 128, "vocab_size": 320, "max_position_embeddings": 512, "hidden_size": 64}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **llama}))
    assert main(["plan", "--model", str(tmp_path), "--accelerator", "h100", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kv_bytes_per_token"] == 2 * 2 * 2 * 16 * 2


def test_a_key_that_the_familys_class_does_not_know_makes_the_weights_unknown():
    config = {**QWEN, "expert_hidden_size": 512}
    assert geometry_of(config).unknown == (
        "expert_hidden_size: no key of the class of qwen3, so its layers may be built in another way",
    )


def test_a_model_whose_weights_are_not_known_is_not_started(content):
    """On a managed engine it is refused, with what to do; on an external one its bytes are null."""
    content["models"]["m"] = {"config": CONFIGS["meta-llama/Llama-3.2-11B-Vision"]["config"]}
    spec = Plan.of(load_config(content, source="t")).deployments["a"]
    with pytest.raises(
        BenchError, match=r"deployments\.a: the weights are not known but at least what is counted: .*Give models\.m\.path"
    ):
        refuse_unfit(spec, geometry_of_model(spec.model), 64)


def test_an_external_server_of_a_family_that_is_not_read_is_measured_all_the_same(content):
    content["engines"]["e"] = {"source": "external", "base_url": "http://127.0.0.1:1"}
    content["models"]["m"] = {"config": {"model_type": "novel", "hidden_size": 64, "torch_dtype": "bfloat16"}}
    spec = Plan.of(load_config(content, source="t")).deployments["a"]
    launch = resolve_launch(spec, records.engine(source="external", command=None), None)
    assert launch.plan is launch.vocabulary is None
    content["models"]["m"] = {"config": CONFIGS["meta-llama/Llama-3.2-11B-Vision"]["config"] | {"torch_dtype": "bfloat16"}}
    spec = Plan.of(load_config(content, source="t")).deployments["a"]
    plan = resolve_launch(spec, records.engine(source="external", command=None), None).plan
    assert (plan.parameters, plan.weight_bytes, plan.kv_bytes_per_token) == (None, None, 32 * 4096)


def test_odd_values_are_refused_or_leave_the_weights_unknown():
    for odd in (
        {"model_type": None, "architectures": [["x"], 7, None]},
        {"model_type": None, "architectures": 7},
        {"num_hidden_layers": 10**12},
        {"model_type": "longcat_flash", "num_layers": 10**12},
        {"model_type": "nemotron_h", "hybrid_override_pattern": "??"},
        {"model_type": "nemotron_h", "hybrid_override_pattern": "---"},
        {"model_type": "jamba", "attn_layer_period": 0},
        {"model_type": "gemma2", "sliding_window": 64, "layer_types": ["sliding_attention"]},
        {"quantization_config": {"quant_method": "compressed-tensors", "ignore": ["re:("], "config_groups": {"g": {"weights": {"num_bits": 8}}}}},
        {"decoder": {"decoder": {"decoder": {}}}},
    ):  # fmt: skip
        with pytest.raises(BenchError):
            geometry_of({**QWEN, **odd})
    for odd in ({"model_type": ["llama"]}, {"quantization_config": {"quant_method": 7}}):
        assert not geometry_of({**QWEN, **odd}).exact, odd


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
