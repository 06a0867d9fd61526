"""From kept answers to grades: the program in each answer that is tested, and which tasks of a set each run solved."""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from bench.beside.quality.graded_set import Task, graded_sets, read_set
from bench.beside.quality.sandbox import sandbox
from bench.errors import BenchError

_FENCED = re.compile(r"^[ \t]*```[^\n]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"^(?:def |async def |from |import |class |@)", re.MULTILINE)
# Where a model that goes on with a function has left it, as in the paper on Codex (Chen et al., 2021, section 3.1).
_LEFT = re.compile(r"\n(?:class |def |#|if |print\(|assert |```)")


def program_of(task: Task, answer: str) -> str:
    """The program of an answer: code that defines the function that was asked for.

    Of several blocks of code, the first that defines the function counts, else the first; without blocks, the text from its first line
    of code on. What stands ahead of the function in the task, such as imports, stands ahead of the answer's. An answer that does not
    define the function goes on with the task's text, and ends where something new begins at the margin.
    """
    defines = re.compile(rf"^def {re.escape(task.entry_point)}\s*\(", re.MULTILINE)
    blocks = [textwrap.dedent(block) for block in _FENCED.findall(answer)]
    whole = next((block for block in blocks if defines.search(block)), None)
    if whole is None and not blocks and defines.search(answer):
        first = _CODE.search(answer)
        assert first is not None  # the definition is one
        whole = answer[first.start() :]
    if whole is not None:
        heads = list(defines.finditer(task.prompt))
        return (task.prompt[: heads[-1].start()] if heads else "") + whole
    rest = blocks[0] if blocks else answer
    if blocks and not rest[:1].isspace():
        rest = textwrap.indent(rest, "    ")
    end = _LEFT.search(rest)
    return task.prompt + (rest[: end.start()] if end else rest)


_OPEN = (
    "Warning: programs are not cut off from the network and from your files here (`unshare` does not work, or Linux is older than "
    "5.12); the other limits hold. See SECURITY.md."
)


def grade(runs: Iterable[Mapping[str, Any]], sets: Iterable[str], say: Callable[[str], None]) -> list[dict[str, Any]]:
    """One row a run and task that it has an answer to; of conversations none, whose later answers are to other questions.

    Args:
        runs: rows of the summary table. sets: of `graded_sets`. say: takes a warning where the sandbox is open to the network.

    Returns:
        Rows of the table `grades` (docs/reference/analysis.md).

    Raises:
        BenchError: the sandbox cannot tell right programs from wrong ones here, or a task's tests take more than data.
    """
    tasks = {key: task for file in sets for key, task in read_set(Path(file)).items()}
    asked = [
        ((run["deployment"], run["run"], run["digest"]), tasks[answer["prompt_digest"]], answer["answer"])
        for run in runs
        if (run.get("turns") or 1) == 1
        for answer in run["kept_answers"] or ()
        if answer["answer"] is not None and answer["prompt_digest"] in tasks
    ]
    if not asked:
        return []
    with sandbox() as place:
        if not place.isolated:
            say(_OPEN)
        verdicts = place.verdicts([(program_of(task, answer), task) for _, task, answer in asked])
    right: dict[tuple[tuple[str, str, str], str], list[bool]] = defaultdict(list)
    for (run, task, _), verdict in zip(asked, verdicts, strict=True):
        if verdict == "no data":
            raise BenchError(
                f"the tests of {task.name} call it with values that are not data, such as a function, which the sandbox cannot pass "
                "on. Remove such tasks from the set."
            )
        right[run, task.name].append(verdict == "passed")
    names = ("deployment", "run", "digest", "task", "answers", "right")
    return [dict(zip(names, (*run, task, len(each), sum(each)), strict=True)) for (run, task), each in right.items()]


class Grading:
    """How the workflow grades a study's answers: it finds this by `bench.plugins`."""

    sets, grade = staticmethod(graded_sets), staticmethod(grade)
