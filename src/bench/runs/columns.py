"""The catalogue of the columns of tables: what each is, in which unit, and where it comes from; and its tables in the
documentation.
"""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

import polars as pl

from bench.runs.latencies import LATENCIES
from bench.runs.request import KEPT

# Of type `requests`; times in s.
JUDGED_FIELDS = {"ok": pl.Boolean, **dict.fromkeys(LATENCIES, pl.Float64), "request_class": pl.String}
ANSWER_FIELDS = dict.fromkeys(KEPT, pl.String)  # of type `answers`, as `RequestRecord` has them
# Of type `workers`; counts are what rose during the run, means are over the load.
WORKER_FIELDS: dict[str, pl.DataType | type[pl.DataType]] = {
    "worker": pl.String,
    "role": pl.String,  # `prefill` or `decode`; null where it does both
    **dict.fromkeys(("requests", "prompt_tokens", "generation_tokens", "running_mean", "waiting_mean"), pl.Float64),
    **dict.fromkeys(("kv_usage_mean", "kv_usage_peak", "prefix_hit_rate"), pl.Float64),
    "version": pl.String,
    **dict.fromkeys(("kv_tokens", "kv_blocks", "restarts"), pl.Int64),
    "scrape_gap_s": pl.Float64,
    "metrics_missing": pl.List(pl.String),
}
# Of type `turns`: of each turn of conversations its answered requests, their TTFT (s) and prompt tokens, and those of them that a
# prefix cache served (null where an answer does not say it).
TURN_FIELDS = {"turn": pl.Int64, "requests": pl.Int64, "ttft_p50_s": pl.Float64, "ttft_p90_s": pl.Float64}
TURN_FIELDS |= dict.fromkeys(("prompt_tokens", "cached_tokens"), pl.Int64)
# Of type `misses`: by what a load misses, as `bench.findings.capacity.judging.Miss` has it.
_MISS_FIELDS: dict[str, pl.DataType | type[pl.DataType]] = {
    "by": pl.String,
    **dict.fromkeys(("limit_s", "reached_s", "share"), pl.Float64),
    **dict.fromkeys(("misses", "requests"), pl.Int64),
    **dict.fromkeys(("below", "growth"), pl.Float64),
    "close": pl.Boolean,
}
# Of type `gains`: as `bench.predict.calibration.Gain` has it.
_GAIN_FIELDS: dict[str, pl.DataType | type[pl.DataType]] = {
    "resource": pl.String,
    **dict.fromkeys(("gain", "low", "high"), pl.Float64),
    "more": pl.Boolean,
}
_TYPES: dict[str, pl.DataType] = {
    "number": pl.Float64(),
    "integer": pl.Int64(),
    "text": pl.String(),
    "flag": pl.Boolean(),
    "texts": pl.List(pl.String),
    "requests": pl.List(pl.Struct(JUDGED_FIELDS)),
    "answers": pl.List(pl.Struct(ANSWER_FIELDS)),
    "workers": pl.List(pl.Struct(WORKER_FIELDS)),
    "turns": pl.List(pl.Struct(TURN_FIELDS)),
    "numbers": pl.List(pl.Float64),
    "misses": pl.List(pl.Struct(_MISS_FIELDS)),
    "gains": pl.List(pl.Struct(_GAIN_FIELDS)),
}
_SOURCES = ("study", "session", "client", "server", "gpus", "machine", "deployment", "analysis")
_BETTER = ("higher", "lower", None)
_DEFAULTS = {"type": "number", "unit": "", "better": None, "compared": None, "steady": None}
_BRACES = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class Column:
    """A column of a table, or a family of them.

    Attributes:
        name: with a star at its end if it is a family. kind: a type of `columns.toml`. unit: empty where it has none.
        meaning: one sentence. source: where it comes from. better: `higher` or `lower`; None where neither is.
        title: what comparisons call it; None where they do not look at it.
        steady: the column of the same in the steady window; None where there is none.
    """

    name: str
    kind: str
    unit: str
    meaning: str
    source: str
    better: str | None
    title: str | None
    steady: str | None

    @property
    def dtype(self) -> pl.DataType:
        """Its type in the table."""
        return _TYPES[self.kind]

    @property
    def higher_is_better(self) -> bool:
        """Whether more of it is better."""
        return self.better == "higher"


@dataclass(frozen=True)
class Section:
    """Columns that stand in one table of docs/reference.

    Attributes:
        rows: by the name in `columns.toml`, which may have braces, the columns that it stands for, steady twins last.
    """

    title: str
    rows: Mapping[str, tuple[Column, ...]]


def _section(section: Mapping[str, Any]) -> Section:
    rows: dict[str, tuple[Column, ...]] = {}
    for name, row in section["columns"].items():
        pattern = name.replace("{latencies}", f"{{{','.join(LATENCIES)}}}")
        known = {column.name for columns in rows.values() for column in columns}
        rows[pattern] = tuple(
            column for column in _columns(pattern, row, section.get("from", "analysis")) if column.name not in known
        )
    return Section(section["title"], rows)


def _columns(pattern: str, row: Mapping[str, Any], source: str) -> Iterator[Column]:
    """Raises: ValueError: the row has a key, a type, a source or a direction that is none."""
    given = {**_DEFAULTS, "from": source, **row}
    sound = given["type"] in _TYPES and given["from"] in _SOURCES and given["better"] in _BETTER
    if not sound or given.keys() != {*_DEFAULTS, "from", "meaning"}:
        raise ValueError(f"columns.toml, {pattern}: unknown key or value in {row}; the file's header lists the valid ones")
    twins = given["steady"] is True
    columns = [
        Column(
            name=name,
            kind=given["type"],
            unit=given["unit"],
            meaning=given["meaning"],
            source=given["from"],
            better=given["better"],
            title=given["compared"],
            steady=f"steady_{name}" if twins else given["steady"],
        )
        for name in _names(pattern)
    ]
    yield from columns
    if twins:
        yield from (replace(column, name=f"steady_{column.name}", title=None, steady=None) for column in columns)


def _names(pattern: str) -> Iterator[str]:
    """What a name in braces stands for, as in a shell."""
    parts = _BRACES.split(pattern)  # every other one was in braces
    return map("".join, itertools.product(*(part.split(",") if i % 2 else [part] for i, part in enumerate(parts))))


def _catalogue(file: str) -> dict[str, Section]:
    content = tomllib.loads((files("bench.runs") / file).read_text(encoding="utf-8"))
    return {name: _section(section) for name, section in content.items()}


SECTIONS = _catalogue("columns.toml")
ANALYSIS = _catalogue("analysis.toml")  # by table
_EVERY = [column for section in SECTIONS.values() for columns in section.rows.values() for column in columns]
# The columns that every table has, by name and in the table's order; those of them that comparisons look at.
COLUMNS: dict[str, Column] = {column.name: column for column in _EVERY if not column.name.endswith("*")}
METRICS: dict[str, Column] = {name: column for name, column in COLUMNS.items() if column.title}
_FAMILIES = {column.name.removesuffix("*"): column for column in _EVERY if column.name.endswith("*")}


def columns_of(section: str) -> list[str]:
    """The names of a section's columns, without families."""
    return [column.name for columns in SECTIONS[section].rows.values() for column in columns if column.name in COLUMNS]


def family_of(name: str) -> Column | None:
    """The family that a column is of which the catalogue does not list by itself; None where it has none."""
    return next((column for start, column in _FAMILIES.items() if name.startswith(start)), None)


def schema_of(table: str) -> dict[str, pl.DataType]:
    """The columns of a table of `ANALYSIS`, with their types."""
    return {column.name: column.dtype for columns in ANALYSIS[table].rows.values() for column in columns}


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
    yield "| column | definition | unit |" + (" source |" if sourced else "")
    yield "|---|---|---|" + ("---|" if sourced else "")
    for name, columns in sections[section].rows.items():
        column = columns[0]
        twins = ", `steady_…`" if column.steady == f"steady_{column.name}" else ""
        yield f"| `{name}`{twins} | {column.meaning} | {_unit(column)} |" + (f" {column.source} |" if sourced else "")


def _unit(column: Column) -> str:
    return f"{_KINDS.get(column.kind, column.unit)}{_ARROWS[column.better]}"
