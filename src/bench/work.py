"""Kinds of work that servers do, and what can be measured of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Work:
    """A kind of work. An endpoint has one (`bench.workloads.endpoints`).

    Attributes:
        name: in the summary. answer: what it is, such as `tokens`.
        unit: what throughput counts. counts: the column of a request that holds it.
        generates: whether an answer is tokens that come one after another: it has a length, which is asked for, and may be streamed, so
            that there are TTFT, ITL and TPOT. Else only E2E is known.
        divided: whether servers make several of a request, one a document, so that they count more requests than the client.
    """

    name: str
    answer: str
    unit: str
    counts: str
    generates: bool
    divided: bool = False


GENERATION = Work("generation", "tokens", unit="output tokens", counts="completion_tokens", generates=True)
EMBEDDING = Work("embedding", "vectors", unit="prompt tokens", counts="prompt_tokens", generates=False)
RERANKING = Work("reranking", "scores", unit="prompt tokens", counts="prompt_tokens", generates=False, divided=True)
WORKS = {work.name: work for work in (GENERATION, EMBEDDING, RERANKING)}


def unit_of(works: Iterable[str | None]) -> str:
    """What throughput counts, by the names of runs' work (None: generation); `tokens`, where they count different ones."""
    units = {WORKS[name].unit if name else GENERATION.unit for name in works}
    return units.pop() if len(units) == 1 else "tokens"
