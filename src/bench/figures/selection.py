"""Which figures a study has: those whose question its runs can answer. Nothing is drawn or imported for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

__all__ = ["ALIKE", "CROSSED", "FIGURES", "figure_names", "figures_of"]

Rows = Sequence[Mapping[str, Any]]
_FEWEST_LENGTHS = 3
# Workloads that are alike in these differ by whether they stream, or not at all.
ALIKE = ("deployment", "arrival", "axis", "level", "prompt_fixed", "output_fixed", "endpoint", "cache", "turns")
CROSSED = ("level", "prompt_fixed", "output_fixed")


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
    """A curve with so many levels of load, of a workload whose lengths no ladder sweeps."""
    return lambda rows: varied(_plain(rows), "level", within=("deployment", "workload", "axis")) >= fewest


def _plain(rows: Rows) -> Rows:
    return [row for row in rows if row["workload"] == row["family"]]


def _lengths(key: str) -> Callable[[Rows], bool]:
    """Three lengths or more at one load, all else alike, and no other length swept beside them (that is a study of factors)."""
    other = "output_fixed" if key == "prompt_fixed" else "prompt_fixed"

    def applies(rows: Rows) -> bool:
        families = defaultdict(list)
        for row in rows:
            families[row["family"]].append(row)
        alone = [row for family in families.values() if varied(family, other, within=()) == 1 for row in family]
        return varied(alone, key, within=("deployment", "family", "axis", "level")) >= _FEWEST_LENGTHS

    return applies


def _streaming(rows: Rows) -> bool:
    return varied([row for row in rows if row.get("prompt_fixed")], "stream", within=ALIKE) == 2


def _tensor_parallel(rows: Rows) -> bool:
    return varied(_plain(rows), "tensor_parallel", within=("model", "engine", "workload", "axis", "level")) >= 2


def _on_gpus(rows: Rows) -> bool:
    """Runs on GPUs under loads of their own, whether or not anything could be told of these."""
    return any(row.get("device") == "cuda" for row in _plain(rows))


def _factors(rows: Rows) -> bool:
    """A family of bursts in which two of load and lengths are crossed, and three factors that vary in all."""
    families = defaultdict(list)
    for row in rows:
        if row["workload"] != row["family"] and row["arrival"] == "burst":
            families[row["family"]].append(row)
    crossed = [row for family in families.values() if sum(_several(family, key) for key in CROSSED) >= 2 for row in family]
    return sum(_several(crossed, key) for key in (*CROSSED, "model", "tensor_parallel")) >= 3


def _several(rows: Rows, key: str) -> bool:
    return varied(rows, key, within=()) > 1


def _over_time(rows: Rows) -> bool:
    return any(row.get("stream") is not False and (row.get("output_fixed") or 2) > 1 for row in _plain(rows))


def _compared(rows: Rows) -> bool:
    """The baseline and another deployment under the same load."""
    load = ("workload", "axis", "level")
    sides: dict[bool, set[tuple[Any, ...]]] = {True: set(), False: set()}
    for row in rows:
        sides[bool(row.get("baseline"))].add(tuple(row.get(key) for key in load))
    return bool(sides[True] & sides[False])


def _flag(key: str) -> Callable[[Rows], bool]:
    """Whether the study's decision asks for it, and there is a curve."""
    curve = _levels(2)
    return lambda rows: any(row.get(key) for row in rows) and curve(rows)


FIGURES: dict[str, Callable[[Rows], bool]] = {
    "comparison": _compared,
    "fleet": _flag("slo"),
    "kv-saturation": _levels(2),
    "peak-throughput": _levels(2),
    "performance-profile": _levels(4),
    "ttft": _levels(2),
    "saturation-by-kv-bytes": _levels(2),
    "memory-pressure": _levels(2),
    "economics": _flag("priced"),
    "throughput-over-time": _over_time,
    "tensor-parallel": _tensor_parallel,
    "gpu-balance": _on_gpus,
    "gpu-memory-power": _on_gpus,
    "ttft-by-prompt-length": _lengths("prompt_fixed"),
    "latency-by-output-length": _lengths("output_fixed"),
    "streaming": _streaming,
    "factor-correlations": _factors,
    "factor-importance": _factors,
    "factor-panels": _factors,
    "utilisation-by-batch": _factors,
}
