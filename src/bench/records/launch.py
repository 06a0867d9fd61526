"""`launch.json`: how a deployment's server is started, what of it decides its load, and the memory that it takes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from bench.records.files import read_typed

__all__ = ["Launch", "MemoryPlan", "Settings", "flags_of", "read_launch", "settings_of"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings that a server is started with; null where none is given, and the engine chooses.

    Attributes:
        max_num_seqs: most sequences in a step. max_model_len: longest sequence (tokens). block_size: of the KV cache (tokens).
        dtype, kv_cache_dtype: of weights and KV cache. prefix_caching: whether prompts share their prefixes' KV cache.
        random_weights: whether the model has no others. slots: whether a sequence holds a slot of the KV cache from its first token on,
            so that the share of slots in use is its usage.
    """

    max_num_seqs: int | None = None
    max_model_len: int | None = None
    block_size: int | None = None
    dtype: str | None = None
    kv_cache_dtype: str | None = None
    prefix_caching: bool | None = None
    random_weights: bool | None = None
    slots: bool | None = None


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """What each device holds, in bytes and tokens, from geometry alone: of a device of the pipeline stage with the fewest blocks.

    Attributes:
        parameters: of the model. device_memory_bytes: None where no GPU was seen.
        weight_bytes, overhead_bytes, kv_cache_bytes: of that device; the KV cache is None where it is not known before a start.
        needed_bytes: what the fullest GPU, or all workers of a CPU engine together, take.
        kv_bytes_per_token: over all devices. kv_bytes_per_token_per_device: on that one.
        block_size: tokens in a block. kv_groups: window (tokens; None for none) and number of the groups of layers with it.
        engines: those of data parallelism. kv_tokens: slots of the KV cache of all of them together.
    """

    parameters: int
    device_memory_bytes: int | None
    weight_bytes: int
    overhead_bytes: int
    kv_cache_bytes: int | None
    needed_bytes: int | None = None
    kv_bytes_per_token: int
    kv_bytes_per_token_per_device: int
    block_size: int
    kv_groups: tuple[tuple[int | None, int], ...] = ((None, 1),)
    engines: int = 1
    kv_tokens: int | None


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A deployment before anything runs.

    Attributes:
        deployment, model, engine: their keys. digest: of the deployment.
        tensor_parallel, pipeline_parallel, data_parallel: as configured. gpus: of one instance, the number that everything else uses;
            0 where it runs on a CPU, None where it is unknown.
        served_name: the model's name for requests. base_url: of a server that is not ours; None for one that is.
        kind: which engine it is, as `bench.engines` calls it. device: the backend, `cpu` or `cuda`.
        vocabulary: size of the model's, None where it is not known.
        argv: the server's command line, with `{port}`; None for a server that is not ours. settings: what it sets of the engine.
        engine_version: of the engine's environment, for a server that does not report its own.
        afterwards: a command that removes what ends with no process, as a container. environment: variables, without secrets.
        plan: the memory; None where the model's shape is not known.
    """

    deployment: str
    model: str | None
    engine: str | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    data_parallel: int | None = None
    gpus: int | None = None
    digest: str | None = None
    served_name: str | None = None
    base_url: str | None = None
    kind: str = "vllm"
    device: str
    vocabulary: int | None = None
    argv: tuple[str, ...] | None
    settings: Settings = field(default_factory=Settings)
    engine_version: str | None = None
    afterwards: tuple[str, ...] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    plan: MemoryPlan | None


def read_launch(path: Path) -> Launch:
    """The launch in `path`; of an older version, GPUs and settings are those of its command line.

    Raises:
        BenchError: it names the file, the key and what is wrong.
    """
    older = {"gpus": _gpus, "settings": lambda content: vars(settings_of(flags_of(_words(content.get("argv")))))}
    return read_typed(Launch, path, "Remove it, and the next workflow resolves the deployment again.", older)


def settings_of(flags: Mapping[str, Any]) -> Settings:
    """The settings among vLLM's flags.

    Args:
        flags: by name, without dashes; a switch is True or False.
    """
    caching = flags.get("enable-prefix-caching")
    return Settings(
        max_num_seqs=_integer(flags.get("max-num-seqs")),
        max_model_len=_integer(flags.get("max-model-len")),
        block_size=_integer(flags.get("block-size")),
        dtype=_text(flags.get("dtype")),
        kv_cache_dtype=_text(flags.get("kv-cache-dtype")),
        prefix_caching=caching if isinstance(caching, bool) else None,
        random_weights=flags.get("load-format") == "dummy" if flags else None,
    )


def flags_of(argv: Sequence[str]) -> dict[str, str | bool]:
    """The flags of a command line, for what older versions recorded of a launch; of one that stands there twice, the first."""
    flags: dict[str, str | bool] = {}
    for word, after in zip_longest(argv, argv[1:]):
        if not word.startswith("--"):
            continue
        name, equals, value = word[2:].partition("=")
        if equals:
            flags.setdefault(name, value)
        elif after is not None and not after.startswith("--"):
            flags.setdefault(name, after)
        else:
            flags.setdefault(name.removeprefix("no-"), not name.startswith("no-"))
    return flags


def _gpus(content: Mapping[str, Any]) -> int | None:
    """GPUs of a launch whose version did not record them."""
    ours, argv = content.get("base_url") is None, _words(content.get("argv"))
    if content.get("device") == "cpu" and ours:
        return 0
    if not argv:
        return content.get("tensor_parallel") if ours else None
    flags = flags_of(argv)
    return math.prod(_integer(flags.get(f"{kind}-parallel-size")) or 1 for kind in ("tensor", "pipeline", "data"))


def _words(argv: Any) -> list[str]:
    return [str(word) for word in argv] if isinstance(argv, list) else []


def _integer(value: Any) -> int | None:
    if isinstance(value, str):
        return int(value) if re.fullmatch(r"-?[0-9]{1,15}", value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
