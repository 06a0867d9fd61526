"""Recommendations in words, and whom each is for."""

from __future__ import annotations

import math
from typing import assert_never

from bench.analysis.recommendation import (
    Admission,
    Advice,
    Eviction,
    Headroom,
    KvBytes,
    MemoryBound,
    Pools,
    SecondDevice,
    Stalls,
)
from bench.errors import shown_share
from bench.words.capacity import misses
from bench.words.loads import load_text

__all__ = ["role", "sentence"]

_ROLES: dict[type, str] = {
    KvBytes: "Developers",
    Pools: "System architects",
    Admission: "Providers",
    Headroom: "Providers",
    MemoryBound: "Hardware makers",
    SecondDevice: "Hardware makers",
    Stalls: "Hardware makers",
    Eviction: "Hardware makers",
}


def role(advice: Advice) -> str:
    """`Developers`, `System architects`, `Providers` or `Hardware makers`."""
    return _ROLES[type(advice.evidence)]


def sentence(advice: Advice) -> str:
    """A recommendation with its numbers."""
    match advice.evidence:
        case KvBytes() as found:
            return _kv_bytes(found)
        case Pools() as found:
            carried = ", ".join(f"{'at least ' * each.at_least}{each.rps:.3g} of {each.workload}" for each in found.carried)
            return (
                f"Give each type of workload a pool of its own: within its SLOs one {found.deployment} carries, in "
                f"requests/s, {carried}. A mixed pool is sized by the heaviest."
            )
        case Admission() as found:
            beyond = f" (C_max is {found.c_max:g}, and carries no more)" if found.operate_at < found.c_max else ""
            return (
                f"Admit at most {load_text(found.operate_at, found.unit)}{beyond} on an instance of {found.deployment} "
                f"({found.workload}), and add instances beyond: at {found.missed_at:g} it misses {misses(found.missed)}."
            )
        case Headroom() as found:
            lost = (
                f"; at {found.loss_at:g} throughput is {shown_share(found.loss)} below its highest"
                if found.loss is not None
                else ""
            )
            return (
                f"{_range(*found.requests)} requests of {found.workload} in flight leave 10 to 15 % of the KV cache of "
                f"{found.deployment} free, for requests that are longer than these. It is full at {found.full:g} and was not at "
                f"{found.below:g}{lost}."
            )
        case MemoryBound() as found:
            low, high = found.range
            return (
                f"Memory ends the growth of {found.deployment} ({found.workload}): its throughput peaks at {found.peak:.3g} requests, "
                f"between {low:g} and {high:g}, and its KV cache is full between {found.below:g} and {found.full:g}. Memory that is "
                "pooled, or a cheaper tier of it, would carry it further."
            )
        case SecondDevice() as found:
            return (
                f"More devices bought memory, not speed: at {found.level:g} requests of {found.workload}, {found.many} of them give "
                f"{found.gain:.2g} times the throughput of {found.few}, whose KV cache is full there. Pooled memory would do the same."
            )
        case Stalls() as found:
            return (
                f"On {found.deployment} ({found.workload}, {found.level:g}) one gap between tokens in a hundred is "
                f"{found.p99_s / found.p50_s:.2g} times the median ({1000 * found.p99_s:.3g} against {1000 * found.p50_s:.3g} ms) "
                "while nothing waits: prompts of other requests are computed in between. Prefill and decode on accelerators of "
                "their own would not disturb each other."
            )
        case Eviction() as found:
            (low, high), (first, last) = found.levels, found.hit_rates
            return (
                f"Tiered KV memory would keep what is shared: in {found.workload} on {found.deployment} the prefix cache serves "
                f"{shown_share(first)} of the prompts' tokens at {low:g} and {shown_share(last)} at {high:g}, where it is full."
            )
    assert_never(advice.evidence)


def _kv_bytes(found: KvBytes) -> str:
    (ours, theirs), (each, other) = found.requests, found.token_bytes
    but, of = "", f" of {found.workload}" if found.workload else ""
    if found.same_bytes:
        but = f" {found.same_bytes}, with other parameters but as many bytes per token, is full at {ours:g} too."
    if found.rps is not None:
        but += f" Within the SLOs it carries {found.rps[0]:.3g} requests/s against {found.rps[1]:.3g}: look at both."
    return (
        f"A model's KV bytes per token decide how many requests fit, not its parameters: {found.deployment} has "
        f"{found.parameters:.2g} times the parameters of {found.other}, and its KV cache is full at {ours:g} requests{of} instead of "
        f"{theirs:g}, because a token takes {each:,} bytes instead of {other:,} of the {found.kv_bytes / 2**20:,.4g} MiB that both "
        f"have.{but}"
    )


def _range(low: float, high: float) -> str:
    """The whole requests between two bounds, such as `13 to 14`; where there is none, the next below."""
    least, most = math.ceil(low), math.floor(high)
    return f"{least} to {most}" if least < most else f"{most}"
