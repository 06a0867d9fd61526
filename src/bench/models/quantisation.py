"""Which matrices of a checkpoint are quantised, and what each weight of them takes, by its `quantization_config`.

Sources: vLLM's readers (`model_executor/layers/quantization`, 0.32), compressed-tensors' schema, ModelOpt's
`hf_quant_config.json`. What patterns match is what vLLM matches: a module's name, a part of its path, a glob, or a regular expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import accumulate
from typing import Any

from bench.models.geometry import Weights
from bench.models.parts import Config, Layer, Matrix

# What engines call the layers' prefix in the names of one and the same model.
_PREFIXES = (
    "model.layers.",
    "model.language_model.layers.",
    "language_model.model.layers.",
    "backbone.layers.",
    "layers.",
    "transformer.h.",
)
# bytes of a weight, scales included, by ModelOpt's names; derived: bits ÷ 8 + bytes of a scale ÷ weights that share it
_MODELOPT = {
    "FP8": 1.0,
    "FP8_PER_CHANNEL_PER_TOKEN": 1.0,
    "FP8_PB_WO": 1 + 4 / 128**2,
    "NVFP4": 1 / 2 + 1 / 16,
    "NVFP4_AWQ": 1 / 2 + 1 / 16,
    "W4A16_NVFP4": 1 / 2 + 1 / 16,
    "MXFP4": 1 / 2 + 1 / 32,
    "MXFP8": 1 + 1 / 32,
    "W4A16_AWQ": 1 / 2 + 2 / 128,
    "W4A8_AWQ": 1 / 2 + 2 / 128,
    "W8A8_SQ": 1.0,
    "INT8": 1.0,
}
# bits of a weight by Quark's names; derived
_QUARK = {"fp8_e4m3": 8, "fp8_e5m2": 8, "int8": 8, "uint8": 8, "int4": 4, "uint4": 4, "fp4": 4}

Bytes = Callable[[Sequence[str], Matrix], float | None]


@dataclass(frozen=True)
class Quantisation:
    """How a checkpoint is quantised.

    Attributes:
        method: as its configuration calls it; None where it is not quantised.
        known: whether this module can tell what its weights take.
        each: bytes of a weight of a matrix with these names, scales included; None where it keeps the type of the rest.
    """

    method: str | None = None
    known: bool = True
    each: Bytes = lambda _names, _matrix: None


class _Patterns:
    """Names of modules, in any of the ways in which configurations give them."""

    def __init__(self, given: Iterable[Any]) -> None:
        texts = [str(each) for each in given]
        self._expressions = [re.compile(text[3:]) for text in texts if text.startswith("re:")]
        self._globs = [text for text in texts if not text.startswith("re:") and "*" in text]
        self._plain = {text for text in texts if not text.startswith("re:") and "*" not in text}

    def match(self, names: Sequence[str]) -> bool:
        """Whether one of a matrix's names is meant: whole, a part of its path, by a glob or a regular expression."""
        if any(expression.match(name) for expression in self._expressions for name in names):
            return True
        if any(fnmatchcase(name, glob) or fnmatchcase(name, f"{glob}.*") for glob in self._globs for name in names):
            return True
        return bool(self._plain) and any(part in self._plain for name in names for part in _parts_of(name))


def _parts_of(name: str) -> Iterable[str]:
    """A name's words, its beginnings and its ends."""
    words = name.split(".")
    yield from words
    yield from accumulate(words, "{}.{}".format)
    yield from accumulate(reversed(words), lambda end, word: f"{word}.{end}")


def quantisation_of(config: Config, part: Config, beside: Mapping[str, Any] | None = None) -> Quantisation:
    """What is said of quantisation in a config.json, at its top or beside the decoder's keys, or in a `hf_quant_config.json`.

    Raises:
        KeyError: the method's configuration lacks a key.
    """
    for place in (config, part):
        for key in ("quantization_config", "compression_config"):
            if place.get(key) is not None:
                return _read(place[key])
    if beside is not None:
        return _read(beside)
    if isinstance(config.get("quantization"), Mapping) and "bits" in config["quantization"]:
        return Quantisation("mlx", known=False)
    return Quantisation()


def _read(given: Mapping[str, Any]) -> Quantisation:
    inner = given.get("quantization", given)
    method = str(given.get("quant_method") or ("modelopt" if inner.get("quant_algo") else "unnamed")).lower()
    reader = _METHODS.get(method)
    if reader is None:
        return Quantisation(method, known=False)
    each = reader(inner)
    return Quantisation(method, known=each is not None, each=each or Quantisation.each)


def _all_but(skipped: _Patterns, each: float) -> Bytes:
    return lambda names, _matrix: None if skipped.match(names) else each


def _fp8(given: Mapping[str, Any]) -> Bytes:
    rows, columns = given.get("weight_block_size") or (0, 0)
    skipped = _Patterns([*(given.get("modules_to_not_convert") or ()), *(given.get("ignored_layers") or ())])
    return _all_but(skipped, 1 + (4 / (rows * columns) if rows else 0))


def _compressed(given: Mapping[str, Any]) -> Bytes | None:
    """compressed-tensors: groups of modules, each with a scheme of its own, and modules that are left out."""
    skipped, rules = _Patterns(given.get("ignore") or ()), []
    if not given["config_groups"]:
        raise ValueError("config_groups names no group")
    for group in given["config_groups"].values():
        weights = group.get("weights")
        targets = group.get("targets") or ["Linear"]
        if weights is not None:
            everything = any(target in ("Linear", "FusedMoE") for target in targets)
            rules.append((None if everything else _Patterns(targets), _scheme(weights)))

    def each(names: Sequence[str], _matrix: Matrix) -> float | None:
        if skipped.match(names):
            return None
        return next((size for targets, size in rules if targets is None or targets.match(names)), None)

    return each


def _scheme(weights: Mapping[str, Any]) -> float:
    """Bytes of a weight: FP4 of groups of 16 has an FP8 scale, of 32 a shared exponent; an integer's scale is 16 bit."""
    bits, group = weights["num_bits"], weights.get("group_size") or 0
    size: float = bits / 8
    if weights.get("block_structure") and weights.get("strategy") == "block":
        rows, columns = weights["block_structure"]
        return size + 4.0 / float(rows * columns)
    if group > 0:
        scale = 1 if weights.get("type") == "float" and bits == 4 else 2
        size += (scale + (0 if weights.get("symmetric", True) else bits / 8)) / group
    return size


def _packed(given: Mapping[str, Any]) -> Bytes:
    """GPTQ, AWQ and AutoRound: groups of integers with a 16-bit scale and a packed zero point."""
    skipped = _Patterns([*(given.get("modules_to_not_convert") or ()), *(given.get("ignored_layers") or ())])
    inside = given.get("modules_in_block_to_quantize")
    chosen = _Patterns(module for modules in inside for module in modules) if inside else None
    special = [*(given.get("dynamic") or {}).items(), *(given.get("extra_config") or {}).items()]

    def size(bits: float, group: int) -> float:
        return bits / 8 + ((2 + bits / 8) / group if group > 0 else 0)

    def each(names: Sequence[str], _matrix: Matrix) -> float | None:
        if skipped.match(names) or (chosen is not None and not chosen.match(names)):
            return None
        bits, group = given.get("bits") or given["w_bit"], given.get("group_size") or given.get("q_group_size") or 0
        for pattern, own in special:
            expression = re.sub(r"^[+-]:", "", pattern)
            if pattern in names or any(re.match(expression, name) for name in names):
                if pattern.startswith("-:"):
                    return None
                bits, group = own.get("bits", bits), own.get("group_size", group)
                break
        return None if bits >= 16 else size(bits, group)

    return each


def _experts_alone(each: float) -> Callable[[Mapping[str, Any]], Bytes]:
    def reader(given: Mapping[str, Any]) -> Bytes:
        skipped = _Patterns(given.get("modules_to_not_convert") or ())
        return lambda names, matrix: each if matrix.count > 1 and not skipped.match(names) else None

    return reader


def _bitsandbytes(given: Mapping[str, Any]) -> Bytes | None:
    """NF4 and FP4 in blocks of 64 with a float32 scale, or an 8-bit one that is scaled again; or INT8."""
    skipped = _Patterns(given.get("llm_int8_skip_modules") or ())
    if given.get("load_in_4bit"):
        return _all_but(skipped, 1 / 2 + (1 / 64 + 4 / 64 / 256 if given.get("bnb_4bit_use_double_quant") else 4 / 64))
    return _all_but(skipped, 1.0) if given.get("load_in_8bit") else None


def _modelopt(given: Mapping[str, Any]) -> Bytes | None:
    skipped = _Patterns([*(given.get("exclude_modules") or ()), *(given.get("ignore") or ())])
    layers = given.get("quantized_layers") or {}
    if layers:
        rules = [(_Patterns([name]), _MODELOPT.get(str(own.get("quant_algo")))) for name, own in layers.items()]
        if any(size is None for _, size in rules):
            return None
        sizes = {name: _MODELOPT[str(own["quant_algo"])] for name, own in layers.items()}

        def named(names: Sequence[str], _matrix: Matrix) -> float | None:
            if skipped.match(names):
                return None
            return next((sizes[part] for name in names for part in _parts_of(name) if part in sizes), None)

        return named
    groups = given.get("config_groups")
    if str(given.get("quant_algo")) == "MIXED_PRECISION":
        return _compressed(given) if groups else None
    each = _MODELOPT.get(str(given.get("quant_algo")))
    if each is None:
        return _compressed(given) if groups else None
    return _all_but(skipped, each)


def _quark(given: Mapping[str, Any]) -> Bytes | None:
    weight = (given.get("global_quant_config") or {}).get("weight")
    if not isinstance(weight, Mapping) or given.get("layer_quant_config") or weight.get("dtype") not in _QUARK:
        return None
    bits, group = _QUARK[str(weight["dtype"])], weight.get("group_size") or 0
    scale = 1 if weight["dtype"] == "fp4" else 2
    return _all_but(_Patterns(given.get("exclude") or ()), bits / 8 + (scale / group if group else 0))


def _hqq(given: Mapping[str, Any]) -> Bytes | None:
    own = (given.get("quant_config") or {}).get("weight_quant_params")
    if not own:
        return None
    shared = 4 / own["group_size"] if own.get("group_size") else 0
    return _all_but(_Patterns(given.get("skip_modules") or ()), own["nbits"] / 8 + shared)


_METHODS: Mapping[str, Callable[[Mapping[str, Any]], Bytes | None]] = {
    "auto-round": _packed,
    "autoround": _packed,
    "awq": _packed,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed,
    "experts_int8": _experts_alone(1.0),
    "fbgemm_fp8": _fp8,
    "fp8": _fp8,
    "gptq": _packed,
    "hqq": _hqq,
    "intel/auto-round": _packed,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "modelopt_mixed": _modelopt,
    "mxfp4": _experts_alone(1 / 2 + 1 / 32),
    "quark": _quark,
}


def weighed(layers: Sequence[Layer], quantisation: Quantisation) -> tuple[tuple[Weights, ...], tuple[Weights, ...], float]:
    """The matrices of each layer, those of routed experts apart; and the share of the experts that a token passes through."""
    dense, routed, used, count = [], [], 0, 0
    seen: dict[tuple[Matrix, ...], tuple[Weights, Weights]] = {}
    for i, layer in enumerate(layers):
        if quantisation.method is None and layer.matrices in seen:
            one, many = seen[layer.matrices]
        else:
            one, many = Weights(), Weights()
            for matrix in layer.matrices:
                weights = _weights(matrix, i, quantisation)
                one, many = (one + weights, many) if matrix.count == 1 else (one, many + weights)
            seen[layer.matrices] = one, many
        dense.append(one)
        routed.append(many)
        for matrix in layer.matrices:
            if matrix.count > 1:
                used, count = used + matrix.size * matrix.used, count + matrix.size * matrix.count
    return tuple(dense), tuple(routed), used / count if count else 1.0


def _weights(matrix: Matrix, layer: int, quantisation: Quantisation) -> Weights:
    size = matrix.size * matrix.count
    if quantisation.method is None:
        return Weights(size, size)
    each = quantisation.each([f"{prefix}{layer}.{matrix.name}" for prefix in _PREFIXES], matrix)
    return Weights(size, size) if each is None else Weights(size, 0, size * each)
