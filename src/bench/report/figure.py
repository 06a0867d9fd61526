"""What a figure is: the function that draws it, and its texts; and altair, imported when one is drawn: it takes a second, and
charts stand beside findings that most commands do not draw.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import altair as alt
    import polars as pl

    # It takes the results of a study, of which this room knows what `Curves` says.
    Draw = Callable[[Any], alt.TopLevelMixin]
else:

    class _Altair:
        def __getattr__(self, name: str) -> Any:
            return getattr(_loaded(), name)

    alt = _Altair()

__all__ = ["DRAWN", "KINDS", "Figure", "alt", "figure"]

KINDS = ("svg", "png", "json")  # each figure is a file of each


@dataclass(frozen=True)
class Figure:
    """A figure: its name, its title, the question that it answers, how to read it, and the function that draws it.

    Attributes:
        title: neutral; a figure's title where `finding`, what its data show in one sentence, is None or returns None.
        reading: how to read it, which stands below it in the report and not in the picture.
        by_axis: whether its x axis is the load, so that kinds of load stand apart, and swept lengths are left to others.
        invalid: how it shows invalid runs, as its note about them begins. judged: the column that says which are valid: `valid`, or
            `counts_valid` where only the server's own counts are drawn, from which a late client takes nothing away.
        shown: the runs of which it counts the invalid ones; None counts all that it is drawn from. note: what else its note has to say,
            such as how many pairs are left out; empty where nothing.
    """

    name: str
    title: str
    question: str
    reading: str
    draw: Draw
    invalid: str = "Crosses"
    judged: str = "valid"
    by_axis: bool = True
    finding: Callable[[Any], str | None] | None = None
    shown: Callable[[Any], pl.DataFrame] | None = None
    note: Callable[[Any], str] | None = None


DRAWN: dict[str, Figure] = {}


def figure(name: str, **texts: Any) -> Callable[[Draw], Draw]:
    """Register the decorated function as the figure `name`, which is also its file's name. Args: texts: as of `Figure`."""

    def register(draw: Draw) -> Draw:
        DRAWN[name] = Figure(name, draw=draw, **texts)
        return draw

    return register


@cache
def _loaded() -> Any:
    import altair  # noqa: PLC0415

    # Charts show what the tables hold; a study of more rows than altair's default limit is no mistake.
    altair.data_transformers.disable_max_rows()
    return altair
