"""The KV cache of published models by transformers itself: the truth that `bench.models` is tested against.

    python -m benchmarks.model_facts        # writes tests/data/model_facts/expected.jsonl

It needs transformers and torch (`pip install transformers==5.23.0 torch`, the CPU build will do). The file `configs.jsonl` beside
it has published config.json files, whole, with the place where each was found. Each model is built on torch's meta device, which
has shapes and no memory; its parameters are counted, and a prompt of eight tokens is run through it, so that the KV cache and its
shapes are the model's own. Nothing of `bench.models` is used for it. Rows with a `kv_source` are kept as they are: transformers
has no class for them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
_FACTS = _ROOT / "tests/data/model_facts"
_CONFIGS, _EXPECTED = _FACTS / "configs.jsonl", _FACTS / "expected.jsonl"
_TOKENS = 8
_REQUEST = 32_768


def _renamed(given: Mapping[str, Any]) -> dict[str, Any]:
    """A model of remote code as one of the family of transformers that is built alike."""
    family, c = given.get("model_type"), dict(given)
    if family == "minimax_text_01":
        kinds = ["full_attention" if code else "linear_attention" for code in c.pop("attn_type_list")]
        return {**c, "model_type": "minimax", "layer_types": kinds}
    if family in ("internlm", "internlm2"):
        return {**c, "model_type": "llama", "attention_bias": bool(c.get("bias")), "rope_scaling": None}
    if family == "minicpm" and not c.get("num_experts"):
        return {**c, "model_type": "llama", "tie_word_embeddings": c.get("tie_word_embeddings", True)}
    return {**c, "model_type": _SAME.get(str(family), family)}


_SAME = {"kimi_k2": "deepseek_v3", "mimo": "qwen2", "baichuan": "llama", "orion": "llama"}
# Parameters as published: of models that transformers has no class for, and of LongCat, for whose empty experts it makes weights.
_PUBLISHED = {
    "defaults/longcat_flash": 560_000_000_000,
    "mlc/chatglm": 6_243_584_000,
    "mlc/deepseek": 16_375_728_128,
    "mlc/qwen": 1_836_828_672,
    "nvidia/Llama-3_3-Nemotron-Super-49B-v1": 49_867_145_216,
}


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    kept = {row["name"]: row for row in _rows(_EXPECTED)}
    lines = []
    for row in _rows(_CONFIGS):
        try:
            found = _truth(row)
        except (KeyError, ValueError, TypeError, AttributeError, RuntimeError) as error:
            found = {"source": None, "error": f"{type(error).__name__}: {error}"[:200]}
        if "kv_source" in (before := kept.get(row["name"], {})):
            found = before
        elif row["name"] in _PUBLISHED:
            found |= {"source": "as published", "parameters": _PUBLISHED[row["name"]]}
        lines.append(json.dumps({"name": row["name"], **found}, separators=(",", ":")) + "\n")
    _EXPECTED.write_text("".join(lines), encoding="utf-8")  # once all are there: without transformers the file stays


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    for line in file.read_text(encoding="utf-8").splitlines():
        yield json.loads(line)


# The truth


def _truth(row: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters, KV bytes a token and of a request of 32,768 (16 bit), from the model itself."""
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    transformers.logging.set_verbosity_error()
    config = _built_config(row["config"])
    with torch.device("meta"):
        model = _built_model(config)
    parameters = sum(parameter.numel() for parameter in {id(p): p for p in model.parameters()}.values())
    found = {
        "source": f"transformers {transformers.__version__}, {type(model).__name__} on torch's meta device",
        "parameters": parameters,
    }
    try:
        caches, states = _caches(model, config)
    except (KeyError, ValueError, TypeError, AttributeError, RuntimeError) as error:
        return found | {"not_run": f"{type(error).__name__}: {error}"[:160]}
    return found | {
        "kv_bytes_per_token": sum(2 * elements for elements, _ in caches) + _indexed(model),
        "kv_bytes_per_request": sum(2 * elements * min(_REQUEST, window or _REQUEST) for elements, window in caches)
        + _REQUEST * _indexed(model),
        "state_elements": states,
    }


def _built_config(given: Mapping[str, Any]) -> Any:
    from transformers import CONFIG_MAPPING  # noqa: PLC0415

    content = {
        key: value for key, value in given.items() if key not in ("auto_map", "quantization_config", "torch_dtype", "dtype")
    }
    if isinstance(content.get("text_config"), dict):
        content["text_config"] = {
            k: v for k, v in content["text_config"].items() if k not in ("auto_map", "quantization_config")
        }
    content = _renamed(content)
    return CONFIG_MAPPING[content.pop("model_type")].from_dict({**content, "dtype": "bfloat16"})


def _built_model(config: Any) -> Any:
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText  # noqa: PLC0415

    for auto in (AutoModelForImageTextToText, AutoModelForCausalLM):
        if type(config) in auto._model_mapping:
            return auto.from_config(config)
    raise ValueError(f"no model of {type(config).__name__}")


def _caches(model: Any, config: Any) -> tuple[list[tuple[int, int | None]], list[int]]:
    """Of each layer that keeps a cache: elements that one token adds, and its window. Of all layers with a state: elements of the
    convolutions and of the recurrences.

    transformers keeps as many inputs of a convolution as its kernel is long, engines one fewer.

    MLPs and experts are skipped, whose routing cannot be run without values. transformers' cache of latent attention has the compressed
    vector as keys and the rotary part as values.
    """
    import torch  # noqa: PLC0415
    from transformers import DynamicCache  # noqa: PLC0415

    for module in model.modules():
        if type(module).__name__ == "GptOssMLP":
            continue  # it returns the router's scores too
        if type(module).__name__.endswith(("Experts", "MLP", "SparseMoeBlock", "MoE", "MoeBlock", "MoELayer")):
            module.forward = lambda x, *_args, **_kwargs: x
    own = config.model_type in ("minimax", "mamba", "mamba2", "falcon_mamba", "recurrent_gemma")  # caches of their own
    with torch.device("meta"):
        ids = torch.zeros(1, _TOKENS, dtype=torch.long)
        given = {} if own else {"past_key_values": DynamicCache(config=config.get_text_config())}
        filled = getattr(model(input_ids=ids, use_cache=True, **given), "past_key_values", None)
    if filled is None:
        return _projected(model, config), _states(getattr(model(input_ids=ids, use_cache=True), "cache_params", None))
    found = []
    for layer in filled.layers:
        keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
        if keys is None or keys.numel() == 0:
            continue
        elements = sum(int(part.shape[1] * part.shape[3]) for part in (keys, values))
        found.append((elements, getattr(layer, "sliding_window", None)))
    return found, _states(filled)


def _indexed(model: Any) -> int:
    """Bytes a token of the keys by which sparse attention chooses: as vLLM keeps them, FP8 with a float32 scale."""
    return sum(module.wk.out_features + 4 for module in model.modules() if hasattr(module, "wk") and hasattr(module, "wq_b"))


def _states(cache: Any) -> list[int]:
    convolution = recurrence = 0
    for layer in getattr(cache, "layers", ()):
        for state in (getattr(layer, "conv_states", None) or {}).values():
            convolution += state.numel() // state.shape[-1] * (state.shape[-1] - 1)
        for state in (getattr(layer, "recurrent_states", None) or {}).values():
            recurrence += state.numel()
    return [convolution, recurrence]


def _projected(model: Any, config: Any) -> list[tuple[int, int | None]]:
    """The same from the widths of key and value projections, of a model that shows no cache."""
    pairs = [module for module in model.modules() if hasattr(module, "k_proj") and hasattr(module, "v_proj")]
    window = getattr(config, "attention_window_size", None)
    return [(module.k_proj.out_features + module.v_proj.out_features, window) for module in pairs]


if __name__ == "__main__":
    sys.exit(main())
