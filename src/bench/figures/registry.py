"""How a function becomes a figure."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

import altair as alt

from bench.errors import BenchError
from bench.figures.results import Results, figure_names

__all__ = ["Figure", "figure", "load_figure"]

Draw = Callable[[Results], alt.TopLevelMixin]


@dataclass(frozen=True)
class Figure:
    """A figure: its name, its title, the question that it answers, how to read it, and the function that draws it."""

    name: str
    title: str
    question: str
    reading: str
    draw: Draw


_FIGURES: dict[str, Figure] = {}


def figure(name: str, *, title: str, question: str, reading: str) -> Callable[[Draw], Draw]:
    """Register the decorated function as the figure `name`, which is also its file's name."""

    def register(draw: Draw) -> Draw:
        _FIGURES[name] = Figure(name, title, question, reading, draw)
        return draw

    return register


def load_figure(name: str) -> Figure:
    """The figure called `name`.

    Raises:
        BenchError: there is none.
    """
    if name not in figure_names():
        raise BenchError(f"{name!r} is no figure. There are: {', '.join(figure_names())}.")
    importlib.import_module(f"bench.figures.charts.{name.replace('-', '_')}")
    return _FIGURES[name]
