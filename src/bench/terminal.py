"""Standard output and standard error that take any text, whatever the terminal's encoding; and a live line on a terminal."""

from __future__ import annotations

import codecs
import io
import shutil
import sys
from contextlib import suppress
from typing import TextIO

# What stands for a character that an encoding lacks; `?` for any other.
_PLAIN = {
    **{"–": "-", "−": "-", "—": "-", "≤": "<=", "≥": ">=", "≠": "!=", "≈": "~", "×": "x", "÷": "/", "±": "+-", "·": "*"},
    **{"…": "...", "→": "->", "“": '"', "”": '"', "‘": "'", "’": "'", "µ": "u", "μ": "u", "²": "^2", "√": "sqrt"},
    **{"█": "#", "░": "."},
}


def print_anything() -> None:
    """Let this process print characters that its terminal's encoding lacks (of Latin-1, or of a C locale) as plain ones."""
    codecs.register_error("plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="plain")


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


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(each, "?") for each in error.object[error.start : error.end]), error.end
