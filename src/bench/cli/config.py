"""`bench config`: the reference and the schema of a configuration, from the models that check it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.cli.common import Commands
from bench.errors import BenchError
from bench.study.reference import reference, schema

__all__ = ["add"]

_GENERATED = {Path("config/README.md"): reference, Path("workflow/schemas/config.schema.json"): schema}


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "config",
        help="write the configuration's reference and JSON schema",
        description="Write config/README.md and workflow/schemas/config.schema.json from the typed models in "
        "src/bench/study (config.py, model.py, workload.py).",
    )
    parser.add_argument("--check", action="store_true", help="only say whether they are up to date; exit 2 where not")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    for path, make in _GENERATED.items():
        content = make()
        if options.check:
            if not path.exists() or path.read_text() != content:
                raise BenchError(f"{path} differs from the models; run `bench config` and commit it.")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
            print(path, file=sys.stderr)
