"""Sets of prompts whose answers can be graded: a file of prompts that has, beside each, the tests which an answer must pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.prompts import PromptFile
from bench.prompts.own import prompt_digest
from bench.study import Workload
from bench.table_file import read_rows

__all__ = ["Task", "graded_sets", "read_set"]

_COLUMNS = ("task_id", "prompt", "entry_point", "test")


@dataclass(frozen=True)
class Task:
    """A task and its tests.

    Attributes:
        name: such as `HumanEval/0`. prompt: the beginning of a program, which ends with the head and docstring of the function that is
            asked for. entry_point: that function's name. test: Python, which defines `check(candidate)`; it raises where that is wrong.
    """

    name: str
    prompt: str
    entry_point: str
    test: str


def graded_sets(workloads: Iterable[Workload]) -> list[tuple[str, str | None]]:
    """The graded sets to which workloads keep single answers, as `read_set` takes them: the file, and the column of its prompts."""
    kept = {
        (workload.prompts.files[0], workload.prompts.column)
        for workload in workloads
        if workload.keep_answers and workload.turn_count == 1 and isinstance(workload.prompts, PromptFile)
    }
    return sorted(each for each in kept if Path(each[0]).exists() and _is_set(each[0]))


def _is_set(file: str) -> bool:
    """Whether its first row has what answers are graded by; a text has no columns."""
    if file.endswith((".txt", ".txt.gz")):
        return False
    rows = read_rows(file, what="file of prompts")
    return bool(rows) and set(_COLUMNS) <= rows[0].values.keys()


def read_set(path: Path, column: str | None = None) -> dict[str, Task]:
    """The tasks of a file, by the digest of the prompt that is sent, as `RequestRecord.prompt_digest` has it.

    Args:
        column: of the prompts, as the configuration names it.

    Raises:
        BenchError: it cannot be read, lacks a column, or asks the same twice.
    """
    sent = PromptFile(source="file", file=str(path), column=column).read()
    tasks: dict[str, Task] = {}
    for row, (place, prompt) in zip(read_rows(str(path), what="graded set"), sent, strict=True):
        values: list[Any] = [row.values.get(name) for name in _COLUMNS]
        if missing := [name for name, value in zip(_COLUMNS, values, strict=True) if not isinstance(value, str) or not value]:
            raise BenchError(
                f"{path}: {place} has no text under {', '.join(missing)}. A graded set has {', '.join(_COLUMNS)} in each "
                "row, as HumanEval has."
            )
        digest = prompt_digest(prompt)
        if digest in tasks:
            raise BenchError(f"{path}: {place} asks what an earlier one does, so its answers cannot be told apart. Remove one.")
        tasks[digest] = Task(*values)
    return tasks
