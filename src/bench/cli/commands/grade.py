"""`bench grade`: how many tasks of a graded set do deployments solve, and by how much do they differ?"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.cli import completion
from bench.cli.entry import command
from bench.cli.options import Json, option
from bench.cli.output import print_json, print_table, status
from bench.errors import BenchError

if TYPE_CHECKING:
    import polars as pl

    from bench.analysis import Accuracy, AccuracyDifference
    from bench.grading import Sandbox, Task

_OPEN = (
    "Warning: programs are not cut off from the network here (`unshare` does not work); the other limits hold. See SECURITY.md."
)


@dataclass(frozen=True)
class _Graded:
    """A deployment's answers at one load. difference: from the baseline's there; None where there is none."""

    deployment: str
    workload: str
    level: float
    throughput_tokens_per_s: float | None
    failed: int
    accuracy: Accuracy
    difference: AccuracyDifference | None
    solved: Mapping[str, float]


@command(
    "bench grade results --set results/packages/b4e2844c8655a2db/HumanEval.jsonl.gz",
    "bench grade results:fp16 results:fp8 --set my/tasks.jsonl",
    after="Runs programs that a model wrote, in a sandbox that limits what they can do: read what SECURITY.md says of it first.",
)
@dataclass(frozen=True, kw_only=True)
class Grade:
    """Runs the tests of a graded set on the answers that were kept (keep_answers), and prints the share of tasks solved (pass@1) beside
    the throughput of the same runs, each with a 95 % interval. Deployments are compared with the baseline on the tasks that both
    answered.

    SOURCE and B are what `bench compare` takes. With B, SOURCE is the baseline; alone, the deployment that its study names so.
    Requests that failed are left out, and counted.
    """

    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="Results.", show_default=False, autocompletion=completion.deployments)
    ]
    candidate: Annotated[
        str | None,
        typer.Argument(metavar="[B]", help="Others.", show_default=False, autocompletion=completion.deployments),
    ] = None
    set: Annotated[Path, option("FILE", "The graded set: the file whose prompts were sent.")]
    json: Json = False

    def run(self) -> None:
        """Print what was graded."""
        from bench.cli.sources import read_source
        from bench.grading import read_set, sandbox

        tasks = read_set(self.set)
        sides = [(text, read_source(text)) for text in (self.source, self.candidate) if text]
        answered = [(text, _kept(runs, tasks)) for text, runs in sides]
        for text, runs in answered:
            if runs.is_empty():
                raise BenchError(
                    f"{text}: no answer to a prompt of {self.set} was kept. Give the file whose prompts were sent, and measure with "
                    "keep_answers: true, in single requests."
                )
        with status() as say, sandbox() as place:
            if not place.isolated:
                print(_OPEN, file=sys.stderr)
            say("running the tests")
            graded = _graded(answered, tasks, place)
        if self.json:
            print_json([{**asdict(each), "solved": dict(each.solved)} for each in graded])
        else:
            _print(graded)


def _kept(runs: pl.DataFrame, tasks: Mapping[str, Task]) -> pl.DataFrame:
    """The runs that kept an answer to a task; of conversations none, whose later answers are to other questions."""
    import polars as pl

    single = runs.filter(pl.col("kept_answers").is_not_null() & (pl.col("turns").fill_null(1) == 1))
    digests = pl.element().struct.field("prompt_digest")
    return single.filter(pl.col("kept_answers").list.eval(digests.is_in(list(tasks))).list.any())


def _graded(sides: Sequence[tuple[str, pl.DataFrame]], tasks: Mapping[str, Task], place: Sandbox) -> list[_Graded]:
    from bench.analysis import accuracy, accuracy_difference
    from bench.grading import program_of

    programs: list[str] = []
    asked: list[tuple[tuple[str, str, float, bool], str]] = []
    rows: dict[tuple[str, str, float, bool], list[Mapping[str, Any]]] = defaultdict(list)
    for number, (text, runs) in enumerate(sides):
        several = runs["deployment"].n_unique() > 1
        for run in runs.iter_rows(named=True):
            name = run["deployment"] if len(sides) == 1 else f"{text}:{run['deployment']}" if several else text
            key = (name, run["workload"], run["level"], number == 0 if len(sides) > 1 else bool(run["baseline"]))
            rows[key].append(run)
            for answer in run["kept_answers"]:
                task = tasks.get(answer["prompt_digest"])
                if task and answer["answer"] is not None:
                    programs.append(program_of(task, answer["answer"]))
                    asked.append((key, task.name))
    right: dict[tuple[str, str, float, bool], dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for (key, task_name), verdict in zip(asked, place.verdicts(programs), strict=True):
        right[key][task_name].append(verdict == "passed")
    solved = {key: {name: sum(each) / len(each) for name, each in of_task.items()} for key, of_task in right.items()}
    baselines = {key[1:3]: shares for key, shares in solved.items() if key[3]}
    found = []
    for key, shares in solved.items():
        name, workload, level, is_baseline = key
        share, ours = accuracy(shares), baselines.get((workload, level))
        assert share is not None  # it has an answer
        speeds = [run["throughput_tokens_per_s"] for run in rows[key] if run["throughput_tokens_per_s"] is not None]
        found.append(
            _Graded(
                deployment=name,
                workload=workload,
                level=level,
                throughput_tokens_per_s=sum(speeds) / len(speeds) if speeds else None,
                failed=sum(run["failed"] or 0 for run in rows[key]),
                accuracy=share,
                difference=accuracy_difference(ours, shares) if ours and not is_baseline else None,
                solved=shares,
            )
        )
    return found


def _print(graded: Sequence[_Graded]) -> None:
    rows = [["deployment", "workload", "load", "tokens/s", "pass@1", "interval", "tasks", "failed", "difference", "interval"]]
    for each in graded:
        share, by = each.accuracy, each.difference
        rows.append(
            [
                each.deployment,
                each.workload,
                f"{each.level:g}",
                "–" if each.throughput_tokens_per_s is None else f"{each.throughput_tokens_per_s:.4g}",
                f"{100 * share.share:.1f} %",
                f"{100 * share.low:.1f} to {100 * share.high:.1f} %",
                str(share.tasks),
                str(each.failed),
                "–" if by is None else f"{_points(by.by)} points",
                "–" if by is None else f"{_points(by.low)} to {_points(by.high)}",
            ]
        )
    print_table(rows, "<<>>>>>>>>")
    print(
        "\npass@1: share of the tasks that are solved, of several answers to a task their mean. Difference: from the baseline at "
        "the same load, in percentage points, on the tasks that both answered. Intervals: 95 %. One that holds 0 shows no difference."
    )


def _points(share: float) -> str:
    return f"{100 * share:+.1f}".replace("-", "−")
