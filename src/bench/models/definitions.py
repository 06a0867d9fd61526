"""What transformers' configuration classes say of the families that are read here: defaults, other names of keys, architectures.

`definitions.json` is generated from them by `python -m benchmarks.model_facts definitions`, and names the release. A config.json
leaves out what its family's class has as a default.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from bench.models.parts import Config

LATENT_KEYS = ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
# Families that are published with code of their own, and what their configuration classes have for keys that config.json leaves out.
_REMOTE: Mapping[str, Mapping[str, Any]] = {
    "baichuan": {"tie_word_embeddings": False},
    "chatglm": {"multi_query_attention": False, "tie_word_embeddings": False},
    "deepseek": {"first_k_dense_replace": 0, "moe_layer_freq": 1, "tie_word_embeddings": False},
    "internlm": {"bias": True, "tie_word_embeddings": False},
    "internlm2": {"bias": True, "tie_word_embeddings": False},
    "internlm3": {"tie_word_embeddings": False},
    "kimi_k2": {"tie_word_embeddings": False},
    "minicpm": {"num_experts": 0, "tie_word_embeddings": True},
    "mimo": {"tie_word_embeddings": False},
    "minimax_text_01": {"tie_word_embeddings": False},
    "nemotron-nas": {"tie_word_embeddings": False},
    "orion": {"tie_word_embeddings": False},
    "qwen": {"tie_word_embeddings": False},
}
# Other names that config.json files use for the same key, whatever the family's class calls it.
_NAMES: Mapping[str, Mapping[str, str]] = {
    "kimi_linear": {"num_experts_per_token": "num_experts_per_tok"},
    "lfm2": {"tie_embedding": "tie_word_embeddings"},
    "lfm2_moe": {"tie_embedding": "tie_word_embeddings"},
}
_ARCHITECTURES: Mapping[str, str] = {
    "MiniMaxText01ForCausalLM": "minimax_text_01",
    "DeepseekForCausalLM": "deepseek",
    "MiniCPMForCausalLM": "minicpm",
}


# Keys that transformers writes into every config.json of its own; left out, the file is not a whole model's. Below another model's
# configuration it writes only what differs from the class's defaults.
_ALWAYS = {
    *(
        "hidden_size",
        "d_model",
        "n_embd",
        "num_hidden_layers",
        "n_layer",
        "n_layers",
        "num_layers",
        "num_attention_heads",
        "n_head",
    ),
    *(
        "n_heads",
        "intermediate_size",
        "ffn_dim",
        "ffn_hidden_size",
        "vocab_size",
        "n_positions",
        "num_experts",
        "num_local_experts",
    ),
    *(
        "n_routed_experts",
        "moe_num_experts",
        "moe_intermediate_size",
        "num_experts_per_tok",
        "moe_k",
        "moe_topk",
        "kv_lora_rank",
    ),
}


SHAPE = re.compile(r"hidden_size|intermediate_size|latent|_rank$|_dim$|_heads$|_experts$|_width$|^num_.*layers$|_block_size$")
# Parts for speculation, for images and sound, of older layouts, and sums that follow from other keys.
_ELSEWHERE = re.compile(
    r"nextn|mtp|^index|rotary|cross_attention|vision|visual|image|audio|^mm_|qk_head_dim|attention_hidden_size|hash|draft|eagle|embed_dim$"
)

# Read here all the same, whatever the class calls them.
_READ = {
    *(
        "head_dim",
        "attention_head_dim",
        "num_experts",
        "num_hidden_layers",
        "time_step_rank",
        "global_head_dim",
        "moe_latent_size",
    ),
    *("swa_num_attention_heads", "swa_num_key_value_heads", "swa_head_dim", "swa_v_head_dim", "num_global_key_value_heads"),
    *("intermediate_size", "moe_intermediate_size", "num_key_value_heads", "block_ff_dim"),
    *("block_dim", "conv_dim", "num_heads"),  # LFM2's second names for its width and its heads
}


@cache
def _content() -> Mapping[str, Any]:
    content: dict[str, Any] = json.loads(Path(__file__).with_name("definitions.json").read_text(encoding="utf-8"))
    return content


def known_families() -> set[str]:
    """Names of all families that are read here, and of the models that hold one."""
    return {*_content()["families"], *_REMOTE}


def source() -> str:
    """The release from which the definitions were taken."""
    return str(_content()["source"])


@cache
def _by_architecture() -> Mapping[str, str]:
    families = _content()["families"].items()
    return {**{each["architecture"]: family for family, each in families if each.get("architecture")}, **_ARCHITECTURES}


def family_of(config: Config, part: Config) -> str:
    """`model_type` of the decoder; where it has none that is known, that of its place in a larger model, or of its architecture."""
    stated, outermost = _text(part.get("model_type")), _text(config.get("model_type"))
    known = _content()["families"]
    if stated is not None and (stated in known or stated in _REMOTE) and "parts" not in known.get(stated, {}):
        return stated
    outer = known.get(outermost, {}).get("parts", {})
    if part is not config and stated is None and len(outer) == 1:
        return str(next(iter(outer.values())))
    for place in (part, config):
        names = place.get("architectures")
        for name in names if isinstance(names, list) else ():
            if isinstance(name, str) and name in _by_architecture():
                return _by_architecture()[name]
    if stated in known and known[stated].get("parts"):
        return str(next(iter(known[stated]["parts"].values())))
    return stated or outermost or "(none stated)"


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def with_defaults(family: str, part: Config, *, nested: bool) -> dict[str, Any]:
    """The decoder's keys by the names of its family's class, with that class's defaults for what is left out.

    Args:
        nested: whether they stand below another model's keys, where any may be left out.
    """
    known = _content()["families"].get(family, {})
    names = {**known.get("aliases", {}), **_NAMES.get(family, {})}
    defaults = {**known.get("defaults", {}), **_REMOTE.get(family, {})}
    if not nested or not any(key in defaults or key in names for key in part):
        defaults = {key: value for key, value in defaults.items() if key not in _ALWAYS}
    # What is stated counts by either name, and more than a default does.
    stated = dict(part)
    for common, own in names.items():
        if common in part and own not in part:
            stated[own] = part[common]
        elif own in part and common not in part:
            stated[common] = part[own]
    filled = {**defaults, **stated}
    return {**{common: filled[own] for common, own in names.items() if own in filled}, **filled, "model_type": family}


def unread_keys(family: str, part: Config) -> list[str]:
    """Keys that state a size or a number and that the family's class does not have: the model is built in another way than is read."""
    known = _content()["families"].get(family)
    if known is None:
        return []
    names = {*known["defaults"], *known["others"], *known["aliases"], *known["aliases"].values(), *_NAMES.get(family, {})}
    return [
        key
        for key, value in part.items()
        if key not in names | _READ
        and value
        and not isinstance(value, str | bool)
        and SHAPE.search(key)
        and not _ELSEWHERE.search(key)
    ]


def tied_of(config: Config, c: Config) -> bool:
    """Whether the output layer is the embeddings: as the model says at its top, else as the decoder's keys do."""
    outer = config.get("tie_word_embeddings")
    return bool(c.get("tie_word_embeddings", True) if outer is None else outer)
