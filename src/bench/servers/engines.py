"""The engines: what each one calls its metrics (`metrics.toml`) and, of those that are started here, what it needs and how it admits
requests.

To add one that is only measured, write it into `metrics.toml`; of another one its file. Name it in `ENGINES`; another package names its
class in its entry points (`bench.plugins`). Plans for GPUs that nobody has started (`bench plan`) are vLLM's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.plugins import plugged
from bench.runs.deployment import KvFacts
from bench.servers.kind import (
    Ask,
    Exposed,
    Kind,
    Labelled,
    Managed,
    common,
    metric_tables,
    names_of,
    total,
    whole,
)
from bench.servers.llamacpp import LlamaCpp
from bench.servers.vllm import VLLM


class Measured(Kind):
    """An engine of which only its metrics are known: a table of `metrics.toml`."""

    def __init__(self, name: str) -> None:
        table: Mapping[str, Any] = metric_tables()["measured"][name]
        prefix = table["prefix"]
        self.name, self.title, self.prefix = name, table["title"], prefix  # type: ignore[misc] # of a class, where an engine is one
        self.metrics = names_of(name, prefix)  # type: ignore[misc]
        self.facts = {fact: prefix + each for fact, each in table.get("facts", {}).items()}  # type: ignore[misc]
        self.others = tuple(table.get("spelt", ()))  # type: ignore[misc]
        self.repeats, self.totals = table.get("repeats", ()), table.get("totals", {})  # type: ignore[misc]
        self._asked, self._blocks_alike = table.get("asked", ()), not table.get("unlike_blocks")

    def info(self, ask: Ask) -> dict[str, Any] | None:
        """What it answers at the first of its paths."""
        contents = map(ask, self._asked)
        return next((each for each in contents if isinstance(each, dict) and isinstance(each.get("version"), str)), None)

    def kv_facts(self, samples: Mapping[str, Sequence[Labelled]], info: Mapping[str, Any]) -> KvFacts:
        """Each engine exposes its own tokens and blocks."""
        tokens, blocks = (
            total([whole(value) for _, value in samples[fact]]) if fact in samples else None
            for fact in ("kv_tokens", "kv_blocks")
        )
        size = common([whole(value) for _, value in samples.get("block_size", ())])
        if tokens is None and blocks and size and self._blocks_alike:
            tokens = blocks * size
        caching = not info["disable_radix_cache"] if "disable_radix_cache" in info else None
        engines = max(map(len, samples.values()), default=None)
        return KvFacts(engines=engines, kv_blocks=blocks, block_size=size, kv_tokens=tokens, prefix_caching=caching)


class Aphrodite(Kind):
    """vLLM's metrics under another name; its versions are not vLLM's, so the newest of each. vLLM, asked before, answers alike."""

    name, title, prefix = "aphrodite", "Aphrodite", "aphrodite:"
    metrics = {
        metric: [Exposed("aphrodite:" + rows[0].name.removeprefix(VLLM.prefix), since="0.20.0", absent=rows[0].absent)]
        for metric, rows in VLLM.metrics.items()
    }
    facts = {fact: "aphrodite:" + each.removeprefix(VLLM.prefix) for fact, each in VLLM.facts.items()}

    def info(self, ask: Ask) -> dict[str, Any] | None:
        return None

    def kv_facts(self, samples: Mapping[str, Sequence[Labelled]], info: Mapping[str, Any]) -> KvFacts:
        return VLLM().kv_facts(samples, info)


_OWN = (VLLM(), LlamaCpp(), *map(Measured, metric_tables()["measured"]), Aphrodite())
ENGINES: tuple[Kind, ...] = (*_OWN, *(kind() for kind in plugged("engine", [kind.name for kind in _OWN]).values()))
MANAGED: dict[str, Managed] = {kind.name: kind for kind in ENGINES if isinstance(kind, Managed)}  # those that are started here


def managed(name: str) -> Managed:
    """The engine that a configuration calls `name`."""
    return MANAGED[name]
