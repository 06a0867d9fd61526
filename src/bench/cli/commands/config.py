"""`bench config`."""

from typing import Annotated

import typer

from bench.cli.commands.shared import PROJECT, Json, command


@command(
    PROJECT,
    "bench config",
    "bench config --check",
)
def config(
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 2 if a file is out of date.")] = False,
    json: Json = False,
) -> None:
    """Renew what is generated: the configuration's reference and schema, and the tables of columns.

    Writes config/README.md and workflow/schemas/config.schema.json from the typed models in src/bench/study and src/bench/models, and
    the tables in docs/reference/metrics.md from src/bench/records/columns.toml.
    """
    from bench.cli.config import run

    run(check=check, json=json)
