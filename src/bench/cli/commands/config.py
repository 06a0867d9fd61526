"""`bench config`: what is written from declarations: a configuration's reference and schema, and the tables of columns."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from bench.cli.entry import command
from bench.cli.options import Json, flag
from bench.cli.output import print_json
from bench.errors import BenchError


@command("bench config", "bench config --check")
def config(
    check: Annotated[bool, flag("--check", "Write nothing; exit 2 if a file is out of date.")] = False, json: Json = False
) -> None:
    """Writes config/README.md and workflow/schemas/config.schema.json from the typed models in src/bench/study and src/bench/models,
    the tables in docs/reference/metrics.md from src/bench/records/columns.toml, and docs/reference/constants.md from the code.
    """
    # All of it before anything is written: in another folder nothing is left behind.
    made = {path: make() for path, make in _generated().items()}
    for path, content in made.items():
        if check:
            if not path.exists() or path.read_text(encoding="utf-8") != content:
                raise BenchError(f"{path} differs from what it is made from; run `bench config` and commit it.")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
            print(path, file=sys.stderr)
    if json:
        print_json([str(path) for path in made])


def _generated() -> dict[Path, Callable[[], str]]:
    from bench.constants import constants_page
    from bench.records.columns import ANALYSIS, SECTIONS
    from bench.records.reference import with_tables
    from bench.study.reference import reference, schema

    docs = Path("docs/reference")
    return {
        Path("config/README.md"): reference,
        Path("workflow/schemas/config.schema.json"): schema,
        docs / "constants.md": constants_page,
        docs / "metrics.md": lambda: with_tables(_page(docs / "metrics.md"), SECTIONS),
        docs / "analysis.md": lambda: with_tables(_page(docs / "analysis.md"), ANALYSIS),
    }


def _page(path: Path) -> str:
    if not path.exists():
        raise BenchError(
            f"{path}: no such file, and its tables are renewed in place. Run `bench config` in the project's folder."
        )
    return path.read_text(encoding="utf-8")
