"""How commands are entered, and one is run: a function, or a frozen dataclass whose fields are the options and whose `run` does the
work; its status, and what it says of arguments that do not fit.
"""

from __future__ import annotations

import inspect
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import FrameType
from typing import Annotated, Any, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo

import bench
from bench.cli.help import ABOUT, COMMANDS, END, others
from bench.errors import BenchError, disk_error
from bench.plugins import plugin
from bench.terminal import print_anything

_LINES = {name: line for group in COMMANDS.values() for name, line in group.items()}
_entered: dict[str, CommandInfo] = {}


C = TypeVar("C", bound=Callable[..., Any])


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
    """The commands as the help page has them; each is imported when it is called, so that none waits for the others' options."""

    def __init__(self, **settings: Any) -> None:
        pages = {
            name: Command(name, help=_escape(line), rich_help_panel=panel)
            for panel, group in {**COMMANDS, **others()}.items()
            for name, line in group.items()
        }
        super().__init__(**{**settings, "commands": pages})

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, _, rest = super().resolve_command(ctx, args)
        return name, loaded(name) if name else None, rest


def loaded(name: str) -> Any:
    """A command with its options: one of `bench.cli.commands`, or of the entry points `command.NAME`."""
    if find_spec(module := f"bench.cli.commands.{name}"):
        import_module(module)
    else:
        plugin("command", name)
    return get_command_from_info(_entered[name], pretty_exceptions_short=False, rich_markup_mode="rich")


app = typer.Typer(
    name="bench",
    cls=Group,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
    help="\n\n".join(ABOUT),
    epilog="\n\n".join(END),
)


def command(*examples: str, after: str = "") -> Callable[[C], C]:
    """Enter a function or a dataclass, by its name, as a command.

    Its docstring is the help below the line of the help page and the examples: help whose examples come last has them below a hundred
    lines of options. Each paragraph fits itself to the terminal.

    Args:
        examples: lines as a user types them. after: a paragraph for the end of the help.
    """
    lines = "\n".join(["Examples:", *(f"[dim]$[/] {_escape(line)}" for line in examples)])

    def enter(made: C) -> C:
        name = made.__name__.lower()
        told = inspect.cleandoc(made.__doc__ or "").split("\n\n")
        paragraphs = [*filter(None, [_LINES.get(name)]), *(" ".join(text.split()) for text in told)]
        _entered[name] = CommandInfo(
            name,
            cls=Command,
            callback=_runner(made) if isinstance(made, type) else made,
            help="\n\n".join([_escape(paragraphs[0]), lines, *map(_escape, paragraphs[1:])]),
            epilog=_escape(after) or None,
        )
        return made

    return enter


def _runner(options: Callable[..., Any]) -> Callable[..., None]:
    """A function of a dataclass's fields, those that are required first, that makes an instance and runs it."""

    def run(**given: Any) -> None:
        options(**given).run()

    types = get_type_hints(options, include_extras=True)
    fields = [field.replace(annotation=types[name]) for name, field in inspect.signature(options).parameters.items()]
    fields.sort(key=lambda field: field.default is not field.empty)
    run.__signature__ = inspect.Signature(fields)  # type: ignore[attr-defined]
    return run


def _escape(text: str) -> str:
    """Text in which brackets are brackets, and no markup."""
    return text.replace("[", r"\[")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"saturate {bench.__version__}")
        raise typer.Exit


@app.callback()
def _bench(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Only `--version` is of no command."""


def run(arguments: Sequence[str]) -> int:
    """Run one command; its exit status, as `bench.cli.help` has them."""
    print_anything()
    try:
        with _ending_in_order():
            status = app(arguments, prog_name="bench", standalone_mode=False)
    except typer.TyperException as error:  # from the parser
        sys.stderr.write(_usage(error))
        return 2
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output left; nothing to say
        return 0
    except Exception as error:
        if message := disk_error(error):
            print(f"bench: {message}", file=sys.stderr)
            return 2
        traceback.print_exc()
        return os.EX_SOFTWARE  # which no gate may take for an answer
    return status or 0


def _usage(error: typer.TyperException) -> str:
    """What is wrong with the arguments, and where the help is; empty where the help was just printed."""
    message = re.sub(r"^Invalid value for '(.+?)': (Value error, )?", r"\1: ", error.format_message().strip())
    context = getattr(error, "ctx", None)
    if extra := re.match(r"Got unexpected extra argument\(s\) \((.*)\)$", message, re.DOTALL):
        message = f"{extra[1]} is not expected here. Name a study's file with --configfile, one workload's with --workload."
    if near := getattr(error, "possibilities", None):
        message = f"{error.message}. Did you mean {near[0]}?"
    command = getattr(context, "command_path", "bench")
    return f"bench: {message}\nTry '{command} --help'.\n" if message else ""


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """Let SIGTERM end what the context holds open, as an error would: no process and no half-written folder stays behind."""

    def end(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)  # once is enough; the clean-up must not be interrupted
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's alone
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
