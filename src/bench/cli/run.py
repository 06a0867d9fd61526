"""One command is run: its status, and what it says of arguments that do not fit."""

from __future__ import annotations

import re
import signal
import sys
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from types import FrameType
from typing import Annotated

import typer

import bench
from bench.cli.entry import app
from bench.errors import BenchError, disk_error
from bench.terminal import print_anything


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
    """Run one command; the exit status: 0, 1 for a bad result, 2 for what the user can fix, 130 for Ctrl-C, 143 for SIGTERM."""
    print_anything()
    try:
        with _ending_in_order():
            status = app(arguments, prog_name="bench", standalone_mode=False)
    except typer.TyperException as error:  # from the parser
        sys.stderr.write(_usage(error, arguments))
        return 2
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output left; nothing to say
        return 0
    except OSError as error:
        if (message := disk_error(error)) is None:
            raise
        print(f"bench: {message}", file=sys.stderr)
        return 2
    return status or 0


def _usage(error: typer.TyperException, arguments: Sequence[str]) -> str:
    """What is wrong with the arguments, and where the help is; empty where the help was just printed."""
    message = re.sub(r"^Invalid value for '(.+?)': (Value error, )?", r"\1: ", error.format_message().strip())
    context = getattr(error, "ctx", None)
    if extra := re.match(r"Got unexpected extra argument\(s\) \((.*)\)$", message, re.DOTALL):
        flags = (
            {name for each in context.command.params if getattr(each, "is_flag", False) for name in each.opts}
            if context
            else set()
        )
        message = _unexpected(extra[1], arguments, flags)
    if near := getattr(error, "possibilities", None):
        message = f"{error.message}. Did you mean {near[0]}?"
    if (name := getattr(error, "option_name", None)) and context and any(each.name == "set" for each in context.command.params):
        from bench.cli.sending import said_by_set

        message = said_by_set(name, context.info_name) or message
    command = getattr(context, "command_path", "bench")
    return f"bench: {message}\nTry '{command} --help'.\n" if message else ""


def _unexpected(extra: str, arguments: Sequence[str], flags: Collection[str]) -> str:
    """What to do with the first of the words that no option takes. Args: extra: all of them. flags: options that take no value."""
    word = max((each for each in arguments if f"{extra} ".startswith(f"{each} ")), key=len, default=extra)
    for before, each in pairwise(arguments):
        if each == word and before in flags:
            return f"{before} takes no value; leave out {word}."
    if word.endswith((".yaml", ".yml")):
        return f"{word} is not expected here. Name a study's file with --configfile, one workload's with --workload."
    return f"{word} is not expected here."


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
