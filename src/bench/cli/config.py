"""`bench config`: what is written from declarations: a configuration's reference and schema, and the tables of columns."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from bench.cli.output import print_json
from bench.constants import constants_page
from bench.errors import BenchError
from bench.records.columns import ANALYSIS, SECTIONS, Section
from bench.records.reference import with_tables
from bench.study.reference import reference, schema

__all__ = ["run"]


def _tables(page: Path, sections: Mapping[str, Section]) -> str:

    if not page.exists():
        raise BenchError(
            f"{page}: no such file, and its tables are renewed in place. Run `bench config` in the project's folder."
        )
    return with_tables(page.read_text(), sections)


def _in_docs(name: str, sections: Mapping[str, Section]) -> tuple[Path, Callable[[], str]]:
    page = Path("docs/reference", name)
    return page, lambda: _tables(page, sections)


_GENERATED: dict[Path, Callable[[], str]] = {
    Path("config/README.md"): reference,
    Path("workflow/schemas/config.schema.json"): schema,
    Path("docs/reference/constants.md"): constants_page,
    **dict([_in_docs("metrics.md", SECTIONS), _in_docs("analysis.md", ANALYSIS)]),
}


def run(*, check: bool, json: bool) -> None:
    # All of it before anything is written: in another folder nothing is left behind.
    made = {path: make() for path, make in _GENERATED.items()}
    for path, content in made.items():
        if check:
            if not path.exists() or path.read_text() != content:
                raise BenchError(f"{path} differs from what it is made from; run `bench config` and commit it.")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
            print(path, file=sys.stderr)
    if json:
        print_json([str(path) for path in made])
