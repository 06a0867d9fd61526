"""Which figures a study has: those whose question its runs can answer. Nothing is drawn or imported for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

__all__ = ["FIGURES", "figure_names", "figures_of"]

Rows = Sequence[Mapping[str, Any]]
_SHAPE = ("deployment", "family", "axis", "level", "prompt_fixed", "output_fixed")


def figures_of(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Names of the figures that apply to `rows`, in the order in which a report shows them.

    Args:
        rows: the runs, by what a study can vary: `Plan.rows`, or rows of the summary table.
    """
    known = list(rows)
    return [name for name, applies in FIGURES.items() if applies(known)]


def figure_names() -> list[str]:
    """All figures there are; each is drawn by the file of its name in `charts/`."""
    return list(FIGURES)


def varied(rows: Rows, key: str, *, within: Sequence[str]) -> int:
    """The most values of `key` among rows that agree in `within`."""
    seen: dict[tuple[Any, ...], set[Any]] = defaultdict(set)
    for row in rows:
        if row.get(key) is not None:
            seen[tuple(row.get(other) for other in within)].add(row[key])
    return max(map(len, seen.values()), default=0)


def _levels(fewest: int) -> Callable[[Rows], bool]:
    """A curve with so many levels of load."""
    return lambda rows: varied(rows, "level", within=("deployment", "workload", "axis")) >= fewest


def _lengths(key: str) -> Callable[[Rows], bool]:
    """Three lengths or more at one load, all else alike."""
    within = [other for other in _SHAPE if other != key]
    return lambda rows: varied(rows, key, within=within) >= 3


def _streaming(rows: Rows) -> bool:
    return varied(rows, "stream", within=[key for key in _SHAPE if key != "family"]) == 2


def _tensor_parallel(rows: Rows) -> bool:
    return varied(rows, "tensor_parallel", within=("model", "engine", "workload", "axis", "level")) >= 2


def _streams(rows: Rows) -> bool:
    return any(row.get("stream") is not False for row in rows)


def _compared(rows: Rows) -> bool:
    """The baseline and another deployment under the same load."""
    load = ("workload", "axis", "level")
    sides: dict[bool, set[tuple[Any, ...]]] = {True: set(), False: set()}
    for row in rows:
        sides[bool(row.get("baseline"))].add(tuple(row.get(key) for key in load))
    return bool(sides[True] & sides[False])


FIGURES: dict[str, Callable[[Rows], bool]] = {
    "comparison": _compared,
    "kv-saturation": _levels(2),
    "peak-throughput": _levels(2),
    "ttft": _levels(2),
    "saturation-by-kv-bytes": _levels(2),
    "memory-pressure": _levels(2),
    "throughput-over-time": _streams,
}
