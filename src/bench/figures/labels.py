"""Labels of points that neither cover one another nor a point: where there is no room for one, it is left out."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["free_places"]

_LETTER, _LINE = 8.0, 15.0  # pixels that a letter and a line of text take
_GAP = 3.0
_Box = tuple[float, float, float, float]  # left, top, right, bottom


def free_places(
    points: Sequence[tuple[float, float]], texts: Sequence[str], half: Sequence[float], width: float, height: float
) -> list[tuple[float, float] | None]:
    """The middle of each point's label, beside the point; None where there is no room for one.

    Args:
        points: pixels from the left and from the top, the most important first: it is the first to get a place. texts: their labels.
        half: of each point's width (pixels). width, height: of the panel.
    """
    taken: list[_Box] = [(x - r, y - r, x + r, y + r) for (x, y), r in zip(points, half, strict=True)]
    places: list[tuple[float, float] | None] = []
    for (x, y), text, mark in zip(points, texts, half, strict=True):
        wide, rise = _LETTER * len(text) / 2, _LINE / 2
        right, up = mark + _GAP + wide, mark + rise
        around = [(right, 0.0), (-right, 0.0), (0.0, -up), (0.0, up)]
        around += [(side * right, level * up) for level in (-1.0, 1.0, -2.0, 2.0) for side in (1.0, -1.0, 0.0)]
        middles = [(x + dx, y + dy) for dx, dy in around]
        boxes = [(cx - wide, cy - rise, cx + wide, cy + rise) for cx, cy in middles]
        free = next((i for i, box in enumerate(boxes) if _inside(box, width, height) and not _hits(box, taken)), None)
        places.append(None if free is None else middles[free])
        if free is not None:
            taken.append(boxes[free])
    return places


def _inside(box: _Box, width: float, height: float) -> bool:
    return box[0] >= 0 and box[1] >= 0 and box[2] <= width and box[3] <= height


def _hits(box: _Box, taken: Sequence[_Box]) -> bool:
    return any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in taken)
