"""The texts, tables and figures of a results folder, as a reader finds them; each text with where it stands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

__all__ = ["Outputs", "Panel", "Table", "Text", "read_outputs"]

_BLOCKS = ("p", "li", "dt", "dd", "h1", "h2", "h3", "h4", "caption", "th", "td", "figcaption", "summary", "small", "pre")
# Sections that say how something is defined, not what was found; figures are read from their specifications.
_DEFINITIONS = ("Methods", "Where it ran, and with what settings")


@dataclass(frozen=True)
class Text:
    """A paragraph, an item or a title. Attributes: context: the headings above it, the nearest last."""

    where: str
    text: str
    context: str = ""


@dataclass
class Table:
    """A table. Attributes: bold: of each row which cells are."""

    where: str
    caption: str
    heads: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    bold: list[list[bool]] = field(default_factory=list)


@dataclass(frozen=True)
class Panel:
    """A panel of a figure over loads. Attributes: ticks: of its axis, None where it names none. loads: measured ones that it draws."""

    where: str
    ticks: list[float] | None
    loads: list[float]
    width: float
    log: bool


@dataclass
class Outputs:
    """All that a study says. Attributes: drawn: a figure, its y title, a row."""

    texts: list[Text] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    panels: list[Panel] = field(default_factory=list)
    drawn: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)


def read_outputs(folder: Path) -> Outputs:
    """The outputs in a results folder: the page, its summary, the figures, and the terminal's lines where they are kept."""
    found = Outputs()
    _Page(found).feed((folder / "report.html").read_text())
    _markdown((folder / "report.md").read_text(), found)
    for path in sorted((folder / "figures").glob("*.json")):
        spec = json.loads(path.read_text())
        where = f"figure {path.stem}"
        found.texts += [Text(where, spec["usermeta"][name]) for name in ("title", "note") if spec.get("usermeta", {}).get(name)]
        found.panels += _panels(spec, where)
        found.drawn += ((where, title, row) for title, row in _rows(spec))
    terminal = folder / "terminal.txt"
    found.texts += [Text("terminal", line) for line in terminal.read_text().splitlines()] if terminal.exists() else []
    return found


class _Page(HTMLParser):
    """The report: its blocks under their headings, and its tables."""

    def __init__(self, found: Outputs) -> None:
        super().__init__()
        self.found, self.headings, self.open, self.skipped = found, ["", "", "", ""], [], ""  # type: ignore[var-annotated]
        self.bold: list[bool] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "style", "nav", "noscript"):
            self.skipped = self.skipped or tag
        if self.skipped:
            return
        if tag == "table":
            self.found.tables.append(Table("page", ""))
        elif tag == "tr" and self.found.tables:
            self.found.tables[-1].rows.append([])
            self.found.tables[-1].bold.append([])
        elif tag == "small" and self.open:
            self.open[-1][1].append(" (")
        if tag in _BLOCKS and tag != "small":
            self.open.append((tag, [], "met" in (dict(attrs).get("class") or "").split()))

    def handle_data(self, data: str) -> None:
        if self.open and not self.skipped:
            self.open[-1][1].append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == self.skipped:
            self.skipped = ""
        if self.skipped or not self.open:
            return
        if tag == "small":
            self.open[-1][1].append(")")
        if tag == self.open[-1][0]:
            _, parts, met = self.open.pop()
            self._block(tag, " ".join("".join(parts).split()).removesuffix(" #"), met)

    def _block(self, tag: str, text: str, met: bool) -> None:
        tables = self.found.tables
        if tag in ("th", "td"):
            tables[-1].rows[-1].append(text)
            tables[-1].bold[-1].append(met)
            if tag == "th" and len(tables[-1].rows) == 1:
                tables[-1].heads.append(text)
        elif tag == "caption":
            tables[-1].caption = text
        elif tag[0] == "h":
            self.headings[int(tag[1]) - 1 :] = [text, *[""] * (4 - int(tag[1]))]
            if self.headings[1] not in _DEFINITIONS:
                self.found.texts.append(Text("page", text))
        elif tag not in ("dt", "figcaption") and self.headings[1] not in _DEFINITIONS and text:
            self.found.texts.append(Text("page", text, " ".join(self.headings[2:])))


def _markdown(text: str, found: Outputs) -> None:
    heading, heads, begun = "", [], False  # type: ignore[var-annotated]
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" |")] if line.startswith("|") else []
        cells = [cell.strip("| ") for cell in cells]
        if not cells:
            begun = begun and not line  # an empty line within a table that a loop wrote
            if line.startswith("#"):
                heading = line.lstrip("# ")
            if line:
                found.texts.append(Text("report.md", line.lstrip("-# ").replace("**", ""), heading))
        elif set("".join(cells)) <= set("-:|"):
            begun = True
        elif not begun:
            heads = cells
            found.tables.append(
                Table(
                    "report.md",
                    "Every level" if "load" in cells and "turn" not in cells else heading,
                    heads,
                    [heads],
                    [[False] * len(heads)],
                )
            )
        else:
            found.tables[-1].rows.append([cell.replace("**", "") for cell in cells])
            found.tables[-1].bold.append([cell.startswith("**") for cell in cells])


# Figures

_PARTS = ("layer", "hconcat", "vconcat", "concat")
Spec = dict[str, Any]


def _nodes(spec: Spec, above: Spec, layered: bool = False) -> Iterator[tuple[Spec, Spec, bool]]:
    """A specification and its parts, each with what it has or inherits, and whether it is a layer of another one."""
    data = spec.get("data", {})
    seen = {"encoding": {**above.get("encoding", {}), **spec.get("encoding", {})}, "data": data.get("name") or above.get("data"),
            "facet": spec.get("facet") or above.get("facet"), "width": spec.get("width") or above.get("width", 300),
            "title": spec.get("title") or above.get("title")}  # fmt: skip
    yield spec, seen, layered
    for key in _PARTS:
        for part in spec.get(key, ()):
            yield from _nodes(part, seen, layered or key == "layer")
    if "spec" in spec:
        yield from _nodes(spec["spec"], seen, layered)


def _rows(whole: Spec) -> Iterator[tuple[str, Spec]]:
    """What is drawn, row by row, with the title of its panel and of its y axis."""
    for spec, seen, _ in _nodes(whole, {}):
        if "mark" in spec:
            title = seen["title"]["text"] if isinstance(seen["title"], dict) else seen["title"]
            said = f"{title} {seen['encoding'].get('y', {}).get('title')}"
            yield from ((said, row) for row in whole.get("datasets", {}).get(seen["data"], ()))


def _panels(whole: Spec, where: str) -> Iterator[Panel]:
    """The panels whose x axis is the load, those of a facet one by one."""
    for spec, seen, layered in _nodes(whole, {}):
        if layered or not {"mark", "layer"} & spec.keys():
            continue
        units = [its for part, its, _ in _nodes(spec, seen) if "mark" in part]
        axes = [unit["encoding"]["x"] for unit in units if unit["encoding"].get("x", {}).get("field") in ("level", "load")]
        if not axes:
            continue
        drawn = [unit["data"] for unit in units if unit["encoding"].get("x") in axes]
        rows = [row for name in drawn for row in whole.get("datasets", {}).get(name, ()) if _measured(row)]
        facet = seen["facet"] or {}
        fields = [facet["field"]] if "field" in facet else [of["field"] for of in facet.values() if isinstance(of, dict)]
        ticks = next((axis["axis"]["values"] for axis in axes if (axis.get("axis") or {}).get("values") is not None), None)
        parts: dict[tuple[Any, ...], set[float]] = {}
        for row in rows:
            parts.setdefault(tuple(row.get(name) for name in fields), set()).add(float(row[axes[0]["field"]]))
        log = any(axis.get("scale", {}).get("type") == "log" for axis in axes)
        yield from (Panel(where, ticks, sorted(loads), float(seen["width"]), log) for loads in parts.values())


def _measured(row: dict[str, Any]) -> bool:
    """Whether a row is what was measured at a load: the rule of a prediction is not, nor a turning point."""
    return isinstance(row.get("level", row.get("load")), int | float) and not row.keys() & {"shared", "point"}
