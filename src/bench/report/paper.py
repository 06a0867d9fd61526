"""A figure as a paper takes it: a width in millimetres, one panel, words and colours of its own, as PDF, with its data."""

from __future__ import annotations

import copy
import json
import math
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import vl_convert

from bench.errors import BenchError

KINDS = ("pdf", "svg", "png", "csv", "json")
_PIXELS_A_MM = 96 / 25.4  # of SVG; derived
_POINTS = 0.75  # of a pixel; derived
_MM_A_POINT = 25.4 / 72  # derived
_PIXELS_A_UNIT = 3.125  # of a PNG: 300 an inch; convention
_LETTERS = 1.31  # pixels of layout for one on paper, so that letters of 14 come out as 8 points
_LEAST = 150  # pixels of a panel's width, below which panels stand below one another
_PARTS = ("concat", "hconcat", "vconcat")
_NO_WORDS = {"field", "type", "shorthand", "mark", "filter", "name", "groupby"}  # keys whose texts are Vega-Lite's
_TRIES = 4  # layouts until the width is met


@dataclass(frozen=True)
class Paper:
    """How a figure is wanted.

    Attributes:
        width_mm: its width; None: as wide as it comes. title: in place of its own; empty: none. labels: words in place of its own, such
            as a deployment's name. colours: by deployment. panel: the only one that is wanted, from 1. met: labels that were found.
    """

    width_mm: float | None = None
    title: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    colours: Mapping[str, str] = field(default_factory=dict)
    panel: int | None = None
    met: set[str] = field(default_factory=set, compare=False)


def on_paper(spec: Mapping[str, Any], paper: Paper, colours: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """The chart as `paper` wants it. Args: spec: of Vega-Lite. colours: of each deployment: of its marks, and of its name.

    Raises:
        BenchError: there is no such panel or deployment.
    """
    whole = copy.deepcopy(dict(spec))
    if paper.panel is not None:
        whole = _panel(whole, paper.panel)
    title = whole.get("title", {})
    if paper.title is not None:
        whole["title"] = {**title, "text": paper.title, "subtitle": []} if paper.title else None
    elif paper.width_mm is not None:
        whole["title"] = {**title, "subtitle": []}  # what a caption says
    if unknown := sorted(set(paper.colours) - set(colours)):
        raise BenchError(f"--colors: no deployment {unknown[0]!r}. There are: {', '.join(colours)}.")
    new = {old.lower(): paper.colours[name] for name in paper.colours for old in colours[name]}
    whole = _changed(whole, {}, new)
    for old, label in paper.labels.items():
        before, whole = whole, _changed(whole, {old: label}, {})
        paper.met.update([old] if whole != before else [])
    return whole if paper.width_mm is None else _fitted(whole, paper.width_mm)


def written(spec: Mapping[str, Any], kind: str, width_mm: float | None = None) -> bytes:
    """The chart as a file of this kind."""
    if kind == "csv":
        return data_of(spec).write_csv().encode()
    if kind == "json":
        return json.dumps(dict(spec), separators=(",", ":")).encode()
    svg = vl_convert.vegalite_to_svg(dict(spec))
    if kind == "pdf":  # whose unit, the point, is its reader's pixel
        return vl_convert.svg_to_pdf(_sized(svg, width_mm / _MM_A_POINT if width_mm else _POINTS * _width(svg), ""))
    svg = _sized(svg, width_mm, "mm") if width_mm else svg
    return svg.encode() if kind == "svg" else vl_convert.svg_to_png(svg, scale=_PIXELS_A_UNIT)


def data_of(spec: Mapping[str, Any]) -> pl.DataFrame:
    """What the chart is drawn from, without labels and the like, and without a layer whose rows another one has."""
    drawn = json.dumps({key: value for key, value in spec.items() if key != "datasets"})
    used = [rows for name, rows in spec.get("datasets", {}).items() if rows and name in drawn]
    used = [rows for rows in used if not any(_within(rows, others) for others in used)]
    tables = [pl.DataFrame(rows, infer_schema_length=None) for rows in used]
    shown = [table for table in tables if not {"ink", "said"} & set(table.columns)] or tables
    whole = (pl.concat(shown, how="diagonal_relaxed") if shown else pl.DataFrame()).unique(maintain_order=True)
    return whole.select(column for column in whole if column.null_count() < whole.height)


def _within(rows: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> bool:
    """Whether other rows, which say more, have all that these say."""
    names = [name for name in rows[0] if any(row.get(name) is not None for row in rows)]
    more = {name for row in others for name, value in row.items() if value is not None}
    said = {json.dumps([row.get(name) for name in names]) for row in others}
    return {*names} < more and {json.dumps([row.get(name) for name in names]) for row in rows} <= said


def _panel(whole: dict[str, Any], number: int) -> dict[str, Any]:
    panels = list(_panels(whole))
    if not 1 <= number <= len(panels):
        raise BenchError(f"--panel {number}: the figure has {len(panels)}.")
    chosen = panels[number - 1]
    kept = {key: value for key, value in whole.items() if key not in (*_PARTS, "columns", "resolve", "spacing")}
    return {**kept, **chosen, "title": kept.get("title")}


def _panels(view: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Panels side by side; strips below one another with a common title are one."""
    key = next((key for key in _PARTS if key in view), None)
    if key is None or (key == "vconcat" and view.get("title") and "$schema" not in view):
        yield dict(view)
    else:
        for part in view[key]:
            yield from _panels(part)


def _changed(value: Any, labels: Mapping[str, str], colours: Mapping[str, str], key: str = "") -> Any:
    """The same with other words and colours; texts that are Vega-Lite's own stay."""
    if isinstance(value, dict):
        return {name: _changed(inner, labels, colours, name) for name, inner in value.items() if name != "usermeta"} | (
            {"usermeta": value["usermeta"]} if "usermeta" in value else {}
        )
    if isinstance(value, list):
        return [_changed(inner, labels, colours, key) for inner in value]
    if not isinstance(value, str) or key in _NO_WORDS:
        return value
    if value.lower() in colours:
        return colours[value.lower()]
    for old, new in labels.items():
        value = re.sub(rf"(?<![\w-]){re.escape(old)}(?![\w-])", new.replace("\\", r"\\"), value)
    return value


def _fitted(whole: dict[str, Any], width_mm: float) -> dict[str, Any]:
    """Panels as wide as lets the figure be that wide with letters of 8 points, below one another where they would be too narrow."""
    wanted = width_mm * _PIXELS_A_MM * _LETTERS
    title = whole.get("title")
    if title:
        text = title["text"] if isinstance(title["text"], str) else " ".join(title["text"])
        whole["title"] = {**title, "text": textwrap.wrap(text, max(20, int(wanted / 8.5))), "fontSize": 16}
    for _ in range(_TRIES):
        across = _across(whole)
        drawn, panels = _width(vl_convert.vegalite_to_svg(whole)), across[0]
        if abs(drawn - wanted) < 1 or not panels:
            break
        factor = (panels + wanted - drawn) / panels
        if factor * panels < _LEAST * across[1] and across[1] > 1:
            whole = _stacked(whole)
            continue
        _scale(whole, max(0.1, factor))
    return whole


def _across(view: Mapping[str, Any]) -> tuple[float, int]:
    """How wide the panels of the widest row are together, and how many stand there."""
    for key in _PARTS:
        if key in view:
            parts = [_across(part) for part in view[key]]
            columns = 1 if key == "vconcat" else min(len(parts), int(view.get("columns", len(parts))))
            rows = [parts[i : i + columns] for i in range(0, len(parts), columns)]
            return max((sum(width for width, _ in row), sum(count for _, count in row)) for row in rows)
    width = view.get("width")
    return (float(width), 1) if isinstance(width, int | float) else (0.0, 1)


def _stacked(view: dict[str, Any]) -> dict[str, Any]:
    """Panels that stood side by side, below one another."""
    if "concat" in view:
        return {**view, "columns": 1}
    return {("vconcat" if key == "hconcat" else key): value for key, value in view.items()}


def _scale(view: dict[str, Any], factor: float) -> None:
    if isinstance(view.get("width"), int | float):
        view["width"] = view["width"] * factor
    for key in _PARTS:
        for part in view.get(key, ()):
            _scale(part, factor)


def _width(svg: str) -> float:
    found = re.search(r'<svg[^>]*?\swidth="([\d.]+)', svg)
    return float(found[1]) if found else math.nan


def _sized(svg: str, width: float, unit: str) -> str:
    """The picture with another size; what is drawn stays."""
    found = re.search(r'\swidth="([\d.]+)"\s+height="([\d.]+)"', svg)
    assert found
    height = width * float(found[2]) / float(found[1])
    return svg.replace(found[0], f' width="{width:.6g}{unit}" height="{height:.6g}{unit}"', 1)
