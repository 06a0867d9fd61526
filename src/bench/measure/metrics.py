"""A first look at an exposition while a session measures: which metrics it has, and the values of a few. `bench.parse` reads it all."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from bench.records.deployment import KvFacts
from bench.telemetry import find_catalogue

__all__ = ["kv_facts", "metric_names", "metric_values"]

_NAME_END = re.compile(r"[{ \t]")


def metric_names(text: str) -> set[str]:
    """Names of the samples of an exposition."""
    return {_name(line) for line in text.splitlines() if line.strip() and not line.startswith("#")}


def metric_values(text: str, names: Collection[str]) -> list[float] | None:
    """Values of the samples that are called so; None where they cannot be read."""
    samples = _samples(text, names)
    return None if samples is None else [float(sample.value) for sample in samples]


def kv_facts(text: str, info: Mapping[str, Any]) -> KvFacts:
    """The KV cache as a server's exposition tells it.

    Args:
        info: what the server says of itself elsewhere.

    Source: vLLM sums `num_gpu_blocks` over the engines of one server and exposes the sum with each of them (`_apply_ready_response` and
    `log_metrics_info`, 0.32); SGLang exposes each one's own.
    """
    names = find_catalogue(metric_names(text)).facts
    told: dict[str, dict[Any, Sample]] = {}
    for sample in _samples(text, names.values()) or ():
        # Ranks that share one engine's layers tell the same cache once more.
        engine = (sample.labels.get("engine"), sample.labels.get("dp_rank"))
        told.setdefault(sample.name, {}).setdefault(engine, sample)
    of = {fact: list(told[name].values()) for fact, name in names.items() if name in told}
    configs = [dict(sample.labels) for sample in of.get("cache_config", ())]
    caching: bool | None
    if configs:
        size = _common([_integer(config.get("block_size")) for config in configs])
        tokens, blocks = None, _blocks(configs)
        caching = _common([config.get("enable_prefix_caching") == "True" for config in configs])
    else:
        tokens, blocks = (
            _sum([_whole(each.value) for each in of[fact]]) if fact in of else None for fact in ("kv_tokens", "kv_blocks")
        )
        size = _common([_whole(each.value) for each in of.get("block_size", ())])
        caching = not info["disable_radix_cache"] if "disable_radix_cache" in info else None  # SGLang's
    return KvFacts(
        engines=max(map(len, of.values()), default=None),
        kv_blocks=blocks,
        block_size=size,
        kv_tokens=blocks * size if tokens is None and blocks and size else tokens,
        prefix_caching=caching,
        cache_config={key: _common([config.get(key) for config in configs]) for config in configs[:1] for key in config},
    )


def _blocks(configs: Sequence[Mapping[str, str]]) -> int | None:
    """Blocks of all of vLLM's engines together, of their settings of the cache.

    Each says the sum over its server's engines. They are added up only where they are of several servers: where they differ, or where
    one engine's tokens, which are never summed, fill all of its blocks.
    """
    counts = [_integer(config.get("num_gpu_blocks")) for config in configs]
    own = [_integer(config.get("kv_cache_size_tokens")) for config in configs]
    sizes = [_integer(config.get("block_size")) for config in configs]
    if None in counts:
        return None
    whole = [count * size for count, size in zip(counts, sizes, strict=True) if count and size]
    return sum(filter(None, counts)) if len(set(counts)) > 1 or own == whole else counts[0]


def _common(values: Sequence[Any]) -> Any:
    """What all of them are; None where they differ, or there are none."""
    return values[0] if values and all(value == values[0] for value in values) else None


def _samples(text: str, names: Collection[str]) -> list[Sample] | None:
    """The samples that are called so; None where they cannot be read."""
    # No other line is read: what is odd about those is not asked here.
    lines = "".join(f"{line}\n" for line in text.splitlines() if _name(line) in names)
    try:
        return [sample for family in text_string_to_metric_families(lines) for sample in family.samples]
    except Exception:  # whatever a parser of other people's text may raise
        return None


def _sum(values: Sequence[int | None]) -> int | None:
    """The sum, if each is known."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _whole(value: float) -> int | None:
    """A value as a count; None where it is none, such as NaN."""
    return int(value) if 0 <= value < 2**53 else None


def _integer(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch("[0-9]{1,15}", text) else None


def _name(line: str) -> str:
    return _NAME_END.split(line, maxsplit=1)[0]
