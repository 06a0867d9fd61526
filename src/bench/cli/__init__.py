"""The `bench` command: the study's runs, and each stage by itself."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

import typer

import bench
from bench.cli.commands import compare, config, figures, models, pack, parse, plan, runs, scrape, size, wheels, workload
from bench.errors import BenchError

__all__ = ["app", "main"]

# In the order of the help page.
_COMMANDS = (models, plan, size, runs, compare, pack, wheels, workload, scrape, parse, figures, config)

app = typer.Typer(
    name="bench",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
    epilog="Exit status: 0; 1 for a bad result; 2 for what you can fix; 3 where `bench compare` could have overlooked a regression; "
    "130 after Ctrl-C; 143 after SIGTERM. `bench COMMAND --help` has examples.",
)
for _command in _COMMANDS:
    app.add_typer(_command.app)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"saturate {bench.__version__}")
        raise typer.Exit


@app.callback()
def _bench(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Saturate: find where an LLM inference server saturates, and why.

    In a clone of the project `make figures` runs a whole study; these commands plan one, look at one, or run a single stage against any
    OpenAI-compatible server.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status: 0, 1 for a bad result, 2 for what the user can fix, 130 for Ctrl-C, 143 for SIGTERM."""
    try:
        with _ending_in_order():
            status = app(arguments, prog_name="bench", standalone_mode=False)
    except typer.TyperException as error:  # from the parser
        print(f"bench: {_usage(error)}", file=sys.stderr)
        return 2
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output left; nothing to say
        return 0
    return status or 0


def _usage(error: typer.TyperException) -> str:
    """What is wrong with the arguments, and where the help is."""
    message = error.format_message().strip()
    context = getattr(error, "ctx", None)
    return message if context is None else f"{message}\nTry '{context.command_path} --help'."


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
