"""Which figures there are, and which of them a study has: those whose question its runs can answer.

The workflow asks this at each start and in each of its jobs, before there is anything to draw. Charts import altair and what computes
their rows, which would add half a second to each start of little more than one. So what it needs of a chart, `applies`, `order` and
`uses`, is read from the chart's source, and no chart is imported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.study import questions
from bench.study.questions import Condition

KINDS = ("svg", "png", "json")  # each figure is a file of each
_CHARTS = Path(__file__).parent / "charts"


def figures_of(rows: Iterable[Mapping[str, Any]], *, tuned: bool = False) -> list[str]:
    """Names of the figures that apply to `rows`, in the order in which a report shows them.

    Args:
        rows: the runs, by what a study can vary: `Plan.rows`, or rows of the summary table. tuned: whether servers compete too.

    Raises:
        BenchError: a file of `charts/` does not say when it applies.
    """
    known = list(rows)
    return [name for name, chart in _charts(_CHARTS).items() if chart.applies(known) and (tuned or "tuning" not in chart.uses)]


def figure_names() -> list[str]:
    """All figures, in the order of `figures_of`; each is drawn by the file of its name in `charts/`."""
    return list(_charts(_CHARTS))


def used_by(name: str) -> tuple[str, ...]:
    """Keys of the decision a figure is drawn from, `calibration`, `searches`, `grades` and `tuning` among them (`Figure.uses`)."""
    chart = _charts(_CHARTS).get(name)
    return chart.uses if chart else ()


@dataclass(frozen=True)
class _Chart:
    """What `@figure(...)` says of a chart."""

    order: float
    applies: Condition
    uses: tuple[str, ...]


@cache
def _charts(folder: Path) -> dict[str, _Chart]:
    found = {file.stem.replace("_", "-"): _declared(file) for file in folder.glob("*.py") if file.stem != "__init__"}
    return dict(sorted(found.items(), key=lambda each: (each[1].order, each[0])))


def _declared(file: Path) -> _Chart:
    functions = [
        node for node in ast.parse(file.read_text(encoding="utf-8"), str(file)).body if isinstance(node, ast.FunctionDef)
    ]
    calls = [call for function in functions for call in function.decorator_list if isinstance(call, ast.Call)]
    given = {key.arg: key.value for call in calls if ast.unparse(call.func) == "figure" for key in call.keywords}
    try:
        uses = _value(given["uses"], file) if "uses" in given else ()
        return _Chart(_value(given["order"], file), _value(given["applies"], file), uses)
    except (KeyError, NameError) as error:
        raise BenchError(
            f"{file}: no function under @figure(...) whose `order` and `applies` can be read without importing it ({error!r}). "
            f"Give it both, made of numbers and of what {questions.__name__} has."
        ) from None


def _value(expression: ast.expr, file: Path) -> Any:
    """What an expression of our own source is, with the names of `bench.study.questions` alone."""
    return eval(compile(ast.Expression(expression), str(file), "eval"), dict(vars(questions)))  # noqa: S307
