"""The tables of docs/reference/metrics.md that list the summary's columns, from their catalogue."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bench.records.columns import METRICS, SECTIONS, Column

__all__ = ["with_tables"]

_MARKED = re.compile(r"(<!-- columns: (\w+) -->\n).*?(<!-- end of columns -->\n)", re.DOTALL)
_KINDS = {"text": "text", "flag": "yes or no", "texts": "list of texts", "requests": "list of requests"}
_ARROWS = {"higher": " ↑", "lower": " ↓", None: ""}


def with_tables(text: str) -> str:
    """`text` with the tables between its markers made anew: one of each section of the catalogue, and `compared`.

    Raises:
        ValueError: a section has no markers, several, or those of none.
    """
    found = [match[2] for match in _MARKED.finditer(text)]
    if sorted(found) != sorted([*SECTIONS, "compared"]):
        raise ValueError(
            f"the sections of columns.toml are {', '.join(SECTIONS)}; docs/reference/metrics.md has {', '.join(found)}"
        )
    return _MARKED.sub(lambda match: f"{match[1]}\n{chr(10).join(_table(match[2]))}\n\n{match[3]}", text)


def _table(section: str) -> Iterator[str]:
    if section == "compared":
        yield "| metric | column | better |"
        yield "|---|---|---|"
        for name, metric in METRICS.items():
            yield f"| {metric.title} | `{name}` | {metric.better} |"
        return
    yield "| column | definition | unit | source |"
    yield "|---|---|---|---|"
    for name, columns in SECTIONS[section].rows.items():
        column = columns[0]
        twins = ", `steady_…`" if column.steady == f"steady_{column.name}" else ""
        yield f"| `{name}`{twins} | {column.meaning} | {_unit(column)} | {column.source} |"


def _unit(column: Column) -> str:
    return f"{_KINDS.get(column.kind, column.unit)}{_ARROWS[column.better]}"
