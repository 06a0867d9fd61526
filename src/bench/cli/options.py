"""Options: how they are declared, what their values may be and are checked for, and those that several commands share."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from bench.errors import BenchError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from bench.study.config import Thresholds
    from bench.study.slo import Slo


M = TypeVar("M", bound="BaseModel")


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


def number(kind: type[int] | type[float], least: float, *, above: bool = False) -> Callable[[str], Any]:
    """What reads a finite number of `least` or more (`above`: above it), for `parser=`."""
    what = f"{'whole ' if kind is int else ''}number {f'above {least}' if above else f'of {least} or more'}"

    def read(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not (least < value < math.inf or (value == least and not above)):
            raise typer.BadParameter(f"{text!r} is not a {what}.")
        return value

    return read


at_least_one, positive, percent = number(int, 1), number(float, 0, above=True), number(float, 0)


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


def key_and_value(pair: str, option: str = "--set") -> tuple[list[str], Any]:
    """The key of a `KEY=VALUE`, of which each further part is a key within the one before it, and the value, which is YAML."""
    import yaml

    key, given, text = pair.partition("=")
    keys = key.split(".")
    if not given or not all(keys):
        raise BenchError(f"{option} {pair}: it is KEY=VALUE, such as endpoint=chat.")
    try:
        return keys, yaml.safe_load(text)
    except yaml.YAMLError:
        raise BenchError(f"{option} {pair}: its value is not YAML. Quote a text that has special characters.") from None


def of_set(kind: type[M], pairs: Iterable[str] | None, option: str = "--set") -> M:
    """A `kind` with the keys that a repeatable `KEY=VALUE` gives it. Raises: BenchError: every fault."""
    from bench.study.read import checked

    given = (key_and_value(pair, option) for pair in pairs or ())
    return checked(kind, {".".join(keys): value for keys, value in given}, option)


def thresholds_of(pairs: Iterable[str] | None) -> Thresholds:
    """The thresholds that `--threshold` names; of the others the defaults."""
    from bench.study.config import Thresholds

    return of_set(Thresholds, pairs, "--threshold")


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
