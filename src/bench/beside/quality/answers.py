"""From kept answers to grades: which tasks of a set each run solved."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.beside.quality.calls import CallTask, right_calls
from bench.beside.quality.graded_set import Task, graded_sets, read_set, set_checksums
from bench.beside.quality.program import program_of
from bench.beside.quality.sandbox import sandbox
from bench.errors import BenchError

_OPEN = (
    "Warning: programs are not cut off from the network and from your files here (`unshare` does not work, or Linux is older than "
    "5.12); the other limits hold. See SECURITY.md."
)


class Grading:
    """How the workflow grades a study's answers: it finds this by `bench.plugins`. `sets`, `checksums`: of `graded_set`."""

    sets, checksums = staticmethod(graded_sets), staticmethod(set_checksums)

    @staticmethod
    def grade(
        runs: Iterable[Mapping[str, Any]], sets: Iterable[tuple[str, str | None]], say: Callable[[str], None]
    ) -> list[dict[str, Any]]:
        """As `grade`. Args: sets: of `sets`."""
        return grade(runs, {key: task for file, column in sets for key, task in read_set(Path(file), column).items()}, say)


def grade(
    runs: Iterable[Mapping[str, Any]], tasks: Mapping[str, Task | CallTask], say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """One row a run and task that it has an answer to; of conversations none, whose later answers are to other questions.

    Args:
        runs: rows of the summary table. tasks: of `read_set`. say: takes a warning where the sandbox is open to the network.

    Returns:
        Rows of the table `grades` (docs/reference/analysis.md).

    Raises:
        BenchError: the sandbox cannot tell right programs from wrong ones here, or no task's tests do with data alone.
    """
    asked = [
        ((run["deployment"], run["run"], run["digest"]), tasks[answer["prompt_digest"]], answer["answer"])
        for run in runs
        if (run.get("turns") or 1) == 1
        for answer in run["kept_answers"] or ()
        if answer["answer"] is not None and answer["prompt_digest"] in tasks
    ]
    programs = [(program_of(task, answer), task) for _, task, answer in asked if isinstance(task, Task)]
    ran = iter(_ran(programs, say) if programs else ())
    right: dict[tuple[tuple[str, str, str], str], list[bool | None]] = defaultdict(list)
    for run, task, answer in asked:
        right[run, task.name].append(right_calls(task, answer) if isinstance(task, CallTask) else next(ran))
    return [
        {
            **{"deployment": deployment, "run": name, "digest": digest, "task": task},
            **{"answers": len(each), "right": None if None in each else sum(map(bool, each))},
        }
        for ((deployment, name, digest), task), each in right.items()
    ]


def _ran(programs: Sequence[tuple[str, Task]], say: Callable[[str], None]) -> list[bool | None]:
    """Whether each program passes its tests; None where its task's need more than data, even if this one failed ahead of that."""
    with sandbox() as place:
        if not place.isolated:
            say(_OPEN)
        verdicts = place.verdicts(programs)
    lost = {task for (_, task), verdict in zip(programs, verdicts, strict=True) if verdict == "no data"}
    if len(lost) == len({task for _, task in programs}):
        raise BenchError("the tests of all tasks call their functions with what is no data, which the sandbox cannot hand on.")
    return [None if task in lost else verdict == "passed" for (_, task), verdict in zip(programs, verdicts, strict=True)]
