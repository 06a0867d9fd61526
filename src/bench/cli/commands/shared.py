"""Groups of the help page, and options that several commands share."""

import math
import re
from collections.abc import Callable
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from bench.cli import completion

__all__ = [
    "LOAD",
    "ONE_STAGE",
    "PLAN",
    "PROJECT",
    "STUDY",
    "WHAT_IF",
    "Accelerator",
    "BatchedTokens",
    "Configfile",
    "FormerDevice",
    "GpuMemoryUtilization",
    "Hardware",
    "Header",
    "Json",
    "KvTokens",
    "MaxNumSeqs",
    "Measured",
    "Natural",
    "Omit",
    "OutputLength",
    "PrefixCaching",
    "PromptLength",
    "Prompts",
    "Select",
    "Sequences",
    "TensorParallel",
    "WorkloadFile",
    "app",
    "at_least_one",
    "command",
    "not_negative",
    "number",
    "percent",
    "positive",
]

PLAN = "Plan and predict"
STUDY = "A study"
ONE_STAGE = "One stage, against any server"
PROJECT = "The project itself"


F = TypeVar("F", bound=Callable[..., None])


class _PlainFlags:
    """Shows a flag without a type, as it takes no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
        return params


class Command(_PlainFlags, TyperCommand):
    """A command."""


class Group(_PlainFlags, TyperGroup):
    """The commands."""


app = typer.Typer(
    name="bench",
    cls=Group,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
    help="Saturate: find where an LLM inference server saturates, and why.\n\nIn a clone of the project `make figures` runs a whole "
    "study. These commands plan one, look at one, or run a single stage against any OpenAI-compatible server.",
    epilog="`bench COMMAND --help` has examples.\n\nExit status: 0 for success; 1 for a bad result; 2 for what you can fix; 3 where "
    "`bench compare` could have overlooked a regression; 130 after Ctrl-C; 143 after SIGTERM.",
)


def command(panel: str, *examples: str, after: str = "") -> Callable[[F], F]:
    """Enter a function as a command.

    Its docstring is the help, of which each paragraph fits itself to the terminal.

    Args:
        panel: the group on the help page. examples: lines as a user types them. after: a paragraph for the end of the help.
    """
    lines = "\n".join(["Examples:", *(f"[dim]$[/] {escape(line)}" for line in examples)])

    def enter(function: F) -> F:
        paragraphs = [" ".join(paragraph.split()) for paragraph in cleandoc(function.__doc__ or "").split("\n\n")]
        app.command(
            cls=Command,
            help="\n\n".join(map(escape, paragraphs)),
            rich_help_panel=panel,
            epilog="\n\n".join(filter(None, [lines, escape(after)])),
        )(function)
        return function

    return enter


def escape(text: str) -> str:
    """Text in which brackets are brackets, and no markup."""
    return text.replace("[", r"\[")


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


def not_negative(text: str) -> float:
    """A finite number of 0 or more."""
    value = number(text)
    if not 0 <= value < math.inf:
        raise typer.BadParameter(f"{text!r} is not a number of 0 or more.")
    return value


def percent(text: str) -> float:
    """A percentage of 0 or more, for `parser=`."""
    value = number(text)
    if not 0 <= value < math.inf:
        raise typer.BadParameter(f"{text!r} is not a percentage of 0 or more.")
    return value


def number(text: str) -> float:
    """The number in a text; NaN where it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _former(value: str | None) -> None:
    if value is not None:
        raise typer.BadParameter(f"it is called --accelerator now: write --accelerator {value}.")


Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Header = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME:VALUE",
        help="A header of each request to URL, with an environment variable in its value: 'X-Api-Key: $GATEWAY_KEY'. In single "
        "quotes. Repeatable.",
    ),
]
Omit = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Leave this out of requests: ignore_eos, token_ids (prompts are text then), stream_options, temperature, max_tokens (then "
        "max_completion_tokens is sent). What the server refuses is left out by itself. Repeatable.",
    ),
]
Configfile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The study's file.",
        show_default="the study measured last in this folder, else config/config.yaml",
    ),
]
Select = Annotated[
    str | None,
    typer.Option(
        metavar="PATTERN",
        help="Only runs whose deployment/run matches this shell pattern, such as '*_c0020_*'.",
        autocompletion=completion.runs,
    ),
]
Accelerator = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="A GPU that is known here or in --hardware, such as h100.",
        autocompletion=completion.accelerators,
    ),
]
FormerDevice = Annotated[str | None, typer.Option("--device", hidden=True, callback=_former, expose_value=False)]
Hardware = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="A YAML file of accelerators, which add to those known here or replace their values: `h100: {price_per_hour: 2.5}`.",
    ),
]
GpuMemoryUtilization = Annotated[
    float, typer.Option(metavar="SHARE", help="Share of a GPU's memory that the engine may take, above 0 and at most 1.")
]
TensorParallel = Annotated[int, typer.Option(metavar="N", parser=at_least_one, help="GPUs that share each layer.")]
MaxNumSeqs = Annotated[
    int,
    typer.Option(
        metavar="N",
        parser=at_least_one,
        help="Most sequences in one step: the sampler keeps memory for them, and no more requests run at once.",
    ),
]

LOAD, WHAT_IF = "The load", "What if"
#: Of commands that ask a calibrated model.
Measured = Annotated[
    str, typer.Argument(metavar="RESULTS", help="A folder with results, with :DEPLOYMENT where it has several.")
]
PromptLength = Annotated[
    int | None, typer.Option(metavar="TOKENS", parser=at_least_one, help="Of each prompt.", rich_help_panel=LOAD)
]
OutputLength = Annotated[
    int | None, typer.Option(metavar="TOKENS", parser=at_least_one, help="Of each answer.", rich_help_panel=LOAD)
]
WorkloadFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="A workload as a study has it, in YAML.",
        rich_help_panel=LOAD,
    ),
]
Natural = Annotated[
    bool,
    typer.Option(
        "--natural",
        help="Let answers end by themselves, after --output-length tokens (1024) at the latest.",
        rich_help_panel=LOAD,
    ),
]
Prompts = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Prompts of your own: a CSV, JSONL or Parquet file with a column `prompt` (texts) or `messages` (chats).",
        rich_help_panel=LOAD,
    ),
]
KvTokens = Annotated[
    int | None, typer.Option(metavar="TOKENS", parser=at_least_one, help="KV capacity.", rich_help_panel=WHAT_IF)
]
Sequences = Annotated[
    int | None,
    typer.Option("--max-num-seqs", metavar="N", parser=at_least_one, help="Requests at once.", rich_help_panel=WHAT_IF),
]
BatchedTokens = Annotated[
    int | None, typer.Option(metavar="N", parser=at_least_one, help="Tokens of a step.", rich_help_panel=WHAT_IF)
]
PrefixCaching = Annotated[
    bool | None,
    typer.Option(help="Whether prompts reuse what earlier ones had.", show_default="as the server", rich_help_panel=WHAT_IF),
]
