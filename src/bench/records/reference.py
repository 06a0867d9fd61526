"""The tables of docs/reference that list columns, from their catalogue: the summary's in metrics.md, an analysis's in analysis.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from bench.records.columns import METRICS, SECTIONS, Column, Section

_MARKED = re.compile(r"(<!-- columns: (\w+) -->\n).*?(<!-- end of columns -->\n)", re.DOTALL)
_KINDS = {"text": "text", "flag": "yes or no", "texts": "list of texts", "requests": "list of requests", "numbers": "list of numbers",
          "misses": "list of misses", "answers": "list of answers"}  # fmt: skip
_ARROWS = {"higher": " ↑", "lower": " ↓", None: ""}


def with_tables(text: str, sections: Mapping[str, Section] = SECTIONS) -> str:
    """`text` with the tables between its markers made anew: one of each section, and of the summary's also `compared`.

    Raises:
        ValueError: a section has no markers, several, or those of none.
    """
    found = [match[2] for match in _MARKED.finditer(text)]
    if sorted(found) != sorted([*sections, *["compared"] * (sections is SECTIONS)]):
        raise ValueError(f"the sections of the catalogue are {', '.join(sections)}; the page has {', '.join(found)}")
    return _MARKED.sub(lambda match: f"{match[1]}\n{chr(10).join(_table(match[2], sections))}\n\n{match[3]}", text)


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
