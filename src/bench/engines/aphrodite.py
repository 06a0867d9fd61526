"""Aphrodite, measured where it runs: vLLM's metrics under its own name (0.20: aphrodite/v1/metrics/loggers.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.engines.kind import Ask, Exposed, Kind, Labelled
from bench.engines.vllm import VLLM
from bench.records.deployment import KvFacts

_VLLM = VLLM()


def _own(name: str) -> str:
    return f"aphrodite:{name.removeprefix(_VLLM.prefix)}"


class Aphrodite(Kind):
    """Aphrodite."""

    name = "aphrodite"
    title = "Aphrodite"
    prefix = "aphrodite:"
    # Its versions are not vLLM's: the newest of each name.
    metrics = {
        metric: [Exposed(_own(rows[0].name), since="0.20.0", absent=rows[0].absent)] for metric, rows in VLLM.metrics.items()
    }
    facts = {fact: _own(name) for fact, name in VLLM.facts.items()}

    def info(self, ask: Ask) -> dict[str, Any] | None:
        """Its /version is like vLLM's, which is asked before."""
        return None

    def kv_facts(self, samples: Mapping[str, Sequence[Labelled]], info: Mapping[str, Any]) -> KvFacts:
        """As vLLM."""
        return _VLLM.kv_facts(samples, info)
