"""How commands are entered: a function, or a frozen dataclass whose fields are the options and whose `run` does the work."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo

#: The help page: groups of commands, each a file of `bench.cli.commands`, with a line of help.
_COMMANDS = {
    "Plan and predict": {
        "traffic": "Read an access log: what the traffic is, and a load that replays it or is like it.",
        "models": "List the model catalogue, and what a GPU would hold of each model.",
        "plan": "Weigh a model on a GPU: what fits, the load that it could hold, and the ceilings of its speed.",
        "predict": "Predict throughput and latencies of loads that were not measured, from runs that were.",
        "fleet": "Predict how many instances traffic takes that was not measured.",
        "size": "Size a fleet: instances, GPUs, admission limits and cost, from results or from numbers.",
    },
    "A study": {
        "init": "Begin a study in a folder of its own.",
        "runs": "List a study's runs with the state of each, from the files of this folder: no server is contacted.",
        "discard": "Forget runs, so that they are measured again.",
        "compare": "Compare two sets of results: is one better or worse, and could it have been seen?",
        "grade": "Grade the answers that were kept by the tests of their set, beside throughput.",
        "pack": "Put a study's measured runs into one file.",
        "unpack": "Take in the runs that another machine packed.",
        "tune": "Find the best of a study's servers: which settings carry the most, and what they gain over the default.",
        "export": "Write a measured deployment as a command, a Compose file or Helm values, with what was held fixed.",
        "guard": "Write alerts, a dashboard and limits for production from what a study measured of a server.",
        "drifted": "Compare production, as Prometheus saw it, with what a study measured.",
        "verify": "Check that a pack or a folder of results is what was measured.",
        "wheels": "Fetch the packages that a study needs on a machine without network.",
    },
    "One stage, against any server": {
        "workload": "Send load to a server and record every request.",
        "find": "Find the highest load that a server carries within SLOs.",
        "scrape": "Scrape Prometheus endpoints into a file.",
        "import": "Read result files of other tools, and set their runs beside our own.",
        "parse": "Turn a run's raw records into tables and a summary, with a verdict on the run.",
        "figures": "Draw the figures of parsed runs.",
    },
    "The project itself": {
        "config": "Renew what is generated: the configuration's reference and schema, and the tables of columns.",
    },
}
_LINES = {name: line for group in _COMMANDS.values() for name, line in group.items()}
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
            for panel, group in _COMMANDS.items()
            for name, line in group.items()
        }
        super().__init__(**{**settings, "commands": pages})

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, _, rest = super().resolve_command(ctx, args)
        return name, loaded(name) if name else None, rest


def loaded(name: str) -> Any:
    """A command with its options."""
    import_module(f"bench.cli.commands.{name}")
    return get_command_from_info(_entered[name], pretty_exceptions_short=False, rich_markup_mode="rich")


app = typer.Typer(
    name="bench",
    cls=Group,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
    help="Saturate: find where an LLM inference server saturates, and why.\n\nIn a clone of the project `make figures` runs a whole "
    "study. These commands plan one, look at one, or run a single stage against any OpenAI-compatible server.",
    epilog="`bench COMMAND --help` has examples.\n\nExit status: 0 for success; 1 for a bad result; 2 for what you can fix; 3 where "
    "what was measured does not decide; 130 after Ctrl-C; 143 after SIGTERM.",
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
        paragraphs = [_LINES[name], *(" ".join(text.split()) for text in inspect.cleandoc(made.__doc__ or "").split("\n\n"))]
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
