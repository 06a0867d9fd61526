"""`bench grade`: how many tasks of a graded set do deployments solve, and by how much do they differ?"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.cli import completion
from bench.cli.entry import command
from bench.cli.options import Json, flag, option
from bench.cli.output import print_json, print_table, status
from bench.errors import BenchError

if TYPE_CHECKING:
    import polars as pl


@command(
    "bench grade results --set results/packages/b4e2844c8655a2db/HumanEval.jsonl.gz",
    "bench grade results:fp8 --set my/tasks.jsonl",
    after="Answers that are programs run in a sandbox that limits what they can do: read what SECURITY.md says of it first.",
)
@dataclass(frozen=True, kw_only=True)
class Grade:
    """Grades the answers that were kept (keep_answers), by the tests of the set that they answer (HumanEval's form) or the calls of
    functions that are right (BFCL's), and prints the share of tasks solved (pass@1) with a 95 % interval, beside the throughput of the
    same runs. Deployments are compared with the one that their study names as the baseline, on the tasks that both answered.

    SOURCE is what `bench compare` takes.
    Requests that failed are left out, and counted. A study's own command grades too, and its report has the same table.
    """

    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="Results.", show_default=False, autocompletion=completion.deployments)
    ]
    set: Annotated[Path, option("FILE", "The graded set: the file whose prompts were sent.")]
    column: Annotated[
        str | None, option("NAME", "The column of its prompts, where the workload names one.", default="as a workload finds it")
    ] = None
    keep: Annotated[
        bool,
        flag(
            "--keep",
            "Write the grades into SOURCE, a study's results, beside those of other sets; its report then shows them: for the "
            "results of a pack.",
        ),
    ] = False
    json: Json = False

    def run(self) -> None:
        """Print what was graded."""
        import polars as pl

        from bench.beside.quality.answers import grade
        from bench.beside.quality.graded_set import read_set
        from bench.findings.accuracy import HEADS, MEANING, accuracy_cells, graded, left_out, left_out_text
        from bench.parse.windows import of_windows
        from bench.results import Results
        from bench.runs.columns import schema_of
        from bench.runs.grades import write_grades
        from bench.runs.paths import Paths
        from bench.runs.sentences import load_cell

        results = Results.open(self.source)
        if self.keep and not (Path(self.source) / "summary.parquet").is_file():
            raise BenchError("--keep writes into a study's results: give their folder, such as results.")
        (runs,) = of_windows(results.own)
        with status() as say:
            say("running the tests")
            rows = grade(runs.iter_rows(named=True), read_set(self.set, self.column), say)
        if not rows:
            raise BenchError(
                f"{self.source}: no answer to a prompt of {self.set} was kept. Give the file whose prompts were sent, and measure with "
                "keep_answers: true, in single requests."
            )
        grades = pl.DataFrame(rows, schema=schema_of("grades"))
        if self.keep:
            file = Path(self.source) / Path(Paths.GRADES).relative_to(Paths.RESULTS)
            write_grades(file, _with_others(file, grades))
        every = graded(runs, grades)
        if lost := left_out_text(left_out(grades), grades["task"].n_unique()):
            print(lost, file=sys.stderr)
        if self.json:
            print_json([{**asdict(each), "solved": dict(each.solved)} for each in every])
            return
        cells = [
            [each.deployment, each.workload, load_cell(each.level, each.axis), *(text for text, _ in accuracy_cells(each))]
            for each in every
        ]
        print_table([["deployment", "workload", "load", *HEADS], *cells], "<<>>>>>>>>")
        print(f"\n{MEANING}")


def _with_others(file: Path, grades: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """The grades, after those that the file has of other tasks: of another set."""
    import polars as pl

    if file.exists():
        yield from (
            pl.read_parquet(file).join(grades, on=["deployment", "run", "digest", "task"], how="anti").iter_rows(named=True)
        )
    yield from grades.iter_rows(named=True)
