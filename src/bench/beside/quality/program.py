"""From an answer to the program that is tested."""

from __future__ import annotations

import re
import textwrap

from bench.beside.quality.graded_set import Task

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
