"""The monitoring bands in words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BandText:
    """What a band is called, the range that is wanted, and what it means to be below or above; empty where that says nothing."""

    title: str
    wanted: str
    below: str = ""
    above: str = ""


# By the keys of `bench.analysis.BANDS`.
BANDS = {
    "gpu_memory": BandText(
        "GPU memory", "80–90 %", "memory to spare: more KV cache, or a smaller GPU", "little left for a spike"
    ),
    "kv_usage": BandText("peak KV usage", "75–90 %", "capacity to spare", "near its end: requests will wait or be preempted"),
    "preempted": BandText("preempted requests", "under 5 %", above="work is thrown away and done again"),
    "prefix": BandText("prefix hits, of those implied", "95 % or more", "what is shared was evicted, or routed elsewhere"),
    "queue": BandText("standing queue", "near zero", above="requests wait: more are there than run"),
}
