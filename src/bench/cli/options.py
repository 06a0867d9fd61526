"""Options: how they are declared, what their values may be, and those that several commands share."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.cli import completion


def option(
    metavar: str | None,
    text: str,
    panel: str | None = None,
    *names: str,
    parser: Callable[[str], Any] | None = None,
    default: str | None = None,
    complete: Callable[[str], list[str]] | None = None,
) -> Any:
    """An option with a value.

    Args:
        metavar: what stands for the value; None where choices do. text: the help. panel: its group on the help page. names: where it is
            not called like its parameter. default: what the help says in place of the default value.
    """
    return typer.Option(
        *names,
        metavar=metavar,
        help=text,
        rich_help_panel=panel,
        parser=parser,
        show_default=default or True,
        autocompletion=complete,
    )


def flag(name: str, text: str, panel: str | None = None) -> Any:
    """An option without a value."""
    return typer.Option(name, help=text, rich_help_panel=panel)


def at_least_one(text: str) -> int:
    """A whole number of 1 or more, for `parser=`."""
    if not re.fullmatch(r"0*[1-9][0-9]*", str(text)):
        raise typer.BadParameter(f"{text!r} is not a whole number of 1 or more.")
    return int(text)


def positive(text: str) -> float:
    """A number above 0, for `parser=`."""
    value = number(text)
    if not 0 < value < math.inf:
        raise typer.BadParameter(f"{text!r} is not a number above 0.")
    return value


def not_negative(text: str, what: str = "number") -> float:
    """A finite number of 0 or more, for `parser=`."""
    value = number(text)
    if not 0 <= value < math.inf:
        raise typer.BadParameter(f"{text!r} is not a {what} of 0 or more.")
    return value


def percent(text: str) -> float:
    """A percentage of 0 or more, for `parser=`."""
    return not_negative(text, "percentage")


def number(text: str) -> float:
    """The number in a text; NaN where it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


LOAD = "The load"  # group of options that say what is sent, and how much
#: Help of `--slo`.
SLO = "Such as ttft_p99=2s or tpot_p95=50ms. Repeatable; all have to be met."
Json = Annotated[bool, flag("--json", "Print the result as JSON.")]
Headers = Annotated[
    list[str] | None,
    option(
        "NAME:VALUE",
        "A header of each request to URL, with an environment variable in its value: 'X-Api-Key: $GATEWAY_KEY'. In single quotes. "
        "Repeatable.",
    ),
]
ThresholdValues = Annotated[
    list[str] | None,
    option(
        "NAME=VALUE",
        "A threshold beyond which a run is invalid, as a study's `thresholds` has it, such as other_share=0.5. Repeatable.",
        default="the defaults",
    ),
]
Configfile = Annotated[
    Path | None,
    option("FILE", "The study's file.", default="the study measured last in this folder, else config/config.yaml"),
]
Select = Annotated[
    str | None,
    option(
        "PATTERN", "Only runs whose deployment/run matches this shell pattern, such as '*_c0020_*'.", complete=completion.runs
    ),
]
Scale = Annotated[str | None, option("NAME", "The one of the study's `scales`, such as cpu.")]
WorkloadFile = Annotated[
    Path | None,
    option("FILE", "A workload as a study has it, in YAML: also what no option says, such as `turns` and `body`.", LOAD),
]
