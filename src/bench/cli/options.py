"""Options: how they are declared, what their values may be and are checked for, and those that several commands share."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.errors import BenchError

if TYPE_CHECKING:
    from bench.study.slo import Slo


def option(
    metavar: str | None,
    text: str,
    panel: str | None = None,
    *names: str,
    parser: Callable[[str], Any] | None = None,
    default: str | None = None,
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
    )


def flag(name: str, text: str, panel: str | None = None) -> Any:
    """An option without a value."""
    return typer.Option(name, help=text, rich_help_panel=panel)


def at_least_one(text: str) -> int:
    """A whole number of 1 or more, for `parser=`."""
    if not re.fullmatch(r"0*[1-9][0-9]*(_[0-9]+)*", str(text)):
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
Json = Annotated[bool, flag("--json", "Print the result as JSON.")]
OutputDir = Annotated[Path, option("DIR", "Where the files go; created if missing.")]
PromptLength = Annotated[int | None, option("TOKENS", "Prompt tokens of each request.", LOAD, parser=at_least_one)]
OutputLength = Annotated[int | None, option("TOKENS", "Output tokens of each request.", LOAD, parser=at_least_one)]
MeasuredWorkload = Annotated[str | None, option("NAME", "The workload whose runs count, where several were measured.")]
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
    Path | None, option("FILE", "The study's file.", default="the study measured last in this folder, else config/config.yaml")
]
Select = Annotated[
    str | None,
    option("PATTERN", "Only runs whose deployment/run matches this shell pattern, such as '*_c0020_*'."),
]
Scale = Annotated[str | None, option("NAME", "The one of the study's `scales`, such as cpu.")]
WorkloadFile = Annotated[
    Path | None,
    option("FILE", "A workload as a study has it, in YAML: also what no option says, such as `turns` and `body`.", LOAD),
]


def limits(panel: str | None = None) -> Any:
    """The option `--slo`."""
    return option("LIMIT", "Such as ttft_p99=2s or tpot_p95=50ms. Repeatable; all have to be met.", panel)


def refuse_strange_classes(slos: Collection[Slo], classes: Collection[str], whose: str) -> None:
    """Refuse an SLO of a class that nothing has. Args: whose: the classes are, such as `the workload does`."""
    from bench.study.slo import applying

    if strange := [slo for slo in slos if slo not in applying(slos, classes)]:
        known = f"the classes are {', '.join(classes)}" if classes else "there are no classes"
        raise BenchError(f"--slo: {strange[0]} limits a class that {whose} not have; {known}.")


def refuse_wrong_address(metrics: str | None) -> None:
    """Refuse a `--metrics` that is no address."""
    from bench.fields import checked_address

    try:
        checked_address(metrics or "http://localhost", of_metrics=True)
    except ValueError as error:
        raise BenchError(f"--metrics: {error}.") from None


def headers_of(options: Iterable[str]) -> dict[str, str]:
    """The headers that `--header 'Name: $VARIABLE'` names, with the variables' values.

    Raises:
        BenchError: one is no header, holds a value of its own, or names a variable that is not set.
    """
    from bench.headers import checked_headers, filled_headers

    headers = {}
    for option in options:
        name, colon, value = option.partition(":")
        if not colon or name.strip() in headers:
            raise BenchError("--header: give each name once, with a value, such as --header 'X-Api-Key: $GATEWAY_KEY'.")
        headers[name.strip()] = value.strip()
    try:
        return filled_headers(checked_headers(headers), where="--header")
    except ValueError as error:
        raise BenchError(
            f"--header: {error}. Quote it in single quotes, so that the shell leaves the variable's name alone."
        ) from None


def refuse_missing_gpus(endpoints: Iterable[str], *, option: str) -> None:
    """Refuse an `nvml:` endpoint that cannot be read here, before anything is measured for it."""
    from bench.measure.nvml import nvml_problem
    from bench.servers.gpu_metrics import is_nvml

    for endpoint in filter(is_nvml, endpoints):
        if problem := nvml_problem(endpoint):
            raise BenchError(f"{option} {endpoint}: {problem}.")
