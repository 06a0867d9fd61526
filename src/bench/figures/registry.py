"""How a function becomes a figure."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import altair as alt

from bench.errors import BenchError
from bench.figures.results import Results
from bench.figures.selection import figure_names
from bench.study.questions import Condition

if TYPE_CHECKING:
    import polars as pl

Draw = Callable[[Results], alt.TopLevelMixin]


@dataclass(frozen=True)
class Figure:
    """A figure: its name, its title, the question that it answers, how to read it, and the function that draws it.

    Attributes:
        applies: which studies have it, as `bench.study.questions` words it. order: its place in a report; least first.
        title: neutral; a figure's title where `finding`, what its data show in one sentence, is None or returns None.
        reading: how to read it, which stands below it in the report and not in the picture.
        by_axis: whether its x axis is the load, so that kinds of load stand apart, and swept lengths are left to others.
        uses: keys of the decision that it is drawn from; it gets no others, so that a change of those does not draw it anew. With
            `accelerator` it gets that GPU's entry too, with `calibration` the models of the servers, with `searches` what those found,
            with `grades` which tasks were solved, and with `tuning` which server is best: only studies that tune have that figure.
        invalid: how it shows invalid runs, as its note about them begins. judged: the column that says which are valid: `valid`, or
            `counts_valid` where only the server's own counts are drawn, from which a late client takes nothing away.
        columns: what it draws, by column, in words: its note names the levels that lack one of them.
        shown: the runs of which it counts the invalid ones; None counts all that it is drawn from. note: what else its note has to say,
            such as how many pairs are left out; empty where nothing.
    """

    name: str
    applies: Condition
    order: float
    title: str
    question: str
    reading: str
    draw: Draw
    invalid: str
    judged: str
    by_axis: bool
    uses: tuple[str, ...]
    finding: Callable[[Results], str | None] | None = None
    shown: Callable[[Results], pl.DataFrame] | None = None
    note: Callable[[Results], str] | None = None
    columns: Callable[[Results], Mapping[str, str]] | None = None


_FIGURES: dict[str, Figure] = {}


def figure(
    name: str,
    *,
    applies: Condition,
    order: float,
    title: str,
    question: str,
    reading: str,
    invalid: str = "Crosses, kept out of the lines",
    judged: str = "valid",
    by_axis: bool = True,
    uses: tuple[str, ...] = (),
    finding: Callable[[Results], str | None] | None = None,
    shown: Callable[[Results], pl.DataFrame] | None = None,
    note: Callable[[Results], str] | None = None,
    columns: Callable[[Results], Mapping[str, str]] | None = None,
) -> Callable[[Draw], Draw]:
    """Register the decorated function as the figure `name`, which is also its file's name. The other arguments: see `Figure`."""

    def register(draw: Draw) -> Draw:
        _FIGURES[name] = Figure(
            name, applies, order, title, question, reading, draw, invalid, judged, by_axis, uses, finding, shown, note, columns
        )
        return draw

    return register


def load_figure(name: str) -> Figure:
    """The figure called `name`; a BenchError where there is none."""
    if name not in figure_names():
        raise BenchError(f"{name!r} is no figure. There are: {', '.join(figure_names())}.")
    importlib.import_module(f"bench.figures.charts.{name.replace('-', '_')}")
    return _FIGURES[name]
