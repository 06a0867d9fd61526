"""Sets of prompts whose answers can be graded: a file of prompts with tests for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.table_file import read_rows
from bench.workloads.prompts import PromptFile
from bench.workloads.workload import Workload

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


def graded_sets(workloads: Iterable[Workload], say: Callable[[str], None]) -> list[str]:
    """The graded sets to which workloads keep single answers, as `read_set` takes them.

    Args:
        say: takes a line on each that cannot be graded, which must not cost a study its report.
    """
    kept = {
        workload.prompts.files[0]
        for mixed in workloads
        for workload in mixed.parts.values()
        if workload.keep_answers and workload.turn_count == 1 and isinstance(workload.prompts, PromptFile)
    }
    found = []
    for file in sorted(kept):
        try:
            if Path(file).is_file() and _has_tests(file) and read_set(Path(file)):
                found.append(file)
        except BenchError as error:
            say(f"Note: answers are not graded: {error}")
    return found


def _has_tests(file: str) -> bool:
    """Whether there are tests to grade its answers by; a text has no columns."""
    rows = [] if file.endswith((".txt", ".txt.gz")) else read_rows(file, what="file of prompts")
    return bool(rows) and set(_COLUMNS) <= rows[0].values.keys()


def read_set(path: Path) -> dict[str, Task]:
    """The tasks of a file, by the digest of the prompt that is sent, as `RequestRecord.prompt_digest` has it.

    Raises:
        BenchError: it cannot be read, lacks a column, or asks the same twice.
    """
    found = []
    for row in read_rows(str(path), what="graded set"):
        values: list[Any] = [row.values.get(name) for name in _COLUMNS]
        if missing := [name for name, text in zip(_COLUMNS, values, strict=True) if not isinstance(text, str) or not text]:
            raise BenchError(
                f"{path}: {row.place} has no text under {', '.join(missing)}. Each row needs {', '.join(_COLUMNS)}, as in HumanEval."
            )
        found.append(Task(*values))
    tasks: dict[str, Task] = {}
    for asked, task in zip(PromptFile(source="file", file=str(path)).read(), found, strict=True):
        if (digest := str(asked.digest)) in tasks:
            raise BenchError(
                f"{path}: {asked.place} repeats an earlier prompt, so their answers cannot be told apart. Remove one."
            )
        tasks[digest] = task
    return tasks
