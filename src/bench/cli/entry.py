"""How commands are entered: a function, or a frozen dataclass whose fields are the options and whose `run` does the work."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo

from bench.cli.help import ABOUT, COMMANDS, END, others
from bench.plugins import plugin

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
