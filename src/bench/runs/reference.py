"""The tables of the documentation that list columns, from their catalogue: the summary's, and those of an analysis."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from bench.runs.columns import METRICS, SECTIONS, Column, Section

_MARKED = re.compile(r"<!-- columns: (\w+) -->")
_KINDS = {"text": "text", "flag": "yes or no", "texts": "list of texts", "requests": "list of requests", "numbers": "list of numbers",
          "misses": "list of misses", "answers": "list of answers"}  # fmt: skip
_ARROWS = {"higher": " ↑", "lower": " ↓", None: ""}


def with_tables(text: str, sections: Mapping[str, Section] = SECTIONS) -> str:
    """`text` with the tables in place of its markers: one of each section, and of the summary's also `compared`.

    Raises:
        ValueError: a section has no markers, several, or those of none.
    """
    found = [match[1] for match in _MARKED.finditer(text)]
    if sorted(found) != sorted([*sections, *["compared"] * (sections is SECTIONS)]):
        raise ValueError(f"the sections of the catalogue are {', '.join(sections)}; the page has {', '.join(found)}")
    return _MARKED.sub(lambda match: "\n".join(_table(match[1], sections)), text)


def _table(section: str, sections: Mapping[str, Section]) -> Iterator[str]:
    if section == "compared":
        yield "| metric | column | better |"
        yield "|---|---|---|"
        for name, metric in METRICS.items():
            yield f"| {metric.title} | `{name}` | {metric.better} |"
        return
    # Everything in the tables of an analysis is from one source.
    sourced = sections is SECTIONS
    yield "| column | definition | unit |" + " source |" * sourced
    yield "|---|---|---|" + "---|" * sourced
    for name, columns in sections[section].rows.items():
        column = columns[0]
        twins = ", `steady_…`" if column.steady == f"steady_{column.name}" else ""
        yield f"| `{name}`{twins} | {column.meaning} | {_unit(column)} |" + f" {column.source} |" * sourced


def _unit(column: Column) -> str:
    return f"{_KINDS.get(column.kind, column.unit)}{_ARROWS[column.better]}"
