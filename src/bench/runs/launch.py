"""`engine.json` and `launch.json`: an engine that is ready to start, and how a deployment's server is started on it, what of that
decides its load, and the memory that it takes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any


@dataclass(frozen=True, kw_only=True)
class EngineRecord:
    """How an engine's server is started.

    Attributes:
        engine: key of the engine. source: as configured. device: the backend, as configured.
        command: the command that starts the server (`source: command`), or the interpreter that runs it (a lock); None for an external
            server.
        locks: SHA-256 of each lock file by its path; None where the engine is not built from locks.
        freeze: packages of its environment, as `name==version`; None where the engine is not built from locks.
    """

    engine: str
    source: str
    device: str
    command: tuple[str, ...] | None = None
    locks: Mapping[str, str] | None = None
    freeze: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The engine's settings as the server was started; null where the engine chooses.

    Attributes:
        max_num_seqs: most sequences in a step. max_model_len: longest sequence (tokens). block_size: tokens in a block of the KV cache.
        dtype: type of the weights. kv_cache_dtype: type of the KV cache.
        prefix_caching: whether prompts share their prefixes' KV cache.
        random_weights: whether the weights are random. slots: whether a sequence holds a slot of the KV cache from its first token on,
            so that the share of slots in use is the cache's usage.
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
        parameters: parameters of the model; None where they cannot be counted.
        device_memory_bytes: memory of one device; None where no device was seen.
        weight_bytes: weights on that device; None where a server that is not ours may hold them in any type.
        overhead_bytes: what the engine keeps of it for itself.
        kv_cache_bytes: KV cache on that device; None where it is not known before a start.
        needed_bytes: what the fullest GPU, or all workers of a CPU engine together, take.
        kv_bytes_per_token: KV cache of a token, over all devices. kv_bytes_per_token_per_device: on that device.
            None where the type of a server that is not ours is not known.
        block_size: tokens in a block.
        kv_groups: groups of layers, each with its window (tokens; None without one) and how many there are.
        engines: engines of data parallelism. kv_tokens: tokens that the KV caches of all engines hold together.
    """

    parameters: int | None
    device_memory_bytes: int | None
    weight_bytes: int | None
    overhead_bytes: int
    kv_cache_bytes: int | None
    needed_bytes: int | None = None
    kv_bytes_per_token: int | None
    kv_bytes_per_token_per_device: int | None
    block_size: int
    kv_groups: tuple[tuple[int | None, int], ...] = ((None, 1),)
    engines: int = 1
    kv_tokens: int | None


@dataclass(frozen=True, kw_only=True)
class RouterLaunch:
    """The router in front of replicas.

    Attributes:
        balance: how HAProxy deals requests out, as the deployment has it. command: of another router, with `{port}` and `{workers}`;
            empty: HAProxy.
    """

    balance: str
    command: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A deployment before anything runs.

    Attributes:
        deployment: key of the deployment. model: key of the model, the deployment's where none is named. engine: key of the engine.
        digest: of the deployment's definition.
        tensor_parallel, pipeline_parallel, data_parallel: as configured. gpus: of one instance, the number that everything else uses;
            0 where it runs on a CPU, None where it is unknown.
        served_name: the model's name in requests. base_url: address of an external server; None for one that is started here.
        workers: addresses of the engines behind it, where it is a router.
        kind: which engine it is, by name. device: `cpu` or `cuda`.
        vocabulary: prompts are made of token ids below it, all of which the model's tokenizer has; None where none is known.
        argv: the server's command line, with `{port}`; None for an external server.
        settings: the engine's settings in them. configured: what the study says of how it runs, by column of the summary
            (`DeploymentSpec.settings`).
        engine_version: the version in the engine's environment, for a server that does not report its own.
        replicas: servers that are started, each with this command line. router: what stands in front of them; None: nothing does.
        prefill_workers: how many of `workers` only prefill, the first ones.
        environment: variables that are set for it, without secrets.
        plan: its memory, of replicas that of all together; None where the model's shape is not known.
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
    workers: tuple[str, ...] = ()
    prefill_workers: int = 0
    kind: str = "vllm"
    device: str
    vocabulary: int | None = None
    argv: tuple[str, ...] | None
    settings: Settings = field(default_factory=Settings)
    configured: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)
    engine_version: str | None = None
    replicas: int = 1
    router: RouterLaunch | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    plan: MemoryPlan | None

    @property
    def servers(self) -> int:
        """How many engines share its load: those behind a router, or one."""
        return max(1, len(self.workers), self.replicas)

    @property
    def kv_slots(self) -> int | None:
        """Slots of the KV caches of all replicas, which requests hold from their first token on; None for an engine without slots."""
        slots = self.settings.max_num_seqs if self.settings.slots else None
        return slots and self.replicas * slots


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
    """The flags of a command line; of one that stands there twice, the first."""
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


def _integer(value: Any) -> int | None:
    if isinstance(value, str):
        return int(value) if re.fullmatch(r"-?[0-9]{1,15}", value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
