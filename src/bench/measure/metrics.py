"""A first look at an exposition while a session measures: which metrics it has, and the values of a few. `bench.parse` reads it all."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

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


def kv_facts(text: str, info: Mapping[str, Any]) -> dict[str, Any]:
    """The KV cache as a server's exposition tells it; of several engines behind it, that of the first. Null where it is not told.

    Args:
        info: what the server says of itself elsewhere.

    Returns:
        `kv_tokens`, `kv_blocks` and `block_size` (tokens), `prefix_caching`, and vLLM's settings of the cache, `cache_config`.
    """
    names = find_catalogue(metric_names(text)).facts
    told: dict[str, Sample] = {}
    for sample in _samples(text, names.values()) or ():
        told.setdefault(sample.name, sample)
    of = {fact: told[name] for fact, name in names.items() if name in told}
    config = dict(of["cache_config"].labels) if "cache_config" in of else {}
    caching: bool | None
    if config:
        tokens, blocks, size = None, _integer(config.get("num_gpu_blocks")), _integer(config.get("block_size"))
        caching = config.get("enable_prefix_caching") == "True"
    else:
        tokens, blocks, size = (
            int(of[fact].value) if fact in of else None for fact in ("kv_tokens", "kv_blocks", "block_size")
        )
        caching = not info["disable_radix_cache"] if "disable_radix_cache" in info else None  # SGLang's
    return {
        "kv_blocks": blocks,
        "block_size": size,
        "kv_tokens": blocks * size if tokens is None and blocks and size else tokens,
        "prefix_caching": caching,
        "cache_config": config,
    }


def _samples(text: str, names: Collection[str]) -> list[Sample] | None:
    """The samples that are called so; None where they cannot be read."""
    # No other line is read: what is odd about those is not asked here.
    lines = "".join(f"{line}\n" for line in text.splitlines() if _name(line) in names)
    try:
        return [sample for family in text_string_to_metric_families(lines) for sample in family.samples]
    except Exception:  # whatever a parser of other people's text may raise
        return None


def _integer(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _name(line: str) -> str:
    return _NAME_END.split(line, maxsplit=1)[0]
