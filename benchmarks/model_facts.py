"""Model facts by transformers itself: the families' definitions that `bench.models` rests on, and the truth that it is tested against.

    python -m benchmarks.model_facts definitions        # writes src/bench/models/definitions.json
    python -m benchmarks.model_facts truth              # writes tests/data/model_facts/expected.jsonl
    python -m benchmarks.model_facts errors [--all]     # compares bench.models with it, and prints a table

The first two need transformers and torch (`pip install transformers==5.23.0 torch`, the CPU build will do), the last needs neither.
`tests/data/model_facts/configs.jsonl` has published config.json files, whole, with the place where each was found. For the truth, each
model is built on torch's meta device, which has shapes and no memory; its parameters are counted, and a prompt of eight tokens is run
through it, so that the KV cache and its shapes are the model's own. Nothing of `bench.models` is used for it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
_DEFINITIONS = _ROOT / "src/bench/models/definitions.json"
_FACTS = _ROOT / "tests/data/model_facts"
_CONFIGS, _EXPECTED = _FACTS / "configs.jsonl", _FACTS / "expected.jsonl"
_TOKENS = 8
_REQUEST = 32_768
# Defaults that decide nothing about memory.
_IDLE = (
    "token_id",
    "dropout",
    "initializer",
    "_eps",
    "epsilon",
    "scal",
    "coef",
    "alpha",
    "rope_theta",
    "hidden_act",
    "activation",
    "use_cache",
    "output_",
    "return_dict",
    "time_step_m",
    "time_step_f",
    "time_step_l",
    "time_step_i",
    "chunk",
    "softcap",
    "clip",
    "std",
    "loss",
    "is_encoder",
    "multiplier",
    "problem_type",
    "label",
    "dtype",
    "architectures",
    "transformers_version",
    "routed",
    "summary",
    "attn_implementation",
    "topk_group",
    "n_group",
    "pretraining",
    "norm_topk",
    "partial",
    "layerdrop",
)
_KEEP = (
    "block_ffn_dim_multiplier",
    "n_groups",
    "attention_chunk_size",
    "time_step_rank",
    "n_routed_experts",
    "mamba_ssm_dtype",
)


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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", choices=["definitions", "truth", "errors"])
    parser.add_argument("--all", action="store_true", help="a line for each config, not for each family")
    options = parser.parse_args()
    if options.what == "definitions":
        _DEFINITIONS.write_text(json.dumps(_definitions(), separators=(",", ":"), sort_keys=True) + "\n", encoding="utf-8")
    elif options.what == "truth":
        with _EXPECTED.open("w", encoding="utf-8") as out:
            for row in _rows(_CONFIGS):
                try:
                    found = _truth(row)
                except (KeyError, ValueError, TypeError, AttributeError, RuntimeError) as error:
                    found = {"source": None, "error": f"{type(error).__name__}: {error}"[:200]}
                if row["name"] in _PUBLISHED:
                    stated = _PUBLISHED[row["name"]]
                    found |= {"source": "as published", "parameters": stated, "weight_bytes": 2 * stated}
                print(json.dumps({"name": row["name"], **found}, separators=(",", ":")), file=out, flush=True)
    else:
        _print_errors(each=options.all)


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    for line in file.read_text(encoding="utf-8").splitlines():
        yield json.loads(line)


# The families' definitions


def _definitions() -> dict[str, Any]:
    """Of each family that `bench.models` reads: the defaults of its configuration class, other names of its keys, its architecture."""
    import transformers  # noqa: PLC0415 - no dependency of Saturate's
    from transformers import CONFIG_MAPPING  # noqa: PLC0415
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES  # noqa: PLC0415

    from bench.models.families import READERS  # noqa: PLC0415

    families: dict[str, Any] = {}
    for family in CONFIG_MAPPING:
        cls = CONFIG_MAPPING[family]
        if family in READERS:
            families[family] = {
                "others": _others(cls),
                "defaults": _defaults(cls),
                "aliases": dict(cls.attribute_map),
                "architecture": NAMES.get(family) if isinstance(NAMES.get(family), str) else None,
            }
        parts = {
            key: part.model_type
            for key, part in getattr(cls, "sub_configs", {}).items()
            if getattr(part, "model_type", None) in READERS
        }
        if parts and family not in READERS:
            families[family] = {"parts": parts, "tied": getattr(cls, "tie_word_embeddings", None)}
    return {"source": f"transformers {transformers.__version__}", "families": families}


def _defaults(cls: Any) -> dict[str, Any]:
    import dataclasses  # noqa: PLC0415

    found = {}
    for field in dataclasses.fields(cls):
        value: Any = field.default
        if value is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        plain = value is None or isinstance(value, bool | int | str) or (isinstance(value, list | tuple) and len(value) < 9)
        idle = any(part in field.name for part in _IDLE) and field.name not in _KEEP
        if plain and not idle and value is not dataclasses.MISSING and value is not None:
            found[field.name] = list(value) if isinstance(value, tuple) else value
    return found


def _others(cls: Any) -> list[str]:
    """Keys of the class that state a size or a number and have no default."""
    import dataclasses  # noqa: PLC0415

    from bench.models.definitions import SHAPE  # noqa: PLC0415

    given = _defaults(cls)
    return sorted(field.name for field in dataclasses.fields(cls) if field.name not in given and SHAPE.search(field.name))


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
    found["weight_bytes"] = _weight_bytes(model, row)
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


def _weight_bytes(model: Any, row: Mapping[str, Any]) -> int | None:
    """Bytes of the weights: 2 for each parameter, and for those that the checkpoint quantises what its method takes, scales included.

    Quantised are the matrices and experts of the decoder's layers, but not routers, nor modules that the configuration leaves out.
    """
    import torch  # noqa: PLC0415

    config = row["config"]
    part = config.get("text_config") or {}
    given = config.get("quantization_config") or part.get("quantization_config") or row.get("hf_quant_config")
    each, left_out = _scheme(given)
    if given and each is None:
        return None
    matrices = {
        f"{name}.weight"
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
        and not name.endswith(("gate", "router", "classifier", "wg"))
        and ".layers." in name
        and "vis" not in name
    }
    alone = (given or {}).get("quant_method") == "mxfp4"
    total = 0.0
    for name, parameter in model.named_parameters():
        expert = "experts." in name and parameter.dim() == 3 and "shared" not in name
        quantised = each is not None and (expert or (name in matrices and not alone))
        total += parameter.numel() * (each if quantised and not _left_out(name.removesuffix(".weight"), left_out) else 2)
    return round(total)


def _scheme(given: Mapping[str, Any] | None) -> tuple[float | None, list[str]]:
    """Bytes of a quantised weight, and the names of what is not; None where a checkpoint mixes several schemes, or has none."""
    if not given:
        return None, []
    inner = given.get("quantization", given)
    left_out = [name for key in ("modules_to_not_convert", "ignore", "exclude_modules") for name in inner.get(key) or ()]
    algorithm, groups = inner.get("quant_algo"), list((inner.get("config_groups") or {}).values())
    if algorithm == "MIXED_PRECISION" or inner.get("quantized_layers"):
        return None, left_out
    if algorithm == "NVFP4":
        return 1 / 2 + 1 / 16, left_out
    if algorithm == "FP8" or inner.get("quant_method") == "fp8":
        rows, columns = inner.get("weight_block_size") or (0, 0)
        return 1 + (4 / (rows * columns) if rows else 0), left_out
    if inner.get("quant_method") == "mxfp4":
        return 1 / 2 + 1 / 32, left_out
    if len(groups) == 1:
        weights = groups[0]["weights"]
        scale = 1 if weights["type"] == "float" and weights["num_bits"] == 4 else 2
        return weights["num_bits"] / 8 + (scale / weights["group_size"] if weights.get("group_size") else 0), left_out
    return None, left_out


def _left_out(name: str, patterns: list[str]) -> bool:
    """Whether one of the patterns means this module, by its name here or by the names of the published checkpoints."""
    import fnmatch  # noqa: PLC0415
    import re  # noqa: PLC0415

    renamed = [("model.language_model.", "language_model.model."), ("model.layers.", "backbone.layers."), ("model.", "")]
    for each in [name, *(name.replace(*pair, 1) for pair in renamed)]:
        for pattern in patterns:
            if pattern.startswith("re:"):
                if re.match(pattern[3:], each):
                    return True
            elif fnmatch.fnmatch(each, pattern) or fnmatch.fnmatch(each, f"{pattern}.*") or f".{pattern}." in f".{each}.":
                return True
    return False


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


# Errors


def _print_errors(*, each: bool) -> None:
    """What `bench.models` says of each config against the truth: shares, or why it says nothing."""
    from bench.errors import BenchError  # noqa: PLC0415
    from bench.models import geometry_of, kv_bytes_of_sequence, kv_bytes_per_token  # noqa: PLC0415

    expected = {row["name"]: row for row in _rows(_EXPECTED)}
    found = []
    for row in _rows(_CONFIGS):
        truth, line = expected[row["name"]], {"name": row["name"], "family": row["config"].get("model_type")}
        try:
            geometry = _geometry(geometry_of, row)
        except BenchError as error:
            found.append({**line, "unknown": str(error)})
            continue
        said = {
            "kv_bytes_per_token": kv_bytes_per_token(geometry, "bfloat16"),
            "kv_bytes_per_request": kv_bytes_of_sequence(geometry, _REQUEST, "bfloat16") - _state_bytes(geometry),
            "parameters": geometry.parameters if getattr(geometry, "weighed", True) else None,
            "weight_bytes": _weights(geometry),
        }
        found.append(line | {name: _share(value, truth.get(name)) for name, value in said.items()})
    names = ("kv_bytes_per_token", "kv_bytes_per_request", "parameters", "weight_bytes")
    print(f"{'model':58} {'family':20} " + " ".join(f"{name:>20}" for name in names))
    shown = (
        found if each else [row for row in found if any(abs(row.get(name) or 0) > 0.01 for name in names) or "unknown" in row]
    )
    for row in shown:
        cells = " ".join(f"{'–' if row.get(name) is None else f'{row[name]:+.2%}':>20}" for name in names)
        print(f"{row['name'][:57]:58} {row['family']!s:20} {row['unknown'][:86] if 'unknown' in row else cells}")
    print(f"\n{len(found)} configs of {len({row['family'] for row in found})} families; {len(shown)} lines shown")
    for name in names:
        errors = [row[name] for row in found if row.get(name) is not None]
        wrong = sum(abs(error) > 0.01 for error in errors)
        median = statistics.median(map(abs, errors)) if errors else 0
        least, most = min(errors, default=0), max(errors, default=0)
        unknown = sum(name in truth for truth in expected.values()) - len(errors)
        print(
            f"{name:20} known {len(errors):4}, beyond 1 %: {wrong:3}, median {median:.2%}, "
            f"from {least:+.1%} to {most:+.1%}, unknown {unknown}"
        )


def _geometry(geometry_of: Any, row: Mapping[str, Any]) -> Any:
    """With what lies beside the config.json, for the version that reads it."""
    beside = row.get("hf_quant_config")
    return geometry_of(row["config"], beside) if beside and geometry_of.__code__.co_argcount > 1 else geometry_of(row["config"])


def _state_bytes(geometry: Any) -> int:
    """Of the version that knows states; they are no part of the KV cache."""
    try:
        from bench.models import state_bytes_per_sequence  # noqa: PLC0415
    except ImportError:
        return 0
    return state_bytes_per_sequence(geometry, "bfloat16")


def _weights(geometry: Any) -> int | None:
    from bench.models import weight_bytes  # noqa: PLC0415

    # bace824 printed the weights of families that it did not know, with a note.
    return weight_bytes(geometry, "bfloat16") if getattr(geometry, "weighed", True) else None


def _share(said: float | None, truth: float | None) -> float | None:
    return None if said is None or not truth else said / truth - 1


if __name__ == "__main__":
    sys.exit(main())
