"""What the command line looks like: each command's options, help and examples.

These modules import Typer and the standard library alone, so that `bench --help` is there at once. What a command does is in the module
of the same name one level up, and is imported when it runs. No annotation is postponed: Typer would compile each of them at the start.
"""

from bench.cli.commands import (  # in the order of the help page  # isort: skip
    models, plan, predict, fleet, size, init, runs, watch, compare, pack, verify, wheels, workload, find, scrape, parse, figures,
    config,
)  # fmt: skip
from bench.cli.commands.shared import app

__all__ = [
    "app",
    "compare",
    "config",
    "figures",
    "find",
    "fleet",
    "init",
    "models",
    "pack",
    "parse",
    "plan",
    "predict",
    "runs",
    "scrape",
    "size",
    "verify",
    "watch",
    "wheels",
    "workload",
]
