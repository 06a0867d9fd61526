"""`bench config`: a configuration's reference and schema, written from its declarations."""

from __future__ import annotations

import sys
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
    """Writes config/README.md and workflow/schemas/config.schema.json from the typed models in src/bench/study and src/bench/models."""
    from bench.study.reference import reference, schema

    made = {Path("config/README.md"): reference(), Path("workflow/schemas/config.schema.json"): schema()}
    if missing := next((path for path in made if not path.parent.is_dir()), None):
        raise BenchError(f"{missing.parent}: no such folder. Run `bench config` in the project's folder.")
    for path, content in made.items():
        if check:
            if not path.exists() or path.read_text(encoding="utf-8") != content:
                raise BenchError(f"{path} differs from what it is made from; run `bench config` and commit it.")
        else:
            path.write_text(content, encoding="utf-8")
            print(path, file=sys.stderr)
    if json:
        print_json([str(path) for path in made])
