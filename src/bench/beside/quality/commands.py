"""`bench grade`: how many tasks of a graded set do deployments solve, and by how much do they differ?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from bench.cli.entry import command
from bench.cli.options import Json, option
from bench.cli.output import print_json, print_table
from bench.errors import BenchError
from bench.terminal import live


@command(
    "bench grade results --set results/packages/b4e2844c8655a2db/HumanEval.jsonl.gz",
    "bench grade results:fp8 --set my/tasks.jsonl",
    after="Answers that are programs run in a sandbox that limits what they can do: read what SECURITY.md says of it first.",
)
def grade(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Results.", show_default=False)],
    tasks: Annotated[Path, option("FILE", "The graded set: the file whose prompts were sent.", None, "--set")],
    json: Json = False,
) -> None:
    """Grades the answers that were kept (keep_answers), by the tests of the set that they answer (HumanEval's form), and prints the
    share of tasks solved (pass@1) with a 95 % interval, beside the throughput of the same runs. Deployments are compared with the one
    that their study names as the baseline, on the tasks that both answered.

    SOURCE is what `bench compare` takes.
    Requests that failed are left out, and counted. A study's own command grades too, and its report has the same table.
    """
    import polars as pl

    from bench.beside.quality.answers import grade
    from bench.findings.accuracy import HEADS, MEANING, accuracy_cells, graded
    from bench.parse.windows import of_windows
    from bench.results import Results
    from bench.runs.columns import schema_of
    from bench.runs.sentences import load_cell

    (runs,) = of_windows(Results.open(source).own)
    live("running the tests")
    rows = grade(runs.iter_rows(named=True), [str(tasks)], live)
    if not rows:
        raise BenchError(
            f"{source}: no answer to a prompt of {tasks} was kept. Give the file whose prompts were sent, and measure with "
            "keep_answers: true, in single requests."
        )
    every = graded(runs, pl.DataFrame(rows, schema=schema_of("grades")))
    if json:
        print_json([{**asdict(each), "solved": dict(each.solved)} for each in every])
        return
    cells = [
        [each.deployment, each.workload, load_cell(each.level, each.axis), *(text for text, _ in accuracy_cells(each))]
        for each in every
    ]
    print_table([["deployment", "workload", "load", *HEADS], *cells], "<<>>>>>>>>")
    print(f"\n{MEANING}")
