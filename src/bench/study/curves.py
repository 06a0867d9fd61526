"""Which runs make a curve of throughput or latency over load. Seen as plain rows, before anything has run and afterwards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["CROSSED", "Rows", "crossed_factors", "families", "plain", "varied"]

Rows = Sequence[Mapping[str, Any]]
CROSSED = ("level", "prompt_fixed", "output_fixed")


def varied(rows: Rows, key: str, *, within: Sequence[str]) -> int:
    """The most values of `key` among rows that agree in `within`."""
    seen: dict[tuple[Any, ...], set[Any]] = defaultdict(set)
    for row in rows:
        if row.get(key) is not None:
            seen[tuple(row.get(other) for other in within)].add(row[key])
    return max(map(len, seen.values()), default=0)


def plain(rows: Rows) -> Rows:
    """The rows whose load is what is asked about.

    These are workloads whose lengths no ladder sweeps, and each length of those that one sweeps at several loads: a condition of its
    own, with a capacity of its own. Where factors are crossed, a load is one of them.
    """
    swept = [row for row in rows if row["workload"] != row["family"]]
    if not swept:
        return rows
    crossed = {row["family"] for row in _crossed(rows)} if crossed_factors(rows) else set()
    loads: dict[tuple[Any, ...], set[Any]] = defaultdict(set)
    for row in swept:
        if not (row["arrival"] == "burst" and row["family"] in crossed):
            loads[row["deployment"], row["workload"]].add(row["level"])
    several = {curve for curve, found in loads.items() if len(found) > 1}
    return [row for row in rows if row["workload"] == row["family"] or (row["deployment"], row["workload"]) in several]


def crossed_factors(rows: Rows) -> bool:
    """A family of bursts in which two of load and lengths are crossed, and three factors that vary in all."""
    crossed = _crossed(rows)
    return sum(_several(crossed, key) for key in (*CROSSED, "model", "tensor_parallel")) >= 3


def families(rows: Rows) -> list[list[Mapping[str, Any]]]:
    """The rows of each family of workloads."""
    found = defaultdict(list)
    for row in rows:
        found[row["family"]].append(row)
    return list(found.values())


def _crossed(rows: Rows) -> Rows:
    bursts = [row for row in rows if row["workload"] != row["family"] and row["arrival"] == "burst"]
    return [row for family in families(bursts) if sum(_several(family, key) for key in CROSSED) >= 2 for row in family]


def _several(rows: Rows, key: str) -> bool:
    return varied(rows, key, within=()) > 1
