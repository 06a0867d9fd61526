"""A first look at an exposition while a session measures: which metrics it has, and the values of a few. `bench.parse` reads it all."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from bench.runs.deployment import KvFacts
from bench.servers.engines import Kind
from bench.servers.kind import Labelled
from bench.servers.metrics import apart, find_catalogue

_NAME_END = re.compile(r"[{ \t]")
_SAMPLE = re.compile(r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\s*\{.*\}\s*|\s+)[+-]?(?:\.?\d|inf|nan)", re.IGNORECASE)


def metric_names(text: str) -> set[str]:
    """Names of the samples of an exposition; none of a text that is not one."""
    found = [_SAMPLE.match(line) for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    names = [match[1] for match in found if match]
    return set(names) if 2 * len(names) > len(found) else set()  # a page may have a line that looks like a sample


def metric_values(text: str, names: Collection[str], kind: Kind | None = None) -> list[float] | None:
    """Values of the samples with these names that count each request once (`apart`); None where they cannot be read.

    Args:
        kind: of the engine; None: found by the exposition.
    """
    samples = _samples(text, names)
    if samples is None:
        return None
    if kind := kind or find_catalogue({sample.name for sample in samples}).kind:
        alike = [[sample for sample in samples if sample.name == name] for name in names]
        samples = [series[place] for series in alike for place in apart([sample.labels for sample in series], kind)]
    return [float(sample.value) for sample in samples]


def engine_kind(text: str) -> str | None:
    """Which engine exposes it; None where none that is known does."""
    found = find_catalogue(metric_names(text)).kind
    return found.name if found else None


def kv_facts(text: str, info: Mapping[str, Any], kind: Kind | None = None, *, alike: bool = True) -> KvFacts:
    """The KV cache as a server's exposition reports it, of all engines behind the endpoint together.

    Args:
        info: what the server reports elsewhere. kind: which engine it is; None: by its exposition.
        alike: whether all of the model's layers keep the same tokens. Else blocks × tokens of a block are no sequence's tokens, and
            only tokens that the server reports are known.
    """
    found = find_catalogue(metric_names(text))
    kind = kind or found.kind
    if kind is None:
        return KvFacts(kv_blocks=None, block_size=None, kv_tokens=None)
    samples = _samples(text, found.facts.values()) or ()
    exposed: dict[str, list[Labelled]] = {}
    for fact, name in found.facts.items():
        series = [(sample.labels, sample.value) for sample in samples if sample.name == name]
        if series:
            exposed[fact] = [series[place] for place in apart([labels for labels, _ in series], kind)]
    facts = kind.kv_facts(exposed, info)
    product = facts.kv_blocks and facts.block_size and facts.kv_blocks * facts.block_size
    return facts if alike or facts.kv_tokens != product else replace(facts, kv_tokens=None)


def _samples(text: str, names: Collection[str]) -> list[Sample] | None:
    # No other line is read: what is odd about those is not asked here.
    lines = "".join(f"{line}\n" for line in text.splitlines() if _name(line) in names)
    try:
        return [sample for family in text_string_to_metric_families(lines) for sample in family.samples]
    except Exception:  # whatever a parser of other people's text may raise
        return None


def _name(line: str) -> str:
    return _NAME_END.split(line, maxsplit=1)[0]
