"""Requests of a trace that follow others, as an agent's do: `id`, `parent` and `after_s`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bench.errors import BenchError, shown
from bench.table_file import Row

__all__ = ["Trees", "in_trees"]


@dataclass(frozen=True)
class Trees:
    """Of each row, by its place in the file: the row that it follows (None: it arrives by itself), how long after that one's answer
    (s), and the rows that follow it.
    """

    after: Sequence[int | None]
    after_s: Sequence[float]
    followers: Sequence[Sequence[int]]


def in_trees(path: str, rows: Sequence[Row], arrival: str) -> Trees | None:
    """Which request follows which; None where none does.

    Args:
        arrival: the column with moments, which a request that follows another has not.

    Raises:
        BenchError: a parent is not there, an id is there twice, requests follow each other in a circle, or a row has both a moment and
            a parent.
    """
    if not any(_given(row, "parent") for row in rows):
        return None
    places: dict[str, int] = {}
    for i, row in enumerate(rows):
        if _given(row, "id") and places.setdefault(str(row.values["id"]), i) != i:
            raise _wrong(path, row, "id", f"is that of {rows[places[str(row.values['id'])]].place} too")
    after: list[int | None] = []
    after_s: list[float] = []
    followers: list[list[int]] = [[] for _ in rows]
    for i, row in enumerate(rows):
        parent = str(row.values["parent"]) if _given(row, "parent") else None
        if parent is not None and parent not in places:
            raise _wrong(path, row, "parent", "is no request's id")
        if parent is not None and _given(row, arrival):
            raise _wrong(path, row, arrival, "is a moment, and the request follows a parent. Remove one of them")
        if parent is None and _given(row, "after_s"):
            raise _wrong(path, row, "after_s", "counts from the answer to a parent, which is not given")
        after.append(None if parent is None else places[parent])
        after_s.append(_seconds(path, row) if _given(row, "after_s") else 0.0)
        if parent is not None:
            followers[places[parent]].append(i)
    _refuse_circles(path, rows, after, followers)
    return Trees(after, after_s, followers)


def _refuse_circles(path: str, rows: Sequence[Row], after: Sequence[int | None], followers: Sequence[Sequence[int]]) -> None:
    reached = [i for i, before in enumerate(after) if before is None]
    for i in reached:
        reached += followers[i]
    left = sorted(set(range(len(rows))) - set(reached))
    if left:
        raise _wrong(path, rows[left[0]], "parent", "follows the request itself, by way of others or at once")


def _seconds(path: str, row: Row) -> float:
    try:
        value = float(row.values["after_s"])
    except (TypeError, ValueError):
        value = math.nan
    if not 0 <= value < math.inf or isinstance(row.values["after_s"], bool):
        raise _wrong(path, row, "after_s", "is not a number of seconds, 0 or more")
    return value


def _given(row: Row, column: str) -> bool:
    return row.values.get(column) not in (None, "")


def _wrong(path: str, row: Row, column: str, problem: str) -> BenchError:
    return BenchError(f"{path}: {row.place}, {column}: {shown(str(row.values.get(column)), 60)} {problem}.")
