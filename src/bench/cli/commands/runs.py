"""`bench runs` and `bench discard`."""

from typing import Annotated

import typer

from bench.cli import completion
from bench.cli.commands.shared import STUDY, Configfile, Json, Select, command


@command(
    STUDY,
    "bench runs",
    "bench runs --configfile config/studies/quick.yaml",
    "bench runs --select 'tiny-mha/*' --json",
)
def runs(configfile: Configfile = None, select: Select = None, json: Json = False) -> None:
    """List a study's runs with the state of each.

    missing: not measured. measured. stale: something that defines the run has changed since. invalid: measured, and some part of it
    cannot be trusted; the part and the reasons follow. Failed requests are the server's answer to its load: they do not make a run
    invalid.
    """
    from bench.cli.runs import list_runs

    list_runs(configfile, select, json=json)


@command(
    STUDY,
    "bench discard 'tiny-mha/*_c0020_*' --dry-run",
    "bench discard --invalid",
    "bench discard --configfile config/studies/quick.yaml '*'",
)
def discard(
    patterns: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATTERN]...",
            help="deployment/run or run, or a shell pattern of one, such as '*_c0020_*'.",
            autocompletion=completion.runs,
        ),
    ] = None,
    configfile: Configfile = None,
    select: Select = None,
    invalid: Annotated[bool, typer.Option("--invalid", help="The runs of which some part cannot be trusted.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be forgotten.")] = False,
    json: Json = False,
) -> None:
    """Forget runs, so that they are measured again.

    Forgets the measurements of the runs that match, and the summary and manifest made from them; the next workflow measures them again.
    (Deleting a run's folder is not enough: Snakemake would not miss it behind newer results.)
    """
    from bench.cli.runs import forget_runs

    forget_runs(configfile, select, patterns or [], invalid=invalid, dry_run=dry_run, json=json)
