"""Requests of a trace that follow others, as an agent's do: `id`, `parent` (one, or a list of them) and `after_s`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from bench.errors import BenchError, shown
from bench.table_file import Row


@dataclass(frozen=True)
class Trees:
    """Of each row, by its place in the file: the rows that it follows (none: it arrives by itself), how long after the last of their
    answers (s), and the rows that follow it.
    """

    after: Sequence[Sequence[int]]
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
    after = [_parents(path, row, places) for row in rows]
    after_s: list[float] = []
    followers: list[list[int]] = [[] for _ in rows]
    for i, (row, parents) in enumerate(zip(rows, after, strict=True)):
        if parents and _given(row, arrival):
            raise _wrong(path, row, arrival, "is a moment, and the request follows a parent. Remove one of them")
        if not parents and _given(row, "after_s"):
            raise _wrong(path, row, "after_s", "counts from the answer to a parent, which is not given")
        after_s.append(_seconds(path, row) if _given(row, "after_s") else 0.0)
        for parent in parents:
            followers[parent].append(i)
    _refuse_circles(path, rows, after, followers)
    return Trees(after, after_s, followers)


def _parents(path: str, row: Row, places: Mapping[str, int]) -> list[int]:
    """`parent` is an id, or a list of ids (in a CSV file as JSON)."""
    if not _given(row, "parent"):
        return []
    value = row.values["parent"]
    names = [value]
    if str(value) not in places:
        names = value
        if isinstance(value, str) and value.startswith("["):
            with suppress(ValueError):
                names = json.loads(value)
        names = names if isinstance(names, list) else [value]
    for name in names:
        if str(name) not in places:
            raise _wrong(
                path, row, "parent", "is no request's id" if len(names) == 1 else f"names {name!r}, which is no request's id"
            )
    return [*dict.fromkeys(places[str(name)] for name in names)]


def _refuse_circles(path: str, rows: Sequence[Row], after: Sequence[Sequence[int]], followers: Sequence[Sequence[int]]) -> None:
    waits = list(map(len, after))
    reached = [i for i, number in enumerate(waits) if not number]
    for i in reached:
        for follower in followers[i]:
            waits[follower] -= 1
            if not waits[follower]:
                reached.append(follower)
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
    return row.values.get(column) not in (None, "", [], "[]")


def _wrong(path: str, row: Row, column: str, problem: str) -> BenchError:
    return BenchError(f"{path}: {row.place}, {column}: {shown(str(row.values.get(column)), 60)} {problem}.")
