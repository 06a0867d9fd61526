"""Standard output and standard error that take any text, whatever the terminal's encoding; and a live line on a terminal."""

from __future__ import annotations

import io
import shutil
import sys
from contextlib import suppress
from typing import TextIO


def print_anything() -> None:
    """Let this process print `?` for characters that its terminal's encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def live(line: str) -> None:
    """Show a line below all others, in place of the last one; on a terminal alone. Args: line: empty: none any more."""
    if sys.stderr.isatty():
        with suppress(OSError, RuntimeError):  # a signal's line may come in the midst of it
            print(cleared(sys.stderr) + fitted(line), end="", file=sys.stderr, flush=True)


def fitted(line: str) -> str:
    """A line, cut to the width of the terminal."""
    return line[: shutil.get_terminal_size().columns - 1]


def cleared(stream: TextIO) -> str:
    """What a line begins with that may find a live one in its place."""
    return "\r\033[K" if stream.isatty() else ""
