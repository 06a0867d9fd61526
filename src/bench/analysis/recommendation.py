"""What a recommendation rests on: a small record for each kind. Whom it is for, and its sentence: `bench.words.advice`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from bench.analysis.judging import Miss

__all__ = [
    "Admission",
    "Advice",
    "Carried",
    "Eviction",
    "Evidence",
    "Headroom",
    "KvBytes",
    "MemoryBound",
    "Pools",
    "SecondDevice",
    "Stalls",
]


@dataclass(frozen=True)
class KvBytes:
    """A larger model whose KV cache, of as much memory, holds more requests than a smaller one's.

    Attributes:
        deployment, other: the larger model's and the smaller one's. parameters: the one's ÷ the other's. requests: that fill either
            cache, the larger model's first. token_bytes: of either cache. kv_bytes: the memory that both have. rps: requests/s that
            either carries within the SLOs; None where one is not known. same_bytes: a model with other parameters but the larger
            one's bytes a token and memory, which is full at as many requests; None where none was measured. workload: of all of them.
    """

    deployment: str
    other: str
    parameters: float
    requests: tuple[float, float]
    token_bytes: tuple[int, int]
    kv_bytes: int
    rps: tuple[float, float] | None
    same_bytes: str | None = None
    workload: str | None = None


@dataclass(frozen=True)
class Carried:
    """What one server carries of a workload (requests/s), or `at_least`."""

    workload: str
    rps: float
    at_least: bool


@dataclass(frozen=True)
class Pools:
    """Workloads of which one server carries amounts that surely differ, the most first."""

    deployment: str
    carried: tuple[Carried, ...]


@dataclass(frozen=True)
class Admission:
    """Where a curve is operated, its C_max, and by what it misses at `missed_at`."""

    deployment: str
    workload: str
    unit: str
    operate_at: float
    c_max: float
    missed_at: float
    missed: tuple[Miss, ...]


@dataclass(frozen=True)
class Headroom:
    """Requests that leave 15 and 10 % of a KV cache free, which is full at `full` and not at `below`.

    Attributes:
        loss: throughput lost (0–1) at `loss_at`, where that is beyond the peak; None where it is not.
    """

    deployment: str
    workload: str
    requests: tuple[float, float]
    full: float
    below: float
    loss_at: float | None
    loss: float | None


@dataclass(frozen=True)
class MemoryBound:
    """A throughput that peaks at `peak`, between the loads of `range`, while the KV cache fills between `below` and `full`."""

    deployment: str
    workload: str
    peak: float
    range: tuple[float, float]
    below: float
    full: float


@dataclass(frozen=True)
class SecondDevice:
    """`many` devices that give `gain` times the throughput of `few`, whose KV cache is full at that level."""

    workload: str
    level: float
    many: int
    few: int
    gain: float


@dataclass(frozen=True)
class Stalls:
    """Gaps between tokens (s), at a level at which nothing waits."""

    deployment: str
    workload: str
    level: float
    p50_s: float
    p99_s: float


@dataclass(frozen=True)
class Eviction:
    """The prefix cache's hit rate (0–1) at the lowest and the highest level, at which the KV cache is full."""

    deployment: str
    workload: str
    levels: tuple[float, float]
    hit_rates: tuple[float, float]


Evidence: TypeAlias = KvBytes | Pools | Admission | Headroom | MemoryBound | SecondDevice | Stalls | Eviction


@dataclass(frozen=True)
class Advice:
    """One recommendation: what the data shows, and the runs that carry it (`deployment/run`)."""

    evidence: Evidence
    runs: tuple[str, ...]
