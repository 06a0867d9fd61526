"""Labels of points that neither cover one another nor a point: where there is no room for one, it is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import altair as alt
import polars as pl

NARROW = 280.0  # pixels: a panel on a phone. Labels that have room there have it wherever the panel is wider
_LETTER, _LINE = 8.5, 16.0  # pixels that a letter and a line of text take
_GAP = 3.0
_Box = tuple[float, float, float, float]  # left, top, right, bottom
_SCHEMA = {"dx": pl.Float64, "dy": pl.Float64, "align": pl.String}


@dataclass(frozen=True)
class Place:
    """Where a label stands: pixels from its point, which do not change with the panel's width."""

    dx: float
    dy: float
    align: Literal["left", "center", "right"]

    def box(self, x: float, y: float, text: str) -> _Box:
        """What the label of a point at `x`, `y` covers."""
        wide = _LETTER * len(text)
        left = x + self.dx - {"left": 0.0, "center": wide / 2, "right": wide}[self.align]
        return left, y + self.dy - _LINE / 2, left + wide, y + self.dy + _LINE / 2


def free_places(
    points: Sequence[tuple[float, float]], texts: Sequence[str], half: Sequence[float], size: tuple[float, float]
) -> list[Place | None]:
    """Where each point's label stands, beside the point; None where there is no room for one.

    Args:
        points: pixels from the left and from the top, the most important first: it is the first to get a place. texts: their labels.
        half: of each point's width (pixels). size: of the panel.
    """
    taken: list[_Box] = [(x - r, y - r, x + r, y + r) for (x, y), r in zip(points, half, strict=True)]
    places: list[Place | None] = []
    for (x, y), text, mark in zip(points, texts, half, strict=True):
        for place in _around(mark):
            box = place.box(x, y, text)
            if _inside(box, *size) and not any(_hit(box, other) for other in taken):
                taken.append(box)
                places.append(place)
                break
        else:
            places.append(None)
    return places


def _around(mark: float) -> list[Place]:
    """Right and left of a point, above and below it, and at its corners; the nearest first."""
    aside, up = mark + _GAP, mark + _LINE / 2
    level = [Place(aside, 0.0, "left"), Place(-aside, 0.0, "right")]
    return level + [
        place for dy in (-up, up) for place in (Place(0.0, dy, "center"), Place(aside, dy, "left"), Place(-aside, dy, "right"))
    ]


def _inside(box: _Box, width: float, height: float) -> bool:
    return box[0] >= 0 and box[1] >= 0 and box[2] <= width and box[3] <= height


def _hit(one: _Box, other: _Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def with_places(rows: pl.DataFrame, places: Sequence[Place | None]) -> pl.DataFrame:
    """Add `dx`, `dy` and `align`, by which `label_layer` draws each row's `label`; null where it has no place."""
    columns = [[getattr(place, key, None) for place in places] for key in _SCHEMA]
    return rows.with_columns(
        pl.Series(key, values, dtype=dtype) for (key, dtype), values in zip(_SCHEMA.items(), columns, strict=True)
    )


def label_layer(chart: alt.Chart, x: alt.X, y: alt.Y, *, bold: str = "false") -> alt.Chart:
    """The labels that have a place. Args: chart: with rows of `with_places` and `label`. bold: an expression that says which."""
    marks = chart.transform_filter("isValid(datum.align)").mark_text(
        fontSize=14,
        dx=alt.expr("datum.dx"),
        dy=alt.expr("datum.dy"),
        align=alt.expr("datum.align"),
        baseline="middle",
        fontWeight=alt.expr(f"{bold} ? 'bold' : 'normal'"),
    )
    texts: alt.Chart = marks.encode(x=x, y=y, text="label:N")
    return texts
