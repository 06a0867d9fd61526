"""What a report is made of: answers, and sections of texts, lists, tables with cells and figures. `page` writes them as
HTML and as Markdown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bench.runs.sentences import latency_text, load_cell
from bench.shipped import BENCH

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Cell:
    """A cell of a table. Attributes: value: what it sorts by. title: shown beside it. met: whether it is within its limit."""

    text: str
    value: float | None = None
    kind: str = "number"
    title: str | None = None
    met: bool = False


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        key: of its value in the rows: a `Cell`, a text, or a number. form: of a number, as `%` takes it, after `factor`.
    """

    head: str
    key: str
    form: str = ""
    factor: float = 1.0

    def cell(self, row: Row) -> Cell:
        """The cell of a row; a dash where its value is not known."""
        value = row.get(self.key)
        if self.form:
            if value is None:
                return Cell("–")
            return Cell((self.form % (value * self.factor)).replace("-", "−"), value)
        return value if isinstance(value, Cell) else Cell("–" if value is None else str(value), kind="text")


@dataclass(frozen=True)
class Text:
    """A paragraph; nothing where it is empty."""

    line: str


@dataclass(frozen=True)
class Items:
    """A list. Attributes: deployment: the only one that it is about, by which the page's filter hides it."""

    lines: Sequence[str]
    deployment: str | None = None


@dataclass(frozen=True)
class Table:
    """A table; nothing where it has no rows.

    The page's filter hides rows by their `deployment`, and by their `family` of workloads where they are about one alone; rows that
    are `invalid` are marked.

    Attributes:
        sorts: whether a click on a head sorts it.
    """

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    sorts: bool = True

    @cached_property
    def shown(self) -> list[Column]:
        """The columns of which some row has a value; the first names the rows."""
        return [column for column in self.columns if any(column.cell(row).text != "–" for row in self.rows)]


@dataclass(frozen=True)
class Answer:
    """One question that the runs ask, or one curve, answered in sentences; what is empty is left out.

    Attributes:
        name: of the question, as its anchor has it. lines: the answer; where something is not known, that and why. sure: what it
            rests on. do: what follows from it. deployment, family: by which the page's filter hides it.
    """

    name: str
    question: str
    lines: Sequence[str]
    sure: Sequence[str] = ()
    do: Sequence[str] = ()
    deployment: str | None = None
    family: str | None = None


@dataclass(frozen=True)
class Code:
    """A command line, as a shell takes it."""

    text: str


@dataclass(frozen=True)
class Fold:
    """Blocks that a click shows; in Markdown they stand there. Attributes: deployment: as of `Items`."""

    title: str
    blocks: Sequence[Block]
    opened: bool = False
    deployment: str | None = None


@dataclass(frozen=True)
class Charts:
    """Figures that the page draws.

    Attributes:
        figures: as `read_figure` gives them. note: whether how to use them comes first.
    """

    figures: Sequence[Mapping[str, Any]]
    note: bool = False


Block = Text | Items | Table | Answer | Code | Fold | Charts


@dataclass(frozen=True)
class Section:
    """A part of a report.

    Attributes:
        name: of its anchor. blocks: without any, the page does not have it. short: what of it the Markdown has.
        heading: whether the Markdown has its title.
    """

    name: str
    title: str
    blocks: Sequence[Block]
    short: Sequence[Block] = ()
    heading: bool = True


def cell_of_load(row: Mapping[str, Any]) -> Cell:
    """Requests in flight, requests/s, or times as fast."""
    return Cell(load_cell(row["level"], row["axis"], row.get("turns")), row["level"])


def cell_of_latency(value: float | None, met: bool | None, *, name: str = "", marked: bool = False) -> Cell:
    """A latency. Args: met: whether it is within its limit. name: before it. marked: whether a cross stands behind one that is not."""
    shown = latency_text(value) if value is None else f"{name}{latency_text(value)}"
    return Cell(f"{shown} ✕" if marked and met is False else shown, value, met=bool(met))


MOST_LINES = 8  # most lines of an answer; the tables have the rest
AGAIN = f"Measure the invalid runs again: `{BENCH} runs --discard invalid`, then the same command as before."


def shortened(lines: Sequence[str], most: int = MOST_LINES, where: str = "in the tables below") -> tuple[str, ...]:
    """The first lines, and how many more there are, and where."""
    left = len(lines) - most
    return tuple(lines) if left <= 1 else (*lines[:most], f"And {left} more, {where}.")
